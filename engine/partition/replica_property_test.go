package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestReplicaProperty: a leader appends at random, by itself, for idempotent producers
// and in transactions, restarts, and truncates. A follower that is there from the
// beginning and one that comes and goes receive spans of random sizes, some twice, out
// of order, late, or with a lie. In the end they are what the leader is, and no lie
// was taken.
func TestReplicaProperty(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { property(t, seed) })
	}
}

type run struct {
	t         *testing.T
	r         *rand.Rand
	a, b      *replica
	seq       map[int64]int32
	open      map[int64]bool
	old       []span.Span // received before
	truncated bool        // while b lagged behind
}

func property(t *testing.T, seed uint64) {
	clock := newClock()
	x := run{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), seq: map[int64]int32{}, open: map[int64]bool{},
		a: newReplica(t, disk.NewMem(), ann, clock), b: newReplica(t, disk.NewMem(), bob, clock),
	}
	for range 250 {
		clock.Advance(time.Duration(x.r.IntN(50)) * time.Millisecond)
		switch n := x.r.IntN(20); {
		case n < 8:
			x.write()
		case n < 10:
			x.endOne()
		case n == 10:
			x.a.restart()
		case n == 11:
			x.b.restart()
		case n == 12 && x.r.IntN(4) == 0:
			bounds := x.a.Bounds()
			to := bounds.Start + x.r.Int64N(bounds.Committed-bounds.Start+1)
			x.truncated = x.truncated || to > x.b.Position().End
			if _, err := x.a.Truncate(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		case n == 13 && len(x.old) > 0:
			s := x.old[x.r.IntN(len(x.old))]
			if kept, err := x.b.Receive(s); err != nil || kept != len(s.Batches) {
				t.Fatalf("an old span again: %d of %d, %v", kept, len(s.Batches), err)
			}
		case n == 14:
			x.early()
		default:
			x.step()
		}
	}
	for id := range x.open {
		x.a.end(id, 0, true)
	}
	x.a.produce("last")
	x.b.pull(x.a, 1+x.r.IntN(3000))
	x.b.adopt(x.a)
	same(t, x.a, x.b)
	if !x.truncated {
		sameProducers(t, x.a, x.b)
	}
	x.b.restart()
	same(t, x.a, x.b)
	if !x.truncated {
		sameProducers(t, x.a, x.b)
	}
	c := newReplica(t, disk.NewMem(), identity.FromSeed([32]byte{3}), clock)
	c.pull(x.b, 500)
	same(t, x.a, c)
	for _, r := range []*replica{x.a, x.b, c} {
		r.close()
	}
}

// write appends one batch.
func (x *run) write() {
	values := make([]string, 1+x.r.IntN(5))
	for i := range values {
		values[i] = fmt.Sprint("value ", x.r.IntN(1e6))
	}
	b := x.a.batch(values...)
	id := int64(x.r.IntN(6)) - 2 // below 0: not idempotent; 2 and 3 in transactions
	if id >= 0 {
		record.SetProducer(b, id, 0, x.seq[id])
		x.seq[id] += int32(len(values))
	}
	if id >= 2 {
		record.SetTransactional(b)
		x.open[id] = true
	}
	if _, err := x.a.put(b); err != nil {
		x.t.Fatal(err)
	}
}

func (x *run) endOne() {
	for id := range int64(4) {
		if x.open[id] {
			delete(x.open, id)
			x.a.end(id, 0, x.r.IntN(2) == 0)
			return
		}
	}
}

// early offers what is not next: it is refused unless it is here already.
func (x *run) early() {
	at := x.b.Position()
	from := at.Size + 1 + x.r.Uint64N(5)
	s, err := x.a.ReadSpan(from, 500)
	if err != nil {
		return
	}
	kept, err := x.b.Receive(s)
	if x.a.Bounds().Start > 0 && err == nil {
		x.truncated = true // it jumped, because nothing before it is offered
		return
	}
	if kept != 0 || lattice.KindOf(err) != lattice.NotYet && !errors.Is(err, partition.ErrGrant) && !errors.Is(err, partition.ErrNote) {
		x.t.Fatalf("a span with a hole before it: %d, %v", kept, err)
	}
}

// step receives the next span, after some lies about it.
func (x *run) step() {
	at := x.b.Position()
	from := at.Size - min(at.Size, x.r.Uint64N(3))
	s, err := x.a.ReadSpan(from, 1+x.r.IntN(2000))
	if lattice.KindOf(err) == lattice.OutOfRange {
		s, err = x.a.ReadSpan(s.From, 1+x.r.IntN(2000))
		x.truncated = x.truncated || s.From > at.Size
	}
	if lattice.KindOf(err) == lattice.NotYet {
		return
	}
	if err != nil {
		x.t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(lies)) {
		bad := clone(s)
		if !lies[name](x, &bad) {
			continue
		}
		if kept, err := x.b.Receive(bad); err == nil || kept != 0 {
			x.t.Fatalf("a lie was taken (%s): %d", name, kept)
		} else if k := lattice.KindOf(err); k == lattice.Internal || k == lattice.Storage || k == lattice.Unavailable {
			x.t.Fatalf("a lie (%s): %v", name, err)
		}
		if now := x.b.Position(); now != at {
			x.t.Fatalf("a lie (%s) moved the follower from %+v to %+v", name, at, now)
		}
	}
	if kept, err := x.b.Receive(s); err != nil || kept != len(s.Batches) {
		x.t.Fatalf("kept %d of %d: %v", kept, len(s.Batches), err)
	}
	x.old = append(x.old, s)
}

func clone(s span.Span) span.Span {
	for _, part := range []*[][]byte{&s.Batches, &s.Grants} {
		*part = slices.Clone(*part)
		for i := range *part {
			(*part)[i] = slices.Clone((*part)[i])
		}
	}
	s.Note, s.Left, s.Proof = slices.Clone(s.Note), slices.Clone(s.Left), slices.Clone(s.Proof)
	return s
}

// lies change a span so that it must be refused; false: this one cannot be.
var lies = map[string]func(*run, *span.Span) bool{
	"another partition": func(_ *run, s *span.Span) bool { s.Partition.Partition++; return true },
	"a flipped bit": func(x *run, s *span.Span) bool {
		b := s.Batches[x.r.IntN(len(s.Batches))]
		b[61+x.r.IntN(len(b)-61)] ^= 1 << x.r.IntN(8)
		return true
	},
	"another batch, whole": func(x *run, s *span.Span) bool {
		h, err := record.ParseHeader(s.Batches[0])
		if err != nil || h.Count != 1 || h.Control() {
			return false
		}
		b := x.a.batch("forged")
		record.Place(b, h.BaseOffset, h.LeaderEpoch)
		s.Batches[0] = b
		return true
	},
	"a batch left out": func(_ *run, s *span.Span) bool {
		s.Batches = slices.Delete(s.Batches, 0, 1)
		return len(s.Batches) > 0
	},
	"batches swapped": func(_ *run, s *span.Span) bool {
		if len(s.Batches) < 2 {
			return false
		}
		s.Batches[0], s.Batches[1] = s.Batches[1], s.Batches[0]
		return true
	},
	"one batch twice": func(_ *run, s *span.Span) bool {
		s.Batches = slices.Insert(s.Batches, 0, s.Batches[0])
		return true
	},
	"a wrong number": func(_ *run, s *span.Span) bool { s.From++; return true },
	"a far start":    func(_ *run, s *span.Span) bool { s.From += 1 << 40; return true },
	"a changed range": func(_ *run, s *span.Span) bool {
		if len(s.Left) == 0 {
			return false
		}
		s.Left[0][3] ^= 1
		return true
	},
	"a changed proof": func(_ *run, s *span.Span) bool {
		if len(s.Proof) == 0 {
			return false
		}
		s.Proof[len(s.Proof)-1][3] ^= 1
		return true
	},
	"no checkpoint": func(_ *run, s *span.Span) bool { s.Note = nil; return true },
	"a changed checkpoint": func(x *run, s *span.Span) bool {
		s.Note[x.r.IntN(bytes.Index(s.Note, []byte("\n\n")))] ^= 1
		return true
	},
	"a stranger's checkpoint": func(_ *run, s *span.Span) bool {
		c, err := merkle.OpenCheckpoint(s.Note, ann.Author())
		if err == nil {
			s.Note, err = merkle.SignCheckpoint(bob, c)
		}
		return err == nil
	},
	"the leader's checkpoint of another log": func(_ *run, s *span.Span) bool {
		c, err := merkle.OpenCheckpoint(s.Note, ann.Author())
		c.Origin = merkle.Origin(store, "another")
		if err == nil {
			s.Note, err = merkle.SignCheckpoint(ann, c)
		}
		return err == nil
	},
	"of the same size, another root": func(_ *run, s *span.Span) bool {
		c, err := merkle.OpenCheckpoint(s.Note, ann.Author())
		c.Root[5] ^= 1
		if err == nil {
			s.Note, err = merkle.SignCheckpoint(ann, c)
		}
		return err == nil
	},
	"a term that is not granted": func(_ *run, s *span.Span) bool {
		c, err := merkle.OpenCheckpoint(s.Note, ann.Author())
		c.Term--
		if err == nil {
			s.Note, err = merkle.SignCheckpoint(ann, c)
		}
		return err == nil
	},
	"a stranger's grant": func(_ *run, s *span.Span) bool {
		g, err := grant.Parse(s.Grants[len(s.Grants)-1])
		if err != nil {
			return false
		}
		g.Leader, g.AckSet, g.Term, g.Previous = bob.Author(), []lattice.AuthorID{bob.Author()}, g.Term+1, g.ID
		f, err := grant.Sign(bob, g.Grant)
		s.Grants = append(s.Grants, f.Bytes())
		return err == nil
	},
	"a grant of another partition": func(_ *run, s *span.Span) bool {
		g, err := grant.Parse(s.Grants[len(s.Grants)-1])
		if err != nil {
			return false
		}
		g.Partition.Partition++
		f, err := grant.Sign(ann, g.Grant)
		s.Grants = append(s.Grants, f.Bytes())
		return err == nil
	},
	"a term that is over": func(_ *run, s *span.Span) bool {
		for i, b := range s.Batches {
			h, err := record.ParseHeader(b)
			if err != nil {
				return false
			}
			record.Place(s.Batches[i], h.BaseOffset, h.LeaderEpoch-1)
		}
		return true
	},
	"too many batches": func(_ *run, s *span.Span) bool { s.Batches = make([][]byte, 1<<16+1); return true },
	"too many bytes": func(x *run, s *span.Span) bool {
		if x.r.IntN(30) > 0 {
			return false
		}
		s.Batches = append(s.Batches, make([]byte, 64<<20))
		return true
	},
	"too many hashes": func(_ *run, s *span.Span) bool { s.Left = make([]lattice.Hash, 129); return true },
}
