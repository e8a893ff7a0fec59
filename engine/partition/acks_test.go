package partition_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

var cid, dan = identity.FromSeed([32]byte{3}), identity.FromSeed([32]byte{4})

// trio is ann, who leads, with bob and cid, two of whom have to hold a record.
func trio(t *testing.T, clock *tick.Manual) (a, b, c *replica) {
	t.Helper()
	a = newReplica(t, disk.NewMem(), ann, clock)
	b, c = newReplica(t, disk.NewMem(), bob, clock), newReplica(t, disk.NewMem(), cid, clock)
	for _, r := range []*replica{a, b, c} { // the topic's configuration, which is the same on each node
		r.replicas(2, ann, bob, cid)
	}
	return a, b, c
}

// replicas changes who acknowledges.
func (r *replica) replicas(min int, keys ...identity.Key) {
	r.cfg.Replicas, r.cfg.MinInSync = nil, min
	for _, k := range keys {
		r.cfg.Replicas = append(r.cfg.Replicas, k.Author())
	}
	r.SetConfig(r.cfg)
}

// putAll begins an append with acks=all.
func (r *replica) putAll(b []byte, wait time.Duration) <-chan error {
	done := make(chan error, 1)
	r.Append(partition.Append{Batches: b, All: true, Wait: wait, Done: func(_ partition.Result, err error) { done <- err }})
	return done
}

// tell has a replica hear all acknowledgements that another has.
func (r *replica) tell(of *replica) {
	r.t.Helper()
	for _, x := range of.Acks() {
		if err := r.TakeAck(x.Note); err != nil && !errors.Is(err, partition.ErrAckOld) && !errors.Is(err, partition.ErrAckStranger) {
			r.t.Fatal(err)
		}
	}
}

// answer waits for an append's answer.
func answer(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("no answer")
		return nil
	}
}

func pending(t *testing.T, done <-chan error, why string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("answered (%v) though %s", err, why)
	default:
	}
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it never is so", what)
		}
	}
}

// durable waits until what was appended is signed.
func (r *replica) signed(size uint64) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); r.Position().Size < size; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%d batches are signed, want %d", r.Position().Size, size)
		}
	}
}

func committed(t *testing.T, want int64, all ...*replica) {
	t.Helper()
	for i, r := range all {
		if got := r.Bounds().Committed; got != want {
			t.Fatalf("replica %d shows records up to %d, want %d", i, got, want)
		}
	}
}

// TestAcksAll: with two of three, a record is committed when one follower has cosigned it,
// and answered when the other has, or was waited for long enough; readers see it on every
// node as soon as that node knows.
func TestAcksAll(t *testing.T) {
	clock := newClock()
	a, b, c := trio(t, clock)
	one := a.putAll(a.batch("one"), 20*time.Second)
	a.signed(1)
	pending(t, one, "nobody has acknowledged")
	committed(t, 0, a, b, c)
	b.pull(a, 1<<20)
	committed(t, 1, b) // the leader signed it, and this node holds it
	committed(t, 0, a)
	a.tell(b)
	committed(t, 1, a)
	pending(t, one, "a member in sync lacks it")
	c.pull(a, 1<<20)
	a.tell(c)
	if err := answer(t, one); err != nil {
		t.Fatal(err)
	}
	// The third is away: it is waited for once.
	two := a.putAll(a.batch("two"), 20*time.Second)
	a.signed(2)
	b.pull(a, 1<<20)
	a.tell(b)
	pending(t, two, "a member in sync lacks it")
	eventually(t, "it is let go", func() bool {
		clock.Advance(500 * time.Millisecond)
		return len(two) > 0
	})
	if err := answer(t, two); err != nil {
		t.Fatal(err)
	}
	if st := a.AckStatus(); st.Min != 2 || len(st.Replicas) != 3 || st.OnlyHere != 0 {
		t.Errorf("%+v", st)
	}
	three := a.putAll(a.batch("three"), 20*time.Second)
	a.signed(3)
	if st := a.AckStatus(); st.OnlyHere != 1 {
		t.Errorf("%+v", st)
	}
	b.pull(a, 1<<20)
	a.tell(b)
	if err := answer(t, three); err != nil {
		t.Fatal(err)
	}
	// It hears what is committed before it has it, and shows it when it has.
	c.tell(b)
	committed(t, 1, c)
	c.pull(a, 1<<20)
	committed(t, 3, a, b, c)
	if st := a.AckStatus(); !inSync(st, bob) || inSync(st, cid) {
		t.Errorf("in sync: %+v", st)
	}
	a.tell(c)
	if st := a.AckStatus(); !inSync(st, cid) {
		t.Errorf("not in sync again: %+v", st)
	}
}

func inSync(st partition.AckStatus, k identity.Key) bool {
	for _, r := range st.Replicas {
		if r.Node == k.Author() {
			return r.InSync
		}
	}
	return false
}

// TestNotEnough: without followers an append is durable and not committed; later ones are
// refused before they are written; a retry of the first finds its batch, and is
// answered when it is committed.
func TestNotEnough(t *testing.T) {
	clock := newClock()
	a, b, _ := trio(t, clock)
	build := func(seq uint32) []byte { // of an idempotent producer
		b := a.batch("v")
		binary.BigEndian.PutUint64(b[43:], 77)
		binary.BigEndian.PutUint16(b[51:], 0)
		binary.BigEndian.PutUint32(b[53:], seq)
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	one := a.putAll(build(0), 3*time.Second)
	a.signed(1)
	eventually(t, "its time is over", func() bool { clock.Advance(time.Second); return len(one) > 0 })
	if err := answer(t, one); !errors.Is(err, partition.ErrNotEnoughAfter) {
		t.Fatalf("%v, want not enough after append", err)
	}
	clock.Advance(time.Minute)
	if err := answer(t, a.putAll(build(1), time.Second)); !errors.Is(err, partition.ErrNotEnough) {
		t.Fatalf("%v, want not enough", err)
	}
	if end := a.Bounds().End; end != 1 {
		t.Fatalf("the log ends at %d, want 1", end)
	}
	if _, err := a.put(build(1)); err != nil { // acks=1 asks nobody
		t.Fatal(err)
	}
	committed(t, 0, a)
	b.pull(a, 1<<20)
	a.tell(b)
	committed(t, 2, a, b)
	if err := answer(t, a.putAll(build(0), time.Second)); err != nil {
		t.Fatalf("the retry: %v", err)
	}
	if end := a.Bounds().End; end != 2 {
		t.Errorf("the log ends at %d, want 2: the retry was appended", end)
	}
}

// TestCommittedOutlivesRestarts: the set is kept by a new start of the leader, and what was
// committed stays visible on all nodes without hearing of anybody.
func TestCommittedOutlivesRestarts(t *testing.T) {
	a, b, c := trio(t, newClock())
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	c.pull(a, 1<<20)
	a.tell(b)
	a.produce("two")
	a.signed(2)
	committed(t, 1, a, b, c)
	a.restart()
	b.restart()
	committed(t, 1, a, b)
	takeOver(t, a, b)
	b.hear(a)
	b.reopen()
	committed(t, 1, b)
	if st := a.AckStatus(); len(st.Replicas) != 3 || st.Min != 2 {
		t.Fatalf("%+v", st)
	}
	a.produce("three")
	a.signed(3)
	b.pull(a, 1<<20)
	a.tell(b)
	committed(t, 3, a, b)
	if _, err := a.Read(3, 100); err != nil {
		t.Error(err)
	}
	if s, err := c.Read(1, 100); err != nil || s.Len() != 0 {
		t.Errorf("what is here and not committed: %v", err)
	}
}

// TestSetShrinks: a set shrinks to the leader alone, which counts alone once enough of the
// larger set know of it; and it grows again, in as many terms as members change.
func TestSetShrinks(t *testing.T) {
	clock := newClock()
	a, b, c := trio(t, clock)
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	a.tell(b)
	committed(t, 1, a)
	a.replicas(1)
	if st := a.AckStatus(); len(st.Replicas) != 1 || st.Min != 1 {
		t.Fatalf("%+v", st)
	}
	a.produce("two")
	a.signed(2)
	committed(t, 1, a) // bob and cid could still give the log to one of them
	b.pull(a, 1<<20)
	c.pull(a, 1<<20)
	a.tell(b)
	a.tell(c)
	committed(t, 2, a)
	if err := answer(t, a.putAll(a.batch("three"), time.Second)); err != nil {
		t.Fatal(err)
	}
	committed(t, 3, a)
	b.pull(a, 1<<20)
	b.tell(a)
	committed(t, 3, b)
	a.restart()
	a.produce("four")
	committed(t, 4, a)
	a.replicas(2, ann, bob, cid, dan)
	if st := a.AckStatus(); len(st.Replicas) != 4 || st.Min != 2 {
		t.Fatalf("%+v", st)
	}
	b.pull(a, 1<<20)
	a.produce("five")
	a.signed(5)
	committed(t, 4, a)
	b.pull(a, 1<<20)
	a.tell(b)
	committed(t, 5, a, b)
}

// TestHostileAcks: each is refused by its name, and changes nothing.
func TestHostileAcks(t *testing.T) {
	clock := newClock()
	a, b, c := trio(t, clock)
	stranger := newReplica(t, disk.NewMem(), dan, clock)
	a.produce("one")
	a.signed(1)
	b.pull(a, 1<<20)
	first := b.Acks()[0].Note
	span, err := a.ReadSpan(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	byDan, err := cosign.Sign(dan, 1, span.Note, ann.Author())
	if err != nil {
		t.Fatal(err)
	}
	point, _, err := cosign.Peek(first)
	if err != nil {
		t.Fatal(err)
	}
	lie := func(change func(*merkle.Checkpoint)) []byte { // of what ann never signed
		p := point
		change(&p)
		note, err := merkle.SignCheckpoint(bob, p)
		if err == nil {
			note, err = cosign.Sign(cid, 1, note, bob.Author())
		}
		if err != nil {
			t.Fatal(err)
		}
		return note
	}
	forged := bytes.Clone(first)
	forged[len(forged)-10] ^= 1
	for _, x := range []struct {
		what string
		note []byte
		want error
	}{
		{"nothing", nil, cosign.ErrAck},
		{"no cosignature", span.Note, cosign.ErrAck},
		{"a changed signature", forged, partition.ErrAckForged},
		{"a stranger's", byDan, partition.ErrAckStranger},
		{"a size that was never signed", lie(func(p *merkle.Checkpoint) { p.Size, p.End = 9, 9 }), partition.ErrAckForged},
		{"of another log", lie(func(p *merkle.Checkpoint) { p.Origin += "1" }), partition.ErrAckForeign},
		{"of an older term", lie(func(p *merkle.Checkpoint) { p.Term--; p.Grant = lattice.Hash{1} }), partition.ErrAckOld},
		{"of a term to come", lie(func(p *merkle.Checkpoint) { p.Term++; p.Grant = lattice.Hash{1} }), partition.ErrAckEarly},
		{"of another term number", lie(func(p *merkle.Checkpoint) { p.Term++ }), partition.ErrAckTerm},
	} {
		for _, r := range []*replica{a, c} {
			if r == c && x.want != cosign.ErrAck && x.want != partition.ErrAckForeign {
				continue // it knows no term yet
			}
			if err := r.TakeAck(x.note); !errors.Is(err, x.want) && !(x.want == cosign.ErrAck && errors.Is(err, merkle.ErrCheckpoint)) {
				t.Errorf("%s: %v, want %v", x.what, err, x.want)
			}
		}
		committed(t, 0, a)
	}
	if err := a.TakeAck(first); err != nil {
		t.Fatal(err)
	}
	if err := a.TakeAck(first); !errors.Is(err, partition.ErrAckOld) {
		t.Errorf("again: %v", err)
	}
	committed(t, 1, a)
	stranger.pull(a, 1<<20)
	if len(stranger.Acks()) != 0 {
		t.Error("a node that is not in the set cosigned")
	}
}

// TestTwoHistories: a leader that goes on from one of its own heads twice gets one of them
// cosigned, whatever happens to the follower in between; the other follower's word for
// the other history commits nothing.
func TestTwoHistories(t *testing.T) {
	clock := newClock()
	fs := disk.NewMem()
	a := newReplica(t, fs, ann, clock)
	a.replicas(2, ann, bob, cid)
	b, c := newReplica(t, disk.NewMem(), bob, clock), newReplica(t, disk.NewMem(), cid, clock)
	a.produce("common")
	a.signed(1)
	b.pull(a, 1<<20)
	c.pull(a, 1<<20)
	a.tell(b)
	// The other self has the same grant, as if the disk had been copied while it ran: it
	// signs in the same term only if it does not begin another, so a liar is made by hand.
	a.produce("this")
	a.signed(2)
	b.pull(a, 1<<20)
	ack := b.Acks()[0].Note
	point, _, err := cosign.Peek(ack)
	if err != nil {
		t.Fatal(err)
	}
	other := point
	other.Root = lattice.Hash{66}
	note, err := merkle.SignCheckpoint(ann, other)
	if err == nil {
		note, err = cosign.Sign(bob, 1, note, ann.Author())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.TakeAck(note); !errors.Is(err, partition.ErrAckDiverged) {
		t.Errorf("another history of that size: %v", err)
	}
	if err := c.TakeAck(note); err != nil { // it has less, so it cannot tell yet
		t.Fatal(err)
	}
	committed(t, 1, c)
	c.pull(a, 1<<20)
	committed(t, 2, c) // by its own word: the lie did not hold
	if err := (cosign.LastOf(point)).May(other); !errors.Is(err, cosign.ErrOtherRoot) {
		t.Errorf("what bob signed last allows %v", err)
	}
	b.restart()
	if got := b.Acks(); len(got) != 1 {
		t.Fatalf("%d acknowledgements after a restart", len(got))
	} else if again, _, err := cosign.Peek(got[0].Note); err != nil || again != point {
		t.Errorf("after a restart it acknowledges %+v, %v", again, err)
	}
}

// TestFollowersWake: a reader that waits at a follower wakes when what it waits for is
// committed, not when it comes.
func TestFollowersWake(t *testing.T) {
	a, b, c := trio(t, newClock())
	e := newReplica(t, disk.NewMem(), dan, newClock()) // in no set
	woken := make(chan struct{})
	a.produce("one")
	a.signed(1)
	e.Wait(0, 1, func() { close(woken) })
	e.pull(a, 1<<20)
	committed(t, 0, e)
	select {
	case <-woken:
		t.Fatal("woken for what is not committed")
	default:
	}
	b.pull(a, 1<<20)
	e.tell(b)
	committed(t, 1, e)
	select {
	case <-woken:
	case <-time.After(time.Minute):
		t.Fatal("not woken")
	}
	c.pull(a, 1<<20)
}
