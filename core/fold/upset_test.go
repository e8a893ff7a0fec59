package fold

import (
	"maps"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"pgregory.net/rapid"
)

// below returns which entries at or below f have an effect.
func (r *replica) below(f map[sigchain.Place]bool) []sigchain.Place {
	return slices.DeleteFunc(r.effective(), func(p sigchain.Place) bool { return !f[p] })
}

// TestUpset: whoever was told what counts up to a frontier, and hears later what came
// since, is warned if any of it does not count as it did; never about a frontier of now.
func TestUpset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.draw(40)
		r := newReplica(t, h.genesis)
		r.now = startMs + 20*driftMs
		left := rapid.Permutation(h.all).Draw(t, "order")
		some := rapid.IntRange(0, len(left)).Draw(t, "told of")
		r.offer(left[:some]...)
		then := r.m.Frontier()
		if r.m.Upset(then) {
			t.Fatalf("the frontier of now is upset: %v\n%s", then, h.story())
		}
		reached := map[sigchain.Place]bool{}
		for p := range r.entered {
			if p.Seq <= then[writerOf(p)] {
				reached[p] = true
			}
		}
		was := r.below(reached)
		r.offer(left[some:]...)
		if is := r.below(reached); !slices.Equal(is, was) && !r.m.Upset(then) {
			t.Fatalf("up to %v there counted\n%v\nand now\n%v\n%s", then, was, is, h.story())
		}
		if r.m.Upset(r.m.Frontier()) {
			t.Fatalf("the frontier at the end is upset: %v\n%s", r.m.Frontier(), h.story())
		}
	})
}

// TestUpsetBy names what upsets a frontier, and what does not.
func TestUpsetBy(t *testing.T) {
	g := found(t, "olga")
	in := after(t, "olga", g, nil, grant(t, "ann", roster.Writer), grant(t, "bob", roster.Writer))
	a1 := first(t, "ann", g.Home(), 5, sigchain.Link{}, []sigchain.Signed{in}, set(t, "ann", 5, "a", "1"))
	a2 := after(t, "ann", a1, nil, set(t, "ann", 5, "a", "2"))
	b1 := first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{in}, set(t, "bob", 1, "b", "1"))
	cases := map[string]struct {
		then []sigchain.Signed // beside g and in
		news []sigchain.Signed
		want bool
	}{
		"nothing":                              {[]sigchain.Signed{a1, a2}, nil, false},
		"more of the same":                     {[]sigchain.Signed{a1}, []sigchain.Signed{a2, b1}, false},
		"a fork in the last place":             {[]sigchain.Signed{a1, a2}, []sigchain.Signed{after(t, "ann", a1, nil, set(t, "ann", 5, "a", "3"))}, true},
		"a fork behind":                        {[]sigchain.Signed{a1}, []sigchain.Signed{a2, after(t, "ann", a1, nil, set(t, "ann", 5, "a", "3"))}, false},
		"a fork of another":                    {[]sigchain.Signed{a1, a2}, []sigchain.Signed{b1, first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{in}, set(t, "bob", 1, "b", "2"))}, false},
		"a cut before the last entry":          {[]sigchain.Signed{a1, a2}, []sigchain.Signed{after(t, "olga", in, nil, remove(t, "ann", a1))}, true},
		"a cut of all":                         {[]sigchain.Signed{a1}, []sigchain.Signed{after(t, "olga", in, nil, remove(t, "ann"))}, true},
		"a cut at the last entry":              {[]sigchain.Signed{a1, a2}, []sigchain.Signed{after(t, "olga", in, nil, remove(t, "ann", a2))}, false},
		"a removal without the right to it":    {[]sigchain.Signed{a1, a2, b1}, []sigchain.Signed{after(t, "bob", b1, nil, remove(t, "ann", a1))}, false},
		"a cut that had been folded":           {[]sigchain.Signed{a1, a2, after(t, "olga", in, nil, remove(t, "ann", a1))}, nil, false},
		"an earlier beginning":                 {[]sigchain.Signed{a1, a2}, []sigchain.Signed{first(t, "ann", g.Home(), 3, sigchain.Link{}, []sigchain.Signed{in}, set(t, "ann", 3, "a", "0"))}, true},
		"a later beginning":                    {[]sigchain.Signed{a1, a2}, []sigchain.Signed{first(t, "ann", g.Home(), 7, sigchain.Link{}, []sigchain.Signed{in}, set(t, "ann", 7, "a", "0"))}, false},
		"an earlier beginning that was folded": {[]sigchain.Signed{a1, first(t, "ann", g.Home(), 3, sigchain.Link{}, []sigchain.Signed{in}, set(t, "ann", 3, "a", "0"))}, nil, false},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		r := newReplica(t, g)
		r.offer(append([]sigchain.Signed{g, in}, c.then...)...)
		then := r.m.Frontier()
		r.offer(c.news...)
		if got := r.m.Upset(then); got != c.want {
			t.Errorf("%s: upset %v, want %v", name, got, c.want)
		}
	}
}
