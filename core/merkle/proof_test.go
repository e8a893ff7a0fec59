package merkle

import (
	"errors"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

func equalProof(a []lattice.Hash, b []tlog.Hash) bool {
	return slices.EqualFunc(a, b, func(x lattice.Hash, y tlog.Hash) bool { return x == lattice.Hash(y) })
}

// TestProofsAfterTruncation: for random sizes and dropped prefixes, every proof
// for what remains is tlog's proof and verifies; consistency from each multiple
// of 256 below the prefix works; anything else below the prefix either works or
// is refused as dropped.
func TestProofsAfterTruncation(t *testing.T) {
	const most = 3000
	w := grow(t, most, true)
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Uint64Range(1, most).Draw(rt, "size")
		prefix := rapid.Uint64Range(0, size).Draw(rt, "prefix")
		s, root := w.source(t, prefix), w.ranges[size].Root()

		check1 := func(index uint64) {
			p, err := Inclusion(s, index, size)
			if err != nil {
				if index >= prefix || !errors.Is(err, ErrDropped) || lattice.KindOf(err) != lattice.OutOfRange {
					rt.Fatalf("inclusion of %d: %v", index, err)
				}
				return
			}
			want, _ := tlog.ProveRecord(int64(size), int64(index), w.tlog)
			if !equalProof(p, want) {
				rt.Fatalf("inclusion of %d is not the oracle's", index)
			}
			if err := VerifyInclusion(index, size, w.leaves[index], p, root); err != nil {
				rt.Fatal(err)
			}
		}
		check2 := func(size1 uint64) {
			p, err := Consistency(s, size1, size)
			if err != nil {
				if size1 >= prefix || size1%256 == 0 || !errors.Is(err, ErrDropped) {
					rt.Fatalf("consistency of %d: %v", size1, err)
				}
				return
			}
			if size1 > 0 {
				want, _ := tlog.ProveTree(int64(size), int64(size1), w.tlog)
				if !equalProof(p, want) {
					rt.Fatalf("consistency of %d is not the oracle's", size1)
				}
			}
			if err := VerifyConsistency(size1, size, p, w.ranges[size1].Root(), root); err != nil {
				rt.Fatal(err)
			}
		}
		for range 20 {
			check1(rapid.Uint64Range(0, size-1).Draw(rt, "index"))
			if prefix < size {
				check1(rapid.Uint64Range(prefix, size-1).Draw(rt, "index kept"))
			}
			check2(rapid.Uint64Range(0, size).Draw(rt, "size1"))
			check2(rapid.Uint64Range(prefix, size).Draw(rt, "size1 kept"))
		}
		for b := uint64(0); b <= size; b += 256 {
			check2(b)
		}
	})
}

// TestProofsOfEveryIndex does the same for all of a small tree, and for some of
// one that has nodes stored at level 16.
func TestProofsOfEveryIndex(t *testing.T) {
	w := grow(t, 300, true)
	for _, prefix := range []uint64{0, 1, 7, 128, 255, 256, 257, 299, 300} {
		s := w.source(t, prefix)
		for size := max(prefix, 1); size <= 300; size += 13 {
			for index := prefix; index < size; index++ {
				p, err := Inclusion(s, index, size)
				if err == nil {
					err = VerifyInclusion(index, size, w.leaves[index], p, w.ranges[size].Root())
				}
				if err != nil {
					t.Fatalf("prefix %d: %v", prefix, err)
				}
			}
		}
	}
	const big = 1<<17 + 1<<16 + 777
	w = grow(t, big, false)
	for _, prefix := range []uint64{0, 1 << 16, 1<<17 + 300, big - 1} {
		s := w.source(t, prefix)
		for _, index := range []uint64{prefix, big - 1, (prefix + big) / 2} {
			p, err := Inclusion(s, index, big)
			if err == nil {
				err = VerifyInclusion(index, big, w.leaves[index], p, w.ranges[big].Root())
			}
			if err != nil {
				t.Fatalf("prefix %d: %v", prefix, err)
			}
		}
		for _, size1 := range []uint64{256, 1 << 16, 1<<16 + 256, 3 << 15, big} {
			p, err := Consistency(s, size1, big)
			if err == nil {
				err = VerifyConsistency(size1, big, p, w.ranges[size1].Root(), w.ranges[big].Root())
			}
			if err != nil {
				t.Fatalf("prefix %d: %v", prefix, err)
			}
		}
	}
}

// TestWrongProofs: whatever is changed about a true statement makes it false.
func TestWrongProofs(t *testing.T) {
	w := grow(t, 700, false)
	s := w.source(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(2, 700).Draw(t, "size")
		index := rapid.Uint64Range(0, size-1).Draw(t, "index")
		size1 := rapid.Uint64Range(1, size-1).Draw(t, "size1")
		root, root1, leaf := w.ranges[size].Root(), w.ranges[size1].Root(), w.leaves[index]
		inc, err := Inclusion(s, index, size)
		con, err2 := Consistency(s, size1, size)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		bad := func(p []lattice.Hash) []lattice.Hash {
			p = slices.Clone(p)
			p[rapid.IntRange(0, len(p)-1).Draw(t, "at")][rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
			return p
		}
		flip := func(h lattice.Hash) lattice.Hash { h[5] ^= 1; return h }
		for name, err := range map[string]error{
			"inclusion, other leaf":        VerifyInclusion(index, size, flip(leaf), inc, root),
			"inclusion, other root":        VerifyInclusion(index, size, leaf, inc, flip(root)),
			"inclusion, other hash":        VerifyInclusion(index, size, leaf, bad(inc), root),
			"inclusion, one hash less":     VerifyInclusion(index, size, leaf, inc[1:], root),
			"inclusion, one hash more":     VerifyInclusion(index, size, leaf, append(slices.Clone(inc), root), root),
			"inclusion, other index":       VerifyInclusion(index^1, size, leaf, inc, root),
			"inclusion, index beyond":      VerifyInclusion(size, size, leaf, inc, root),
			"consistency, other root":      VerifyConsistency(size1, size, con, root1, flip(root)),
			"consistency, other old root":  VerifyConsistency(size1, size, con, flip(root1), root),
			"consistency, other hash":      VerifyConsistency(size1, size, bad(con), root1, root),
			"consistency, one hash less":   VerifyConsistency(size1, size, con[1:], root1, root),
			"consistency, shrinks":         VerifyConsistency(size, size1, con, root, root1),
			"consistency, same size":       VerifyConsistency(size, size, nil, flip(root), root),
			"consistency, from no blocks":  VerifyConsistency(0, size, nil, root1, root),
			"consistency, to another none": VerifyConsistency(0, 0, nil, EmptyRoot(), root1),
		} {
			if !errors.Is(err, ErrProof) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := VerifyConsistency(0, size, nil, EmptyRoot(), root); err != nil {
			t.Errorf("every tree extends the empty one: %v", err)
		}
	})
}

func TestProofBounds(t *testing.T) {
	s := grow(t, 10, false).source(t, 0)
	for name, err := range map[string]error{
		"inclusion in nothing":   second(Inclusion(s, 0, 0)),
		"inclusion beyond":       second(Inclusion(s, 10, 10)),
		"consistency backwards":  second(Consistency(s, 5, 4)),
		"a level above the most": second(s.Node(MaxLevel+1, 0)),
		"an absurd index":        second(s.Node(3, 1<<60)),
	} {
		if !errors.Is(err, ErrBounds) || lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%s: %v, want ErrBounds", name, err)
		}
	}
}

// TestSourceFailures: what a reader of files returns comes through, and a short
// answer is not taken for data.
func TestSourceFailures(t *testing.T) {
	w := grow(t, 600, false)
	broken := lattice.E(lattice.Storage, errors.New("disk on fire"))
	s := w.source(t, 0)
	s.Leaves = func(uint64, uint64) ([]lattice.Hash, error) { return nil, broken }
	if _, err := Inclusion(s, 3, 600); !errors.Is(err, broken) || lattice.KindOf(err) != lattice.Storage {
		t.Errorf("leaves: %v", err)
	}
	s = w.source(t, 0)
	s.Upper = func(uint, uint64) (lattice.Hash, error) { return lattice.Hash{}, broken }
	if _, err := Inclusion(s, 599, 600); !errors.Is(err, broken) {
		t.Errorf("upper: %v", err)
	}
	s = w.source(t, 0)
	s.Leaves = func(from, to uint64) ([]lattice.Hash, error) { return w.leaves[from : to-1], nil }
	if _, err := Inclusion(s, 3, 600); lattice.KindOf(err) != lattice.Corrupt {
		t.Errorf("a short answer: %v", err)
	}
	before := slices.Clone(w.leaves)
	if _, err := Inclusion(w.source(t, 0), 3, 600); err != nil || !slices.Equal(before, w.leaves) {
		t.Errorf("reading changed the caller's leaves, or %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestHighLevels folds nodes that no test could fill with leaves.
func TestHighLevels(t *testing.T) {
	reads := 0
	s := Source{Upper: func(level uint, index uint64) (lattice.Hash, error) {
		reads++
		return lattice.Hash{byte(level), byte(index)}, nil
	}}
	for _, level := range []uint{9, 15, 17, 25, 33, 40} {
		reads = 0
		low := (level - 1) / 8 * 8
		var row []lattice.Hash
		for i := range uint64(1) << (level - low) {
			row = append(row, lattice.Hash{byte(low), byte(i + 1<<(level-low))})
		}
		for len(row) > 1 {
			var up []lattice.Hash
			for i := 0; i < len(row); i += 2 {
				up = append(up, NodeHash(row[i], row[i+1]))
			}
			row = up
		}
		h, err := s.Node(level, 1)
		if err != nil || h != row[0] || reads != 1<<(level-low) {
			t.Errorf("level %d: %d reads, %v", level, reads, err)
		}
	}
}
