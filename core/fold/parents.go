package fold

import (
	"slices"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Parents returns what the next entry of a writer's chain has to name as parents,
// ascending, so that its author may say something about all that is folded: the
// last entry with an effect of every other chain that has moved on since the
// chain named it, and grants to the author that the chain has not named. A
// chain is named by the last one of its author that follows it. For a chain
// that has no entry yet, prev is what its first entry will follow.
func (m *Machine) Parents(own state.Writer, prev sigchain.Link) []sigchain.Ref {
	c := m.chains[own]
	if c == nil || c.tip.IsZero() {
		c = m.prospect(own, prev)
	}
	var refs []sigchain.Ref
	for _, a := range m.authors {
		var chosen []*chain
		for _, x := range slices.Backward(a.chains) {
			if x.moved > c.quiet && x.writer != own && m.toName(c, x, chosen) {
				chosen = append(chosen, x)
				refs = append(refs, x.ref())
			}
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
	}
	return c
}

// toName reports whether c has yet to name x, when it will name the chosen ones.
func (m *Machine) toName(c, x *chain, chosen []*chain) bool {
	seq := x.effective.Seq
	if seq == 0 || x.author.frozen(x.place(seq)) || m.sees(c, x.writer, seq) {
		return false
	}
	return !slices.ContainsFunc(chosen, func(y *chain) bool { return m.follows(y, x.writer.Incarnation) >= seq })
}

// ref names the last entry of a chain that has an effect.
func (c *chain) ref() sigchain.Ref {
	return sigchain.Ref{Author: c.writer.Author, Link: c.effective}
}
