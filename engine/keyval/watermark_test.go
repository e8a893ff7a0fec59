package keyval

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// report has a node report, and checks whether it had a reason to.
func (n *node) report(want bool) {
	n.t.Helper()
	said, err := n.Report(context.Background())
	n.must(err)
	if said != want {
		n.t.Fatalf("it reported: %v, want %v", said, want)
	}
}

// swap has nodes take each other's entries.
func swap(nodes ...*node) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				b.receive(rng, a.entries())
			}
		}
	}
}

// threeNodes are of one store, in step.
func threeNodes(t *testing.T) (a, b, c *node, clock *tick.Manual) {
	clock = tick.NewManual(testEpoch)
	a = start(t, options(disk.NewMem(), 0, 2, clock))
	a.admit(1, 2)
	b = start(t, options(disk.NewMem(), 1, 3, clock))
	c = start(t, options(disk.NewMem(), 2, 4, clock))
	swap(a, b, c)
	return a, b, c, clock
}

// TestPruneWaits: a node prunes what all members have said is durable with them, and
// nothing before; who is removed is not waited for. The root stays, and nothing comes back.
func TestPruneWaits(t *testing.T) {
	a, b, c, _ := threeNodes(t)
	defer a.close()
	defer b.close()
	defer c.close()
	a.set("gone", "1")
	swap(a, b, c)
	a.must(a.update(func(tx *Tx) error { return del(tx, "gone") }))
	k := a.snapshot()
	refused := func(lacking ...*node) {
		t.Helper()
		_, err := a.Prune(context.Background(), k.ID)
		if !errors.Is(err, ErrBehind) || lattice.KindOf(err) != lattice.NotYet {
			t.Fatalf("pruned, or refused otherwise: %v", err)
		}
		for _, n := range lacking {
			if !strings.Contains(err.Error(), n.own.Author.Short()) {
				t.Errorf("%v does not say that %s lacks it", err, n.own.Author.Short())
			}
		}
	}
	refused(b, c) // they have said nothing
	b.report(true)
	swap(a, b, c)
	refused(b, c) // b said it before it had the last entry
	b.report(true)
	c.report(true)
	refused(b, c) // it is not here yet that they said so
	old := b.entries()
	swap(a, b, c)
	root := a.root()
	p, err := a.Prune(context.Background(), k.ID)
	if err != nil || p.Entries == 0 || a.root() != root {
		t.Fatalf("%+v, %v", p, err)
	}
	a.receive(rand.New(rand.NewPCG(1, 1)), old)
	swap(a, b, c)
	for _, n := range []*node{a, b, c} {
		if n.get("gone") != "" || n.root() != root {
			t.Errorf("gone=%q, root %s, want %s", n.get("gone"), n.root().Short(), root.Short())
		}
	}
	// c goes on saying nothing, and is removed.
	a.set("more", "1")
	swap(a, b)
	b.report(true)
	swap(a, b)
	k = a.snapshot()
	refused(c)
	a.remove(2)
	if w := a.Watermark(); len(w.Others) != 1 || w.Others[0].Author != b.own.Author {
		t.Fatalf("%+v", w)
	}
	if _, err := a.Prune(context.Background(), k.ID); err != nil {
		t.Fatal(err)
	}
}

// remove has a node remove an author, whose entries that are here still count.
func (n *node) remove(author byte) {
	n.t.Helper()
	rm := roster.Remove{Author: keyOf(author).Author()}
	for _, c := range n.AuthorChains(rm.Author) {
		rm.Cut = append(rm.Cut, c.Tip)
	}
	op, err := rm.Op()
	n.must(err)
	_, err = n.Enter(context.Background(), op)
	n.must(err)
}

// TestReportsComeToRest: each member reports once for what was written, whatever the
// others report, also after a restart; and a snapshot can be pruned to, although the
// reports in it are covered by none.
func TestReportsComeToRest(t *testing.T) {
	a, b, c, clock := threeNodes(t)
	a.set("k", "1")
	reports := 0
	for range 20 {
		swap(a, b, c)
		for _, n := range []*node{a, b, c} {
			said, err := n.Report(context.Background())
			n.must(err)
			if said {
				reports++
			}
		}
	}
	if reports != 3 {
		t.Errorf("%d reports of one write in a store of three", reports)
	}
	b.close()
	b = start(t, options(b.o.FS, 1, 13, clock))
	b.report(false)
	b.set("k", "2")
	b.report(true) // the first of a start says all
	swap(a, b, c)
	said := func(n *node) (m map[lattice.AuthorID]int) {
		m = map[lattice.AuthorID]int{}
		for _, o := range n.Watermark().Others {
			m[o.Author] = len(o.Frontier)
		}
		return m
	}
	if n := said(a)[b.own.Author]; n < 4 {
		t.Errorf("after a restart it has said how far %d writers are", n)
	}
	a.report(true)
	c.report(true)
	swap(a, b, c)
	for _, n := range []*node{a, b, c} {
		if _, err := n.Prune(context.Background(), n.snapshot().ID); err != nil {
			t.Errorf("in a store at rest: %v", err)
		}
		n.report(false) // that something was pruned is no reason
	}
	swap(a, b, c)
	if a.root() != b.root() || b.root() != c.root() {
		t.Error("the roots differ")
	}
	for _, n := range []*node{a, b, c} {
		n.close()
		n.must(n.o.FS.RemoveAll("/store/state"))
		again := start(t, options(n.o.FS, n.author(), n.own.Incarnation+20, clock))
		if len(said(again)) != 2 || again.get("k") != "2" {
			t.Errorf("made again from the base: %v, k=%q", said(again), again.get("k"))
		}
		again.report(false)
		again.close()
	}
}

// author returns the number that its key was made of.
func (n *node) author() byte {
	for i := byte(0); ; i++ {
		if keyOf(i).Author() == n.own.Author {
			return i
		}
	}
}

// TestReportsBelowTheBaseStay: a log keeps, below the base, what a member may lack: that
// gets it as an entry.
func TestReportsBelowTheBaseStay(t *testing.T) {
	a, b, clock := twoNodes(t)
	a.set("k", "1")
	swap(a, b)
	b.report(true)
	a.receive(rand.New(rand.NewPCG(1, 1)), b.entries())
	a.report(true) // which b does not hear of
	if _, err := a.Prune(context.Background(), a.snapshot().ID); err != nil {
		t.Fatal(err)
	}
	own, has := a.own, b.Frontier()[a.own]
	for inc := range uint64(2) {
		s, err := a.ReadSpan(own, has, 1<<40, 1<<20)
		if err != nil || len(s.Entries) == 0 {
			t.Fatalf("%d entries, %v", len(s.Entries), err)
		}
		swap(a, b)
		if !b.Frontier().Within(a.Frontier()) || !a.Frontier().Within(b.Frontier()) {
			t.Errorf("%v and %v", a.Frontier(), b.Frontier())
		}
		a.close() // a start drops what it need not keep, and no more
		a = start(t, options(a.o.FS, 0, 10+inc, clock))
	}
	a.close()
	b.close()
}

// TestReaderReports: a member that may write nothing else has a say as well.
func TestReaderReports(t *testing.T) {
	a, b, _ := twoNodes(t)
	defer a.close()
	defer b.close()
	op, err := roster.Member{Author: keyOf(3).Author(), Role: roster.Reader}.Op()
	a.must(err)
	_, err = a.Enter(context.Background(), op)
	a.must(err)
	r := start(t, options(disk.NewMem(), 3, 9, a.clock))
	defer r.close()
	swap(a, b, r)
	b.report(true)
	swap(a, b)
	k := a.snapshot()
	if _, err := a.Prune(context.Background(), k.ID); !errors.Is(err, ErrBehind) {
		t.Fatalf("a reader is not waited for: %v", err)
	}
	r.report(true)
	swap(a, b, r)
	if _, err := a.Prune(context.Background(), k.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.update(func(tx *Tx) error { return set(tx, "k", "v") }); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("a reader writes: %v", err)
	}
	if st := a.Status(); st.Refused > 0 {
		t.Errorf("%+v", st)
	}
}

// TestAloneNeverReports: a store of one node needs no reports, and waits for nobody.
func TestAloneNeverReports(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	defer n.close()
	n.set("k", "v")
	n.report(false)
	if _, err := n.Prune(context.Background(), n.snapshot().ID); err != nil {
		t.Fatal(err)
	}
	if w := n.Watermark(); len(w.Others) > 0 || !n.Frontier().Within(w.Frontier) {
		t.Errorf("%+v, folded %v", w, n.Frontier())
	}
}

// TestDormantHasNoVeto: a member that an admin has said is dormant is not waited for, and
// is again when it says itself that it is active.
func TestDormantHasNoVeto(t *testing.T) {
	a, b, _ := twoNodes(t)
	defer a.close()
	defer b.close()
	a.set("k", "1")
	k := a.snapshot()
	if _, err := a.Prune(context.Background(), k.ID); !errors.Is(err, ErrBehind) {
		t.Fatal(err)
	}
	presence := func(n *node, dormant bool, turn uint32) {
		t.Helper()
		_, err := n.Enter(context.Background(), roster.Presence{Author: b.own.Author, Turn: turn, Dormant: dormant}.Op())
		n.must(err)
	}
	presence(a, true, 1)
	if w := a.Watermark(); len(w.Others) != 0 {
		t.Fatalf("%+v", w)
	}
	if _, err := a.Prune(context.Background(), k.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := b.imports(a.file(a.snapshot())); err != nil || !got.New {
		t.Fatalf("%+v, %v", got, err)
	}
	b.receive(rand.New(rand.NewPCG(1, 1)), a.entries())
	presence(b, false, 2)
	a.receive(rand.New(rand.NewPCG(1, 1)), b.entries())
	if w := a.Watermark(); len(w.Others) != 1 {
		t.Fatalf("back, and not waited for: %+v", w)
	}
}
