package fold

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// This file is about what is folded for good, because its entries were pruned: the
// base. A snapshot holds it as rows and as records of the machine that folded them
// (Snapshot). Of each chain it has all up to a tip.
//
// # What holds at and below the base
//
//   - An entry there is known, whichever it is; none is looked up.
//   - Each counts with the role with which it was folded there (the segments), also
//     when it says who else may do what. A fork, a cut, an earlier beginning or a
//     broken rule that comes to light there takes effect at the base: what stands
//     behind it is judged as it is everywhere.
//   - A chain that follows one below its base has seen what that had named at the
//     base. So a start from an old copy of a directory is as good as any other.
//
// # Join
//
// Two bases join to one that has folded what either has:
//
//   - of each chain the further tip, with what it had named;
//   - forks, beginnings and broken rules: the earliest; members: all;
//   - for each place the greater of the two roles. A row's head is that of the side
//     which folded its entry with the greater role. If both folded it with the same
//     role, it ended when one side does not hold it (Beside, state.Join).
//
// So a cut that one side knew and the other had not heard of when it pruned takes
// effect where the other's base ends, for all who join them. Each of these is a
// maximum, so the order in which many are joined does not matter. Where nothing
// has come to light below, the result is what folding all entries gives.

// ErrBase means that what a snapshot has folded does not count in the same way here
// any more: a fork or a cut below it came to light. Kind Conflict.
var ErrBase = lattice.E(lattice.Conflict, errors.New("a fork or a removal below the snapshot came to light after it was made"))

// base returns the last entry of an incarnation that is folded for good.
func (a *author) base(incarnation uint64) uint64 {
	i, ok := slices.BinarySearchFunc(a.chains, incarnation, func(c *chain, n uint64) int { return cmp.Compare(c.writer.Incarnation, n) })
	if !ok {
		return 0
	}
	return a.chains[i].base.Seq
}

// lastBefore returns the last place that is not frozen of a chain that is, 0 when
// there is none.
func (a *author) lastBefore(incarnation uint64) uint64 {
	n := a.base(incarnation)
	if incarnation == a.fork.Incarnation {
		n = max(n, a.fork.Seq-1)
	}
	return n
}

// atBase is what c had named at its base.
func (c *chain) atBase() state.Frontier {
	switch {
	case c.base.Seq == 0:
		return nil
	case c.ground != nil:
		return c.ground
	}
	return c.named
}

// keepGround remembers what c had named at its base, before it names more.
func (m *Machine) keepGround(c *chain) {
	if c.base.Seq > 0 && c.ground == nil {
		c.ground = make(state.Frontier, len(c.named))
		maps.Copy(c.ground, c.named)
		m.changes.base(c)
	}
}

// Final implements roster.History.
func (m *Machine) Final(at sigchain.Place) (roster.Role, bool) {
	c := m.chains[writerOf(at)]
	if c == nil || at.Seq > c.base.Seq {
		return roster.None, false
	}
	return c.appliedAt(at.Seq), true
}

// Base returns how far each writer is folded for good.
func (m *Machine) Base() state.Frontier {
	f := state.Frontier{}
	for w, c := range m.chains {
		if c.base.Seq > 0 {
			f[w] = c.base.Seq
		}
	}
	return f
}

// Chain is how far a writer's chain is.
type Chain struct {
	Writer state.Writer
	Tip    sigchain.Link // the last entry that has entered
	Time   uint64        // of the tip
	Base   sigchain.Link // the last entry that is folded for good; zero: none
}

// Chain returns how far a writer's chain is; it is zero when nothing of it has entered.
func (m *Machine) Chain(w state.Writer) Chain {
	c := m.chains[w]
	if c == nil || c.tip.Seq == 0 {
		return Chain{}
	}
	return Chain{w, c.tip, c.time, c.base}
}

// Chains yields every chain of which something has entered, in no order.
func (m *Machine) Chains(yield func(Chain) bool) {
	for w, c := range m.chains {
		if c.tip.Seq > 0 && !yield(Chain{w, c.tip, c.time, c.base}) {
			return
		}
	}
}

// Snapshot returns what another machine needs to go on from here, ascending by
// key: the same on every replica that has folded the same and knows of the same
// forks. What waits is not in it, nor what was learned of entries that have not
// entered. The machine must not be stale.
func (m *Machine) Snapshot() []Record {
	var out []Record
	has := func(p sigchain.Place) bool { return m.entered(p) }
	for id, a := range m.authors {
		x := author{fork: a.fork}
		if a.rooted && has(sigchain.Place{Author: id, Incarnation: a.root, Seq: 1}) {
			x.root, x.rooted = a.root, true
		}
		if x.fork.Seq != 0 || x.rooted {
			out = append(out, x.record(id))
		}
		if a.said.At.Seq > 0 {
			out = append(out, saidRecord(id, a.said))
		}
	}
	for e := range m.roster.Entries {
		if has(e.At.Place()) {
			out = append(out, m.entryRecord(e.At))
		}
	}
	for _, c := range m.chains {
		if c.tip.Seq > 0 {
			out = m.appendChain(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
	return out
}

func (m *Machine) appendChain(out []Record, c *chain) []Record {
	x := *c
	if x.broken > x.tip.Seq {
		x.broken = 0
	}
	x.taken = c.takenAt()
	out = append(out, x.record())
	for w, seq := range x.named {
		out = append(out, cited(tagCite, x.writer, w, seq))
	}
	for w, seq := range x.taken {
		out = append(out, cited(tagTaken, x.writer, w, seq))
	}
	for _, n := range x.grants {
		if _, known := m.roster.Entry(n.grant); known && n.seq <= x.tip.Seq && m.entered(n.grant.Place()) {
			out = append(out, n.record(&x))
		}
	}
	for _, s := range x.applied {
		out = append(out, s.record(&x))
	}
	return out
}

// takenAt returns what the chain that c follows had named there, nil when it
// follows none.
func (c *chain) takenAt() state.Frontier {
	switch {
	case c.after == nil:
		return nil
	case c.taken != nil:
		return c.taken
	case c.after.named != nil:
		return c.after.named
	}
	return state.Frontier{}
}

// Found returns a machine that begins from a snapshot: all that its records have
// folded is for good. Wraps ErrRecord.
func Found(c Config, records iter.Seq[Record]) (*Machine, error) {
	m, err := Restore(c, records)
	if err != nil {
		return nil, err
	}
	for _, c := range m.chains {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("found the fold: %w: chain %d of %s: %w", ErrRecord, c.writer.Incarnation, c.writer.Author.Short(), err)
		}
	}
	if m.stale || len(m.Base()) > 0 {
		return nil, fmt.Errorf("found the fold: %w: no snapshot's", ErrRecord)
	}
	g := m.chains[state.Writer{Author: c.Genesis.Author, Incarnation: c.Genesis.Incarnation}]
	if g == nil || g.tip.Seq == 1 && g.tip.ID != c.Genesis.ID {
		return nil, fmt.Errorf("found the fold: %w: without the genesis entry", ErrRecord)
	}
	m.lay()
	m.changes = changes{all: true}
	return m, nil
}

// check reports what no snapshot says of a chain.
func (c *chain) check() error {
	ascending := slices.IsSortedFunc(c.applied, segment.compare)
	switch {
	case c.tip.Seq == 0 || c.tip.ID.IsZero() || c.tip.Seq > 1<<62:
		return errors.New("it has no tip")
	case c.effective.Seq > c.tip.Seq || c.broken > c.tip.Seq:
		return errors.New("it says more than it has")
	case len(c.applied) == 0 || c.applied[0].from != 1 || !ascending || c.applied[len(c.applied)-1].from > c.tip.Seq:
		return errors.New("its roles do not fit it")
	case slices.ContainsFunc(c.applied, func(s segment) bool { return s.role > roster.Owner }):
		return errors.New("a role that there is not")
	}
	return nil
}

// lay makes all that has entered the base.
func (m *Machine) lay() {
	for _, c := range m.chains {
		c.taken = c.takenAt()
	}
	for _, c := range m.chains {
		c.base, c.ground = c.tip, nil
	}
	m.derive()
}

// Join takes into m, which Found returned, what another such machine has folded.
// Wraps ErrForeign when that is of another store.
func (m *Machine) Join(o *Machine) error {
	if m.store != o.store {
		return fmt.Errorf("join: %w", ErrForeign)
	}
	m.absorb(o)
	m.lay()
	m.changes = changes{all: true}
	return nil
}

// Rebase forgets like Reset, and begins from a snapshot's machine instead of from nothing.
func (m *Machine) Rebase(base *Machine) {
	m.Reset()
	m.absorb(base)
	m.derive()
	m.changes = changes{all: true}
}

// Agrees reports whether m has folded what base, which Found returned, has folded,
// and with the same roles. Wraps ErrBase when not.
func (m *Machine) Agrees(base *Machine) error {
	for w, b := range base.chains {
		if c := m.chains[w]; c == nil || !c.agrees(b) {
			return fmt.Errorf("entries up to %s: %w", b.place(b.tip.Seq), ErrBase)
		}
	}
	return nil
}

// Fix makes for good what base, which Found returned, has folded. Wraps ErrBase
// when m does not agree.
func (m *Machine) Fix(base *Machine) error {
	if err := m.Agrees(base); err != nil {
		return err
	}
	for w, b := range base.chains {
		c := m.chains[w]
		if b.tip.Seq <= c.base.Seq {
			continue
		}
		c.base, c.ground = b.tip, nil
		if c.tip.Seq > b.tip.Seq {
			c.ground = make(state.Frontier, len(b.named))
			maps.Copy(c.ground, b.named)
		}
		m.changes.base(c)
	}
	return nil
}

// agrees reports whether c has folded what b has, with the same roles.
func (c *chain) agrees(b *chain) bool {
	if b.tip.Seq > c.tip.Seq || b.tip.Seq == c.tip.Seq && b.tip.ID != c.tip.ID || b.tip.Seq == c.base.Seq && b.tip.ID != c.base.ID {
		return false
	}
	cut := c.applied
	for i, s := range cut {
		if s.from > b.tip.Seq {
			cut = cut[:i]
			break
		}
	}
	return slices.Equal(cut, b.applied)
}

// absorb takes over what o has learned and folded.
func (m *Machine) absorb(o *Machine) {
	for id, x := range o.authors {
		a := m.author(id)
		if x.fork.Seq != 0 && (a.fork.Seq == 0 || x.fork.Compare(a.fork) < 0) {
			a.fork = x.fork
		}
		if x.rooted && (!a.rooted || x.root < a.root) {
			a.root, a.rooted = x.root, true
		}
		a.said = a.said.Join(x.said)
	}
	for e := range o.roster.Entries {
		m.roster.Add(e)
	}
	for _, c := range m.chains {
		if c.tip.Seq > 0 {
			c.taken = c.takenAt()
		}
	}
	for w, x := range o.chains {
		m.absorbChain(m.open(w), x)
	}
}

func (m *Machine) absorbChain(c, x *chain) {
	if x.after != nil {
		after := m.open(x.after.writer)
		if c.after == nil || cmp.Or(cmp.Compare(after.writer.Incarnation, c.after.writer.Incarnation), cmp.Compare(x.from, c.from)) > 0 {
			c.after, c.from = after, x.from
		}
	}
	if x.broken != 0 && (c.broken == 0 || x.broken < c.broken) {
		c.broken = x.broken
	}
	c.grants = append(slices.Clip(c.grants), x.grants...)
	slices.SortFunc(c.grants, naming.compare)
	c.grants = slices.Compact(c.grants)
	c.applied = joinRoles(c.applied, c.tip.Seq, x.applied, x.tip.Seq)
	if d := compareLinks(x.tip, c.tip); d > 0 || d == 0 && x.time > c.time {
		c.tip, c.time = x.tip, x.time
	}
	if compareLinks(x.effective, c.effective) > 0 {
		c.effective = x.effective
	}
	if compareLinks(x.base, c.base) > 0 {
		c.base = x.base
	}
	if x.tip.Seq > 0 {
		c.named = highest(c.named, x.named)
		if t := x.takenAt(); t != nil {
			c.taken = highest(c.taken, t)
			if c.taken == nil {
				c.taken = state.Frontier{}
			}
		}
	}
}

func compareLinks(a, b sigchain.Link) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), bytes.Compare(a.ID[:], b.ID[:]))
}

// highest returns the join of two frontiers as a new map, nil when both are empty.
func highest(a, b state.Frontier) state.Frontier {
	if len(a)+len(b) == 0 {
		return nil
	}
	return a.Join(b)
}

// joinRoles returns the greater role at each place of two chains, of which one has
// n entries and the other has k.
func joinRoles(a []segment, n uint64, b []segment, k uint64) []segment {
	turns := []uint64{min(n, k) + 1}
	for _, s := range slices.Concat(a, b) {
		turns = append(turns, s.from)
	}
	slices.Sort(turns)
	var out []segment
	for _, seq := range slices.Compact(turns) {
		role := roster.None
		if seq <= n {
			role = (&chain{applied: a}).appliedAt(seq)
		}
		if seq <= k {
			role = max(role, (&chain{applied: b}).appliedAt(seq))
		}
		if seq <= max(n, k) && (len(out) == 0 || out[len(out)-1].role != role) {
			out = append(out, segment{seq, role})
		}
	}
	return out
}

// beside is what m has seen, for a join of its rows with those of o.
type beside struct{ m, o *Machine }

// Beside returns what m has seen, as it counts in a join of its rows with those
// of o; both are machines that Found returned. An operation is covered where
// its entry was folded with a role that is not less than o's for it.
func (m *Machine) Beside(o *Machine) state.Seen { return beside{m, o} }

// Covers implements state.Seen.
func (b beside) Covers(d state.Dot) bool {
	c, x := b.m.chains[d.Writer], b.o.chains[d.Writer]
	if c == nil || d.Seq > c.tip.Seq {
		return false
	}
	return x == nil || d.Seq > x.tip.Seq || c.appliedAt(d.Seq) >= x.appliedAt(d.Seq)
}
