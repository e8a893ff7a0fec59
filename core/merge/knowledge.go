package merge

import (
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// knowledge answers what follows from a state's prefixes.
//
// The answers are closed under composition: if A is known to be a prefix of B
// and B of C, then A is one of C, also after B itself was dropped from the
// heads. Without that, joining {A} and {C} before {B} would keep A, and joining
// {B} first would not.
type knowledge struct {
	below map[Point][]Point // direct: what is proven a prefix of each point
	downs map[Point]map[Point]bool
}

func (s State) knowledge() *knowledge {
	k := &knowledge{
		below: map[Point][]Point{}, downs: map[Point]map[Point]bool{},
	}
	for _, p := range s.Prefixes {
		k.below[p.to] = append(k.below[p.to], p.from)
	}
	return k
}

// down returns all that is known to be a prefix of p: at least p and Empty.
func (k *knowledge) down(p Point) map[Point]bool {
	if d, ok := k.downs[p]; ok {
		return d
	}
	d := map[Point]bool{p: true, Empty(): true}
	for todo := []Point{p}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, q := range k.below[next] {
			if !d[q] {
				d[q] = true
				todo = append(todo, q)
			}
		}
	}
	k.downs[p] = d
	return d
}

// prefix reports whether a is known to be a prefix of b, or is b.
func (k *knowledge) prefix(a, b Point) bool { return k.down(b)[a] }

// related reports whether one is known to be a prefix of the other.
func (k *knowledge) related(a, b Point) bool { return k.prefix(a, b) || k.prefix(b, a) }

// conflict reports whether it is known that neither is a prefix of the other:
// somewhere below, at one size, they are not the same.
func (k *knowledge) conflict(a, b Point) bool {
	if k.related(a, b) {
		return false
	}
	at := map[uint64][]Point{}
	for p := range k.down(a) {
		at[p.Size] = append(at[p.Size], p)
	}
	for q := range k.down(b) {
		if slices.ContainsFunc(at[q.Size], func(p Point) bool { return p != q }) {
			return true
		}
	}
	return false
}

// common returns the largest point known to be a prefix of both.
func (k *knowledge) common(a, b Point) Point {
	best, other := Empty(), k.down(b)
	for p := range k.down(a) {
		if other[p] && p.compare(best) > 0 {
			best = p
		}
	}
	return best
}

// winning returns the terms from the first to the one that rules now: at each
// step the best of the grants that follow. It is empty for a log without terms.
func (s State) winning() []Term { return Line(s.Terms) }

// Line returns of terms, in any order, those from the first to the one that rules: of
// two after one, clean beats unclean, then the higher number wins, then the lower id.
// Whatever else is known, more terms never bring back one that lost.
func Line(terms []Term) []Term {
	var line []Term
	for at := (lattice.Hash{}); len(line) <= len(terms); {
		var next []Term
		for _, t := range terms {
			if t.Previous == at {
				next = append(next, t)
			}
		}
		if len(next) == 0 {
			break
		}
		best := slices.MaxFunc(next, func(a, b Term) int {
			switch {
			case a.Unclean != b.Unclean && b.Unclean, a.Unclean == b.Unclean && a.Number > b.Number:
				return 1
			case a.Unclean == b.Unclean && a.Number == b.Number:
				return b.compare(a)
			}
			return -1
		})
		line, at = append(line, best), best.ID
	}
	return line
}
