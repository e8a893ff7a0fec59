package fold

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// scene is a store with an owner and three writers, each of whom has written one
// entry that names its grant.
type scene struct {
	genesis, grants sigchain.Signed
	ann, bob, eve   sigchain.Signed
	base            []sigchain.Signed
}

func newScene(t testing.TB) scene {
	var s scene
	s.genesis = found(t, "olga")
	s.grants = after(t, "olga", s.genesis, nil, grant(t, "ann", roster.Writer), grant(t, "bob", roster.Writer), grant(t, "eve", roster.Writer))
	begin := func(name string) sigchain.Signed {
		return first(t, name, s.genesis.Home(), 1, sigchain.Link{}, []sigchain.Signed{s.grants})
	}
	s.ann, s.bob, s.eve = begin("ann"), begin("bob"), begin("eve")
	s.base = []sigchain.Signed{s.genesis, s.grants, s.ann, s.bob, s.eve}
	return s
}

func (s scene) replica(t testing.TB) *replica {
	r := newReplica(t, s.genesis)
	r.offer(s.base...)
	return r
}

// agree offers the same entries in every order, and checks that all come to the
// same: what has an effect, rows and root.
func (s scene) agree(t *testing.T, all []sigchain.Signed, check func(r *replica)) {
	t.Helper()
	var want string
	for order := range permutations(all) {
		r := s.replica(t)
		r.offer(order...)
		r.offer(order...) // again: nothing happens
		r.advance(0)
		check(r)
		if got := r.rows(); want == "" {
			want = got
		} else if got != want {
			t.Fatalf("order %v comes to\n%s\nnot\n%s", places(order), got, want)
		}
		r.checkRecords()
		r.restart()
		if got := r.rows(); got != want {
			t.Fatalf("order %v, restarted, comes to\n%s\nnot\n%s", places(order), got, want)
		}
		check(r)
	}
}

func places(all []sigchain.Signed) []sigchain.Place {
	var out []sigchain.Place
	for _, s := range all {
		out = append(out, s.Ref().Place())
	}
	return out
}

func (r *replica) wantVoid(s sigchain.Signed, want error) {
	r.t.Helper()
	if err := r.void[s.Ref().Place()]; !errors.Is(err, want) || r.entered[s.Ref().Place()] != s.ID {
		r.t.Fatalf("%s is void for %v, want %v", s.Ref().Place(), err, want)
	}
}

func (r *replica) wantEffect(all ...sigchain.Signed) {
	r.t.Helper()
	for _, s := range all {
		p := s.Ref().Place()
		if r.entered[p] != s.ID || r.void[p] != nil {
			r.t.Fatalf("%s: entered as %s, void for %v", p, r.entered[p].Short(), r.void[p])
		}
	}
}

func TestOrders(t *testing.T) {
	sc := newScene(t)
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	b := after(t, "bob", sc.bob, []sigchain.Signed{a}, set(t, "bob", 1, "k", "b", dotOf(a, 0)))
	c := after(t, "eve", sc.eve, []sigchain.Signed{a}, set(t, "eve", 1, "k", "c", dotOf(a, 0)))
	d := after(t, "ann", a, []sigchain.Signed{b, c}, set(t, "ann", 1, "k", "d", dotOf(b, 0), dotOf(c, 0)))
	sc.agree(t, []sigchain.Signed{a, b, c, d}, func(r *replica) {
		r.wantEffect(a, b, c, d)
		if got := r.get("k"); got != "[d]" || r.rebuilt != 0 {
			t.Fatalf("%s after %d rebuilds", got, r.rebuilt)
		}
	})
}

// TestWaits: what is missing is named, what waits is counted, and an entry with
// two missing parents waits for both.
func TestWaits(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	b := after(t, "bob", sc.bob, nil, set(t, "bob", 1, "k", "b"))
	c := after(t, "eve", sc.eve, []sigchain.Signed{a, b}, set(t, "eve", 1, "k", "c"))
	d := after(t, "eve", c, nil)
	if got := r.offer(d, c); got != Waits {
		t.Errorf("status %s", got)
	}
	if got := slices.SortedFunc(r.m.Missing, sigchain.Place.Compare); len(got) != 1 {
		t.Errorf("missing %v, want one parent first", got)
	}
	if got := r.offer(b); got != Entered || !slices.Equal(r.waits(), places([]sigchain.Signed{c, d})) {
		t.Errorf("status %s, waiting %v", got, r.waits())
	}
	if got := slices.Collect(r.m.Missing); !slices.Equal(got, places([]sigchain.Signed{a})) {
		t.Errorf("missing %v", got)
	}
	if got := r.offer(c); got != Known {
		t.Errorf("a duplicate that waits: %s", got)
	}
	r.offer(a)
	r.wantEffect(a, b, c, d)
	if len(r.waits()) != 0 || r.m.waiting.bytes != 0 || len(r.m.waiting.on) != 0 {
		t.Errorf("left over: %v, %d bytes", r.waits(), r.m.waiting.bytes)
	}
	for _, s := range []sigchain.Signed{a, b, c, d, sc.genesis} {
		if got := r.offer(s); got != Known {
			t.Errorf("a duplicate of %s: %s", s.Ref().Place(), got)
		}
	}
	if got := slices.Index(r.order, c.Ref().Place()); got < slices.Index(r.order, a.Ref().Place()) {
		t.Error("it came before its parent")
	}
}

func TestLongCascade(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	r.m.config.Limits = Limits{1 << 20, 1 << 30, 1 << 20, 1 << 30}
	all := []sigchain.Signed{sc.ann}
	for range 3000 {
		all = append(all, after(t, "ann", all[len(all)-1], nil))
	}
	slices.Reverse(all)
	r.offer(all...)
	if got := r.m.Tip(writerOf(all[0].Ref().Place())); got != all[0].Link() {
		t.Errorf("tip %+v", got)
	}
}

// TestLimits: what waits is bounded, in all and for an author; what is refused
// comes in later, and others are not hindered.
func TestLimits(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	r.m.config.Limits = Limits{Entries: 5, Bytes: 1 << 20, AuthorEntries: 3, AuthorBytes: 1 << 20}
	chain := []sigchain.Signed{sc.ann}
	for range 6 {
		chain = append(chain, after(t, "ann", chain[len(chain)-1], nil))
	}
	chain = chain[1:]
	r.offer(chain[5], chain[4], chain[3])
	refused := func(s sigchain.Signed) {
		t.Helper()
		if _, err := r.m.Offer(s, r.now); !errors.Is(err, ErrFull) || lattice.KindOf(err) != lattice.Unavailable {
			t.Fatalf("%s: %v, want full", s.Ref().Place(), err)
		}
	}
	refused(chain[2])
	bob := after(t, "bob", sc.bob, []sigchain.Signed{chain[5]})
	eve := after(t, "eve", sc.eve, []sigchain.Signed{chain[5]})
	eve2 := after(t, "eve", eve, nil)
	r.offer(bob, eve)
	refused(eve2)
	r.offer(chain[0], chain[1], chain[2], eve2)
	r.wantEffect(append(chain, bob, eve, eve2)...)

	r.m.config.Limits = Limits{Entries: 10, Bytes: 1000, AuthorEntries: 10, AuthorBytes: 500}
	bob2 := after(t, "bob", bob, nil)
	bob3 := after(t, "bob", bob2, nil, sigchain.Op{Kind: 16, Body: make([]byte, 400)})
	refused(bob3)
	r.m.config.Limits.AuthorBytes = 1000
	r.offer(bob3)
	eve3 := after(t, "eve", eve2, []sigchain.Signed{bob3}, sigchain.Op{Kind: 16, Body: make([]byte, 400)})
	refused(eve3)
}

// TestHeld: an entry from the future is held, with all that depends on it, and
// comes to the same once its time is near.
func TestHeld(t *testing.T) {
	sc := newScene(t)
	late := sign(t, "ann", sigchain.Entry{
		Store: sc.genesis.Home(), Incarnation: 1, Seq: 2, Time: uint64(clock.At(startMs+3_600_000, 0)), Prev: sc.ann.Link(), Ops: []sigchain.Op{set(t, "ann", 1, "k", "late")},
	})
	next := after(t, "ann", late, nil, set(t, "ann", 1, "k", "later", dotOf(late, 0)))
	cites := after(t, "bob", sc.bob, []sigchain.Signed{late}, set(t, "bob", 1, "other", "b"))
	free := after(t, "eve", sc.eve, nil, set(t, "eve", 1, "k", "e"))
	all := []sigchain.Signed{late, next, cites, free}
	for order := range permutations(all) {
		r := sc.replica(t)
		for _, s := range order {
			if got := r.offer(s); got == Entered && s.ID != free.ID {
				t.Fatalf("%s entered", s.Ref().Place())
			}
		}
		for w := range r.m.Waiting {
			if w.Status != Held || w.Unknown {
				t.Errorf("%s %s", w.Entry.Ref().Place(), w.Status)
			}
		}
		if got := r.get("k"); got != "[e]" {
			t.Fatal(got)
		}
		r.advance(3_600_000 - 1000 - driftMs - 1)
		if len(r.waits()) != 3 {
			t.Fatalf("a millisecond early: %v wait", r.waits())
		}
		r.restart()
		r.advance(1)
		if got := r.waits(); !slices.Equal(got, places([]sigchain.Signed{next})) {
			t.Fatalf("when its time is near: %v wait, want what is a millisecond later", got)
		}
		r.advance(1)
		r.wantEffect(late, next, cites, free)
	}
}

// TestWaitingKeepsNoMessage: an entry that waits is not changed by what becomes of the
// memory that it came in, of which it would keep all.
func TestWaitingKeepsNoMessage(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	first := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	second := after(t, "ann", first, nil, set(t, "ann", 1, "k", "b", dotOf(first, 0)))
	message := bytes.Clone(second.Bytes())
	s, err := sigchain.Parse(message)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.offer(s); got != Waits {
		t.Fatal(got)
	}
	clear(message)
	r.offer(first)
	r.wantEffect(first, second)
	if got := r.get("k"); got != "[b]" {
		t.Error(got)
	}
}

// TestUnknownOperation: what only a newer program understands waits for it, with
// what depends on it.
func TestUnknownOperation(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	newer := set(t, "ann", 1, "k", "v")
	newer.Body[0] = 2
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"), sigchain.Op{Kind: 0xfffe})
	b := after(t, "bob", sc.bob, nil, newer)
	c := after(t, "eve", sc.eve, []sigchain.Signed{a}, set(t, "eve", 1, "k", "c"))
	for _, s := range []sigchain.Signed{a, b, c} {
		if got := r.offer(s); got != Held {
			t.Errorf("%s: %s", s.Ref().Place(), got)
		}
	}
	unknown := 0
	for w := range r.m.Waiting {
		if w.Unknown {
			unknown++
		}
	}
	if got := r.get("k"); got != "[]" || unknown != 2 {
		t.Errorf("k is %s, %d unknown", got, unknown)
	}
}

func TestRefused(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	before := r.rows()
	other := found(t, "ann")
	foreign := first(t, "ann", other.Home(), 2, sc.ann.Link(), nil)
	for _, s := range []sigchain.Signed{other, foreign, {}} {
		if _, err := r.m.Offer(s, r.now); !errors.Is(err, ErrForeign) || lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%v, want foreign", err)
		}
	}
	if r.rows() != before || len(r.waits()) != 0 {
		t.Error("what was refused left something behind")
	}
	if _, err := New(Config{Genesis: sc.ann}); err == nil {
		t.Error("a store begins with no genesis entry")
	}
}

// TestFork is an author that signs two entries for one place, told in the ways in
// which nodes can learn of it.
func TestFork(t *testing.T) {
	sc := newScene(t)
	good := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "good"))
	left := after(t, "ann", good, nil, set(t, "ann", 1, "k", "left", dotOf(good, 0)))
	right := after(t, "ann", good, nil, set(t, "ann", 1, "other", "right"))
	onLeft := after(t, "ann", left, nil, set(t, "ann", 1, "k", "left 2", dotOf(left, 0)))
	onRight := after(t, "ann", right, nil, set(t, "ann", 1, "third", "right 2"))
	bob := after(t, "bob", sc.bob, []sigchain.Signed{left}, set(t, "bob", 1, "k", "bob", dotOf(left, 0)))
	eve := after(t, "eve", sc.eve, []sigchain.Signed{onRight}, set(t, "eve", 1, "mine", "eve", dotOf(right, 0)))
	again := first(t, "ann", sc.genesis.Home(), 2, onRight.Link(), nil, set(t, "ann", 2, "k", "again"))
	check := func(r *replica) {
		if got := r.m.ForkOf(id("ann")); got != left.Ref().Place() {
			t.Fatalf("frozen at %v", got)
		}
		r.wantEffect(good, bob, eve)
		if k, other, third, mine := r.get("k"), r.get("other"), r.get("third"), r.get("mine"); k+other+third+mine != "[bob good][][][eve]" {
			t.Fatal(k, other, third, mine)
		}
		if r.offer(onLeft, onRight, again) != Dropped {
			t.Fatal("not frozen")
		}
		if len(r.waits()) != 0 {
			t.Fatalf("%v wait", r.waits())
		}
	}
	t.Run("same batch, any order", func(t *testing.T) {
		sc.agree(t, []sigchain.Signed{good, left, right, bob, eve}, check)
	})
	t.Run("with what each branch has beyond", func(t *testing.T) {
		sc.agree(t, []sigchain.Signed{left, right, onLeft, onRight, bob, eve}[:5], func(r *replica) {
			r.offer(eve, good)
			check(r)
		})
	})
	t.Run("each to another node", func(t *testing.T) {
		x, y := sc.replica(t), sc.replica(t)
		x.offer(good, left, onLeft, bob)
		y.offer(good, right, onRight, eve, again)
		if got := x.get("k"); got != "[bob left 2]" || x.rebuilt+y.rebuilt != 0 {
			t.Fatal(got)
		}
		x.offer(right, onRight, eve, again)
		y.offer(left, onLeft, bob)
		check(x)
		check(y)
		if x.rows() != y.rows() || x.rebuilt != 1 || y.rebuilt != 1 {
			t.Fatalf("after %d and %d rebuilds\n%s\nand\n%s", x.rebuilt, y.rebuilt, x.rows(), y.rows())
		}
	})
	t.Run("the proof is handed out, once", func(t *testing.T) {
		r := sc.replica(t)
		r.offer(good, left)
		e, err := r.m.Offer(right, r.now)
		if err != nil || e.Fork == nil || e.Fork.New.ID != right.ID || e.Fork.Known != left.ID || !e.Rebuild || e.Status != Dropped {
			t.Fatalf("%+v, %v", e, err)
		}
		if e, err = r.m.Offer(right, r.now); err != nil || e.Fork != nil || !e.Rebuild || e.Status != Dropped {
			t.Fatalf("%+v, %v", e, err)
		}
	})
	t.Run("both wait", func(t *testing.T) {
		r := sc.replica(t)
		r.offer(onLeft, right, left, bob, eve)
		if r.rebuilt != 0 {
			t.Errorf("%d rebuilds of what was not folded", r.rebuilt)
		}
		r.offer(good)
		check(r)
	})
}

// TestForkMovesDown: what is found later below a fork counts; what is found
// above it does not.
func TestForkMovesDown(t *testing.T) {
	sc := newScene(t)
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "a", "a"))
	b := after(t, "ann", a, nil, set(t, "ann", 1, "b", "b"))
	b2 := after(t, "ann", a, nil, set(t, "ann", 1, "b", "b2"))
	a2 := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "a", "a2"))
	onA2 := after(t, "ann", a2, nil, set(t, "ann", 1, "b", "b3"))
	sc.agree(t, []sigchain.Signed{a, b, b2, a2, onA2}, func(r *replica) {
		if got := r.m.ForkOf(id("ann")); got != a.Ref().Place() || r.get("a")+r.get("b") != "[][]" {
			t.Fatalf("frozen at %v: %s %s", got, r.get("a"), r.get("b"))
		}
		r.wantEffect(sc.ann, sc.bob, sc.eve)
	})
}

// TestChains is how incarnations follow each other, and entries that break the
// rules of chains: void by name, with no effect on others.
func TestChains(t *testing.T) {
	sc := newScene(t)
	store := sc.genesis.Home()
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "a", "a"))
	bob := after(t, "bob", sc.bob, nil, set(t, "bob", 1, "b", "b"))
	second := first(t, "ann", store, 5, a.Link(), nil, set(t, "ann", 5, "second", "v"))
	clone := first(t, "ann", store, 9, a.Link(), nil, set(t, "ann", 9, "clone", "v"))
	restored := first(t, "ann", store, 7, sc.ann.Link(), nil, set(t, "ann", 7, "restored", "v"))
	root := first(t, "ann", store, 3, sigchain.Link{}, []sigchain.Signed{sc.grants}, set(t, "ann", 3, "root", "v"))
	onRoot := first(t, "ann", store, 4, root.Link(), nil, set(t, "ann", 4, "on root", "v"))
	bobs := first(t, "ann", store, 6, sigchain.Link{Incarnation: 1, Seq: 2, ID: bob.ID}, nil, set(t, "ann", 6, "bobs", "v"))
	early := sign(t, "ann", sigchain.Entry{Store: store, Incarnation: 5, Seq: 2, Time: second.Time, Prev: second.Link(), Ops: []sigchain.Op{set(t, "ann", 5, "early", "v")}})
	afterEarly := after(t, "ann", early, nil, set(t, "ann", 5, "after early", "v"))
	wrong := sign(t, "ann", sigchain.Entry{Store: store, Incarnation: 9, Seq: 2, Time: clone.Time + 1, Prev: sigchain.Link{Incarnation: 9, Seq: 1, ID: second.ID}, Ops: []sigchain.Op{set(t, "ann", 9, "wrong", "v")}})
	never := first(t, "ann", store, 8, sigchain.Link{Incarnation: 2, Seq: 1, ID: sc.bob.ID}, nil, set(t, "ann", 8, "never", "v"))

	sc.agree(t, []sigchain.Signed{a, second, clone, restored, root}, func(r *replica) {
		r.wantEffect(a, second, clone, restored)
		r.wantVoid(root, ErrChain)
		if r.rebuilt != 0 {
			t.Fatalf("%d rebuilds", r.rebuilt)
		}
	})
	sc.agree(t, []sigchain.Signed{a, second, early, afterEarly, bob}, func(r *replica) {
		r.wantEffect(a, second, bob)
		r.wantVoid(early, ErrChain)
		r.wantVoid(afterEarly, ErrChain)
	})
	sc.agree(t, []sigchain.Signed{a, clone, wrong, bobs, bob}, func(r *replica) {
		r.wantEffect(a, clone, bob)
		r.wantVoid(wrong, ErrChain)
		r.wantVoid(bobs, ErrChain)
	})
	sc.agree(t, []sigchain.Signed{root, onRoot, never, bob}, func(r *replica) {
		r.wantVoid(root, ErrChain)
		r.wantVoid(onRoot, ErrChain)
		r.wantEffect(bob)
		if got := r.waits(); !slices.Equal(got, places([]sigchain.Signed{never})) {
			t.Fatalf("%v wait", got)
		}
	})
}

// TestEarlierBeginning: of two entries that follow nothing the one of the lower
// incarnation is the author's beginning, whichever comes first.
func TestEarlierBeginning(t *testing.T) {
	sc := newScene(t)
	grants := after(t, "olga", sc.grants, nil, grant(t, "dora", roster.Writer))
	low := first(t, "dora", sc.genesis.Home(), 3, sigchain.Link{}, []sigchain.Signed{grants}, set(t, "dora", 3, "k", "low"))
	high := first(t, "dora", sc.genesis.Home(), 4, sigchain.Link{}, []sigchain.Signed{grants}, set(t, "dora", 4, "k", "high"))
	onHigh := after(t, "dora", high, nil, set(t, "dora", 4, "l", "high 2"))
	bob := after(t, "bob", sc.bob, []sigchain.Signed{onHigh}, set(t, "bob", 1, "l", "bob", dotOf(onHigh, 0)))
	sc.agree(t, []sigchain.Signed{grants, low, high, onHigh, bob}, func(r *replica) {
		r.wantEffect(low, bob)
		r.wantVoid(high, ErrChain)
		r.wantVoid(onHigh, ErrChain)
		if k, l := r.get("k"), r.get("l"); k+l != "[low][bob]" {
			t.Fatal(k, l)
		}
	})
}

// TestGenesisFromTheFuture: a store that began further ahead than may be has nothing in
// it until then, on any node; what its members wrote meanwhile waits with it.
func TestGenesisFromTheFuture(t *testing.T) {
	op, err := sigchain.Genesis{Name: "test"}.Op()
	if err != nil {
		t.Fatal(err)
	}
	const year = 365 * 24 * 3_600_000
	g := sign(t, "olga", sigchain.Entry{Incarnation: 1, Seq: 1, Time: uint64(clock.At(startMs+24*year, 0)), Ops: []sigchain.Op{op}})
	next := after(t, "olga", g, nil, set(t, "olga", 1, "k", "v"))
	for order := range permutations([]sigchain.Signed{g, next}) {
		r := newReplica(t, g)
		if got := r.offer(order...); got != Held {
			t.Errorf("status %s", got)
		}
		r.advance(23 * year)
		if len(r.order) != 0 || len(r.m.Frontier()) != 0 {
			t.Errorf("%v entered a year early", r.order)
		}
		r.advance(year)
		r.wantEffect(g, next)
	}
}
