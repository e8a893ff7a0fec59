package node

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// honestSpan is what eve would send of a partition if she did not lie: n batches.
func (l *liar) honestSpan(id lattice.TopicPartition, n int) (s span.Span) {
	l.t.Helper()
	soon(l.t, "they are signed", func() (ok bool) {
		var err error
		s, _, err = newReplica(l.first, keyval.Staging{}).ReadSpan(l.t.Context(), id, 0, 1<<20)
		return err == nil && len(s.Batches) == n
	})
	return s
}

// resigned is a checkpoint that says something else, signed by a key.
func resigned(t *testing.T, note []byte, key identity.Key, change func(*merkle.Checkpoint)) []byte {
	t.Helper()
	c, err := merkle.PeekCheckpoint(note)
	if err != nil {
		t.Fatal(err)
	}
	change(&c)
	out, err := merkle.SignCheckpoint(key, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// another is a batch in the place of one, with other records and a right checksum.
func another(t *testing.T, b []byte) []byte {
	t.Helper()
	h, err := record.ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	x := record.NewBuilder(record.None, 0)
	for range h.Count {
		x.Add(h.BaseTimestamp, nil, []byte("another"), nil)
	}
	out := x.Build(nil)
	record.Place(out, h.BaseOffset, h.LeaderEpoch)
	return out
}

// treeOf is the tree over batches.
func treeOf(t *testing.T, all [][]byte) *merkle.Appender {
	t.Helper()
	left, err := merkle.NewRange(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := merkle.NewAppender(left)
	for _, b := range all {
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		leaf := merkle.Leaf{Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Epoch: h.LeaderEpoch, Length: uint32(len(b)), Sum: sha256.Sum256(b)}
		tree.Append(nil, leaf.Hash())
	}
	return tree
}

// endOf is the next offset of a partition in a store.
func endOf(t *testing.T, st *store.Store, id lattice.TopicPartition) int64 {
	t.Helper()
	return boundsOf(t, st, id).End
}

// shownOf is the offset up to which readers see a partition, a moment after it is there.
func shownOf(t *testing.T, st *store.Store, id lattice.TopicPartition) int64 {
	t.Helper()
	return boundsOf(t, st, id).Committed
}

func boundsOf(t *testing.T, st *store.Store, id lattice.TopicPartition) partition.Bounds {
	t.Helper()
	p, err := st.Partition(id.Topic, id.Partition)
	if err != nil {
		t.Fatal(err)
	}
	return p.Bounds()
}

// TestLiarsAboutRecords has the leader of a topic send spans of its partitions that are not
// what it signed, or that it should not have signed: each is refused with its reason, nothing of it
// is kept, and others' keys and records go on.
func TestLiarsAboutRecords(t *testing.T) {
	var lies, honest store.Topic
	c := newCourt(t, func(c *court) {
		honest = createOn(t, c.store, "honest", 1)
		lies = createOn(t, c.eve.first, "lies", 24)
		soon(t, "the topic", func() bool {
			_, a := c.store.TopicByID(lies.ID)
			_, b := c.bob.first.TopicByID(lies.ID)
			return a && b
		})
	})
	eve, next := c.eve, int32(-1)
	// led makes batches in a partition that nobody has heard of.
	led := func(n int) lattice.TopicPartition {
		next++
		id := lattice.TopicPartition{Topic: lies.ID, Partition: next}
		for range n {
			produceTo(t, eve.first, id, 2, "what eve signed")
		}
		return id
	}
	// follows has ann follow a partition at eve, up to size.
	follows := func(x *talk[batches.Message], id lattice.TopicPartition, size uint64, after uint32) (got batches.Follow) {
		x.write(batches.Encode(batches.Offer{Items: []batches.Item{{Partition: id, Size: size, Root: lattice.Hash{1}}}}))
		x.hears("it is followed", func(m batches.Message) bool {
			if all, ok := m.(batches.Follows); ok {
				i := slices.IndexFunc(all.All, func(f batches.Follow) bool { return f.Partition == id && f.Ask > after })
				if i >= 0 {
					got = all.All[i]
				}
				return i >= 0
			}
			return false
		})
		return got
	}
	refused := func(t *testing.T, x *talk[batches.Message], id lattice.TopicPartition, why reconcile.Reason) {
		t.Helper()
		got := x.hears("why", func(m batches.Message) bool { r, ok := m.(batches.Refuse); return ok && r.Partition == id })
		if r := got.(batches.Refuse); r.Reason != why {
			t.Errorf("refused as %q", r.Reason)
		}
	}
	undisturbed := func() {
		id := lattice.TopicPartition{Topic: honest.ID}
		produceTo(t, c.store, id, 3, "goes on")
		sameRecords(t, c.store, c.bob.first, id)
	}
	for _, lie := range []struct {
		what   string
		why    reconcile.Reason
		change func(t *testing.T, s *span.Span)
	}{
		{"a flipped bit", reconcile.Unproven, func(_ *testing.T, s *span.Span) { s.Batches[1] = bytes.Clone(s.Batches[1]); s.Batches[1][70] ^= 1 }},
		{"another record", reconcile.Unproven, func(t *testing.T, s *span.Span) { s.Batches[1] = another(t, s.Batches[1]) }},
		{"a forged checkpoint", reconcile.NotEntitled, func(t *testing.T, s *span.Span) {
			s.Note = resigned(t, s.Note, c.bob.key, func(*merkle.Checkpoint) {})
		}},
		{"a checkpoint of another log", reconcile.NotEntitled, func(t *testing.T, s *span.Span) {
			s.Note = resigned(t, s.Note, eve.key, func(p *merkle.Checkpoint) { p.Origin = merkle.Origin(c.store.Info().ID, "1") })
		}},
		{"a checkpoint of another store", reconcile.NotEntitled, func(t *testing.T, s *span.Span) {
			s.Note = resigned(t, s.Note, eve.key, func(p *merkle.Checkpoint) { p.Origin = merkle.Origin(lattice.StoreID{1}, s.Partition.String()) })
		}},
		{"a checkpoint of another tree", reconcile.Unproven, func(t *testing.T, s *span.Span) {
			s.Note = resigned(t, s.Note, eve.key, func(p *merkle.Checkpoint) { p.Root[0] ^= 1 })
		}},
		{"a term that nobody granted", reconcile.NotEntitled, func(_ *testing.T, s *span.Span) { s.Grants = nil }},
		{"another order", reconcile.Unproven, func(_ *testing.T, s *span.Span) { slices.Reverse(s.Batches) }},
		{"a batch left out", reconcile.Unproven, func(_ *testing.T, s *span.Span) { s.Batches = slices.Delete(s.Batches, 1, 2) }},
		{"a hole", reconcile.Hole, func(_ *testing.T, s *span.Span) { s.From, s.Batches = 1, s.Batches[1:] }},
		{"a far start", reconcile.Hole, func(_ *testing.T, s *span.Span) { s.From = 1 << 50 }},
		{"more than the leader signed", reconcile.Unproven, func(t *testing.T, s *span.Span) {
			more := another(t, s.Batches[2])
			h, err := record.ParseHeader(s.Batches[2])
			if err != nil {
				t.Fatal(err)
			}
			record.Place(more, h.NextOffset(), h.LeaderEpoch)
			s.Batches = append(s.Batches, more)
		}},
	} {
		c.refuses(lie.what, true, lie.why, func(t *testing.T) {
			id, x := led(3), eve.records()
			f := follows(x, id, 3, 0)
			m := batches.Spans{Ask: f.Ask, Size: 3, Span: eve.honestSpan(id, 3)}
			m.Span.Batches = slices.Clone(m.Span.Batches)
			lie.change(t, &m.Span)
			x.write(batches.Encode(m))
			refused(t, x, id, lie.why)
			if end := endOf(t, c.store, id); end != 0 {
				t.Errorf("the log ends at %d", end)
			}
			undisturbed()
		})
	}
	c.refuses("a start far ahead that was never signed", true, reconcile.Hole, func(t *testing.T) {
		id, x := led(3), eve.records()
		f := follows(x, id, 3, 0)
		x.write(batches.Encode(batches.Ended{Partition: id, Ask: f.Ask, First: 2}))
		f = follows(x, id, 3, f.Ask)
		s := eve.honestSpan(id, 3)
		s.From, s.Batches, s.Left = 2, s.Batches[2:], treeOf(t, s.Batches[:2]).Range().Hashes()
		x.write(batches.Encode(batches.Spans{Ask: f.Ask, Size: 3, Span: s}))
		refused(t, x, id, reconcile.Hole)
		if end := endOf(t, c.store, id); end != 0 {
			t.Errorf("the log ends at %d", end)
		}
	})
	c.refuses("what nobody asked for", true, reconcile.NotAsked, func(t *testing.T) {
		id, x := led(1), eve.records()
		x.write(batches.Encode(batches.Spans{Size: 1, Span: eve.honestSpan(id, 1)}))
	})
	c.refuses("more than a message may hold", true, reconcile.BadMessage, func(t *testing.T) {
		id, x := led(1), eve.records()
		f := follows(x, id, 1, 0)
		m := batches.Encode(batches.Spans{Ask: f.Ask, Size: 1, Span: eve.honestSpan(id, 1)})
		binary.BigEndian.PutUint32(m[4:], batches.MaxBatch+2<<20)
		x.write(m)
		x.over()
	})
	c.refuses("what was sent before", true, reconcile.Hole, func(t *testing.T) {
		id, x := led(2), eve.records()
		f := follows(x, id, 2, 0)
		m := batches.Encode(batches.Spans{Ask: f.Ask, Size: 2, Span: eve.honestSpan(id, 2)})
		x.write(m)
		soon(t, "it is taken", func() bool { return endOf(t, c.store, id) == 4 })
		x.write(m)
		refused(t, x, id, reconcile.Hole)
		if end := endOf(t, c.store, id); end != 4 {
			t.Errorf("the log ends at %d", end)
		}
	})
	// Two histories that the leader signed, the second longer: ann has the first and keeps it,
	// byte for byte, and tells of the other.
	for _, how := range []string{"longer", "as long"} {
		c.refuses("another history, "+how, true, reconcile.Rewritten, func(t *testing.T) {
			id, x := led(2), eve.records()
			f := follows(x, id, 2, 0)
			first := eve.honestSpan(id, 2)
			x.write(batches.Encode(batches.Spans{Ask: f.Ask, Size: 2, Span: first}))
			soon(t, "the first history", func() bool { return shownOf(t, c.store, id) == 4 })
			was := bytesOf(t, c.store, id, 0)
			produceTo(t, eve.first, id, 2, "more")
			second := eve.honestSpan(id, 3)
			other := [][]byte{another(t, second.Batches[0]), another(t, second.Batches[1]), second.Batches[2]}
			tree := treeOf(t, other)
			if how == "as long" {
				x.write(batches.Encode(batches.Offer{Items: []batches.Item{{Partition: id, Size: 2, Root: treeOf(t, other[:2]).Root()}}}))
			} else {
				second.Note = resigned(t, second.Note, eve.key, func(p *merkle.Checkpoint) { p.Root = tree.Root() })
				second.From, second.Batches, second.Left, second.Proof = 2, other[2:], treeOf(t, other[:2]).Range().Hashes(), nil
				x.write(batches.Encode(batches.Spans{Ask: f.Ask, Size: 3, Span: second}))
				refused(t, x, id, reconcile.Rewritten)
			}
			undisturbed()
			if got := bytesOf(t, c.store, id, 0); !bytes.Equal(got, was) {
				t.Error("readers see another history")
			}
		})
	}
	c.shows(true, reconcile.Unproven, reconcile.NotEntitled, reconcile.Hole, reconcile.NotAsked, reconcile.BadMessage, reconcile.Rewritten)

}
