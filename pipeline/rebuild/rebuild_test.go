package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/node"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector/projectortest"
	"github.com/lattice-log/lattice/pipeline/rebuild"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	"github.com/lattice-log/lattice/pipeline/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRebuild(t *testing.T) {
	on := func(run func(r *projectortest.Rig)) func(*testing.T, string) {
		return func(t *testing.T, url string) { run(projectortest.New(t, startNode(t), url, nil)) }
	}
	sqldbtest.RunSlow(t,
		sqldbtest.Case{Name: "beside projectors", Run: on(besideProjectors)},
		sqldbtest.Case{Name: "killed and begun again", Run: on(killed)},
		sqldbtest.Case{Name: "dead letters", Run: on(deadLetters)},
		sqldbtest.Case{Name: "other rows", Run: on(otherRows)},
		sqldbtest.Case{Name: "from the ledger", Run: fromLedger},
	)
}

func startNode(t *testing.T) string {
	t.Helper()
	cfg := node.Default()
	cfg.Data, cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = t.TempDir(), "127.0.0.1:0", "", ""
	ctx, stop := context.WithCancel(context.Background())
	n, err := node.Open(ctx, cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the node: %v", err)
		}
	})
	<-n.Ready()
	return n.Info().Kafka
}

func options(r *projectortest.Rig, of *projection.Rebuild) rebuild.Options {
	return rebuild.Options{Store: r.Store, Rebuild: of, Topic: topic.ProjectionEvents, Kafka: r.Kafka, Logger: slog.New(slog.NewTextHandler(r.T.Output(), nil))}
}

func begin(r *projectortest.Rig, names ...string) *projection.Rebuild {
	r.T.Helper()
	of, err := r.Store.Begin(r.T.Context(), names)
	if err != nil {
		r.T.Fatal(err)
	}
	return of
}

// states returns the sets of a table, such as "1 standby, 2 live".
func states(r *projectortest.Rig, table string) string {
	r.T.Helper()
	all, err := r.Store.Sets(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	var words []string
	for _, s := range all {
		if s.Table == table {
			words = append(words, fmt.Sprint(s.Generation, " ", s.State))
		}
	}
	return strings.Join(words, ", ")
}

// besideProjectors rebuilds, rolls back and drops while events come and three projectors
// apply them.
func besideProjectors(r *projectortest.Rig) {
	for range 3 {
		r.Start(r.Options())
	}
	r.Follow(300)
	r.Await()
	ctx, cancel := context.WithCancel(r.T.Context())
	defer cancel()
	swapped := make(chan error, 1)
	for i, step := range []func() (*projection.Rebuild, error){
		func() (*projection.Rebuild, error) { return r.Store.Begin(ctx, nil) },
		func() (*projection.Rebuild, error) { return r.Store.Revert(ctx, []string{"artist_followers"}) },
		func() (*projection.Rebuild, error) { return r.Store.Begin(ctx, []string{"artist_followers"}) },
	} {
		of, err := step()
		if err != nil {
			r.T.Fatal(err)
		}
		go func() {
			out, err := rebuild.Run(ctx, options(r, of))
			if err == nil && !out.Swapped {
				err = errors.New("it was not swapped")
			}
			swapped <- err
		}()
		for busy := true; busy; {
			r.Follow(20)
			time.Sleep(50 * time.Millisecond) // as fast as a loop can send, no projector keeps up
			select {
			case err := <-swapped:
				if err != nil {
					r.T.Fatalf("step %d: %v", i, err)
				}
				busy = false
			default:
			}
		}
		r.Await()
		r.Verify()
	}
	r.Follow(50)
	r.Await()
	r.Verify()
	r.Patches()
	resets := map[string]int{}
	for _, rec := range projectortest.ReadAll(r.T, r.Kafka, topic.Patches) {
		if p, err := event.ParsePatch(rec.Value); err == nil && p.Reset {
			resets[p.Projection]++
		}
	}
	if resets["artist_followers"] != 3 || resets["follows"] != 1 {
		r.T.Errorf("resets %v", resets)
	}
	if have, want := states(r, "artist_followers"), "1 standby, 2 standby, 3 live"; have != want {
		r.T.Errorf("%s, want %s", have, want)
	}
	dropped, err := r.Store.Drop(r.T.Context(), nil)
	if err != nil || len(dropped) != 4 || states(r, "artist_followers") != "3 live" {
		r.T.Errorf("dropped %v, %v; left %s", dropped, err, states(r, "artist_followers"))
	}
	if _, err := r.Store.Revert(r.T.Context(), nil); lattice.KindOf(err) != lattice.NotFound {
		r.T.Errorf("there is nothing to go back to: %v", err)
	}
	r.Follow(20)
	r.Await()
	r.Verify()
	r.Patches()
}

// killed ends a rebuild at random moments, the swap among them, and lets another go on.
func killed(r *projectortest.Rig) {
	r.Start(r.Options())
	r.Follow(400)
	r.Await()
	for i := 0; ; i++ {
		of := begin(r)
		ctx, cancel := context.WithCancel(r.T.Context())
		o := options(r, of)
		n := rand.IntN(3)
		o.Progress = func(rebuild.Progress) {
			if n--; n < 0 && i < 12 {
				go func() { time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond); cancel() }()
			}
		}
		out, err := rebuild.Run(ctx, o)
		cancel()
		if err == nil && out.Swapped {
			break
		}
		if i == 12 {
			r.T.Fatalf("%+v, %v", out, err)
		}
		r.Follow(10)
	}
	r.Follow(20)
	r.Await()
	r.Verify()
	r.Patches()
}

// deadLetters has events that cannot be applied: one that was discarded, whose entity went
// on, and one that waits.
func deadLetters(r *projectortest.Rig) {
	r.Start(r.Options())
	poison := func(user string) { r.Produce(r.Event(user, map[string]any{"user_id": user, "artist_id": nil})) }
	waiting := func(f projection.Filter) []projection.Letter {
		f.State = projection.StateWaiting
		all, err := r.Store.Letters(r.T.Context(), f)
		if err != nil {
			r.T.Fatal(err)
		}
		return all
	}
	r.Follow(14)
	poison("user-1")
	r.Follow(14)
	r.Until("the dead letters are there", func() bool { return len(waiting(projection.Filter{})) == 3*3 })
	settle := func(l projection.Letter) {
		if _, err := r.Store.Discard(r.T.Context(), l.ID, "test", "no artist"); err != nil {
			r.T.Fatal(err)
		}
		if behind := waiting(projection.Filter{Projection: l.Projection, EntityID: l.EntityID}); len(behind) > 0 {
			if _, err := r.Store.Retry(r.T.Context(), behind[0].ID, "test"); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	for _, l := range waiting(projection.Filter{}) {
		if l.State == projection.StateFailed {
			settle(l)
		}
	}
	poison("user-2")
	r.Follow(7)
	r.Until("the dead letters are there", func() bool { return len(waiting(projection.Filter{})) == 3*2 })

	o := options(r, begin(r))
	o.Hold = true
	out, err := rebuild.Run(r.T.Context(), o)
	if err != nil || out.Swapped || out.DeadLetters != 3 || out.Parked != 3 {
		r.T.Fatalf("%+v, %v", out, err)
	}
	if live, hidden := waiting(projection.Filter{}), waiting(projection.Filter{Rebuilding: true}); len(live) != 6 || len(hidden) != 6 {
		r.T.Fatalf("%d live, %d of the rebuild", len(live), len(hidden))
	}
	// One projection's is settled while the tables are being filled.
	for _, l := range waiting(projection.Filter{Projection: "follows"}) {
		if l.State == projection.StateFailed {
			settle(l)
		}
	}
	if out, err = rebuild.Run(r.T.Context(), options(r, begin(r))); err != nil || !out.Swapped {
		r.T.Fatalf("%+v, %v", out, err)
	}
	left := waiting(projection.Filter{})
	if len(left) != 4 || len(waiting(projection.Filter{Rebuilding: true})) != 4 {
		r.T.Fatalf("%+v", left)
	}
	for _, l := range left {
		if l.State == projection.StateFailed {
			settle(l)
		}
	}
	r.Follow(14)
	r.Await()
	r.Verify()
	r.Patches()
	if _, err := r.Store.Drop(r.T.Context(), nil); err != nil {
		r.T.Fatal(err)
	}
	all, err := r.Store.Letters(r.T.Context(), projection.Filter{State: projection.StateSuperseded})
	if err != nil || len(all) != 4 {
		r.T.Errorf("%d superseded, %v", len(all), err)
	}
}

// otherRows has live tables that lost a row: the numbers differ, and nothing is swapped
// unless that is wanted. Another text of the application begins anew.
func otherRows(r *projectortest.Rig) {
	_, stop := r.Start(r.Options())
	r.Follow(50)
	r.Await()
	if err := r.DB.Write(r.T.Context(), func(tx sqldb.Tx) error {
		_, err := tx.Exec(r.T.Context(), "DELETE FROM "+tx.Dialect().Table(r.App.TenantSchema(""), "artist_followers")+" WHERE artist_id = 'artist-2'")
		return err
	}); err != nil {
		r.T.Fatal(err)
	}
	out, err := rebuild.Run(r.T.Context(), options(r, begin(r, "artist_followers")))
	if !errors.Is(err, projection.ErrCounts) || out.Swapped || len(out.Counts) != 1 || out.Counts[0].Live != 3 || out.Counts[0].Rebuilt != 4 {
		r.T.Fatalf("%+v, %v", out, err)
	}
	if have := states(r, "artist_followers"); have != "2 building" && have != "1 live, 2 building" {
		r.T.Fatal(have)
	}
	old := r.Store
	other := *r.App
	other.Digest = "sha256:other"
	if r.Store, err = projection.Open(r.T.Context(), r.DB, projection.Options{App: &other, Rebuild: true}); err != nil {
		r.T.Fatal(err)
	}
	of := begin(r, "artist_followers")
	if of.Resumed {
		r.T.Error("what another text of the application filled was taken")
	}
	o := options(r, of)
	o.Unequal = true
	if out, err = rebuild.Run(r.T.Context(), o); err != nil || !out.Swapped || out.Applied != 50 {
		r.T.Fatalf("%+v, %v", out, err)
	}
	// Who runs on with the old text does not write what the new one filled.
	p := r.App.Projection("artist_followers")
	e := r.Event("user-1", map[string]any{"user_id": "user-1", "artist_id": "artist-1"})
	r.Sent = append(r.Sent, e)
	if _, err := old.Apply(r.T.Context(), p, []projection.Event{{Projection: e}}); lattice.KindOf(err) != lattice.Unsupported {
		r.T.Errorf("the old text goes on: %v", err)
	}
	stop()
	r.Produce(e)
	r.Start(r.Options()) // with the new one
	r.Await()
	r.Verify()
}

// fromLedger rebuilds when the topic has lost its beginning.
func fromLedger(t *testing.T, url string) {
	db := sqldbtest.Open(t, sqldbtest.SQLite(t))
	l, err := ledger.Open(t.Context(), db, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := projectortest.New(t, startNode(t), url, l)
	r.Start(r.Options())
	r.FollowByLedger(l, 60, func(int) bool { return true })
	r.Await()
	r.Truncate()
	o := options(r, begin(r))
	if _, err := rebuild.Run(t.Context(), o); lattice.KindOf(err) != lattice.NotFound || !strings.Contains(err.Error(), "beginning") {
		t.Fatalf("from a topic without its beginning: %v", err)
	}
	o.Ledger = l
	out, err := rebuild.Run(t.Context(), o)
	if err != nil || out.Source != "ledger" || !out.Swapped || out.Applied != 3*60 {
		t.Fatalf("%+v, %v", out, err)
	}
	r.FollowByLedger(l, 20, func(int) bool { return true })
	r.Await()
	r.Verify()
	r.Patches()
}
