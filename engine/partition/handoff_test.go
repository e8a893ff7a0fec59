package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// give has a's partition led by b from now on, each opened again as what it is then.
func give(t *testing.T, a, b *replica) {
	t.Helper()
	if err := a.Seal(t.Context(), b.key.Author()); err != nil {
		t.Fatal(err)
	}
	a.reopen()
	b.hear(a)
	b.pull(a, 1<<20)
	if !b.ToLead() {
		t.Fatal("it has all, and is not to lead")
	}
	b.reopen()
	if a.Leads() || !b.Leads() || a.Leader() != b.key.Author() {
		t.Fatalf("the old leader leads: %v, the new: %v", a.Leads(), b.Leads())
	}
}

func (r *replica) reopen() {
	r.t.Helper()
	r.again = true
	r.close()
	r.open()
	r.again = false
}

// hear tells r the terms that another knows.
func (r *replica) hear(of *replica) partition.Heeded {
	r.t.Helper()
	told, err := of.Grants()
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(told) // in any order
	h, err := r.Heed(told)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// batchOf is a batch of an idempotent producer.
func (r *replica) batchOf(producer int64, sequence int32, value string) []byte {
	b := record.NewBuilder(record.None, 0)
	b.Add(r.clock.Now().UnixMilli(), nil, []byte(value), nil)
	batch := b.Build(nil)
	record.SetProducer(batch, producer, 0, sequence)
	return batch
}

// TestHandoff passes a partition from node to node and back, with records of each, and
// followers that see all of it.
func TestHandoff(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	c := newReplica(t, disk.NewMem(), identity.FromSeed([32]byte{3}), clock)
	a.produce("1", "2")
	if _, err := a.put(a.batchOf(7, 0, "once")); err != nil {
		t.Fatal(err)
	}
	before := a.Bounds().Term
	give(t, a, b)
	if _, err := a.put(a.batch("x")); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatalf("an append at the old leader: %v", err)
	}
	// A producer that heard nothing sends its batch again, to the new leader.
	if res, err := b.put(b.batchOf(7, 0, "once")); err != nil || !res.Duplicate || res.Base != 2 {
		t.Fatalf("a retry across the handoff: %+v, %v", res, err)
	}
	if _, err := b.put(b.batchOf(7, 1, "twice")); err != nil {
		t.Fatal(err)
	}
	if now := b.Bounds().Term; now <= before {
		t.Fatalf("term %d after %d", now, before)
	}
	if term, end, err := b.TermEnd(before); err != nil || term != before || end != 3 {
		t.Fatalf("term %d ends at %d: %v", term, end, err)
	}
	a.pull(b, 1<<20)
	same(t, b, a)
	sameProducers(t, b, a)
	// One that knows nothing gets all of it, from who does not lead.
	s, err := a.ReadSpan(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(s); !errors.Is(err, partition.ErrUnheard) {
		t.Fatalf("a span of a leader that nobody spoke of: %v", err)
	}
	if h := c.hear(a); !h.Changed {
		t.Fatal("nothing has changed")
	}
	c.reopen()
	c.pull(a, 1<<20)
	same(t, b, c)
	for range 3 { // restarts of the new leader are its own affair, as ever
		b.restart()
		b.produce("more")
	}
	give(t, b, a) // and back
	a.produce("back")
	b.pull(a, 1<<20)
	same(t, a, b)
	c.hear(a)
	c.reopen()
	c.pull(b, 1<<20)
	same(t, a, c)
	give(t, a, c) // not everyone has to have led
	c.produce("third")
	b.hear(c)
	b.reopen()
	b.pull(c, 1<<20)
	same(t, c, b)
	for _, r := range []*replica{a, b, c} {
		r.restart()
		r.close()
	}
}

// TestHandoffWaitsForTheBase: who is to lead and lacks records does not, also after a
// restart, until it has them.
func TestHandoffWaitsForTheBase(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	for i := range 40 {
		a.produce(fmt.Sprint(i))
	}
	b.pull(a, 1<<20)
	a.produce("late")
	if err := a.Seal(t.Context(), bob.Author()); err != nil {
		t.Fatal(err)
	}
	a.reopen()
	b.hear(a)
	for range 2 {
		b.restart()
		if b.Leads() || b.ToLead() || b.Leader() != bob.Author() {
			t.Fatal("it leads without the last records")
		}
		if _, err := b.put(b.batch("x")); !errors.Is(err, partition.ErrNotLeader) {
			t.Fatal(err)
		}
	}
	b.pull(a, 1<<20)
	b.restart()
	if !b.Leads() {
		t.Fatal("it has all, and does not lead")
	}
	b.produce("led")
	a.pull(b, 1<<20)
	same(t, b, a)
}

// TestEmptyHandoff: a partition to which nobody ever wrote can be given, too.
func TestEmptyHandoff(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	give(t, a, b)
	b.produce("first")
	a.pull(b, 1<<20)
	same(t, b, a)
}

// TestSealRefused: what a seal is refused for, and that the leader leads on then.
func TestSealRefused(t *testing.T) {
	clock := newClock()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	if err := b.Seal(t.Context(), ann.Author()); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatal(err)
	}
	if err := a.Seal(t.Context(), ann.Author()); lattice.KindOf(err) != lattice.Invalid {
		t.Fatal(err)
	}
	open := a.batchOf(9, 0, "open")
	record.SetTransactional(open)
	if _, err := a.put(open); err != nil {
		t.Fatal(err)
	}
	if err := a.Seal(t.Context(), bob.Author()); !errors.Is(err, partition.ErrOpenTransactions) {
		t.Fatal(err)
	}
	a.end(9, 0, true)
	a.produce("goes on")
	give(t, a, b)
}

// TestHandoffCrashes stops both nodes, without a word, between any two steps.
func TestHandoffCrashes(t *testing.T) {
	for step := range 6 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			clock := newClock()
			a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
			crash := func(at int) {
				if at == step {
					for _, r := range []*replica{a, b} {
						r.cut()
					}
				}
			}
			a.produce("1", "2", "3")
			b.pull(a, 1<<20)
			a.produce("4")
			crash(0)
			if err := a.Seal(t.Context(), bob.Author()); err != nil {
				t.Fatal(err)
			}
			crash(1)
			a.reopen()
			if a.Leads() {
				t.Fatal("the old leader leads after the grant was stored")
			}
			crash(2)
			b.hear(a)
			crash(3)
			b.pull(a, 1<<20)
			crash(4)
			b.reopen()
			crash(5)
			if a.Leads() || !b.Leads() {
				t.Fatalf("old %v, new %v", a.Leads(), b.Leads())
			}
			b.produce("5")
			a.pull(b, 1<<20)
			same(t, b, a)
			if n := b.Bounds().Committed; n != 5 {
				t.Fatalf("%d records", n)
			}
		})
	}
}

// cut ends a replica as a power cut does, and opens it a minute later.
func (r *replica) cut() {
	r.t.Helper()
	fs := r.fs.(*disk.Mem).CrashClone(0, nil)
	r.stop()
	r.fs = fs
	r.clock.Advance(time.Minute)
	r.open()
}

// TestHandoffOfSeveral: where several acknowledge, what they did stays, and the new leader
// counts for readers once they follow it.
func TestHandoffOfSeveral(t *testing.T) {
	a, b, c := trio(t, newClock())
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	a.tell(b)
	a.produce("two") // that nobody else has
	committed(t, 1, a)
	give(t, a, b)
	if n := b.Bounds().Committed; n < 1 || n > 2 {
		t.Fatalf("the new leader shows records up to %d", n)
	}
	b.produce("three")
	b.signed(3)
	c.hear(b)
	c.reopen()
	for _, r := range []*replica{a, c} {
		r.pull(b, 1<<20)
		b.tell(r)
		r.tell(b)
	}
	committed(t, 3, b)
	done := b.putAll(b.batch("four"), time.Minute)
	b.signed(4)
	for _, r := range []*replica{a, c} {
		r.pull(b, 1<<20)
		b.tell(r)
	}
	if err := answer(t, done); err != nil {
		t.Fatal(err)
	}
	committed(t, 4, b)
	b.restart()
	committed(t, 4, b)
	if got := b.all(); !bytes.Contains(got, []byte("two")) || !bytes.Contains(got, []byte("four")) {
		t.Fatal("a record is missing")
	}
}
