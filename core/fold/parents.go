package fold

import (
	"slices"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Parents returns what the next entry of a writer's chain has to name as parents,
// ascending, so that its author may say something about all that is folded: the
// last entry with an effect of every other chain of which the author has not
// seen it, and grants to the author that it has not named. For a chain that has
// no entry yet, prev is what its first entry will follow.
func (m *Machine) Parents(own state.Writer, prev sigchain.Link) []sigchain.Ref {
	c := m.chains[own]
	if c == nil || c.tip.IsZero() {
		c = m.prospect(own, prev)
	}
	var refs []sigchain.Ref
	for _, x := range m.chains {
		seq := x.effective.Seq
		if x.moved > c.quiet && x.writer != own && !x.author.frozen(x.place(seq)) && !m.sees(c, x.writer, seq) {
			refs = append(refs, sigchain.Ref{Author: x.writer.Author, Link: x.effective})
		}
	}
	if len(refs) == 0 {
		c.quiet = m.moves
	}
	named := c.inherited
	for _, n := range c.grants {
		named = append(slices.Clip(named), n.grant)
	}
	for _, g := range m.roster.GrantsTo(own.Author) {
		if m.Valid(g.Place()) && !slices.Contains(named, g) {
			refs = append(refs, g)
		}
	}
	slices.SortFunc(refs, sigchain.Ref.Compare)
	return slices.Compact(refs)
}

// prospect returns a chain as it is before its first entry.
func (m *Machine) prospect(own state.Writer, prev sigchain.Link) *chain {
	c := &chain{writer: own, author: m.author(own.Author)}
	if !prev.IsZero() {
		before := sigchain.Ref{Author: own.Author, Link: prev}.Place()
		c.after, c.from, c.inherited = m.chains[writerOf(before)], prev.Seq, m.Named(before)
		if c.after != nil && c.after.tip.Seq > prev.Seq {
			c.taken = state.Frontier{} // it is a copy's: to name what was named before does no harm
		}
	}
	return c
}
