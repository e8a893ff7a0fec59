package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestFollower(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	if !a.Leads() || b.Leads() || b.Leader() != ann.Author() || !b.Status().Follower || b.Status().Leader != ann.Author() {
		t.Fatal("who leads?")
	}
	if _, err := a.ReadSpan(0, 1000); lattice.KindOf(err) != lattice.NotYet {
		t.Fatalf("a span of nothing: %v", err)
	}
	for i := range 600 {
		a.produce(fmt.Sprint("value ", i), "and another")
		if i%200 == 199 {
			a.restart()
		}
	}
	if n := b.pull(a, 3000); n < 10 {
		t.Fatalf("%d spans", n)
	}
	same(t, a, b)
	if _, err := b.put(b.batch("x")); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatalf("an append: %v", err)
	}
	if _, err := b.Truncate(t.Context(), 5); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatalf("a truncation: %v", err)
	}
	b.End(record.Marker{ProducerID: 1}, func(err error) {
		if !errors.Is(err, partition.ErrNotLeader) {
			t.Fatalf("a marker: %v", err)
		}
	})
	if _, err := a.Receive(span.Span{Partition: tp}); !errors.Is(err, partition.ErrLeads) {
		t.Fatalf("a span for the leader: %v", err)
	}
	for o := int64(0); o < b.Bounds().Committed; o += 97 {
		p, err := b.Prove(t.Context(), o)
		q, err2 := a.Prove(t.Context(), o)
		if err != nil || err2 != nil || !bytes.Equal(p, q) {
			t.Fatalf("the follower's proof of offset %d: %v, %v", o, err, err2)
		}
	}
	for _, term := range []int32{0, a.TermAt(10), a.TermAt(500), a.TermAt(1100)} {
		x, xe, err := a.TermEnd(term)
		y, ye, err2 := b.TermEnd(term)
		if x != y || xe != ye || err != nil || err2 != nil {
			t.Fatalf("term %d ends at %d in %d, the follower says %d in %d (%v, %v)", term, xe, x, ye, y, err, err2)
		}
	}
	x, err := a.OffsetForTime(t.Context(), clock.Now().UnixMilli()-90_000)
	y, err2 := b.OffsetForTime(t.Context(), clock.Now().UnixMilli()-90_000)
	if x != y || err != nil || err2 != nil {
		t.Fatalf("found %+v, %+v (%v, %v)", x, y, err, err2)
	}
	// A relay gives on what it has, and all of it goes on after a restart.
	b.restart()
	same(t, a, b)
	c := newReplica(t, disk.NewMem(), identity.FromSeed([32]byte{3}), clock)
	c.pull(b, 2000)
	same(t, a, c)
	a.produce("more")
	c.pull(a, 2000)
	b.pull(c, 2000)
	same(t, a, b)
	for _, r := range []*replica{a, b, c} {
		r.close()
	}
}

// TestFollowerIsTold: who follows hears of what was committed without asking, on the
// leader and behind a relay.
func TestFollowerIsTold(t *testing.T) {
	clock := newClock() // it stands still: no timer signs anything
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	ofA, ofB := make(chan struct{}, 1), make(chan struct{}, 1)
	tell := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	cancel := a.Follow(tell(ofA))
	b.Follow(tell(ofB))
	for i := range 5 {
		a.produce(fmt.Sprint(i))
		for b.Bounds().Committed < int64(i+1) {
			<-ofA
			b.pull(a, 1<<20)
		}
		<-ofB
	}
	same(t, a, b)
	cancel()
	a.close()
	b.close()
}

// TestFollowerWakesReaders: a reader that waits at the end hears of a span.
func TestFollowerWakesReaders(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	woken := make(chan struct{})
	b.Wait(0, 1, func() { close(woken) })
	a.produce("x")
	b.pull(a, 1000)
	<-woken
	a.close()
	b.close()
}

func TestFollowerTruncates(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	for i := range 300 {
		a.produce(strings.Repeat("x", 100), fmt.Sprint(i))
	}
	b.pull(a, 5000)
	if _, err := a.Truncate(t.Context(), 250); err != nil {
		t.Fatal(err)
	}
	b.adopt(a)
	same(t, a, b)
	if st := b.Status(); st.Start != 250 || st.Bytes >= 300*150 {
		t.Fatalf("%+v", st)
	}
	// One that comes now begins where the leader does; a restart knows it.
	c := newReplica(t, disk.NewMem(), identity.FromSeed([32]byte{3}), clock)
	c.pull(a, 5000)
	same(t, a, c)
	c.restart()
	same(t, a, c)
	for i := range 700 {
		a.produce(fmt.Sprint("later ", i))
	}
	b.pull(c, 5000)
	c.pull(a, 5000)
	b.pull(c, 5000)
	same(t, a, b)
	same(t, a, c)
	for o := int64(250); o < c.Bounds().Committed; o += 83 {
		p, err := c.Prove(t.Context(), o)
		q, err2 := a.Prove(t.Context(), o)
		if err != nil || err2 != nil || !bytes.Equal(p, q) {
			t.Fatalf("the proof of offset %d: %v, %v", o, err, err2)
		}
	}
	// Everything goes, while one lags behind.
	for i := range 50 {
		a.produce(fmt.Sprint("late ", i))
	}
	if _, err := a.Truncate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	c.pull(a, 1000)
	same(t, a, c)
	c.restart()
	same(t, a, c)
	a.produce("after")
	b.pull(a, 1000)
	c.pull(a, 1000)
	same(t, a, b)
	same(t, a, c)
	for _, r := range []*replica{a, b, c} {
		r.close()
	}
}

// TestCompactedSpan: what was compacted away cannot be given on, and says so.
func TestCompactedSpan(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	a.cfg.Compact, a.cfg.Delete, a.cfg.MinCleanableRatio = true, false, 0
	a.SetConfig(a.cfg)
	for i := range 200 {
		a.produce(fmt.Sprint(i), strings.Repeat("y", 50))
	}
	b.pull(a, 3000)
	for i := range 200 {
		a.produce(fmt.Sprint(i), strings.Repeat("y", 50))
	}
	if err := a.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ReadSpan(0, 1000); !errors.Is(err, partition.ErrCompacted) {
		t.Fatalf("what was compacted: %v", err)
	}
	c := newReplica(t, disk.NewMem(), identity.FromSeed([32]byte{3}), clock)
	c.pull(b, 3000) // only the leader compacts
	if x, y := b.Position(), c.Position(); x != y {
		t.Fatalf("%+v, %+v", x, y)
	}
	for _, r := range []*replica{a, b, c} {
		r.close()
	}
}
