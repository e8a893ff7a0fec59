package fold

import (
	"errors"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// TestRights: what an author may not do is void, on every node.
func TestRights(t *testing.T) {
	sc := newScene(t)
	stranger := first(t, "zoe", sc.genesis.Home(), 1, sigchain.Link{}, nil, set(t, "zoe", 1, "k", "zoe"))
	onStranger := after(t, "bob", sc.bob, []sigchain.Signed{stranger}, set(t, "bob", 1, "k", "bob"))
	grants := after(t, "olga", sc.grants, nil, grant(t, "dora", roster.Reader), grant(t, "adam", roster.Admin))
	unnamed := first(t, "adam", sc.genesis.Home(), 1, sigchain.Link{}, nil, set(t, "adam", 1, "k", "adam"))
	named := after(t, "adam", unnamed, []sigchain.Signed{grants}, set(t, "adam", 1, "l", "adam"), grant(t, "dora", roster.Writer))
	tooMuch := after(t, "adam", named, nil, set(t, "adam", 1, "m", "adam"), grant(t, "zoe", roster.Admin))
	reader := first(t, "dora", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{grants}, set(t, "dora", 1, "k", "dora"))
	writer := after(t, "dora", reader, []sigchain.Signed{named}, set(t, "dora", 1, "m", "dora"))
	all := []sigchain.Signed{stranger, onStranger, grants, unnamed, named, tooMuch, reader, writer}
	check := func(r *replica) {
		for _, s := range []sigchain.Signed{stranger, unnamed, tooMuch, reader} {
			r.wantVoid(s, ErrRights)
			if lattice.KindOf(r.void[s.Ref().Place()]) != lattice.Denied {
				t.Fatal(r.void[s.Ref().Place()])
			}
		}
		r.wantEffect(grants, named, writer, onStranger)
		if got := r.get("k") + r.get("l") + r.get("m"); got != "[bob][adam][dora]" || r.rebuilt > 0 {
			t.Fatal(got, r.rebuilt)
		}
	}
	sc.agree(t, all[:2], func(r *replica) { r.wantVoid(stranger, ErrRights) })
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 6, 5, 7, 0, 4, 1, 2}} {
		r := sc.replica(t)
		for _, i := range order {
			r.offer(all[i])
		}
		check(r)
		r.restart()
		check(r)
	}
}

// TestUncleanWord: a key of unclean grants is an admin's alone, on every node; whoever else
// changes or ends one has no effect.
func TestUncleanWord(t *testing.T) {
	sc := newScene(t)
	grants := after(t, "olga", sc.grants, nil, grant(t, "adam", roster.Admin))
	admin := first(t, "adam", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{grants}, setIn(t, UncleanMap, "adam", 1, "k", "adam"))
	writer := after(t, "bob", sc.bob, nil, setIn(t, UncleanMap, "bob", 1, "k", "bob"))
	beside := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "ann"))
	sc.agree(t, []sigchain.Signed{grants, admin, writer, beside}, func(r *replica) {
		r.wantEffect(grants, admin, beside)
		r.wantVoid(writer, ErrRights)
	})
}

// TestInherited: a right is kept by the chains that follow, from where they do.
func TestInherited(t *testing.T) {
	sc := newScene(t)
	grants := after(t, "olga", sc.grants, nil, grant(t, "dora", roster.Writer))
	before := first(t, "dora", sc.genesis.Home(), 1, sigchain.Link{}, nil)
	named := after(t, "dora", before, []sigchain.Signed{grants}, set(t, "dora", 1, "k", "1"))
	next := first(t, "dora", sc.genesis.Home(), 2, named.Link(), nil, set(t, "dora", 2, "k", "2"))
	nextNext := first(t, "dora", sc.genesis.Home(), 3, next.Link(), nil, set(t, "dora", 3, "k", "3"))
	tooEarly := first(t, "dora", sc.genesis.Home(), 4, before.Link(), nil, set(t, "dora", 4, "k", "4"))
	sc.agree(t, []sigchain.Signed{grants, before, named, next, nextNext}, func(r *replica) {
		r.wantEffect(named, next, nextNext)
	})
	sc.agree(t, []sigchain.Signed{grants, before, named, tooEarly}, func(r *replica) {
		r.wantEffect(named)
		r.wantVoid(tooEarly, ErrRights)
	})
}

// TestCut: a removal counts by its cut, whenever it and what it cuts off arrive.
func TestCut(t *testing.T) {
	sc := newScene(t)
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	b := after(t, "ann", a, nil, set(t, "ann", 1, "k", "b", dotOf(a, 0)))
	onB := after(t, "bob", sc.bob, []sigchain.Signed{b}, set(t, "bob", 1, "k", "bob", dotOf(b, 0)))
	other := first(t, "ann", sc.genesis.Home(), 2, a.Link(), nil, set(t, "ann", 2, "l", "other"))
	cut := after(t, "olga", sc.grants, nil, remove(t, "ann", a))
	sc.agree(t, []sigchain.Signed{a, b, onB, other, cut}, func(r *replica) {
		r.wantEffect(a, onB, cut)
		r.wantVoid(b, ErrRights)
		r.wantVoid(other, ErrRights)
		if k, l := r.get("k"), r.get("l"); k+l != "[a bob][]" {
			t.Fatal(k, l)
		}
	})
	r := sc.replica(t)
	r.offer(a, b, cut)
	if r.rebuilt != 1 {
		t.Errorf("cut off what was folded: %d rebuilds", r.rebuilt)
	}
	r = sc.replica(t)
	r.offer(a, cut, b, other)
	if r.rebuilt != 0 {
		t.Errorf("cut off what was not: %d rebuilds", r.rebuilt)
	}
}

// TestCutOfAnAdmin: with an admin's rights go the grants and removals that the
// admin made beyond the cut, and what others did by them.
func TestCutOfAnAdmin(t *testing.T) {
	sc := newScene(t)
	grants := after(t, "olga", sc.grants, nil, grant(t, "adam", roster.Admin))
	ok := first(t, "adam", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{grants}, grant(t, "dora", roster.Writer))
	dora := first(t, "dora", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{ok}, set(t, "dora", 1, "d", "dora"))
	bad := after(t, "adam", ok, nil, grant(t, "zoe", roster.Writer), remove(t, "ann"))
	zoe := first(t, "zoe", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{bad}, set(t, "zoe", 1, "z", "zoe"))
	ann := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "a", "ann"))
	cut := after(t, "olga", grants, nil, remove(t, "adam", ok))
	sc.agree(t, []sigchain.Signed{grants, ok, dora, bad, zoe, ann, cut}[1:], func(r *replica) {
		r.offer(grants)
		r.wantEffect(ok, dora, ann, cut)
		r.wantVoid(bad, ErrRights)
		r.wantVoid(zoe, ErrRights)
		if got := r.get("d") + r.get("z") + r.get("a"); got != "[dora][][ann]" {
			t.Fatal(got)
		}
	})
}

// TestUnseen: an operation that names what its author had not seen makes its
// entry void. Seen is what is named as a parent, here or before, with what stands
// before that in the same chain; what stands before the entry in its author's
// chains, and what that had named.
func TestUnseen(t *testing.T) {
	sc := newScene(t)
	store := sc.genesis.Home()
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "1"), set(t, "ann", 1, "k", "2", dotOf(sc.ann, 0)))
	a2 := first(t, "ann", store, 2, a.Link(), nil, set(t, "ann", 2, "l", "3"))
	a3 := first(t, "ann", store, 3, a2.Link(), nil, set(t, "ann", 3, "k", "own", dotOf(a, 0)))
	unseen := after(t, "bob", sc.bob, nil, set(t, "bob", 1, "x", "b", dotOf(a, 0)))
	byParent := after(t, "bob", unseen, []sigchain.Signed{a, a2}, set(t, "bob", 1, "x", "b", dotOf(a, 1), dotOf(a2, 0)))
	later := after(t, "bob", byParent, nil, set(t, "bob", 1, "x", "b2", dotOf(a, 1), dotOf(byParent, 0)))
	byLine := first(t, "bob", store, 2, later.Link(), nil, set(t, "bob", 2, "x", "b3", dotOf(a, 0), dotOf(a2, 0), dotOf(later, 0)))
	copied := first(t, "bob", store, 3, unseen.Link(), nil, set(t, "bob", 3, "x", "b4", dotOf(a, 0)))
	heir := first(t, "bob", store, 4, unseen.Link(), nil, set(t, "bob", 4, "z", "b5"))
	onHeir := after(t, "bob", heir, nil, set(t, "bob", 4, "z", "b6", dotOf(heir, 0), dotOf(a, 0)))
	heirSees := after(t, "bob", onHeir, []sigchain.Signed{a}, set(t, "bob", 4, "z", "b7", dotOf(heir, 0), dotOf(a, 0)))
	beyond := after(t, "bob", later, nil, set(t, "bob", 1, "y", "b3", dotOf(a3, 0)))
	byChain := after(t, "bob", beyond, []sigchain.Signed{a3}, set(t, "bob", 1, "y", "b3", dotOf(a3, 0)))
	bySelf := after(t, "eve", sc.eve, nil, set(t, "eve", 1, "y", "e", state.Dot{Writer: dotOf(sc.eve, 0).Writer, Seq: 2}))
	tooFar := after(t, "eve", bySelf, []sigchain.Signed{a}, set(t, "eve", 1, "y", "e", dotOf(a2, 0)))
	sc.agree(t, []sigchain.Signed{a, a2, unseen, byParent, heir}, func(r *replica) {
		r.offer(a3, later, byLine, beyond, copied, onHeir, heirSees, bySelf, tooFar, byChain)
		r.wantEffect(a, a2, a3, byParent, later, byLine, byChain, heir, heirSees)
		for _, s := range []sigchain.Signed{unseen, beyond, copied, onHeir, bySelf, tooFar} {
			r.wantVoid(s, ErrUnseen)
		}
		if r.rebuilt != 0 {
			t.Fatalf("%d rebuilds", r.rebuilt)
		}
	})
}

// TestMalformed: an entry with one malformed operation has no effect at all.
func TestMalformed(t *testing.T) {
	sc := newScene(t)
	bad := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "v"), sigchain.Op{Kind: state.KindPut, Body: []byte{1, 9}})
	worse := after(t, "olga", sc.grants, nil, grant(t, "zoe", roster.Writer), sigchain.Op{Kind: roster.KindRemove, Body: []byte{1}})
	zoe := first(t, "zoe", sc.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{worse}, set(t, "zoe", 1, "z", "zoe"))
	sc.agree(t, []sigchain.Signed{bad, worse, zoe}, func(r *replica) {
		r.wantVoid(bad, state.ErrMalformed)
		r.wantVoid(worse, roster.ErrOp)
		r.wantVoid(zoe, ErrRights)
		if got := r.get("k") + r.get("z"); got != "[][]" {
			t.Fatal(got)
		}
	})
}

// TestManyParents: 40 authors write one key, and somebody who has seen it all
// writes it once.
func TestManyParents(t *testing.T) {
	genesis := found(t, "olga")
	r := newReplica(t, genesis)
	r.offer(genesis)
	last := genesis
	var all []sigchain.Signed
	var dots []state.Dot
	for i := range 40 {
		name := "author " + string(rune('A'+i))
		last = after(t, "olga", last, nil, grant(t, name, roster.Writer))
		s := first(t, name, genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{last}, set(t, name, 1, "k", name))
		all = append(all, s)
		dots = append(dots, dotOf(s, 0))
		r.offer(s, last)
	}
	parents := r.m.Parents(dotOf(last, 0).Writer, sigchain.Link{})
	if len(parents) != 40 {
		t.Fatalf("%d parents, want 40", len(parents))
	}
	r.offer(after(t, "olga", last, all, set(t, "olga", 1, "k", "all", dots...)))
	if got := r.get("k"); got != "[all]" {
		t.Error(got)
	}
	if got := r.m.Parents(dotOf(last, 0).Writer, sigchain.Link{}); len(got) != 0 {
		t.Errorf("%v are to be named again", got)
	}
}

// TestParents: what an author is told to name is what has moved, and grants.
func TestParents(t *testing.T) {
	sc := newScene(t)
	store := sc.genesis.Home()
	r := sc.replica(t)
	ask := func(name string, incarnation uint64, prev sigchain.Link, want ...sigchain.Signed) {
		t.Helper()
		got := r.m.Parents(state.Writer{Author: id(name), Incarnation: incarnation}, prev)
		all := refs(want)
		slices.SortFunc(all, sigchain.Ref.Compare)
		if !slices.Equal(got, all) {
			t.Fatalf("%v, want %v", got, all)
		}
	}
	ask("ann", 1, sigchain.Link{}, sc.bob, sc.eve)
	ask("zoe", 1, sigchain.Link{}, sc.ann, sc.bob, sc.eve, sc.grants)
	a := after(t, "ann", sc.ann, []sigchain.Signed{sc.bob, sc.eve})
	r.offer(a)
	ask("ann", 1, sigchain.Link{})
	bob2 := first(t, "bob", store, 2, sc.bob.Link(), nil, set(t, "bob", 2, "k", "v"))
	bob3 := first(t, "bob", store, 3, bob2.Link(), nil, set(t, "bob", 3, "k", "w"))
	r.offer(bob2)
	ask("ann", 1, sigchain.Link{}, bob2)
	r.offer(bob3)
	ask("ann", 1, sigchain.Link{}, bob2, bob3)
	ask("ann", 7, a.Link(), bob2, bob3)
	ask("ann", 7, sc.ann.Link(), sc.grants, sc.bob, bob2, bob3, sc.eve, a)
	ask("bob", 4, bob3.Link(), a, sc.eve)
	ask("bob", 4, sc.bob.Link(), a, sc.eve, bob2, bob3)
	void := after(t, "eve", sc.eve, nil, grant(t, "zoe", roster.Writer))
	r.offer(void)
	r.wantVoid(void, ErrRights)
	ask("ann", 1, sigchain.Link{}, bob2, bob3)
	grants := after(t, "olga", sc.grants, nil, grant(t, "ann", roster.Admin))
	more := after(t, "olga", grants, nil)
	r.offer(grants, more)
	ask("ann", 1, sigchain.Link{}, bob2, bob3, grants, more)
	r.offer(after(t, "ann", a, []sigchain.Signed{bob2, bob3, grants, more}))
	ask("ann", 1, sigchain.Link{})
	r.restart()
	ask("ann", 1, sigchain.Link{})
	ask("ann", 7, r.last("ann", 1).Link())
	ask("bob", 2, sigchain.Link{}, r.last("ann", 1), bob3, sc.eve, more)
	ask("bob", 3, sigchain.Link{}, r.last("ann", 1), sc.eve, more)
}

// last returns the last entry of a chain that was offered.
func (r *replica) last(name string, incarnation uint64) sigchain.Signed {
	var last sigchain.Signed
	for _, s := range r.log {
		if s.Author == id(name) && s.Incarnation == incarnation && s.Seq > last.Seq {
			last = s
		}
	}
	return last
}

// TestStoreFails: an error that is no refusal ends the machine.
func TestStoreFails(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	r.offer(after(t, "ann", sc.ann, nil))
	broken := errors.New("broken")
	r.m.config.Entry = func(sigchain.Place) (sigchain.Signed, bool, error) { return sigchain.Signed{}, false, broken }
	if _, err := r.m.Offer(sc.ann, r.now); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, err := r.m.Offer(sc.eve, r.now); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, err := r.m.Advance(r.now); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

// TestPruned: an entry below what the log still holds is known, and what follows
// it is believed.
func TestPruned(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	a := after(t, "ann", sc.ann, nil)
	r.offer(a)
	r.m.config.Entry = func(sigchain.Place) (sigchain.Signed, bool, error) { return sigchain.Signed{}, false, nil }
	if got := r.offer(first(t, "ann", sc.genesis.Home(), 1, sigchain.Link{}, nil, set(t, "ann", 1, "k", "v"))); got != Known {
		t.Error(got)
	}
	next := first(t, "ann", sc.genesis.Home(), 2, sc.ann.Link(), nil, set(t, "ann", 2, "k", "v"))
	r.offer(next)
	r.wantEffect(next)
}

// TestUnseenExpiry: a put names the expiry that it stands under, and a sum its base, as
// anything else that it names: what its author had not seen makes the entry void.
func TestUnseenExpiry(t *testing.T) {
	sc := newScene(t)
	hidden := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	at := state.Address{Map: "0", Key: []byte("k"), Kind: state.Register}
	for what, p := range map[string]*state.Put{
		"under": {Address: at, Payload: state.Payload{Bytes: []byte("b")}, Under: dotOf(hidden, 0)},
		"base":  {Address: at, Payload: state.Payload{Sum: &state.Subtotal{Base: dotOf(hidden, 0), Count: 1}}},
	} {
		op, err := p.Encode(state.Writer{Author: id("bob"), Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		blind := after(t, "bob", sc.bob, nil, op)
		seeing := after(t, "bob", sc.bob, []sigchain.Signed{hidden}, op)
		r := sc.replica(t)
		r.offer(hidden, blind)
		r.wantVoid(blind, ErrUnseen)
		if r = sc.replica(t); r.offer(hidden, seeing) != Entered || r.void[seeing.Ref().Place()] != nil {
			t.Errorf("%s: what was seen is void: %v", what, r.void)
		}
	}
}

// TestLaterForkIsKnown: a proof of a fork behind one that is known changes nothing.
func TestLaterForkIsKnown(t *testing.T) {
	sc := newScene(t)
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	b := after(t, "ann", a, nil, set(t, "ann", 1, "k", "b"))
	otherA := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "x"))
	otherB := after(t, "ann", a, nil, set(t, "ann", 1, "k", "y"))
	r := sc.replica(t)
	for i, two := range [][2]sigchain.Signed{{a, otherA}, {b, otherB}, {a, otherA}} {
		e, err := r.m.Forked(two[0], two[1])
		if err != nil || (e.Status == Known) != (i > 0) || (e.Fork == nil) != (i > 0) {
			t.Errorf("proof %d: %+v, %v", i, e, err)
		}
		if got := r.m.ForkOf(id("ann")); got != a.Ref().Place() {
			t.Errorf("proof %d: frozen at %s, want %s", i, got, a.Ref().Place())
		}
	}
}
