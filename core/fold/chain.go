package fold

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
)

// author is what is known of an author beyond its chains.
type author struct {
	chains []*chain // ascending by incarnation
	// fork is the first place for which the author signed two entries, in the order
	// of incarnation and sequence number; zero: none.
	fork sigchain.Place
	// root is the lowest incarnation that has entered and follows nothing, if rooted.
	root   uint64
	rooted bool
	said   watermark.Said
	// What waits of the author.
	entries, bytes int
}

// forked reports whether a place of the author is at or beyond its fork.
func (a *author) forked(at sigchain.Place) bool {
	return a.fork.Seq != 0 && cmp.Or(cmp.Compare(at.Incarnation, a.fork.Incarnation), cmp.Compare(at.Seq, a.fork.Seq)) >= 0
}

// frozen reports whether nothing enters in a place of the author any more: it is
// at or beyond its fork, and beyond the base.
func (a *author) frozen(at sigchain.Place) bool {
	return a.forked(at) && at.Seq > a.base(at.Incarnation)
}

// begins reports whether c is the chain in which the author began.
func (a *author) begins(c *chain) bool { return a.rooted && c.writer.Incarnation == a.root }

// chain is one incarnation of an author. What is marked so is learned, and
// survives a Reset; the rest says how far the fold is.
type chain struct {
	writer state.Writer
	author *author
	after  *chain // learned: the chain that its first entry follows; nil: none
	from   uint64 // learned: the place there that it follows
	broken uint64 // learned: where it first broke a rule of chains; 0: nowhere
	// limit follows from what was learned of the author: what stands there and
	// beyond cannot count.
	limit uint64
	// learned: the grants to its author that it names as parents, ascending by
	// entry, and those that were named before in what it follows.
	grants    []naming
	inherited []sigchain.Ref

	tip       sigchain.Link
	time      uint64
	effective sigchain.Link // the last entry with an effect
	moved     uint64        // the machine's moves, at that entry
	quiet     uint64        // what moved up to here, the chain has named
	applied   []segment

	named state.Frontier // the last entry of every other chain that it has named as a parent
	// what the chain that it follows had named at that place: nil while its tip is
	// still there, because then it is that chain's named.
	taken state.Frontier
	// base is the last entry that is folded for good; zero: none. See base.go.
	base sigchain.Link
	// what it had named there: nil while that is what it has named.
	ground state.Frontier
	heirs  []*chain       // those that follow c at its tip
	seen   state.Frontier // remembers sees
}

// naming is a grant, named as a parent by entry seq.
type naming struct {
	seq   uint64
	grant sigchain.Ref
}

func (n naming) compare(o naming) int {
	return cmp.Or(cmp.Compare(n.seq, o.seq), n.grant.Compare(o.grant))
}

func (c *chain) reset() {
	c.tip, c.time, c.effective = sigchain.Link{}, 0, sigchain.Link{}
	c.moved, c.quiet, c.applied = 0, 0, nil
	c.named, c.taken, c.heirs, c.seen = nil, nil, nil, nil
	c.base, c.ground = sigchain.Link{}, nil
}

func (c *chain) place(seq uint64) sigchain.Place {
	return sigchain.Place{Author: c.writer.Author, Incarnation: c.writer.Incarnation, Seq: seq}
}

func writerOf(p sigchain.Place) state.Writer {
	return state.Writer{Author: p.Author, Incarnation: p.Incarnation}
}

func (m *Machine) author(id lattice.AuthorID) *author {
	a := m.authors[id]
	if a == nil {
		a = &author{}
		m.authors[id] = a
	}
	return a
}

// open returns the chain of a writer, and makes it when it is new.
func (m *Machine) open(w state.Writer) *chain {
	c := m.chains[w]
	if c != nil {
		return c
	}
	a := m.author(w.Author)
	c = &chain{writer: w, author: a, limit: math.MaxUint64}
	m.chains[w] = c
	i, _ := slices.BinarySearchFunc(a.chains, w.Incarnation, func(c *chain, n uint64) int { return cmp.Compare(c.writer.Incarnation, n) })
	a.chains = slices.Insert(a.chains, i, c)
	return c
}

// follow finds the chain that s comes next in, and learns whether it keeps the
// rules of chains.
func (m *Machine) follow(s sigchain.Signed) (*chain, error) {
	c := m.open(state.Writer{Author: s.Author, Incarnation: s.Incarnation})
	bad := false
	switch {
	case s.Seq > 1:
		bad = s.Prev != c.tip || s.Time <= c.time
	case !s.Prev.IsZero():
		before := sigchain.Ref{Author: s.Author, Link: s.Prev}.Place()
		id, here, err := m.idAt(before)
		if err != nil {
			return nil, err
		}
		// A log that was pruned up to there no longer tells: its tip did.
		bad = here && !id.IsZero() && id != s.Prev.ID
		c.after, c.from = m.open(writerOf(before)), s.Prev.Seq
		c.inherited = m.Named(before)
		if err := m.inherit(c); err != nil {
			return nil, err
		}
		m.limits(c.author)
	case !c.author.rooted || s.Incarnation < c.author.root:
		lowered := c.author.rooted
		c.author.root, c.author.rooted = s.Incarnation, true
		m.changes.author(s.Author)
		m.limits(c.author)
		if lowered {
			m.recheck()
		}
	default:
		m.limits(c.author)
	}
	if bad && (c.broken == 0 || s.Seq < c.broken) {
		c.broken = s.Seq
		m.limits(c.author)
	}
	return c, nil
}

// limits finds again what can count of an author's chains. A chain follows one
// of a lower incarnation, so one pass in their order is enough.
func (m *Machine) limits(a *author) {
	for _, c := range a.chains {
		c.limit = math.MaxUint64
		if c.broken != 0 {
			c.limit = c.broken
		}
		switch {
		case c.after != nil && c.from >= c.after.limit, c.after == nil && !a.begins(c):
			c.limit = 1
		}
		if a.forked(c.place(c.limit - 1)) {
			c.limit = 1
			if c.writer.Incarnation == a.fork.Incarnation {
				c.limit = a.fork.Seq
			}
		}
	}
	m.roster.Forget()
}

// why returns what makes an entry void that stands at or beyond its chain's limit.
func (c *chain) why(seq uint64) error {
	switch {
	case c.author.frozen(c.place(seq)):
		return fmt.Errorf("%w: %s", ErrForked, c.author.fork)
	case c.after == nil && !c.author.begins(c):
		return fmt.Errorf("%w: it follows nothing, though incarnation %d began before it", ErrChain, c.author.root)
	case c.after != nil && c.from >= c.after.limit:
		return fmt.Errorf("%w: it follows %s, which is void", ErrChain, c.after.place(c.from))
	}
	return fmt.Errorf("%w: at %s, which does not follow the entry before it, or is not later", ErrChain, c.place(c.broken))
}

// fork freezes an author at a place. What it had waiting there and beyond goes;
// who waits for that goes on.
func (m *Machine) fork(a *author, at sigchain.Place) {
	a.fork = at
	m.changes.author(at.Author)
	m.limits(a)
	for p, w := range m.waiting.at {
		if p.Author == at.Author && a.frozen(p) {
			m.drop(w)
		}
	}
	m.waiting.wakeAll(func(p sigchain.Place) bool { return p.Author == at.Author && a.frozen(p) })
	m.recheck()
}

// name learns which parents an entry names.
func (m *Machine) name(c *chain, s sigchain.Signed) {
	for _, p := range s.Parents {
		if m.roster.Grants(p, s.Author) && !slices.ContainsFunc(c.grants, func(n naming) bool { return n.grant == p && n.seq <= s.Seq }) {
			n := naming{s.Seq, p}
			c.grants = append(c.grants, n)
			slices.SortFunc(c.grants, naming.compare)
			m.changes.grant(c, n)
		}
		if w := writerOf(p.Place()); w != c.writer && p.Seq > c.named[w] {
			m.settle(c)
			m.keepGround(c)
			if c.named == nil {
				c.named = state.Frontier{}
			}
			c.named[w] = p.Seq
			m.changes.cite(c, w)
		}
	}
}

// inherit gives c what the chain that it follows had named up to there.
func (m *Machine) inherit(c *chain) error {
	if c.from >= c.after.tip.Seq {
		c.after.heirs = append(c.after.heirs, c)
		return nil
	}
	c.taken = state.Frontier{}
	maps.Copy(c.taken, c.after.atBase())
	for seq := c.after.base.Seq; seq < c.from; seq++ {
		s, ok, err := m.entryAt(c.after.place(seq + 1))
		if err != nil {
			return err
		}
		if !ok {
			continue // pruned
		}
		for _, p := range s.Parents {
			if w := writerOf(p.Place()); w != c.after.writer {
				c.taken[w] = max(c.taken[w], p.Seq)
			}
		}
	}
	m.changes.takes(c)
	return nil
}

// settle gives those that follow c where it is what it has named up to here,
// before it names more.
func (m *Machine) settle(c *chain) {
	for _, h := range c.heirs {
		h.taken = make(state.Frontier, len(c.named))
		maps.Copy(h.taken, c.named)
		m.changes.takes(h)
	}
	c.heirs = nil
}

// sees reports whether c's author has seen entry seq of another writer: c has
// named it, or one after it, as a parent, or it stands before c, or had been
// seen there.
func (m *Machine) sees(c *chain, w state.Writer, seq uint64) bool {
	if seq <= c.seen[w] {
		return true
	}
	up := c.named[w]
	for at := c; at.after != nil; at = at.after {
		if at.after.writer == w {
			up = max(up, at.from)
		}
		if at.taken != nil {
			up = max(up, at.taken[w])
		} else {
			up = max(up, at.after.named[w])
		}
	}
	if c.seen == nil {
		c.seen = state.Frontier{}
	}
	c.seen[w] = up
	return seq <= up
}

// Valid implements roster.History.
func (m *Machine) Valid(at sigchain.Place) bool {
	c := m.chains[writerOf(at)]
	if c != nil && at.Seq <= c.base.Seq {
		return c.appliedAt(at.Seq) > roster.None
	}
	return c != nil && at.Seq < c.limit
}

// Sound implements roster.History.
func (m *Machine) Sound(at sigchain.Place) bool {
	c := m.chains[writerOf(at)]
	return c != nil && at.Seq < c.limit
}

// Named implements roster.History.
func (m *Machine) Named(at sigchain.Place) []sigchain.Ref {
	c := m.chains[writerOf(at)]
	if c == nil || len(c.grants) == 0 {
		return c.before()
	}
	all := slices.Clone(c.inherited)
	for _, n := range c.grants {
		if n.seq <= at.Seq {
			all = append(all, n.grant)
		}
	}
	return all
}

func (c *chain) before() []sigchain.Ref {
	if c == nil {
		return nil
	}
	return c.inherited
}

// Frontier returns how far the fold is: for each writer the last entry that has
// entered and does not stand beyond a fork.
func (m *Machine) Frontier() state.Frontier {
	f := make(state.Frontier, len(m.chains))
	for w, c := range m.chains {
		n := c.tip.Seq
		if c.author.frozen(c.place(n)) {
			n = c.author.lastBefore(c.writer.Incarnation)
		}
		if n > 0 {
			f[w] = n
		}
	}
	return f
}

// Tip returns the last entry of a writer's chain that has entered, zero when there
// is none.
func (m *Machine) Tip(w state.Writer) sigchain.Link {
	if c := m.chains[w]; c != nil {
		return c.tip
	}
	return sigchain.Link{}
}

// ForkOf returns the place from which on an author is frozen, zero when it is not.
func (m *Machine) ForkOf(id lattice.AuthorID) sigchain.Place {
	if a := m.authors[id]; a != nil {
		return a.fork
	}
	return sigchain.Place{}
}
