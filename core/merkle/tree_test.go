package merkle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

func leafHash(i uint64) lattice.Hash {
	return Leaf{Base: int64(i), Last: int64(i), Length: 1, Sum: lattice.Hash{byte(i)}}.Hash()
}

// oracle is a whole tree as x/mod/sumdb/tlog keeps it.
type oracle []tlog.Hash

func (o oracle) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		out[i] = o[at]
	}
	return out, nil
}

func (o *oracle) add(t testing.TB, n uint64, h lattice.Hash) {
	more, err := tlog.StoredHashesForRecordHash(int64(n), tlog.Hash(h), *o)
	if err != nil {
		t.Fatal(err)
	}
	*o = append(*o, more...)
}

func (o oracle) root(t testing.TB, size uint64) lattice.Hash {
	h, err := tlog.TreeHash(int64(size), o)
	if err != nil {
		t.Fatal(err)
	}
	return lattice.Hash(h)
}

// whole is a tree with nothing dropped, beside its oracle.
type whole struct {
	leaves []lattice.Hash
	upper  map[[2]uint64]lattice.Hash
	ranges []Range // by size
	tlog   oracle
}

func grow(t testing.TB, n uint64, oracled bool) *whole {
	w := &whole{upper: map[[2]uint64]lattice.Hash{}, ranges: []Range{{}}}
	a := NewAppender(Range{})
	for i := range n {
		h := leafHash(i)
		w.leaves = append(w.leaves, h)
		for _, node := range a.Append(nil, h) {
			w.upper[[2]uint64{uint64(node.Level), node.Index}] = node.Hash
		}
		w.ranges = append(w.ranges, a.Range())
		if oracled {
			w.tlog.add(t, i, h)
		}
	}
	return w
}

// source returns what a log keeps after dropping the first prefix leaves, and
// fails the test when more is asked for than it may cost.
func (w *whole) source(t testing.TB, prefix uint64) Source {
	return Source{
		Leaves: func(from, to uint64) ([]lattice.Hash, error) {
			if from < prefix || to-from > 128 || to <= from {
				t.Fatalf("asks for leaves %d to %d, the prefix is %d", from, to, prefix)
			}
			return w.leaves[from:to], nil
		},
		Upper: func(level uint, index uint64) (lattice.Hash, error) {
			h, ok := w.upper[[2]uint64{uint64(level), index}]
			if !ok {
				t.Fatalf("asks for node (%d, %d), which was never complete", level, index)
			}
			return h, nil
		},
		Prefix: w.ranges[prefix],
	}
}

func TestAppenderAgainstOracles(t *testing.T) {
	f := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	a, c := NewAppender(Range{}), f.NewEmptyRange(0)
	var o oracle
	stored := 0
	if a.Root() != EmptyRoot() || !bytes.Equal(rfc6962.DefaultHasher.EmptyRoot(), a.Range().root()) {
		t.Error("root of the empty tree")
	}
	for i := range uint64(1500) {
		h := leafHash(i)
		o.add(t, i, h)
		want := map[Node]bool{}
		err := c.Append(slices.Clone(h[:]), func(id compact.NodeID, hash []byte) {
			if slices.Contains(StoredLevels(), id.Level) {
				want[Node{id.Level, id.Index, lattice.Hash(hash)}] = true
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		done := a.Append(nil, h)
		stored += len(done)
		for _, n := range done {
			if !want[n] {
				t.Fatalf("leaf %d completes %+v", i, n)
			}
		}
		if len(done) != len(want) {
			t.Fatalf("leaf %d completes %d nodes, want %d", i, len(done), len(want))
		}
		r := a.Range()
		if r.Size() != i+1 || a.Size() != i+1 || a.Root() != o.root(t, i+1) || r.Root() != a.Root() {
			t.Fatalf("size %d: roots differ", i+1)
		}
		for j, h := range c.Hashes() {
			if r.Hashes()[j] != lattice.Hash(h) {
				t.Fatalf("size %d: compact hash %d differs", i+1, j)
			}
		}
	}
	if stored != 5 {
		t.Errorf("%d stored nodes, want 5", stored)
	}
}

func (r Range) root() []byte { h := r.Root(); return h[:] }

func TestStoredNodesOfLargeTree(t *testing.T) {
	count := map[uint]int{}
	a := NewAppender(Range{})
	var done []Node
	for i := range uint64(3<<16 + 5) {
		done = a.Append(done[:0], leafHash(i))
		for _, n := range done {
			if n.Index != uint64(count[n.Level]) {
				t.Fatalf("level %d: index %d after %d nodes: a hole", n.Level, n.Index, count[n.Level])
			}
			count[n.Level]++
		}
	}
	if count[8] != 3<<8 || count[16] != 3 || len(count) != 2 {
		t.Errorf("stored %v", count)
	}
}

// TestResume: an appender that goes on from marshalled bytes is the same one.
func TestResume(t *testing.T) {
	w := grow(t, 1200, false)
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Uint64Range(0, 1200).Draw(t, "at")
		r, err := ParseRange(w.ranges[at].AppendTo(nil))
		if err != nil || !r.Equal(w.ranges[at]) {
			t.Fatalf("ParseRange: %v", err)
		}
		again, err := NewRange(r.Size(), r.Hashes())
		if err != nil || !again.Equal(r) {
			t.Fatalf("NewRange: %v", err)
		}
		a := NewAppender(r)
		end := rapid.Uint64Range(at, min(1200, at+300)).Draw(t, "end")
		for i := at; i < end; i++ {
			for _, n := range a.Append(nil, w.leaves[i]) {
				if w.upper[[2]uint64{uint64(n.Level), n.Index}] != n.Hash {
					t.Fatalf("node %+v differs", n)
				}
			}
		}
		if !a.Range().Equal(w.ranges[end]) || a.Root() != w.ranges[end].Root() {
			t.Fatalf("resumed at %d: range of %d differs", at, end)
		}
	})
}

// FuzzCutRange checks, for any input: no panic; what parses encodes back to the
// exact bytes it came from; the rest is a suffix of the input.
func FuzzCutRange(f *testing.F) {
	w := grow(f, 11, false)
	f.Add(w.ranges[11].AppendTo(nil))
	f.Add(w.ranges[0].AppendTo(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 60))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := CutRange(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if again := append(r.AppendTo(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("encodes back as %x, was %x", again, b)
		}
		if bits.OnesCount64(r.Size()) != len(r.Hashes()) {
			t.Fatal("hashes and size disagree")
		}
		r.Root()
	})
}

// TestRangeOwnsItsMemory: the library's compact range aliases what it is given;
// ours does not.
func TestRangeOwnsItsMemory(t *testing.T) {
	in := []lattice.Hash{{1}, {2}}
	r, err := NewRange(3, in)
	if err != nil {
		t.Fatal(err)
	}
	root := r.Root()
	in[0][0], r.Hashes()[1][0] = 9, 9
	NewAppender(r).Append(nil, lattice.Hash{})
	if r.Root() != root {
		t.Error("the range changed with the caller's slice")
	}
	if _, err := NewRange(3, in[:1]); !errors.Is(err, ErrMalformed) {
		t.Errorf("one hash for size 3: %v", err)
	}
}

func TestHashesAgainstLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := leaves().Draw(t, "leaf")
		rec := l.AppendTo(nil)
		if h := l.Hash(); !bytes.Equal(h[:], rfc6962.DefaultHasher.HashLeaf(rec)) || h != LeafHash((*[LeafSize]byte)(rec)) {
			t.Fatal("leaf hash differs")
		}
		a, b := l.Hash(), lattice.Hash(rec[:32])
		if h := NodeHash(a, b); !bytes.Equal(h[:], rfc6962.DefaultHasher.HashChildren(a[:], b[:])) {
			t.Fatal("node hash differs")
		}
	})
}

func leaves() *rapid.Generator[Leaf] {
	return rapid.Custom(func(t *rapid.T) Leaf {
		base := rapid.Int64Min(0).Draw(t, "base")
		l := Leaf{
			Base: base, Last: rapid.Int64Min(base).Draw(t, "last"), MaxTime: rapid.Int64().Draw(t, "time"),
			Epoch: rapid.Int32Min(-1).Draw(t, "epoch"), Length: rapid.Uint32Min(1).Draw(t, "length"),
		}
		copy(l.Sum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sum"))
		return l
	})
}

// FuzzParseLeaf checks, for any input: no panic; what parses encodes back to the
// exact bytes it came from.
func FuzzParseLeaf(f *testing.F) {
	f.Add(Leaf{Base: 1, Last: 2, MaxTime: 3, Epoch: 4, Length: 5, Sum: lattice.Hash{6}}.AppendTo(nil))
	f.Add(make([]byte, LeafSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLeaf(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(l.AppendTo(nil), b) {
			t.Fatalf("%x parses as %+v", b, l)
		}
	})
}

func TestLeafRefused(t *testing.T) {
	good := Leaf{Base: 1, Last: 1, Length: 1}.AppendTo(nil)
	for name, change := range map[string]func(b []byte) []byte{
		"short":           func(b []byte) []byte { return b[:63] },
		"long":            func(b []byte) []byte { return append(b, 0) },
		"negative base":   func(b []byte) []byte { b[0] = 0x80; return b },
		"last below base": func(b []byte) []byte { b[15] = 0; return b },
		"epoch -2":        func(b []byte) []byte { binary.BigEndian.PutUint32(b[24:], ^uint32(1)); return b },
		"empty block":     func(b []byte) []byte { b[31] = 0; return b },
	} {
		if l, err := ParseLeaf(change(bytes.Clone(good))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	a := NewAppender(Range{})
	l, done := Leaf{Length: 1}, make([]Node, 0, 4)
	if n := testing.AllocsPerRun(2000, func() { done = a.Append(done[:0], l.Hash()) }); n != 0 {
		t.Errorf("%v allocations a leaf, want none", n)
	}
	if n := testing.AllocsPerRun(100, func() { a.Root() }); n != 0 {
		t.Errorf("%v allocations a root, want none", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	a, l := NewAppender(Range{}), Leaf{Length: 1}
	var done []Node
	b.ReportAllocs()
	for b.Loop() {
		l.Base++
		done = a.Append(done[:0], l.Hash())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leaves/s")
}

func BenchmarkInclusion(b *testing.B) {
	for _, size := range []uint64{1 << 10, 1 << 17} {
		w := grow(b, size, false)
		s := w.source(b, 0)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				if _, err := Inclusion(s, size/3, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
