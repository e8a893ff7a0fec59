package projector_test

import (
	"encoding/json"
	"fmt"
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
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	"github.com/lattice-log/lattice/pipeline/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFaults plays each fault on both databases, over a node of this repository.
func TestFaults(t *testing.T) {
	cases := []struct {
		name string
		run  func(r *rig)
	}{
		{"all is well", allIsWell},
		{"killed between the two commits", killedBetween},
		{"duplicates", duplicates},
		{"poison", poison},
		{"a column is dropped", droppedColumn},
		{"instances come and go", instances},
		{"no cooperation", twoOwners},
		{"not for us", notForUs},
	}
	for _, db := range []string{"sqlite", "postgres"} {
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
					c.run(newRig(t, startNode(t), url, nil))
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

func allIsWell(r *rig) {
	p, stop := r.start(r.options())
	r.follow(200)
	r.await()
	r.verify()
	r.patches()
	if n := sum(p, func(c projector.Counts) int64 { return c.Applied }); n != 3*200 {
		r.t.Errorf("%d events were applied", n)
	}
	stop()
	// A clean end commits: the next one has nothing to do again.
	p, _ = r.start(r.options())
	r.follow(20)
	r.await()
	r.verify()
	if n := sum(p, func(c projector.Counts) int64 { return c.Duplicates }); n != 0 {
		r.t.Errorf("%d events came again after a clean end", n)
	}
	lags, err := projector.Lags(r.t.Context(), r.kafka, projector.DefaultGroup(r.app), topic.ProjectionEvents, []string{"follows"})
	if err != nil || len(lags) != partitions {
		r.t.Errorf("lag %+v, %v", lags, err)
	}
}

// killedBetween ends projectors that have committed to the database and not to Kafka.
func killedBetween(r *rig) {
	for range 3 {
		var dead atomic.Bool
		dead.Store(true)
		o := r.options()
		o.Crashing(dead.Load)
		_, stop := r.start(o)
		r.follow(60)
		r.await()
		stop()
	}
	p, _ := r.start(r.options())
	r.follow(20)
	r.await()
	r.until("what was not committed comes again", func() bool { return sum(p, func(c projector.Counts) int64 { return c.Duplicates }) == 3*180 })
	r.verify()
	r.patches()
}

// duplicates delivers everything again, and old events behind new ones.
func duplicates(r *rig) {
	p, _ := r.start(r.options())
	r.follow(50)
	r.produce(r.sent...)
	back := slices.Clone(r.sent)
	slices.Reverse(back)
	r.produce(back...)
	r.follow(10)
	r.await()
	r.until("all came", func() bool { return sum(p, func(c projector.Counts) int64 { return c.Duplicates }) == 3*100 })
	r.verify()
	r.patches()
}

// poison has an event that cannot be applied among others of its entity. It is mended (its
// record is settled by hand), and retried in order.
func poison(r *rig) {
	p, _ := r.start(r.options())
	r.follow(14)
	bad := r.event("user-3", map[string]any{"user_id": "user-3", "artist_id": nil})
	r.produce(bad)
	junk := []*kgo.Record{
		{Topic: topic.ProjectionEvents, Key: []byte("user-3"), Value: []byte("no JSON")},
		{Topic: topic.ProjectionEvents, Key: []byte("user-3"), Value: []byte(strings.Repeat("[", 5000))},
		{Topic: topic.ProjectionEvents, Key: []byte("user-3"), Value: []byte(`{"eventType":"ARTIST_FOLLOWED","entityId":7}`)},
	}
	r.raw(junk...)
	r.follow(70)
	list := func(f projection.Filter) []projection.Letter {
		all, err := r.store.Letters(r.t.Context(), f)
		if err != nil {
			r.t.Fatal(err)
		}
		return all
	}
	// 2 of the junk have no projection, 1 has each; the poison and 10 events behind it have each.
	r.until("the dead letters are there", func() bool { return len(list(projection.Filter{State: projection.StateWaiting})) == 2+3+3*11 })
	for user := range r.n {
		if user == "user-3" {
			continue
		}
		if err := r.store.Await(r.t.Context(), "follows", r.address(user), r.n[user]); err != nil { // others go on
			r.t.Fatal(err)
		}
	}
	heads := list(projection.Filter{State: projection.StateFailed, EventType: "ARTIST_FOLLOWED"})
	if len(heads) != 3 || heads[0].Retries != 2 || heads[0].Class != event.ClassData {
		r.t.Fatalf("%+v", heads)
	}
	for _, l := range heads {
		if n, err := r.store.Retry(r.t.Context(), l.ID, "test"); n != 0 || err == nil {
			r.t.Fatalf("poison was applied: %d, %v", n, err)
		}
		if _, err := r.store.Discard(r.t.Context(), l.ID, "test", "no artist"); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, l := range list(projection.Filter{State: projection.StateParked}) {
		if _, err := r.store.Retry(r.t.Context(), l.ID, "test"); err != nil {
			r.t.Fatal(err)
		}
	}
	r.await()
	r.verify()
	r.patches()
	raw := 0
	for _, rec := range readAll(r.t, r.kafka, topic.DeadLetters) {
		d, err := event.ParseDeadLetter(rec.Value)
		if err != nil {
			r.t.Fatalf("%s: %v", rec.Value, err)
		}
		if d.Raw != nil {
			raw++
		}
	}
	if raw != 2+3 {
		r.t.Errorf("%d dead letters have raw bytes", raw)
	}
	if n := sum(p, func(c projector.Counts) int64 { return c.Parked }); n != 3*10 {
		r.t.Errorf("%d were parked", n)
	}
}

func (r *rig) address(user string) ledger.Address {
	return ledger.Address{TenantSchema: r.app.TenantSchema(""), ForkID: "prod", Stream: "user_stream", EntityID: user}
}

// droppedColumn takes a column from one projection: it is paused, the others go on, no
// event is a dead letter; with the column back it goes on.
func droppedColumn(r *rig) {
	p, _ := r.start(r.options())
	r.follow(20)
	r.await()
	alter := func(what string) {
		if err := r.db.Write(r.t.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(r.t.Context(), "ALTER TABLE "+tx.Dialect().Table(r.app.TenantSchema(""), "follows")+what)
			return err
		}); err != nil {
			r.t.Fatal(err)
		}
	}
	alter(` DROP COLUMN "since"`)
	r.follow(40)
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
	r.until("follows is paused", func() bool { return paused("follows") })
	for user, n := range r.n {
		if err := r.store.Await(r.t.Context(), "artist_followers", r.address(user), n); err != nil {
			r.t.Fatal(err)
		}
	}
	if counts, err := r.store.Count(r.t.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
		r.t.Errorf("dead letters %v, %v", counts, err)
	}
	alter(` ADD COLUMN "since" ` + map[sqldb.Dialect]string{sqldb.SQLite: "TEXT", sqldb.Postgres: "TIMESTAMP WITH TIME ZONE"}[r.db.Dialect()])
	r.await()
	r.until("follows goes on", func() bool { return !paused("follows") })
	r.verify()
	r.patches()
}

// instances starts more projectors than there are partitions and ends them one by one
// while events come. One at least is idle, and says so.
func instances(r *rig) {
	var stops []func()
	var all []*projector.Projector
	for range partitions + 1 {
		p, stop := r.start(r.options())
		all, stops = append(all, p), append(stops, stop)
		r.follow(40)
	}
	r.until("one is idle", func() bool {
		return slices.ContainsFunc(all, func(p *projector.Projector) bool { return p.Status()[0].Idle })
	})
	for _, stop := range stops[1:] {
		r.follow(40)
		stop()
	}
	r.follow(40)
	r.await()
	r.verify()
	r.patches()
}

// twoOwners lets two projectors of different groups, so that both have all partitions,
// keep the same tables.
func twoOwners(r *rig) {
	o := r.options()
	o.Group = "another"
	a, _ := r.start(r.options())
	b, _ := r.start(o)
	for range 5 {
		r.follow(40)
	}
	r.await()
	applied := func() int64 {
		return sum(a, func(c projector.Counts) int64 { return c.Applied }) + sum(b, func(c projector.Counts) int64 { return c.Applied })
	}
	r.until("each counted once, by one of them", func() bool { return applied() == 3*200 })
	r.until("both have seen all", func() bool {
		return applied()+sum(a, func(c projector.Counts) int64 { return c.Duplicates })+sum(b, func(c projector.Counts) int64 { return c.Duplicates }) == 2*3*200
	})
	r.verify()
	r.patches()
}

// notForUs sends events of types and tenants that nobody here knows, and old versions.
func notForUs(r *rig) {
	p, _ := r.start(r.options())
	unknown := r.event("nobody", map[string]any{})
	unknown.EventType = "STATE_PATCH"
	foreign := r.event("nobody", map[string]any{})
	foreign.TenantSchema = "somebody_else"
	delete(r.n, "nobody")
	r.produce(unknown, foreign)
	r.raw(&kgo.Record{Topic: topic.ProjectionEvents, Key: []byte("x"), Value: []byte(`{"eventType":"WHAT","payload":7}`)})
	r.follow(10)
	old := r.event("user-1", map[string]any{"user_id": "user-1", "artist": "artist-0"})
	r.produce(old)
	old.Payload, _ = json.Marshal(map[string]any{"user_id": "user-1", "artist_id": "artist-0"})
	r.sent = append(r.sent, old)
	r.await()
	r.verify()
	r.until("they are counted", func() bool {
		return sum(p, func(c projector.Counts) int64 { return c.Unknown }) == 3*2 && sum(p, func(c projector.Counts) int64 { return c.Foreign }) == 3
	})
	if counts, err := r.store.Count(r.t.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
		r.t.Errorf("dead letters %v, %v", counts, err)
	}
}

// TestDatabaseGone kills PostgreSQL while events come, several times. Nothing becomes a
// dead letter, partitions say that they are paused, and all goes on afterwards.
func TestDatabaseGone(t *testing.T) {
	server := realpostgres.Start(t)
	r := newRig(t, startNode(t), server.Database(t), nil)
	p, _ := r.start(r.options())
	r.follow(30)
	r.await()
	for range 2 {
		server.Kill()
		r.follow(60)
		r.until("a partition is paused", func() bool {
			return slices.ContainsFunc(p.Status()[0].Partitions, func(s projector.PartitionStatus) bool { return s.Paused != "" })
		})
		server.Start(t)
		r.await()
	}
	r.verify()
	r.patches()
	if counts, err := r.store.Count(t.Context(), projection.Filter{}); err != nil || len(counts) != 0 {
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
	r := newRig(t, startNode(t), sqldbtest.SQLite(t), l)
	for i := range 30 {
		user := fmt.Sprint("user-", i%3)
		e := r.event(user, map[string]any{"user_id": user, "artist_id": fmt.Sprint("artist-", i%2)})
		answer, err := l.Commit(t.Context(), &ledger.Proposal{Address: r.address(user), IntentID: fmt.Sprint(i), IRVersion: "v42", TS: e.TS,
			Decide: func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
				return ledger.Decision{Events: []ledger.NewEvent{{EventType: e.EventType, Payload: e.Payload}}}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		r.sent = append(r.sent, answer.Events[0].Projection())
		if i%5 != 2 || i >= 27 { // the others are lost; behind the last of a user nothing would show it
			r.produce(r.sent[i])
		}
	}
	p, _ := r.start(r.options())
	r.await()
	r.produce(r.sent[7], r.sent[2])
	r.verify()
	r.patches()
	if n := sum(p, func(c projector.Counts) int64 { return c.Healed }); n == 0 {
		t.Error("nothing was healed")
	}
}
