package sigchain

import (
	"errors"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

// next signs the entry after prev, by the same key and incarnation.
func next(t *testing.T, prev Signed, time uint64, body string) Signed {
	t.Helper()
	s, err := Sign(seeded(1), Entry{
		Store: prev.Home(), Incarnation: prev.Incarnation, Seq: prev.Seq + 1, Time: time, Prev: prev.Link(),
		Ops: []Op{{99, []byte(body)}},
	})
	return must(t, s, err)
}

func TestChain(t *testing.T) {
	g := genesisEntry(t)
	b := next(t, g, g.Time+1, "b")
	c := next(t, b, b.Time+1, "c")
	d := next(t, c, c.Time+1, "d")
	fork := next(t, b, b.Time+1, "another c")
	onFork := next(t, fork, d.Time, "d on the fork")
	early := next(t, c, c.Time, "no tick")
	foreign, err := Sign(seeded(1), Entry{Store: lattice.StoreID{5}, Incarnation: g.Incarnation, Seq: 4, Time: d.Time, Prev: c.Link()})
	must(t, foreign, err)
	stranger, err := Sign(seeded(2), Entry{Store: c.Store, Incarnation: g.Incarnation, Seq: 4, Time: d.Time, Prev: c.Link()})
	must(t, stranger, err)

	var chain Chain
	if err := chain.Check(b); !errors.Is(err, ErrGap) {
		t.Errorf("second entry on an empty chain: %v, want a gap", err)
	}
	for _, s := range []Signed{g, b, c} {
		n, err := chain.Next(s)
		if err != nil {
			t.Fatalf("entry %d: %v", s.Seq, err)
		}
		if n.Tip != s.Link() || n.Time != s.Time {
			t.Fatalf("entry %d: tip %+v", s.Seq, n)
		}
		chain = n
	}
	for _, tc := range []struct {
		what string
		s    Signed
		want error
		kind lattice.Kind
	}{
		{"the tip again", c, ErrKnown, lattice.Exists},
		{"below the tip", b, ErrOld, lattice.Exists},
		{"the genesis again", g, ErrOld, lattice.Exists},
		{"a gap", next(t, d, d.Time+1, "e"), ErrGap, lattice.NotYet},
		{"another entry in the tip's place", fork, ErrForked, lattice.Diverged},
		{"what follows another entry", onFork, ErrForked, lattice.Diverged},
		{"no later than the tip", early, ErrClock, lattice.Invalid},
		{"another store", foreign, ErrForeign, lattice.Invalid},
		{"another author on our tip", stranger, ErrForeign, lattice.Invalid},
		{"the next", d, nil, 0},
	} {
		n, err := chain.Next(tc.s)
		if !errors.Is(err, tc.want) || err != nil && lattice.KindOf(err) != tc.kind {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
		if err != nil && n != chain {
			t.Errorf("%s: the chain moved", tc.what)
		}
	}
}

// TestSecondRoot: a second first entry of an author and incarnation is another
// history, and proof against the author.
func TestSecondRoot(t *testing.T) {
	store := lattice.StoreID{1}
	first, err := Sign(seeded(1), Entry{Store: store, Incarnation: 3, Seq: 1, Time: 1})
	must(t, first, err)
	again, err := Sign(seeded(1), Entry{Store: store, Incarnation: 3, Seq: 1, Time: 2})
	must(t, again, err)
	chain, err := Chain{}.Next(first)
	must(t, chain, err)
	if err := chain.Check(again); !errors.Is(err, ErrForked) {
		t.Errorf("%v, want forked", err)
	}
	if !Equivocation(first, again) || !Equivocation(again, first) || Equivocation(first, first) {
		t.Error("Equivocation does not tell")
	}
	other, err := Sign(seeded(1), Entry{Store: store, Incarnation: 4, Seq: 1, Time: 2, Prev: first.Link()})
	must(t, other, err)
	if Equivocation(first, other) {
		t.Error("a new incarnation is taken for an equivocation")
	}
	g := genesisEntry(t)
	op, err := Genesis{Name: "another"}.Op()
	g2, err2 := Sign(seeded(1), Entry{Incarnation: g.Incarnation, Seq: 1, Ops: []Op{must(t, op, err)}})
	if err2 != nil || Equivocation(g, g2) {
		t.Errorf("two stores of one author are taken for an equivocation, %v", err2)
	}
	beside, err := Sign(seeded(1), Entry{Store: g.Home(), Incarnation: g.Incarnation, Seq: 1})
	if err != nil || !Equivocation(g, beside) {
		t.Errorf("a first entry beside the genesis is not seen, %v", err)
	}
}
