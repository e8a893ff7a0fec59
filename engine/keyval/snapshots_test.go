package keyval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

func (n *node) snapshot() Kept {
	n.t.Helper()
	k, err := n.Snapshot(context.Background())
	n.must(err)
	return k
}

// prune takes a snapshot and prunes below it.
func (n *node) prune() Pruned {
	n.t.Helper()
	p, err := n.PruneAnyway(context.Background(), n.snapshot().ID)
	n.must(err)
	return p
}

// file returns the bytes of a kept snapshot, read in odd pieces.
func (n *node) file(k Kept) []byte {
	n.t.Helper()
	var b []byte
	for buf := make([]byte, 777); int64(len(b)) < k.Bytes; {
		m, err := n.ReadSnapshot(k.ID, int64(len(b)), buf)
		if m == 0 {
			n.must(err)
		}
		b = append(b, buf[:m]...)
	}
	return b
}

// imports has a node import bytes.
func (n *node) imports(b []byte) (Imported, error) {
	n.t.Helper()
	n.must(disk.WriteFile(n.o.FS, "/incoming", b))
	return n.Import(context.Background(), "/incoming")
}

func (n *node) changes(rng *rand.Rand, most int) {
	n.t.Helper()
	for range 1 + rng.IntN(most) {
		n.must(n.update(func(tx *Tx) error {
			for range 1 + rng.IntN(5) {
				if err := change(tx, rng); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// TestPrune: pruning leaves the rows, the root and what is known; a node goes on from
// it, after a restart, without its fold database, and after a power cut.
func TestPrune(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		fs := disk.NewMem()
		clock := tick.NewManual(testEpoch)
		inc := uint64(2)
		open := func() *node { inc++; return start(t, options(fs, 0, inc, clock)) }
		n := open()
		var m model
		for range 30 {
			n.changes(rng, 6)
			m.follow(n)
			switch rng.IntN(5) {
			case 0:
				n.close()
				if rng.IntN(2) == 0 {
					n.must(fs.RemoveAll("/store/state"))
				}
				n = open()
			case 1:
				before := n.root()
				n.prune()
				if n.root() != before {
					t.Fatal("pruning changed the root")
				}
			case 2:
				n.snapshot()
				n.changes(rng, 3)
				_, err := n.PruneAnyway(context.Background(), lattice.Hash{})
				n.must(err)
				m.follow(n)
			case 3:
				crashed := fs.CrashClone(rng.IntN(101), rng)
				n.stop()
				fs = crashed
				n = open()
			}
			m.follow(n)
			if got, want := n.root(), rootOf(&m.space); got != want {
				t.Fatalf("seed %d: root %s, want %s", seed, got.Short(), want.Short())
			}
			if got := n.dump(); got != dumpOf(&m.space) {
				t.Fatalf("seed %d: it holds\n%s\nwant\n%s", seed, got, dumpOf(&m.space))
			}
		}
		n.close()
	}
}

// TestPruneFrees: entries go; logs of closed incarnations go as a whole, and the
// node's next start is another incarnation all the same. The entry that says so is there.
func TestPruneFrees(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	for inc := uint64(2); inc < 6; inc++ {
		n := start(t, options(fs, 0, inc, clock))
		n.set("k", fmt.Sprint(inc))
		n.close()
	}
	n := start(t, options(fs, 0, 6, clock))
	n.set("k", "6")
	n.set("k", "6a")
	p := n.prune()
	if p.Logs != 5 || p.Entries != 7 || p.Bytes <= 0 || !p.Base.Base {
		t.Fatalf("%+v", p)
	}
	if again, err := n.PruneAnyway(context.Background(), p.Base.ID); err != nil || again.Entries != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	said := n.entries()
	last := said[0][len(said[0])-1]
	op, err := sigchain.ParsePrune(last.Ops[0])
	if err != nil || op.Root != p.Base.Root || op.Snapshot != p.Base.ID || len(op.Frontier) != 6 {
		t.Fatalf("%+v, %v", op, err)
	}
	if got, err := Incarnation(fs, "/store", keyOf(0).Author()); err != nil || got != 6 {
		t.Fatalf("incarnation %d, %v", got, err)
	}
	n.close()
	if _, err := Open(options(fs, 0, 5, clock)); lattice.KindOf(err) != lattice.Invalid {
		t.Fatalf("an incarnation that was pruned begins again: %v", err)
	}
	n = start(t, options(fs, 0, 7, clock))
	if n.get("k") != "6a" {
		t.Fatalf("k is %q", n.get("k"))
	}
	n.set("k", "7")
	n.close()
}

// world is two nodes of one store that know of each other.
func twoNodes(t *testing.T) (a, b *node, clock *tick.Manual) {
	clock = tick.NewManual(testEpoch)
	a = start(t, options(disk.NewMem(), 0, 2, clock))
	a.admit(1)
	b = start(t, options(disk.NewMem(), 1, 3, clock))
	b.receive(rand.New(rand.NewPCG(1, 1)), a.entries())
	return a, b, clock
}

// TestNothingComesBack: what was deleted and pruned stays deleted when a replica that
// never heard of it offers its entries, or its snapshot; counters count once; what
// was written apart is there.
func TestNothingComesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b, _ := twoNodes(t)
	a.set("gone", "1")
	a.set("stays", "1")
	add(t, a, "n", 5)
	b.receive(rng, a.entries())
	b.set("apart", "b")
	add(t, b, "n", 2)
	old := b.file(b.snapshot())
	oldEntries := b.entries()
	a.must(a.update(func(tx *Tx) error { return del(tx, "gone") }))
	add(t, a, "n", 10)
	a.prune()
	want := func(n *node, what string) {
		t.Helper()
		if n.get("gone") != "" || n.get("stays") != "1" || n.get("apart") != "b" || n.get("n") != "17" {
			t.Errorf("%s: gone=%q stays=%q apart=%q n=%q", what, n.get("gone"), n.get("stays"), n.get("apart"), n.get("n"))
		}
	}
	a.receive(rng, oldEntries) // those that were pruned are known
	want(a, "entries")
	if _, err := a.imports(old); err != nil {
		t.Fatal(err)
	}
	want(a, "entries, then a snapshot")
	got, err := b.imports(a.file(a.snapshot()))
	if err != nil || !got.New {
		t.Fatalf("%+v, %v", got, err)
	}
	want(b, "the other")
	if a.root() != b.root() {
		t.Error("the roots differ")
	}
	again, err := b.imports(a.file(a.snapshot()))
	if err != nil || again.New {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, n := range []*node{a, b} {
		n.close()
		n.must(n.o.FS.RemoveAll("/store/state"))
	}
	a = start(t, options(a.o.FS, 0, 12, a.clock))
	b = start(t, options(b.o.FS, 1, 13, b.clock))
	want(a, "made again")
	want(b, "made again")
	a.set("more", "1")
	b.receive(rng, a.entries())
	if b.get("more") != "1" || a.root() != b.root() {
		t.Errorf("they do not go on together: more=%q", b.get("more"))
	}
	a.close()
	b.close()
}

// add adds to a counter.
func add(t *testing.T, n *node, key string, by int64) {
	t.Helper()
	n.must(n.update(func(tx *Tx) error {
		r, err := tx.Row(reg(key))
		if err != nil {
			return err
		}
		own := state.Subtotal{Count: by}
		var ends []state.Dot
		for _, h := range r {
			if h.Payload.Sum != nil && h.Dot.Writer == n.own {
				own.Count += h.Payload.Sum.Count
				ends = append(ends, h.Dot)
			}
		}
		_, err = tx.Put(reg(key), state.Payload{Sum: &own}, ends, state.Dot{})
		return err
	}))
}

func del(tx *Tx, key string) error {
	r, err := tx.Row(reg(key))
	if err != nil {
		return err
	}
	return tx.End(reg(key), state.ScopeKey, r.Cites())
}

// TestPrunedApart: three nodes write, prune and hear of each other's entries and
// snapshots in random order. In the end they hold the same, which is the plain fold of
// all entries.
func TestPrunedApart(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runApart(t, seed) })
	}
}

func runApart(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	clock := tick.NewManual(testEpoch)
	var fss [3]disk.FS
	var nodes [3]*node
	inc := uint64(2)
	open := func(i int) {
		nodes[i] = start(t, options(fss[i], byte(i), inc, clock))
		inc++
	}
	for i := range nodes {
		fss[i] = disk.NewMem()
		open(i)
	}
	archive := start(t, options(disk.NewMem(), 9, 1, clock)) // has everything, and prunes nothing
	nodes[0].admit(1, 2)
	nodes[1].receive(rng, nodes[0].entries())
	nodes[2].receive(rng, nodes[0].entries())
	keep := func(i int) { archive.take(nodes[i].entries()) }
	for range 60 {
		i, j := rng.IntN(3), rng.IntN(3)
		switch rng.IntN(9) {
		case 0:
			nodes[i].close()
			if rng.IntN(2) == 0 {
				nodes[i].must(fss[i].RemoveAll("/store/state"))
			}
			open(i)
		case 1:
			nodes[i].take(nodes[j].entries())
		case 2:
			if _, err := nodes[i].imports(nodes[j].file(nodes[j].snapshot())); err != nil && !errors.Is(err, ErrOwn) {
				t.Fatal(err)
			}
		case 3:
			keep(i)
			nodes[i].prune()
			keep(i)
		default:
			nodes[i].changes(rng, 3)
		}
		keep(i)
		clock.Advance(time.Millisecond)
	}
	for range 2 {
		for i := range nodes {
			for j := range nodes {
				if i != j {
					_, err := nodes[i].imports(nodes[j].file(nodes[j].snapshot()))
					nodes[i].must(err)
				}
			}
		}
	}
	for range 3 {
		for i := range nodes {
			keep(i)
		}
	}
	var m model
	m.follow(archive)
	want := dumpOf(&m.space)
	for i, n := range append(nodes[:], archive) {
		if got := n.dump(); got != want {
			t.Errorf("node %d holds\n%s\nwant\n%s", i, got, want)
		}
		if n.root() != rootOf(&m.space) {
			t.Errorf("node %d has another root", i)
		}
		n.close()
	}
}

// take gives a node entries of which some may not follow what it has.
func (n *node) take(chains [][]sigchain.Signed) {
	n.t.Helper()
	for range 3 { // a chain that another depends on may come later
		for _, c := range chains {
			_, err := n.Receive(c)
			n.must(err)
		}
	}
}

// TestSameSnapshot: two nodes that have the same write the same, but for who signs.
func TestSameSnapshot(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	a, b, _ := twoNodes(t)
	for range 4 {
		a.changes(rng, 5)
		b.changes(rng, 5)
		b.receive(rng, a.entries())
		a.receive(rng, b.entries())
	}
	x, y := a.snapshot(), b.snapshot()
	if x.ID != y.ID || x.Root != y.Root {
		t.Fatalf("%s and %s", x.ID, y.ID)
	}
	const seal = 1 + 4 + 32 + identity.SignatureSize + 32
	if p, q := a.file(x), b.file(y); !bytes.Equal(p[:len(p)-seal], q[:len(q)-seal]) || bytes.Equal(p, q) {
		t.Fatal("the contents differ, or the signatures do not")
	}
	if z := a.snapshot(); z.ID != x.ID || z.Taken != x.Taken {
		t.Fatal("the same was kept twice")
	}
	if all, err := a.Snapshots(); err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	a.must(a.DropSnapshot(x.ID))
	if err := a.DropSnapshot(x.ID); lattice.KindOf(err) != lattice.NotFound {
		t.Fatal(err)
	}
	a.close()
	b.close()
}

// TestManyHeads: conflicts with many heads survive as heads.
func TestManyHeads(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	a := start(t, options(disk.NewMem(), 0, 2, clock))
	var authors []byte
	for i := byte(10); i < 40; i++ {
		authors = append(authors, i)
	}
	a.admit(authors...)
	now := uint64(testEpoch.UnixMilli()) << 16
	for _, by := range authors {
		if r := a.one(foreign(t, by, sigchain.Signed{}, now+1, a.tipsOf(0), putOp(t, by, "k", fmt.Sprint(by)))); r.Status != fold.Entered {
			t.Fatalf("%v, %v", r.Status, r.Err)
		}
	}
	a.prune()
	b := start(t, options(disk.NewMem(), 1, 3, clock))
	if _, err := b.imports(a.file(mustKept(a))); err != nil {
		t.Fatal(err)
	}
	heads := func(n *node) (r state.Row) {
		_, err := n.View(func(tx *Tx) (err error) { r, err = tx.Row(reg("k")); return err })
		n.must(err)
		return r
	}
	if len(heads(a)) != 30 || len(heads(b)) != 30 || a.root() != b.root() {
		t.Fatalf("%d and %d heads", len(heads(a)), len(heads(b)))
	}
	a.set("k", "merged") // names 30 parents
	b.receive(rand.New(rand.NewPCG(1, 1)), a.entries())
	if len(heads(b)) != 1 || b.get("k") != "merged" {
		t.Fatalf("%d heads", len(heads(b)))
	}
	a.close()
	b.close()
}

func mustKept(n *node) Kept {
	all, err := n.Snapshots()
	n.must(err)
	return all[len(all)-1]
}

// TestCutAfterPrune: a fork or removal below a kept snapshot makes it one that
// nothing is pruned to; below the base it takes effect there.
func TestCutAfterPrune(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	a := start(t, options(disk.NewMem(), 0, 2, clock))
	a.admit(1)
	now := uint64(testEpoch.UnixMilli()) << 16
	one := foreign(t, 1, sigchain.Signed{}, now+1, a.tipsOf(0), putOp(t, 1, "k", "one"))
	two := foreign(t, 1, one, now+2, nil, putOp(t, 1, "x", "two"))
	a.one(one)
	a.one(two)
	k := a.snapshot()
	remove := func(n *node, last sigchain.Signed) {
		n.must(n.update(func(tx *Tx) error {
			op, err := roster.Remove{Author: keyOf(1).Author(), Cut: []sigchain.Link{last.Link()}}.Op()
			if err != nil {
				return err
			}
			return tx.Append(op)
		}))
	}
	remove(a, one)
	a.wait(func() bool { return a.get("x") == "" })
	if _, err := a.PruneAnyway(context.Background(), k.ID); !errors.Is(err, fold.ErrBase) {
		t.Fatalf("pruned to a snapshot that a cut has changed: %v", err)
	}
	a.prune()
	if a.get("k") != "one" || a.get("x") != "" {
		t.Fatalf("k=%q x=%q", a.get("k"), a.get("x"))
	}
	a.close()

	b := start(t, options(disk.NewMem(), 0, 3, clock))
	b.admit(1)
	one = foreign(t, 1, sigchain.Signed{}, now+1, b.tipsOf(0), putOp(t, 1, "k", "one"))
	two = foreign(t, 1, one, now+2, nil, putOp(t, 1, "x", "two"))
	three := foreign(t, 1, two, now+3, nil, putOp(t, 1, "y", "three"))
	b.one(one)
	b.one(two)
	b.prune()
	remove(b, one)
	if r := b.one(three); r.Status != fold.Entered {
		t.Fatalf("%v, %v", r.Status, r.Err)
	}
	for range 2 {
		if b.get("k") != "one" || b.get("x") != "two" || b.get("y") != "" {
			t.Fatalf("k=%q x=%q y=%q", b.get("k"), b.get("x"), b.get("y"))
		}
		b.close()
		b.must(b.o.FS.RemoveAll("/store/state"))
		b = start(t, options(b.o.FS, 0, 4, clock))
	}
	b.close()
}
