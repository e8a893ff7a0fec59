package keyval

import (
	"cmp"
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// What is to be cited to end all of a key (structs.Key.Seen) is, for each writer that
// has a head in it, that writer's last dot there. Of a key that has only a register and
// an expiry it is read off their heads. Of one with rows of other kinds it is kept, and
// with it in how many of those rows each writer has a head: when the last of them goes,
// the writer's cite goes, too. So a key costs as many cites as writers it holds heads
// of, however many starts have written to it (docs/adr/0020-what-a-key-has-seen.md).
//
// The numbers are not kept where they are known: when one writer has all rows. They are
// not known of a key of which a kind went as a whole while another stayed, and in
// records of layout version 1; then no cite goes until the rows have gone.

// subs returns how many rows with subs the key has.
func (k *keyState) subs() int64 {
	return k.counts[state.Field] + k.counts[state.Member] + k.counts[state.Scored] + k.counts[state.Element]
}

// replaced notes that a row with a sub was old and is r now, before it is counted. That
// the cites cover what is new in it is for witness.
func (k *keyState) replaced(old, r state.Row) {
	switch {
	case len(k.seen) == 1 && by(k.seen[0].Writer, old) && by(k.seen[0].Writer, r): // nearly always
		return
	case len(old) == 1 && len(r) == 1 && old[0].Dot.Writer == r[0].Dot.Writer:
		return
	}
	if len(k.seen) == 0 && len(old) == 0 && len(r) == 1 {
		k.seen = state.Cites{state.CiteOf(r[0].Dot)}
		return
	}
	seen, live, known := k.tallied()
	if !known {
		return
	}
	for i, h := range r {
		if at := r[:i]; !has(at, h.Dot.Writer) && !has(old, h.Dot.Writer) {
			var j int
			seen, live, j = cite(seen, live, h.Dot)
			live[j]++
		}
	}
	for i, h := range old {
		if at := old[:i]; !has(at, h.Dot.Writer) && !has(r, h.Dot.Writer) {
			j, _ := slices.BinarySearchFunc(seen, h.Dot.Writer, compareCite)
			live[j]--
		}
	}
	k.seen, k.live = seen, live
}

// tallied returns copies of the cites and of what counts them; false when that is not
// known.
func (k *keyState) tallied() (state.Cites, []int64, bool) {
	n := k.subs()
	switch {
	case len(k.live) > 0:
		return slices.Clone(k.seen), slices.Clone(k.live), true
	case n == 0:
		return slices.Clone(k.seen), make([]int64, len(k.seen)), true
	case len(k.seen) == 1:
		return slices.Clone(k.seen), []int64{n}, true
	}
	return nil, nil, false
}

// witness has the cites cover a new head, in a key that has rows with subs.
func (k *keyState) witness(d state.Dot) {
	if _, cited := slices.BinarySearchFunc(k.seen, d.Writer, compareCite); cited {
		k.seen = k.seen.Raise(d)
		return
	}
	if seen, live, known := k.tallied(); known {
		k.seen, k.live, _ = cite(seen, live, d)
		return
	}
	k.seen = k.seen.Raise(d)
}

// sweep drops the cites of writers that have no head in the key any more.
func (k *keyState) sweep() {
	if len(k.live) == 0 {
		return
	}
	gone := func(i int) bool {
		w := k.seen[i].Writer
		return k.live[i] == 0 && !has(k.register, w) && !has(k.expiry, w)
	}
	n := 0
	for i := range k.seen {
		if gone(i) {
			n++
		}
	}
	if n > 0 {
		seen, live := make(state.Cites, 0, len(k.seen)-n), make([]int64, 0, len(k.seen)-n)
		for i, c := range k.seen {
			if !gone(i) {
				seen, live = append(seen, c), append(live, k.live[i])
			}
		}
		k.seen, k.live = seen, live
	}
	if len(k.seen) == 1 {
		k.live = nil
	}
}

// take takes in a row that the key is made of, of a key that is read row by row, by kind;
// settle comes after the last one.
func (k *keyState) take(kind state.Kind, r state.Row) {
	switch kind {
	case state.Register:
		k.register = r
	case state.Expiry:
		k.expiry = r
	default:
		k.replaced(nil, r)
	}
	k.counts[kind]++
	if k.subs() == 0 {
		return // settle reads them off
	}
	if k.subs() == 1 {
		for _, h := range k.register {
			k.witness(h.Dot)
		}
	}
	for _, h := range r {
		k.witness(h.Dot)
	}
}

// settle brings the cites in step after a change: d is the dot of a new head, zero if
// there is none.
func (k *keyState) settle(d state.Dot) {
	if k.subs() == 0 {
		k.live = nil
		if len(k.register) != 1 || len(k.expiry) > 0 || len(k.seen) != 1 || k.seen[0] != state.CiteOf(k.register[0].Dot) {
			k.seen = plainSeen(k.register, k.expiry)
		}
		return
	}
	if !d.IsZero() {
		k.witness(d)
	}
	k.sweep()
}

// cite has cites, and the numbers beside them, cover d, and returns its writer's place.
// They are the caller's own.
func cite(seen state.Cites, live []int64, d state.Dot) (state.Cites, []int64, int) {
	i, ok := slices.BinarySearchFunc(seen, d.Writer, compareCite)
	if !ok {
		return slices.Insert(seen, i, state.CiteOf(d)), slices.Insert(live, i, 0), i
	}
	if c := state.CiteOf(d); cmp.Or(cmp.Compare(c.Seq, seen[i].Seq), cmp.Compare(c.Index, seen[i].Index)) > 0 {
		seen[i] = c
	}
	return seen, live, i
}

func compareCite(c state.Cite, w state.Writer) int { return c.Writer.Compare(w) }

// by reports whether all heads of a row are a writer's.
func by(w state.Writer, r state.Row) bool {
	for i := range r {
		if r[i].Dot.Writer != w {
			return false
		}
	}
	return true
}

// has reports whether a row has a head of a writer.
func has(r state.Row, w state.Writer) bool {
	for i := range r {
		if r[i].Dot.Writer == w {
			return true
		}
	}
	return false
}
