package keyval

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// This file puts what a round changes in the order of the fold database: written
// so, it costs that a fraction.

// placed is an item of a list, and where it belongs.
type placed struct {
	at uint64 // the part of its name that tells it from most others
	i  int
}

// keysInOrder yields the keys of a round in order.
func (r *round) keysInOrder(yield func(*takenKey) bool) {
	name := func(i int) string { return r.keys[i].e.inner }
	for _, x := range inOrder(nil, len(r.keys), name, func(a, b int) int { return cmp.Compare(name(a), name(b)) }) {
		if !yield(&r.keys[x.i]) {
			return
		}
	}
}

// subsInOrder yields the rows of a round in order.
func (r *round) subsInOrder(yield func(*takenSub) bool) {
	name := func(i int) string { return r.subs[i].s.e.inner }
	if r.oneKind() { // of one large key
		name = func(i int) string { return r.subs[i].s.name }
	}
	order := inOrder(nil, len(r.subs), name, func(a, b int) int {
		x, y := r.subs[a].s, r.subs[b].s
		return cmp.Or(cmp.Compare(x.e.inner, y.e.inner), cmp.Compare(x.kind, y.kind), cmp.Compare(x.name, y.name))
	})
	for _, x := range order {
		if !yield(&r.subs[x.i]) {
			return
		}
	}
}

// scoresInOrder yields the members of sorted sets of a round: those of one set in
// the order of their scores.
func (r *round) scoresInOrder(yield func(*takenSub) bool) {
	var order []placed
	for i := range r.subs {
		if x := &r.subs[i]; x.s.kind == state.Scored {
			score, _ := scoreOf(state.Scored, x.row)
			order = append(order, placed{uint64(score), i})
		}
	}
	if r.oneKind() {
		slices.SortFunc(order, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	}
	for _, x := range order {
		if !yield(&r.subs[x.i]) {
			return
		}
	}
}

// oneKind reports whether all rows are of one kind of one key.
func (r *round) oneKind() bool {
	return !slices.ContainsFunc(r.subs, func(x takenSub) bool { return x.s.e != r.subs[0].s.e || x.s.kind != r.subs[0].s.kind })
}

// inOrder sorts n items: by the eight bytes of their names behind what all have in
// common, which mostly decides, then as compare says. It uses the memory of list.
func inOrder[S string | []byte](list []placed, n int, name func(int) S, compare func(a, b int) int) []placed {
	list = list[:0]
	if n == 0 {
		return list
	}
	first := name(0)
	skip := len(first)
	for i := range n {
		skip = common(first[:skip], name(i))
	}
	for i := range n {
		var eight [8]byte
		copy(eight[:], name(i)[skip:])
		list = append(list, placed{binary.BigEndian.Uint64(eight[:]), i})
	}
	slices.SortFunc(list, func(a, b placed) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return compare(a.i, b.i)
	})
	return list
}

// common returns the length of what a and b begin with alike.
func common[S string | []byte](a, b S) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
