package fold

import (
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Upset reports whether something at or below f, which was somebody's Frontier once,
// may not count as it did there: a fork, a removal's cut or an earlier beginning came to
// light since. Of a frontier of this machine as it is now it is false. It may be true for
// nothing: when the removal of an author was not at f, and took away no effect.
//
// What somebody knew at f follows from f alone. A frontier stops before a fork that
// is known. A removal, and an author's beginning, stand in entries: who knew them has them
// below f. And a frontier is closed: it has no entry without those that it names, so what
// else a cut or a fork makes void is below f only if something behind that cut or fork is.
func (m *Machine) Upset(f state.Frontier) bool {
	for id, a := range m.authors {
		beyond := func(c *chain, last uint64) bool { return f[c.writer] > max(last, c.base.Seq) }
		if slices.ContainsFunc(a.chains, func(c *chain) bool {
			n := f[c.writer]
			return n > 0 && a.frozen(c.place(n))
		}) {
			return true
		}
		root := state.Writer{Author: id, Incarnation: a.root}
		if a.rooted && f[root] == 0 && slices.ContainsFunc(a.chains, func(c *chain) bool { return beyond(c, 0) }) {
			return true // what did not follow the beginning had counted
		}
		if m.cutSince(id, a, f, beyond) || m.changedSince(id, a, f, beyond) {
			return true
		}
	}
	return false
}

// cutSince reports whether a removal that is not below f cuts off something that is.
func (m *Machine) cutSince(id lattice.AuthorID, a *author, f state.Frontier, beyond func(*chain, uint64) bool) bool {
	for at, rm := range m.roster.Removals(id) {
		if at.Seq <= f[writerOf(at.Place())] || !m.roster.Removed(at) {
			continue
		}
		for _, c := range a.chains {
			last := uint64(0)
			if i, ok := slices.BinarySearchFunc(rm.Cut, c.writer.Incarnation, func(l sigchain.Link, n uint64) int { return cmp.Compare(l.Incarnation, n) }); ok {
				last = rm.Cut[i].Seq
			}
			if beyond(c, last) {
				return true
			}
		}
	}
	return false
}

// changedSince reports whether an adoption or a rotation that is not below f may change
// what is.
func (m *Machine) changedSince(id lattice.AuthorID, a *author, f state.Frontier, beyond func(*chain, uint64) bool) bool {
	return slices.ContainsFunc(a.chains, func(c *chain) bool {
		for at, last := range m.roster.Changes(id, c.writer.Incarnation) {
			if at.Seq > f[writerOf(at.Place())] && beyond(c, last) {
				return true
			}
		}
		return false
	})
}
