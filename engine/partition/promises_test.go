package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// gather has a candidate ask itself and others for promises, and returns what it asked, the
// base that they make, and they themselves.
func gather(t *testing.T, c *replica, voters ...*replica) (promise.Promise, merge.Point, []byte) {
	t.Helper()
	mine, err := c.Candidate(0)
	if err != nil {
		t.Fatal(err)
	}
	var evidence []byte
	var all []promise.Promise
	for _, v := range append([]*replica{c}, voters...) {
		b, err := v.Promise(mine)
		if err != nil {
			t.Fatal(err)
		}
		p, err := promise.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		all, evidence = append(all, p), append(evidence, b...)
	}
	base, err := promise.Count(c.Ruling(), mine.Term, mine.Candidate, mine.Incarnation, all, func(lattice.AuthorID) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return mine, base, evidence
}

// takeOver has a candidate lead by the promises of others.
func takeOver(t *testing.T, c *replica, voters ...*replica) {
	t.Helper()
	mine, base, evidence := gather(t, c, voters...)
	for _, v := range voters {
		if has, _, err := c.Holds(base); err != nil {
			t.Fatal(err)
		} else if !has {
			c.pull(v, 1<<20)
		}
	}
	if err := c.Succeed(mine, base, evidence); err != nil {
		t.Fatal(err)
	}
	c.reopen()
	if !c.Leads() || c.Bounds().Term != mine.Term {
		t.Fatalf("it leads: %v, term %d, it asked for %d", c.Leads(), c.Bounds().Term, mine.Term)
	}
}

// TestTakeover: the leader is away, one of its followers leads by the promise of the other,
// with all that was acknowledged; the old leader comes back, and follows; a producer's retry
// does not repeat anything.
func TestTakeover(t *testing.T) {
	a, b, c := trio(t, newClock())
	for i := range 6 {
		if _, err := a.put(a.batchOf(7, int32(i), fmt.Sprint("once ", i))); err != nil {
			t.Fatal(err)
		}
		a.signed(uint64(i + 1))
		if i < 3 {
			b.pull(a, 1<<20)
		}
		c.pull(a, 1<<20)
	}
	a.tell(c)
	committed(t, 6, a) // by ann and cid
	a.cut()            // and is away
	if b.Position().Size != 3 {
		t.Fatal("bob has all")
	}
	before := b.Bounds().Term
	takeOver(t, b, c) // bob lacks what cid acknowledged, and gets it from there
	if end := b.Bounds().End; end != 6 {
		t.Fatalf("the new leader has %d records", end)
	}
	if term, end, err := b.TermEnd(before); err != nil || term != before || end > 6 {
		t.Fatalf("term %d ends at %d: %v", term, end, err)
	}
	if res, err := b.put(b.batchOf(7, 5, "once 5")); err != nil || !res.Duplicate || res.Base != 5 {
		t.Fatalf("a retry across the takeover: %+v, %v", res, err)
	}
	if _, err := b.put(b.batchOf(7, 6, "once 6")); err != nil {
		t.Fatal(err)
	}
	b.signed(7)
	if h := c.hear(b); !h.Changed {
		t.Fatal("cid heard of no other leader")
	}
	c.reopen()
	c.pull(b, 1<<20)
	b.tell(c)
	committed(t, 7, b, c)
	if !a.Waits() || a.Leads() {
		t.Fatal("the old leader leads again without a word of anybody")
	}
	a.hear(b)
	a.reopen()
	a.pull(b, 1<<20)
	a.tell(b)
	committed(t, 7, a)
	same(t, b, a)
	sameProducers(t, b, a)
	for _, r := range []*replica{a, b, c} {
		r.restart()
	}
	if b.Leads() || !b.Waits() || a.Waits() || c.Waits() {
		t.Fatal("after a restart the leader of several waits, and nobody else")
	}
	takeOver(t, b, a)
	b.produce("more")
	c.hear(b)
	c.reopen()
	c.pull(b, 1<<20)
	b.signed(8)
	b.tell(c)
	same(t, b, c)
}

// TestPromiseFences: who has promised a later term acknowledges nothing of an older one,
// after a restart neither, and promises that term to nobody else.
func TestPromiseFences(t *testing.T) {
	a, b, c := trio(t, newClock())
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	c.pull(a, 1<<20)
	a.tell(b)
	acked := len(b.Acks())
	mine, err := c.Candidate(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Promise(mine); !errors.Is(err, partition.ErrLeadsOn) {
		t.Fatalf("the leader: %v", err)
	}
	first, err := b.Promise(mine)
	if err != nil {
		t.Fatal(err)
	}
	sizes := func(r *replica) (n uint64) {
		for _, x := range r.Acks() {
			if x.By == bob.Author() {
				n = uint64(len(x.Note))
			}
		}
		return n
	}
	had := sizes(b)
	a.produce("two")
	a.signed(2)
	for range 2 {
		b.pull(a, 1<<20) // it takes what it is given, for who is to lead may want it
		if len(b.Acks()) > acked || sizes(b) > had {
			t.Fatal("it acknowledged something of the old term")
		}
		if now := b.Position().Size; now != 2 {
			t.Fatalf("%d batches", now)
		}
		b.cut()
	}
	a.tell(b)
	committed(t, 1, a)
	again, err := b.Promise(mine)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := promise.Parse(first)
	y, _ := promise.Parse(again)
	if x.Term != y.Term || x.Candidate != y.Candidate || y.Held.Size < x.Held.Size {
		t.Fatalf("%+v, then %+v", x, y)
	}
	other, err := b.Candidate(0)
	if err != nil || other.Term <= mine.Term {
		t.Fatalf("%+v, %v", other, err)
	}
	mine.Incarnation++
	if _, err := b.Promise(mine); !errors.Is(err, promise.ErrBound) {
		t.Fatalf("another incarnation of the candidate: %v", err)
	}
}

// TestTakeoverCrashes stops all nodes, without a word, between any two steps of a takeover:
// then it is done again, and nothing acknowledged is lost.
func TestTakeoverCrashes(t *testing.T) {
	for step := range 5 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			a, b, c := trio(t, newClock())
			crash := func(at int) bool {
				if at != step {
					return false
				}
				for _, r := range []*replica{b, c} {
					r.cut()
				}
				return true
			}
			for i := range 5 {
				a.produce(fmt.Sprint(i))
				a.signed(uint64(i + 1))
				c.pull(a, 1<<20)
			}
			a.tell(c)
			committed(t, 5, a)
			a.close()
			b.hear(c) // it was never told a thing by the leader
			done := func() bool {
				mine, err := b.Candidate(0)
				if err != nil {
					t.Fatal(err)
				}
				own, err := b.Promise(mine)
				if err != nil {
					t.Fatal(err)
				}
				if crash(0) {
					return false
				}
				theirs, err := c.Promise(mine)
				if err != nil {
					t.Fatal(err)
				}
				if crash(1) {
					return false
				}
				b.pull(c, 1<<20)
				if crash(2) {
					return false
				}
				p, err := promise.Parse(theirs)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Succeed(mine, p.Held, append(own, theirs...)); err != nil {
					t.Fatal(err)
				}
				if crash(3) {
					return false
				}
				b.reopen()
				b.produce("of the new term")
				return !crash(4)
			}()
			if !done { // a restart is another incarnation: it asks again
				if b.Leads() {
					t.Fatal("it leads after a crash")
				}
				c.hear(b)
				c.reopen()
				takeOver(t, b, c)
			}
			b.signed(uint64(b.Bounds().End))
			c.hear(b)
			c.reopen()
			c.pull(b, 1<<20)
			b.tell(c)
			committed(t, b.Bounds().End, b, c)
			all := b.all()
			for i := range 5 {
				if !bytes.Contains(all, fmt.Append(nil, i)) {
					t.Fatalf("record %d was acknowledged, and is not there", i)
				}
			}
			if n := b.Bounds().End; n < 5 || step == 4 && n != 6 {
				t.Fatalf("%d records", n)
			}
		})
	}
}

// TestTwoCandidates: both get enough promises, one after the other. Who promised both
// acknowledges the later term alone, so nothing of the earlier one is ever committed.
func TestTwoCandidates(t *testing.T) {
	clock := newClock()
	a := newReplica(t, disk.NewMem(), ann, clock)
	b, c, d := newReplica(t, disk.NewMem(), bob, clock), newReplica(t, disk.NewMem(), cid, clock), newReplica(t, disk.NewMem(), dan, clock)
	for _, r := range []*replica{a, b, c, d} {
		r.replicas(3, ann, bob, cid, dan)
	}
	a.produce("one")
	a.signed(1)
	for _, r := range []*replica{b, c, d} {
		r.pull(a, 1<<20)
	}
	a.tell(b)
	a.tell(c)
	a.close() // 4 - 3 + 1: two promises are enough
	one, base, evidence := gather(t, b, d)
	two, base2, evidence2 := gather(t, c, d)
	if two.Term <= one.Term {
		t.Fatalf("terms %d and %d", one.Term, two.Term)
	}
	if err := b.Succeed(one, base, evidence); err != nil {
		t.Fatal(err)
	}
	if err := c.Succeed(two, base2, evidence2); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	c.reopen()
	// The one with the lower term finds nobody to acknowledge what nobody may write twice.
	b.produce("at the loser")
	b.signed(2)
	c.produce("led")
	c.signed(2)
	d.hear(c)
	d.reopen()
	d.pull(c, 1<<20)
	for _, x := range d.Acks() {
		_ = b.TakeAck(x.Note) // of a term that it does not know
	}
	c.tell(d)
	if len(b.Acks()) != 0 || b.Bounds().Committed > 1 {
		t.Fatalf("the loser's term has %d acknowledgements, and shows records up to %d", len(b.Acks()), b.Bounds().Committed)
	}
	if n := len(c.Acks()); n != 1 {
		t.Fatalf("the winner's term has %d acknowledgements, want dan's", n)
	}
}

// TestFetchesItsLogBack: a leader whose disk went back in time begins only with what the
// others have of what it had signed.
func TestFetchesItsLogBack(t *testing.T) {
	a, b, c := trio(t, newClock())
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	a.tell(b)
	old := a.fs.(*disk.Mem).CrashClone(0, nil)
	a.produce("two")
	a.signed(2)
	b.pull(a, 1<<20)
	a.tell(b)
	committed(t, 2, a)
	a.close()
	a.fs = old
	a.clock.Advance(time.Minute)
	a.open()
	if a.Leads() || a.Position().Size != 1 {
		t.Fatalf("it leads: %v, with %d batches", a.Leads(), a.Position().Size)
	}
	if _, err := a.put(a.batch("x")); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatalf("an append before it has it back: %v", err)
	}
	mine, base, evidence := gather(t, a, b)
	if base.Size != 2 {
		t.Fatalf("a base of %d batches", base.Size)
	}
	if err := a.Succeed(mine, base, evidence); !errors.Is(err, partition.ErrBase) {
		t.Fatalf("before it has the base: %v", err)
	}
	a.pull(b, 1<<20)
	if err := a.Succeed(mine, base, evidence); err != nil {
		t.Fatal(err)
	}
	a.reopen()
	a.produce("three")
	c.hear(a)
	c.reopen()
	c.pull(a, 1<<20)
	a.tell(c)
	committed(t, 3, a)
	if !bytes.Contains(a.all(), []byte("two")) {
		t.Fatal("what it had acknowledged is lost")
	}
}

// TestForgedTakeover: a grant of promises without those that make it is passed over.
func TestForgedTakeover(t *testing.T) {
	a, b, c := trio(t, newClock())
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	mine, err := b.Candidate(0)
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := b.Promise(mine)
	if err != nil {
		t.Fatal(err)
	}
	own, err := promise.Parse(evidence)
	if err != nil {
		t.Fatal(err)
	}
	base := own.Held
	g, err := grant.Sign(bob, grant.Grant{
		Store: mine.Store, Partition: mine.Partition, Term: mine.Term, Leader: mine.Candidate, Incarnation: mine.Incarnation,
		BaseSize: base.Size, BaseRoot: base.Root, BaseOffset: base.End, Previous: mine.Previous,
		AckSet: b.Ruling().AckSet, Min: b.Ruling().Min, Kind: grant.Promises,
	})
	if err != nil {
		t.Fatal(err)
	}
	told, err := a.Grants()
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string][]byte{"nothing": nil, "one promise": evidence, "one promise twice": append(bytes.Clone(evidence), evidence...)} {
		h, err := c.Heed(append(told, append(bytes.Clone(g.Bytes()), e...)))
		if err != nil || h.Changed || c.Leader() != ann.Author() {
			t.Errorf("with %s: %+v, %v", name, h, err)
		}
	}
	if err := b.Succeed(mine, base, evidence); !errors.Is(err, promise.ErrEvidence) {
		t.Errorf("the candidate itself: %v", err)
	}
}
