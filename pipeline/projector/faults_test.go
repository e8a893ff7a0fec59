package projector_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/projector/projectortest"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	"github.com/lattice-log/lattice/pipeline/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFaults plays each fault on both databases, over a node of this repository.
func TestFaults(t *testing.T) {
	cases := []struct {
		name string
		run  func(r *projectortest.Rig)
	}{
		{"all is well", allIsWell},
		{"killed between the two commits", killedBetween},
		{"duplicates", duplicates},
		{"poison", poison},
		{"a column is dropped", droppedColumn},
		{"instances come and go", instances},
		{"no cooperation", twoOwners},
		{"not for us", notForUs},
		{"a rebalance in a batch", rebalanceInBatch},
		{"bad input", badInput},
		{"many dead letters", manyLetters},
	}
	databases := []string{"sqlite", "postgres"}
	if testing.Short() { // as sqldbtest.RunSlow
		databases = databases[:1]
	}
	for _, db := range databases {
		t.Run(db, func(t *testing.T) {
			var server *realpostgres.Server
			if db == "postgres" {
				server = realpostgres.Start(t)
			}
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					url := ""
					if server != nil {
						url = server.Database(t)
					} else {
						url = sqldbtest.SQLite(t)
					}
					t.Parallel() // they wait for rebalances, most of the time
					c.run(projectortest.New(t, startNode(t), url, nil))
				})
			}
		})
	}
}

func sum(p *projector.Projector, of func(projector.Counts) int64) int64 {
	n := int64(0)
	for _, s := range p.Status() {
		n += of(s.Counts)
	}
	return n
}

func allIsWell(r *projectortest.Rig) {
	p, stop := r.Start(r.Options())
	r.Follow(200)
	r.Await()
	r.Verify()
	r.Patches()
	if n := sum(p, func(c projector.Counts) int64 { return c.Applied }); n != 3*200 {
		r.T.Errorf("%d events were applied", n)
	}
	stop()
	// A clean end commits: the next one has nothing to do again.
	p, _ = r.Start(r.Options())
	r.Follow(20)
	r.Await()
	r.Verify()
	if n := sum(p, func(c projector.Counts) int64 { return c.Duplicates }); n != 0 {
		r.T.Errorf("%d events came again after a clean end", n)
	}
	lags, err := projector.Lags(r.T.Context(), r.Kafka, projector.DefaultGroup(r.App), topic.ProjectionEvents, []string{"follows"})
	if err != nil || len(lags) != projectortest.Partitions {
		r.T.Errorf("lag %+v, %v", lags, err)
	}
}

// killedBetween ends projectors that have committed to the database and not to Kafka.
func killedBetween(r *projectortest.Rig) {
	for range 3 {
		var dead atomic.Bool
		dead.Store(true)
		o := r.Options()
		o.Crashing(dead.Load)
		_, stop := r.Start(o)
		r.Follow(60)
		r.Await()
		stop()
	}
	p, _ := r.Start(r.Options())
	r.Follow(20)
	r.Await()
	r.Until("what was not committed comes again", func() bool { return sum(p, func(c projector.Counts) int64 { return c.Duplicates }) == 3*180 })
	r.Verify()
	r.Patches()
}

// duplicates delivers everything again, and old events behind new ones.
func duplicates(r *projectortest.Rig) {
	p, _ := r.Start(r.Options())
	r.Follow(50)
	r.Produce(r.Sent...)
	back := slices.Clone(r.Sent)
	slices.Reverse(back)
	r.Produce(back...)
	r.Follow(10)
	r.Await()
	r.Until("all came", func() bool { return sum(p, func(c projector.Counts) int64 { return c.Duplicates }) == 3*100 })
	r.Verify()
	r.Patches()
}

// poison has an event that cannot be applied among others of its entity. It is mended (its
// record is settled by hand), and retried in order.
func poison(r *projectortest.Rig) {
	p, _ := r.Start(r.Options())
	r.Follow(14)
	bad := r.Event("user-3", map[string]any{"user_id": "user-3", "artist_id": nil})
	r.Produce(bad)
	junk := []*kgo.Record{
		{Topic: topic.ProjectionEvents, Key: []byte("user-3"), Value: []byte("no JSON")},
		{Topic: topic.ProjectionEvents, Key: []byte("user-3"), Value: []byte(strings.Repeat("[", 5000))},
		{Topic: topic.ProjectionEvents, Key: []byte("user-3"), Value: []byte(`{"eventType":"ARTIST_FOLLOWED","entityId":7}`)},
	}
	r.Raw(junk...)
	r.Follow(70)
	list := func(f projection.Filter) []projection.Letter {
		all, err := r.Store.Letters(r.T.Context(), f)
		if err != nil {
			r.T.Fatal(err)
		}
		return all
	}
	// 2 of the junk have no projection, 1 has each; the poison and 10 events behind it have each.
	r.Until("the dead letters are there", func() bool { return len(list(projection.Filter{State: projection.StateWaiting})) == 2+3+3*11 })
	for user := range r.N {
		if user == "user-3" {
			continue
		}
		if err := r.Store.Await(r.T.Context(), "follows", address(r, user), r.N[user]); err != nil { // others go on
			r.T.Fatal(err)
		}
	}
	heads := list(projection.Filter{State: projection.StateFailed, EventType: "ARTIST_FOLLOWED"})
	if len(heads) != 3 || heads[0].Retries != 2 || heads[0].Class != event.ClassData {
		r.T.Fatalf("%+v", heads)
	}
	for _, l := range heads {
		if n, err := r.Store.Retry(r.T.Context(), l.ID, "test"); n != 0 || err == nil {
			r.T.Fatalf("poison was applied: %d, %v", n, err)
		}
		if _, err := r.Store.Discard(r.T.Context(), l.ID, "test", "no artist"); err != nil {
			r.T.Fatal(err)
		}
	}
	for _, l := range list(projection.Filter{State: projection.StateParked}) {
		if _, err := r.Store.Retry(r.T.Context(), l.ID, "test"); err != nil {
			r.T.Fatal(err)
		}
	}
	r.Await()
	r.Verify()
	r.Patches()
	raw := 0
	for _, rec := range projectortest.ReadAll(r.T, r.Kafka, topic.DeadLetters) {
		d, err := event.ParseDeadLetter(rec.Value)
		if err != nil {
			r.T.Fatalf("%s: %v", rec.Value, err)
		}
		if d.Raw != nil {
			raw++
		}
	}
	if raw != 2+3 {
		r.T.Errorf("%d dead letters have raw bytes", raw)
	}
	if n := sum(p, func(c projector.Counts) int64 { return c.Parked }); n != 3*10 {
		r.T.Errorf("%d were parked", n)
	}
}

func address(r *projectortest.Rig, user string) ledger.Address {
	return ledger.Address{TenantSchema: r.App.TenantSchema(""), ForkID: "prod", Stream: "user_stream", EntityID: user}
}

// droppedColumn takes a column from one projection: it is paused, the others go on, no
// event is a dead letter; with the column back it goes on.
func droppedColumn(r *projectortest.Rig) {
	p, _ := r.Start(r.Options())
	r.Follow(20)
	r.Await()
	alter := func(what string) {
		if err := r.DB.Write(r.T.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(r.T.Context(), "ALTER TABLE "+tx.Dialect().Table(r.App.TenantSchema(""), "follows")+what)
			return err
		}); err != nil {
			r.T.Fatal(err)
		}
	}
	alter(` DROP COLUMN "since"`)
	r.Follow(40)
	paused := func(name string) bool {
		for _, s := range p.Status() {
			for _, part := range s.Partitions {
				if s.Projection == name && part.Paused != "" {
					return true
				}
			}
		}
		return false
	}
	r.Until("follows is paused", func() bool { return paused("follows") })
	for user, n := range r.N {
		if err := r.Store.Await(r.T.Context(), "artist_followers", address(r, user), n); err != nil {
			r.T.Fatal(err)
		}
	}
	if counts, err := r.Store.Count(r.T.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
		r.T.Errorf("dead letters %v, %v", counts, err)
	}
	alter(` ADD COLUMN "since" ` + map[sqldb.Dialect]string{sqldb.SQLite: "TEXT", sqldb.Postgres: "TIMESTAMP WITH TIME ZONE"}[r.DB.Dialect()])
	r.Await()
	r.Until("follows goes on", func() bool { return !paused("follows") })
	r.Verify()
	r.Patches()
}

// instances starts more projectors than there are partitions and ends them one by one
// while events come. One at least is idle, and says so.
func instances(r *projectortest.Rig) {
	var stops []func()
	var all []*projector.Projector
	for range projectortest.Partitions + 1 {
		p, stop := r.Start(r.Options())
		all, stops = append(all, p), append(stops, stop)
		r.Follow(40)
	}
	r.Until("one is idle", func() bool {
		return slices.ContainsFunc(all, func(p *projector.Projector) bool { return p.Status()[0].Idle })
	})
	for _, stop := range stops[1:] {
		r.Follow(40)
		stop()
	}
	r.Follow(40)
	r.Await()
	r.Verify()
	r.Patches()
}

// twoOwners lets two projectors of different groups, so that both have all partitions,
// keep the same tables.
func twoOwners(r *projectortest.Rig) {
	o := r.Options()
	o.Group = "another"
	a, _ := r.Start(r.Options())
	b, _ := r.Start(o)
	for range 5 {
		r.Follow(40)
	}
	r.Await()
	applied := func() int64 {
		return sum(a, func(c projector.Counts) int64 { return c.Applied }) + sum(b, func(c projector.Counts) int64 { return c.Applied })
	}
	r.Until("each counted once, by one of them", func() bool { return applied() == 3*200 })
	r.Until("both have seen all", func() bool {
		return applied()+sum(a, func(c projector.Counts) int64 { return c.Duplicates })+sum(b, func(c projector.Counts) int64 { return c.Duplicates }) == 2*3*200
	})
	r.Verify()
	r.Patches()
}

// notForUs sends events of types and tenants that nobody here knows, and old versions.
func notForUs(r *projectortest.Rig) {
	p, _ := r.Start(r.Options())
	unknown := r.Event("nobody", map[string]any{})
	unknown.EventType = "STATE_PATCH"
	foreign := r.Event("nobody", map[string]any{})
	foreign.TenantSchema = "somebody_else"
	delete(r.N, "nobody")
	r.Produce(unknown, foreign)
	r.Raw(&kgo.Record{Topic: topic.ProjectionEvents, Key: []byte("x"), Value: []byte(`{"eventType":"WHAT","payload":7}`)})
	r.Follow(10)
	old := r.Event("user-1", map[string]any{"user_id": "user-1", "artist": "artist-0"})
	r.Produce(old)
	old.Payload, _ = json.Marshal(map[string]any{"user_id": "user-1", "artist_id": "artist-0"})
	r.Sent = append(r.Sent, old)
	r.Await()
	r.Verify()
	r.Until("they are counted", func() bool {
		return sum(p, func(c projector.Counts) int64 { return c.Unknown }) == 3*2 && sum(p, func(c projector.Counts) int64 { return c.Foreign }) == 3
	})
	if counts, err := r.Store.Count(r.T.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
		r.T.Errorf("dead letters %v, %v", counts, err)
	}
}

// TestDatabaseGone kills PostgreSQL while events come, several times. Nothing becomes a
// dead letter, partitions say that they are paused, and all goes on afterwards.
func TestDatabaseGone(t *testing.T) {
	server := realpostgres.Start(t)
	r := projectortest.New(t, startNode(t), server.Database(t), nil)
	p, _ := r.Start(r.Options())
	r.Follow(30)
	r.Await()
	for range 2 {
		server.Kill()
		r.Follow(60)
		r.Until("a partition is paused", func() bool {
			return slices.ContainsFunc(p.Status()[0].Partitions, func(s projector.PartitionStatus) bool { return s.Paused != "" })
		})
		server.Start(t)
		r.Await()
	}
	r.Verify()
	r.Patches()
	if counts, err := r.Store.Count(t.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
		t.Errorf("dead letters %v, %v", counts, err)
	}
}

// TestLostPublication leaves events out of the topic, and has one come late. The ledger
// has them all.
func TestLostPublication(t *testing.T) {
	db := sqldbtest.Open(t, sqldbtest.SQLite(t))
	l, err := ledger.Open(t.Context(), db, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := projectortest.New(t, startNode(t), sqldbtest.SQLite(t), l)
	// Behind the last of a user nothing would show that it is lost.
	r.FollowByLedger(l, 30, func(i int) bool { return i%5 != 2 || i >= 27 })
	p, _ := r.Start(r.Options())
	r.Await()
	r.Produce(r.Sent[7], r.Sent[2])
	r.Verify()
	r.Patches()
	if n := sum(p, func(c projector.Counts) int64 { return c.Healed }); n == 0 {
		t.Error("nothing was healed")
	}
}
