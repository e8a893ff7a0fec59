package roster

import (
	"errors"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"pgregory.net/rapid"
)

// more says one of the other things about a member.
func (w *world) more(t *rapid.T, by, to string) {
	var removals []sigchain.Ref
	for at := range w.Removals(who(to)) {
		removals = append(removals, at)
	}
	slices.SortFunc(removals, sigchain.Ref.Compare)
	switch rapid.IntRange(0, 3).Draw(t, "which") {
	case 0:
		if len(removals) > 0 {
			w.back(by, to, Writer, removals...)
		}
	case 1:
		if len(removals) > 0 {
			w.adopt(by, to, rapid.Uint64Range(1, 6).Draw(t, "upto"), removals...)
		}
	case 2:
		w.present(by, to, rapid.Uint32Range(1, 3).Draw(t, "turn"), rapid.Bool().Draw(t, "dormant"))
	default:
		w.rotate(by, to)
	}
}

func (w *world) back(by, to string, r Role, lifts ...sigchain.Ref) sigchain.Ref {
	x := Return{Member{who(to), r}, lifts}
	at := w.next(by)
	w.Add(Entry{At: at, Needs: x.Needs(), Returns: []Return{x}})
	return at
}

func (w *world) adopt(by, of string, upto uint64, lifts ...sigchain.Ref) {
	x := Adopt{who(of), lifts, []sigchain.Link{{Incarnation: 1, Seq: upto, ID: lattice.Hash{1}}}}
	w.Add(Entry{At: w.next(by), Needs: x.Needs(), Adopts: []Adopt{x}})
}

func (w *world) present(by, of string, turn uint32, dormant bool) {
	x := Presence{who(of), turn, dormant}
	w.Add(Entry{At: w.next(by), Needs: x.Needs(who(by)), Presences: []Presence{x}})
}

func (w *world) rotate(by, to string) sigchain.Ref {
	x := Rotate{To: who(to)}
	at := w.next(by)
	w.Add(Entry{At: at, Needs: x.Needs(), Rotates: []Rotate{x}})
	return at
}

// admins makes members of these, and lets them say so in their first entries.
func (w *world) admins(names ...string) {
	for _, n := range names {
		w.next(n, w.grant(owner, n, Admin))
	}
}

// TestRemovalsAgainstEachOther: of equals both stand, whatever their cuts say; a
// senior's voids a junior's; and who is back is so by name.
func TestRemovalsAgainstEachOther(t *testing.T) {
	type got struct{ ann, bob, carl Role }
	for _, c := range []struct {
		name string
		tell func(w *world)
		want got
	}{
		{"two admins remove each other, below each other's removals", func(w *world) {
			w.remove("ann", "bob", 1)
			w.remove("bob", "ann", 1)
		}, got{None, None, Admin}},
		{"two admins remove each other, wholly", func(w *world) {
			w.remove("ann", "bob", 0)
			w.remove("bob", "ann", 0)
		}, got{None, None, Admin}},
		{"three in a ring", func(w *world) {
			w.remove("ann", "bob", 1)
			w.remove("bob", "carl", 1)
			w.remove("carl", "ann", 1)
		}, got{None, None, None}},
		{"A removes C while B removes A", func(w *world) {
			w.remove("ann", "carl", 1)
			w.remove("bob", "ann", 1)
		}, got{None, Admin, None}},
		{"a senior's voids a junior's", func(w *world) {
			w.remove("bob", "carl", 1)
			w.remove(owner, "bob", 1)
		}, got{Admin, None, Admin}},
		{"a senior's leaves what came before its cut", func(w *world) {
			w.remove("bob", "carl", 1)
			w.remove(owner, "bob", 2)
		}, got{Admin, None, None}},
		{"a member that removes its remover", func(w *world) {
			w.next("dan", w.grant("ann", "dan", Writer))
			w.remove("ann", "dan", 1)
			w.remove("dan", "ann", 0)
		}, got{Admin, Admin, Admin}},
		{"nobody removes the creator", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Owner))
			w.remove("bob", owner, 0)
			w.next("carl", w.grant(owner, "carl", Owner))
		}, got{Admin, Owner, Owner}},
		{"owners remove each other", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Owner))
			w.next("carl", w.grant(owner, "carl", Owner))
			w.remove("bob", "carl", 0)
			w.remove("carl", "bob", 0)
		}, got{Admin, None, None}},
		{"who was made an owner by the one it removes", func(w *world) {
			w.next("bob", w.grant(owner, "bob", Owner))
			w.next("carl", w.grant("bob", "carl", Owner))
			w.remove("carl", "bob", 1)
		}, got{Admin, None, Admin}},
		{"a grant that does not know of the removal", func(w *world) {
			w.remove("ann", "bob", 1)
			w.next("bob", w.grant(owner, "bob", Writer))
		}, got{Admin, None, Admin}},
		{"back by an equal of the remover", func(w *world) {
			w.next("bob", w.back("carl", "bob", Writer, w.remove("ann", "bob", 1)))
		}, got{Admin, Writer, Admin}},
		{"back by a junior of the remover", func(w *world) {
			w.next("bob", w.back("carl", "bob", Writer, w.remove(owner, "bob", 1)))
		}, got{Admin, None, Admin}},
		{"the owner overrides", func(w *world) {
			w.next("bob", w.back(owner, "bob", Admin, w.remove("ann", "bob", 1)))
		}, got{Admin, Admin, Admin}},
		{"back, and removed by another meanwhile", func(w *world) {
			w.next("bob", w.back("carl", "bob", Writer, w.remove("ann", "bob", 1)))
			w.remove(owner, "bob", 2)
		}, got{Admin, None, Admin}},
		{"by oneself", func(w *world) {
			w.next("bob", w.back("bob", "bob", Admin, w.remove("ann", "bob", 1)))
		}, got{Admin, None, Admin}},
	} {
		w := newWorld()
		w.admins("ann", "bob", "carl")
		c.tell(w)
		if g := (got{w.Member(who("ann")), w.Member(who("bob")), w.Member(who("carl"))}); g != c.want {
			t.Errorf("%s: %v, want %v", c.name, g, c.want)
		}
		if w.Member(who(owner)) != Owner {
			t.Errorf("%s: the creator is %s", c.name, w.Member(who(owner)))
		}
	}
}

// TestAdopt: what a removal cut off counts if an equal or a senior of the remover says so.
func TestAdopt(t *testing.T) {
	for _, c := range []struct {
		by, want string
	}{
		{owner, "writer writer writer none"}, {"ann", "writer writer writer none"}, {"carl", "writer writer writer none"},
		{"dan", "writer none none none"}, {"bob", "writer none none none"},
	} {
		w := newWorld()
		w.admins("ann", "carl")
		w.next("bob", w.grant("ann", "bob", Writer))
		w.next("dan", w.grant("ann", "dan", Writer))
		at := w.remove("ann", "bob", 1)
		w.adopt(c.by, "bob", 3, at)
		if got := w.roles("bob", 4); got != c.want || w.Member(who("bob")) != None {
			t.Errorf("adopted by %s: %s, want %s", c.by, got, c.want)
		}
	}
	// Two that were removed and adopt each other have nothing.
	w := newWorld()
	w.admins("ann", "bob", "carl")
	b, c := w.remove("ann", "bob", 1), w.remove("ann", "carl", 1)
	w.adopt("bob", "carl", 9, c)
	w.adopt("carl", "bob", 9, b)
	if got := w.roles("bob", 4) + " " + w.roles("carl", 4); got != "admin none none none admin none none none" {
		t.Error(got)
	}
}

func TestPresence(t *testing.T) {
	w := newWorld()
	w.admins("ann")
	w.next("bob", w.grant("ann", "bob", Writer))
	w.next("dan", w.grant("ann", "dan", Writer))
	is := func(want bool, what string) {
		t.Helper()
		if w.Dormant(who("bob")) != want {
			t.Errorf("%s: dormant is %v", what, !want)
		}
	}
	is(false, "nothing was said")
	w.present("dan", "bob", 1, true)
	is(false, "a writer says so")
	w.present("ann", "bob", 1, true)
	is(true, "an admin says so")
	if w.Member(who("bob")) != Writer {
		t.Error("who is dormant keeps its role")
	}
	w.present("bob", "bob", 2, false)
	is(false, "it is back")
	w.present("ann", "bob", 1, true)
	is(false, "of an earlier turn")
	w.present("ann", "bob", 2, true)
	is(false, "of one turn active counts")
	w.present("ann", "bob", 3, true)
	is(true, "away again")
	w.present("dan", "bob", 4, false)
	is(true, "another writer says that it is active")
	w.present("bob", "bob", 4, true)
	is(true, "and it is no admin")
}

// TestRotate: the new key has what the old one had, and the old one ends there.
func TestRotate(t *testing.T) {
	w := newWorld()
	w.admins("ann", "bob")
	at := w.rotate("bob", "bob2")
	w.next("bob")
	w.next("bob2")
	w.next("bob2", at)
	if got := w.roles("bob", 4) + ", " + w.roles("bob2", 3); got != "admin admin none none, none admin admin" {
		t.Error(got)
	}
	if w.Member(who("bob")) != None || w.next2("bob") != who("bob2") {
		t.Errorf("the old key is %s", w.Member(who("bob")))
	}
	// The new key is removed like anybody, and a removal of the old one below its rotation takes both.
	w.remove(owner, "bob", 1)
	if got := w.roles("bob", 3) + ", " + w.roles("bob2", 3); got != "admin none none, none none none" {
		t.Error("the old key was removed before it was rotated: ", got)
	}
	// The creator's key goes on as the creator's.
	w = newWorld()
	w.admins("ann")
	w.next("olga2", w.rotate(owner, "olga2"))
	w.grant(owner, "eve", Owner)
	g := w.grant("olga2", "dan", Owner)
	w.next("dan", g)
	w.remove("dan", "olga2", 0)
	if w.Member(who("olga2")) != Owner || w.Member(who("dan")) != Owner || w.Member(who("eve")) != None || w.Member(who(owner)) != None {
		t.Error(w.Member(who("olga2")), w.Member(who("dan")), w.Member(who("eve")), w.Member(who(owner)))
	}
	// Of two rotations the first counts.
	w = newWorld()
	w.admins("bob")
	a, b := w.rotate("bob", "x"), w.rotate("bob", "y")
	w.next("x", a)
	w.next("y", b)
	if w.Member(who("x")) != Admin || w.Member(who("y")) != None {
		t.Error(w.Member(who("x")), w.Member(who("y")))
	}
}

func (w *world) next2(author string) lattice.AuthorID { return w.Roster.next(who(author)) }

// TestIntroduced: a stranger's name in a void entry lets nobody in; a removal, whenever it
// comes, lets nobody out.
func TestIntroduced(t *testing.T) {
	w := newWorld()
	w.admins("ann")
	w.next("bob", w.grant("ann", "bob", Writer))
	w.grant("bob", "eve", Writer)
	w.grant("ann", "king", Admin)
	w.grant("zoe", "zoe", Owner)
	w.grant("ann", "carl", Writer)
	is := func(name string, want bool) {
		t.Helper()
		if w.Introduced(who(name)) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	for range 2 {
		for _, n := range []string{owner, "ann", "bob", "carl"} {
			is(n, true)
		}
		for _, n := range []string{"eve", "king", "zoe", "nobody"} {
			is(n, false)
		}
		w.remove(owner, "ann", 0)
		w.forks[who("ann")] = 1
		w.Forget()
	}
}

func TestLastingOps(t *testing.T) {
	old, fresh := identity.FromSeed([32]byte{1}), identity.FromSeed([32]byte{2})
	store := lattice.StoreID{7}
	r := Rotate{To: fresh.Author(), Cut: []sigchain.Link{link(1, 4)}}
	r.Proof = fresh.Sign(identity.DomainRotate, RotateMessage(store, old.Author()))
	op, err := r.Op()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseRotate(op); err != nil || back.Verify(store, old.Author()) != nil {
		t.Error(err)
	}
	if err := r.Verify(lattice.StoreID{8}, old.Author()); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("another store: %v", err)
	}
	if err := r.Verify(store, lattice.AuthorID{9}); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("another key: %v", err)
	}
	ref := sigchain.Ref{Author: lattice.AuthorID{1}, Link: link(1, 1)}
	more := sigchain.Ref{Author: lattice.AuthorID{2}, Link: link(1, 1)}
	for what, err := range map[string]error{
		"a return in spite of nothing":  second(Return{Member: Member{Role: Writer}}.Op()),
		"a return to no role":           second(Return{Lifts: []sigchain.Ref{ref}}.Op()),
		"removals out of order":         second(Return{Member{Role: Writer}, []sigchain.Ref{more, ref}}.Op()),
		"a removal without id":          second(Adopt{Lifts: []sigchain.Ref{{Link: sigchain.Link{Seq: 1}}}}.Op()),
		"adopting in spite of nothing":  second(Adopt{Upto: []sigchain.Link{link(1, 1)}}.Op()),
		"presence in no turn":           second(ParsePresence(Presence{}.Op())),
		"presence neither here nor not": second(ParsePresence(sigchain.Op{Kind: KindPresence, Body: append(append([]byte{1}, make([]byte, 35)...), 1, 2)})),
		"a return that ends":            second(ParseReturn(sigchain.Op{Kind: KindReturn, Body: append([]byte{1}, make([]byte, 36)...)})),
		"more removals than there":      second(ParseAdopt(sigchain.Op{Kind: KindAdopt, Body: append(append([]byte{1}, make([]byte, 32)...), 0xff, 0xff, 0xff, 0xff)})),
		"a rotation that ends":          second(ParseRotate(sigchain.Op{Kind: KindRotate, Body: append([]byte{1}, make([]byte, 95)...)})),
	} {
		if !errors.Is(err, ErrOp) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
