package keyval

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// rootOf returns the root of a plain state.
func rootOf(s *state.Space) lattice.Hash {
	var leaves []trie.Leaf
	for a, r := range s.Rows {
		leaves = append(leaves, trie.LeafOf(a, r))
	}
	slices.SortFunc(leaves, func(a, b trie.Leaf) int { return bytes.Compare(a.Path[:], b.Path[:]) })
	return trie.Rebuild(leaves)
}

func (n *node) root() lattice.Hash {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := n.Root(ctx)
	n.must(err)
	return r.Hash
}

// TestRoot: the root is that of the rows, whenever it is asked for: after writes,
// restarts, a crash, and with the fold database made again.
func TestRoot(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fs := disk.NewMem()
		clock := tick.NewManual(testEpoch)
		inc := uint64(2)
		open := func() *node { inc++; return start(t, options(fs, 0, inc, clock)) }
		n := open()
		var m model
		if n.root() != trie.EmptyRoot() {
			t.Fatal("the root of nothing")
		}
		for step := range 60 {
			for range rng.IntN(4) {
				n.must(n.update(func(tx *Tx) error {
					for range 1 + rng.IntN(6) {
						if err := change(tx, rng); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			m.follow(n)
			if got, want := n.root(), rootOf(&m.space); got != want {
				t.Fatalf("seed %d, step %d: root %s, want %s", seed, step, got.Short(), want.Short())
			}
			switch rng.IntN(8) {
			case 0:
				n.close()
				if rng.IntN(2) == 0 {
					n.must(fs.RemoveAll("/store/state"))
				}
				n = open()
			case 1:
				crashed := fs.CrashClone(rng.IntN(101), rng)
				n.stop()
				fs = crashed
				n = open()
			}
			proveSome(t, n, rng, &m.space)
		}
		n.close()
	}
}

// proveSome proves a few keys, there or not, and checks it with nothing but the root.
func proveSome(t *testing.T, n *node, rng *rand.Rand, s *state.Space) {
	t.Helper()
	for range 3 {
		name, key := []string{"0", "one", "", "nobody"}[rng.IntN(4)], fmt.Appendf(nil, "k%d", rng.IntN(9))
		p, err := n.Prove(context.Background(), name, key)
		n.must(err)
		if p.Root.Hash != rootOf(s) {
			t.Fatal("a proof for another root")
		}
		var leaves []trie.Leaf
		for _, r := range p.Rows {
			a := state.Address{Map: name, Key: key, Kind: r.Kind, Sub: r.Sub}
			if !sameRow(r.Row, s.Row(a)) {
				t.Fatalf("row %v is %v, want %v", a, r.Row, s.Row(a))
			}
			leaves = append(leaves, trie.LeafOf(a, r.Row))
		}
		slices.SortFunc(leaves, func(a, b trie.Leaf) int { return bytes.Compare(a.Path[:], b.Path[:]) })
		if len(leaves) > 0 {
			err = p.Proof.Rows(p.Root.Hash, trie.KeyOf(name, key), leaves)
		} else {
			err = p.Proof.NoKey(p.Root.Hash, trie.KeyOf(name, key))
		}
		if err != nil {
			t.Fatalf("key %q of %q, %d rows: %v", key, name, len(leaves), err)
		}
	}
}

// TestRootWhileWriting: roots are of states that were, whoever writes meanwhile.
func TestRootWhileWriting(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := n.update(func(tx *Tx) error { return setPair(tx, fmt.Sprint(i%50), i) }); err != nil {
				done <- err
				return
			}
		}
	}()
	var roots []Root
	for range 20 {
		r, err := n.Root(context.Background())
		n.must(err)
		roots = append(roots, r)
	}
	close(stop)
	n.must(<-done)
	for _, r := range roots {
		var s state.Space
		for _, c := range n.entries() {
			for _, e := range c {
				w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
				if e.Seq <= r.Frontier[w] {
					n.must(s.Fold(e))
				}
			}
		}
		if rootOf(&s) != r.Hash {
			t.Fatalf("the root of %v is another", r.Frontier)
		}
	}
	n.close()
}

// TestRootSoon: who does not wait long finds the root later; it is of a state that
// holds what was written before it was asked for; and it ends with the state.
func TestRootSoon(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	for i := range 20 {
		n.set(fmt.Sprint(i), "1")
		n.treeMu.Lock() // it takes long
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := n.RootSoon(ctx); err == nil {
			t.Error("a root that is not made yet")
		}
		cancel()
		n.treeMu.Unlock()
		n.set(fmt.Sprint(i), "2")
		r, err := n.RootSoon(context.Background())
		n.must(err)
		if want := n.root(); r.Hash != want {
			t.Fatalf("root %s, want %s", r.Hash.Short(), want.Short())
		}
	}
	n.stop()
	if _, err := n.RootSoon(context.Background()); err == nil {
		t.Error("a root of what has stopped")
	}
	n.close()
}
