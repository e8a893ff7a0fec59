package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestGroupsByHand(t *testing.T) {
	_, c, _ := node(t)
	ctx := t.Context()
	fill(t, c, "events", 2, 20)
	_, err := c.Group(ctx, "billing")
	wantKind(t, "no group", err, lattice.NotFound)
	if err := c.CommitGroup(ctx, "billing", map[client.TopicPartition]int64{{Topic: "events", Partition: 0}: 4}); err != nil {
		t.Fatal(err)
	}
	d, err := c.Group(ctx, "billing")
	if err != nil || d.State != "Empty" || len(d.Offsets) != 1 || d.Offsets[0].Committed != 4 || d.Offsets[0].Lag != 6 || d.Lag != 6 {
		t.Fatalf("group %+v, %v", d, err)
	}
	moved, err := c.ResetGroup(ctx, "billing", client.GroupReset{Topic: "events", To: client.Last(1), DryRun: true})
	want := []client.GroupMoved{{Partition: 0, OldOffset: 4, Offset: 9}, {Partition: 1, OldOffset: -1, Offset: 9}}
	if err != nil || !slices.Equal(moved, want) {
		t.Errorf("dry reset: %+v, %v", moved, err)
	}
	if d, _ := c.Group(ctx, "billing"); d.Lag != 6 {
		t.Errorf("a dry run did something: %+v", d)
	}
	if moved, err = c.ResetGroup(ctx, "billing", client.GroupReset{Topic: "events", To: client.Last(1)}); err != nil || !slices.Equal(moved, want) {
		t.Errorf("reset: %+v, %v", moved, err)
	}
	if d, _ := c.Group(ctx, "billing"); d.Lag != 2 || len(d.Offsets) != 2 {
		t.Errorf("after the reset: %+v", d)
	}
	_, err = c.ResetGroup(ctx, "billing", client.GroupReset{Topic: "events", To: client.Offset(99)})
	wantKind(t, "reset beyond the end", err, lattice.NotYet)
	if err := c.CommitGroup(ctx, "billing", map[client.TopicPartition]int64{{Topic: "nope"}: 4}); lattice.KindOf(err) != lattice.NotFound {
		t.Errorf("commit in no topic: %v", err)
	}
	all, err := c.Groups(ctx)
	if err != nil || len(all) != 1 || all[0].Name != "billing" {
		t.Errorf("groups %+v, %v", all, err)
	}
	if err := c.DeleteGroup(ctx, "billing"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "delete again", c.DeleteGroup(ctx, "billing"), lattice.NotFound)
}

// tally counts what several members of a group read.
type tally struct {
	mu     sync.Mutex
	seen   map[[2]int64]int // (partition, offset) => times
	by     [2]int           // member => records
	enough func(*tally) bool
	done   chan struct{}
}

func (y *tally) count(who int, r client.Record) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.seen[[2]int64{int64(r.Partition), r.Offset}]++
	y.by[who]++
	if y.done != nil && y.enough(y) {
		close(y.done)
		y.done = nil
	}
}

// read counts g's records until an error.
func (y *tally) read(who int, g *client.GroupConsumer) error {
	for {
		rec, err := g.Next()
		if err != nil {
			return err
		}
		y.count(who, rec)
	}
}

// shared waits until both members of the group have two partitions of events.
func shared(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	for ctx.Err() == nil {
		d, err := c.Group(ctx, "g")
		if err == nil && d.Members == 2 && !slices.ContainsFunc(d.Roster, func(m client.GroupMember) bool { return len(m.Assignment["events"]) != 2 }) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the partitions were not shared out")
}

// Members share the partitions; each record is read; what was committed is not
// read again.
func TestGroupConsumers(t *testing.T) {
	_, c, _ := node(t)
	fill(t, c, "events", 4, 400)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	join := func(name string) *client.GroupConsumer {
		g, err := c.GroupConsumer(ctx, client.GroupConsumerOptions{Group: "g", Topic: "events", Follow: true, ClientID: name})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	done := make(chan struct{})
	y := &tally{seen: map[[2]int64]int{}, done: done, enough: func(y *tally) bool {
		return len(y.seen) == 440 && y.by[0] > 0 && y.by[1] > 0
	}}
	first := join("one")
	rec, err := first.Next()
	if err != nil || rec.Offset != 0 {
		t.Fatalf("first record %+v, %v", rec, err)
	}
	y.count(0, rec)
	wantKind(t, "delete a group in use", c.DeleteGroup(ctx, "g"), lattice.Conflict)
	_, err = c.ResetGroup(ctx, "g", client.GroupReset{Topic: "events"})
	wantKind(t, "reset a group in use", err, lattice.Conflict)

	second := join("two")
	errs := make(chan error, 2)
	go func() { errs <- y.read(0, first) }()
	go func() { errs <- y.read(1, second) }()
	shared(ctx, t, c)
	more(t, c, "events", 4, 40) // so that the second one has something to read
	select {
	case <-done:
	case err := <-errs:
		t.Fatal(err)
	case <-ctx.Done():
		t.Fatalf("read %d records, %v by member", len(y.seen), y.by)
	}
	cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("reading ended with %v", err)
		}
	}
	for _, g := range []*client.GroupConsumer{first, second} {
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	readTheRest(t, c)
}

// readTheRest joins g, which nobody is in, and reads what it has not committed:
// to the end and no further.
func readTheRest(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	d, err := c.Group(ctx, "g")
	if err != nil || d.Members != 0 {
		t.Fatalf("after both left: %+v, %v", d, err)
	}
	rest, err := c.GroupConsumer(ctx, client.GroupConsumerOptions{Group: "g", Topic: "events"})
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for _, err := range rest.All() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != d.Lag {
		t.Errorf("the next member read %d records, the lag was %d", n, d.Lag)
	}
	if err := rest.Close(ctx); err != nil {
		t.Error(err)
	}
	if d, err := c.Group(ctx, "g"); err != nil || d.Lag != 0 {
		t.Errorf("lag after everything was read: %+v, %v", d, err)
	}
}

// A member goes on when its node was away, at what it had committed.
func TestMemberOutlivesTheNode(t *testing.T) {
	s, restart := openStoreTwice(t, disk.NewMem(), "stores")
	var current atomic.Value
	current.Store(handler(t, s, api.Config{}))
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current.Load().(http.Handler).ServeHTTP(w, r)
	}), slog.New(slog.NewTextHandler(io.Discard, nil)))
	srv.Start()
	t.Cleanup(srv.Close)
	c := dial(t, client.Options{URL: srv.URL})
	fill(t, c, "events", 2, 20)

	g, err := c.GroupConsumer(t.Context(), client.GroupConsumerOptions{Group: "g", Topic: "events", Follow: true, CommitEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[2]int64]int{}
	next := func() {
		t.Helper()
		rec, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		seen[[2]int64{int64(rec.Partition), rec.Offset}]++
	}
	for range 12 {
		next()
	}
	if err := g.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		next()
	}
	current.Store(handler(t, restart(), api.Config{}))
	more(t, c, "events", 2, 10)
	for len(seen) < 30 {
		next()
	}
	twice := 0
	for _, n := range seen {
		twice += n - 1
	}
	if twice > 8 {
		t.Errorf("%d records came twice, 8 were not committed", twice)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if d, err := c.Group(t.Context(), "g"); err != nil || d.Lag != 0 || d.Members != 0 {
		t.Errorf("at the end: %+v, %v", d, err)
	}
}

func TestProofs(t *testing.T) {
	_, c, _ := node(t)
	ctx := t.Context()
	fill(t, c, "events", 1, 10)
	b, err := c.ProveRecord(ctx, "events", 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	res, err := proof.Verify(b)
	if err != nil || res.Record.Offset != 7 {
		t.Errorf("the proof says %+v, %v", res, err)
	}
	for offset, kind := range map[int64]lattice.Kind{-1: lattice.OutOfRange, 10: lattice.NotYet, 11: lattice.NotYet} {
		_, err := c.ProveRecord(ctx, "events", 0, offset)
		wantKind(t, "prove what is not there", err, kind)
	}
	cp, err := c.Checkpoint(ctx, "events", 0, true)
	if err != nil || cp.End != 10 || cp.Size == 0 || len(cp.Root) != 64 || !strings.HasPrefix(string(cp.Note), "lattice/") {
		t.Errorf("checkpoint %+v, %v", cp, err)
	}
	if _, err := proof.Verify(cp.Proof); err != nil {
		t.Errorf("the checkpoint's proof: %v", err)
	}
}

// TestShareGroupsByHand: share groups are looked after under the same names.
func TestShareGroupsByHand(t *testing.T) {
	s, c, _ := node(t)
	ctx := t.Context()
	fill(t, c, "events", 2, 20)
	topic, _ := s.Topic("events")
	beat := s.Shares().Heartbeat(share.HeartbeatRequest{Group: "workers", MemberID: "m", Topics: []string{"events"}})
	if beat.Err != nil {
		t.Fatal(beat.Err)
	}
	d, err := c.Group(ctx, "workers")
	if err != nil || d.Type != "share" || d.State != "Stable" || len(d.Roster) != 1 || len(d.Roster[0].Assignment["events"]) != 2 {
		t.Fatalf("group %+v, %v", d, err)
	}
	_, err = c.ResetGroup(ctx, "workers", client.GroupReset{Topic: "events", To: client.Last(3)})
	wantKind(t, "reset with a member", err, lattice.Conflict)
	wantKind(t, "delete with a member", c.DeleteGroup(ctx, "workers"), lattice.Conflict)
	done := make(chan error, 1)
	session, err := s.Shares().Open("workers", "m", []lattice.TopicPartition{{Topic: topic.ID}})
	if err != nil {
		t.Fatal(err)
	}
	s.Shares().Prepare(ctx, session, func() { done <- nil })
	<-done
	s.Shares().Heartbeat(share.HeartbeatRequest{Group: "workers", MemberID: "m", MemberEpoch: share.EpochLeave})
	want := []client.GroupMoved{{Partition: 0, OldOffset: 10, Offset: 7}, {Partition: 1, OldOffset: -1, Offset: 7}}
	if moved, err := c.ResetGroup(ctx, "workers", client.GroupReset{Topic: "events", To: client.Last(3), DryRun: true}); err != nil || !slices.Equal(moved, want) {
		t.Errorf("dry reset: %+v, %v", moved, err)
	}
	if moved, err := c.ResetGroup(ctx, "workers", client.GroupReset{Topic: "events", To: client.Last(3)}); err != nil || !slices.Equal(moved, want) {
		t.Errorf("reset: %+v, %v", moved, err)
	}
	if d, err = c.Group(ctx, "workers"); err != nil || d.State != "Empty" || d.Lag != 6 || len(d.Offsets) != 2 || d.Offsets[0].Committed != 7 {
		t.Errorf("after the reset: %+v, %v", d, err)
	}
	if err := c.CommitGroup(ctx, "workers", map[client.TopicPartition]int64{{Topic: "events"}: 4}); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("commit in a share group: %v", err)
	}
	if all, err := c.Groups(ctx); err != nil || len(all) != 1 || all[0].Type != "share" {
		t.Errorf("groups %+v, %v", all, err)
	}
	if err := c.DeleteGroup(ctx, "workers"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "delete again", c.DeleteGroup(ctx, "workers"), lattice.NotFound)
}
