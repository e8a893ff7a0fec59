// Package fold decides which entries enter the fold of a store's author logs, in
// what order, and which of them have an effect. It is a state machine: entries
// and the time go in, in any order of arrival, and entries to apply come out. It
// holds no rows, does no I/O and reads no clock. Whatever the order of arrival,
// the same entries come to the same result.
//
// # Three questions
//
// What may be here? An entry of another store is refused. So is one that the
// waiting set has no room for: offer it again later. Signatures are the caller's
// to check, before. Nothing else is refused, because an entry that is here counts
// as evidence, on every node alike.
//
// What has entered? An entry enters when what stands before it in its chain has,
// when something has entered in the place of each of its parents, and when its
// time is not too far ahead of the wall clock. Until then it waits, with all that
// depends on it. Places count here and not ids, so a parent that names the other
// branch of a forked log stalls nobody; in the place of a parent beyond a fork
// counts the last entry before the fork. An entry with an operation of a kind or
// version that is not known here waits as well, for a newer program: passing over
// it would come to another state.
//
// Which have an effect? An entry that has entered is void
//
//   - at and beyond a fork: where its author, that is, signed two entries for one
//     place. All that the author wrote from the first such place on, in the order
//     of incarnation and sequence number, is void, and never waits or is waited for;
//   - if its chain broke a rule there or before: an entry that does not follow the
//     one before it, or is not later; a first entry that follows something void, or
//     what its author did not write, or follows nothing although its author has an
//     earlier beginning;
//   - if its author had no right to one of its operations (core/roster);
//   - if an operation is malformed, or names what its author had not seen
//     (core/state). An author has seen what stands before in its own chain and
//     in those that it follows, what those have named as parents, and what
//     stands before that in the same chain.
//
// A void entry has no effect, but it has entered: who has it as a parent goes on.
// Who enters depends on nothing of the fourth and fifth points, so that a
// judgement never decides what may be judged.
//
// # Rebuild
//
// A fork, a removal's cut, or an earlier beginning may show up below what was
// folded already. Then Effects.Rebuild is set, and stays so. The caller may go on
// offering what it has, ignoring what comes out: the machine learns from it. Then it must
//
//  1. drop all rows, and all records,
//  2. Reset the machine, which keeps what it has learned,
//  3. offer all entries of all logs again, and apply what comes out.
//
// A crash in between leaves no rows: the caller starts over at 1.
//
// # The base
//
// Entries are pruned where a snapshot has what they came to. Below it the machine
// takes what was folded for good (base.go): an entry there is known, and a fork, a
// cut or an earlier beginning that shows up there takes effect at the base. A
// rebuild begins from the base instead of from nothing. Two replicas that pruned
// at different places join their bases (Join), and go on from one.
//
// # What the caller must do
//
//  1. Make an entry durable before it is offered.
//  2. Apply what comes out, in order, in one step with the records of Changes.
//  3. Keep both entries of a fork for ever: they are the proof, also for others.
//  4. After a restart, Restore, and offer what the logs hold beyond the tips. If
//     the records are lost, begin with New, and with the forks that are kept.
//  5. Call Advance now and then, while something is held.
//
// After an error that is not a refusal the machine cannot be used: restore another.
package fold

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
)

var (
	// ErrForeign refuses an entry of another store. Kind Invalid.
	ErrForeign = lattice.E(lattice.Invalid, errors.New("entry of another store"))
	// ErrFull refuses an entry that would have to wait, when too much waits. Kind
	// Unavailable: offer it again when its parents have come.
	ErrFull = lattice.E(lattice.Unavailable, errors.New("too many entries wait for others"))

	// ErrForked makes void what stands at or beyond a fork. Kind Diverged.
	ErrForked = lattice.E(lattice.Diverged, errors.New("the author signed two entries for one place"))
	// ErrChain makes void what breaks a rule of its chain, and what follows. Kind Invalid.
	ErrChain = lattice.E(lattice.Invalid, errors.New("the chain breaks a rule"))
	// ErrRights makes void what its author has no right to. Kind Denied.
	ErrRights = lattice.E(lattice.Denied, errors.New("the author has no right to it"))
	// ErrUnseen makes void what names something its author had not seen. Kind Invalid.
	ErrUnseen = lattice.E(lattice.Invalid, errors.New("it names what its author had not seen"))
)

// Config is what a machine works on and with.
type Config struct {
	Genesis sigchain.Signed // begins the store
	Limits  Limits
	// MaxDriftMs is how far ahead of the wall clock an entry may be, in milliseconds.
	MaxDriftMs int64
	// Entry returns the entry that came out for a place, before this call; false
	// when the log no longer holds it.
	Entry func(sigchain.Place) (sigchain.Signed, bool, error)
}

// Limits bounds what waits. An author's share keeps one that names what never
// comes from taking the room of others. Bytes are those of encoded entries.
type Limits struct {
	Entries, Bytes             int
	AuthorEntries, AuthorBytes int
}

// Status says what became of an offered entry.
type Status uint8

const (
	Entered Status = iota + 1 // it is among what came out
	Known                     // it was here, or is older than what the log holds
	Waits                     // for entries that are not here
	Held                      // by the clock, or for a newer program; or it waits for what is
	Dropped                   // it stands at or beyond a fork
)

var statusNames = [...]string{"", "entered", "known", "waits", "held", "dropped"}

// String returns the status in a word.
func (s Status) String() string { return statusNames[s] }

// Folded is an entry that has entered.
type Folded struct {
	Entry sigchain.Signed
	// Ops are the operations on state, each at its index in the entry; others are
	// nil. A void entry has none.
	Ops []state.Op
	// Void says why the entry has no effect; nil: it has one. It wraps one of the
	// errors of this package, or of the one whose operation is malformed.
	Void error
}

// Fork is proof that an author signed two entries for one place.
type Fork struct {
	New   sigchain.Signed
	Known lattice.Hash // the id of the entry that was here before
}

// Effects is what follows from an offer or from time.
type Effects struct {
	Status  Status   // of the entry that was offered
	Fold    []Folded // to be applied, in this order
	Fork    *Fork    // to be kept, with the other entry
	Rebuild bool     // what was folded is not what it should be; see the package comment
}

// Machine is the state of the fold. Not safe for concurrent use.
type Machine struct {
	config  Config
	store   lattice.StoreID
	roster  *roster.Roster
	authors map[lattice.AuthorID]*author
	chains  map[state.Writer]*chain
	waiting waiting
	moves   uint64 // counts entries with an effect
	nowMs   int64
	stale   bool
	failed  error
	out     []Folded // of the running call
	offered waiter   // likewise, so that an entry that enters at once needs no memory
	changes changes
}

// New returns the machine of a store of which nothing is folded. The genesis
// entry is offered like any other.
func New(c Config) (*Machine, error) {
	store, _, err := sigchain.StoreID(c.Genesis)
	if err != nil {
		return nil, fmt.Errorf("fold: %w", err)
	}
	m := &Machine{config: c, store: store, authors: map[lattice.AuthorID]*author{}, chains: map[state.Writer]*chain{}}
	m.roster = roster.New(c.Genesis.Author, m)
	m.waiting.clear()
	return m, nil
}

// Offer takes an entry whose signature was checked. Refusals wrap ErrForeign,
// sigchain.ErrTooLarge or ErrFull, and change nothing.
func (m *Machine) Offer(s sigchain.Signed, nowMs int64) (Effects, error) {
	return m.offer(s, nowMs, operations{})
}

// OfferOwn is Offer for an entry that the caller has just made, whose operations
// are all of state, and which names as parents all that Parents said: what Offer
// would check of its operations holds because of how they were made. They are not
// looked at, and do not come out.
func (m *Machine) OfferOwn(s sigchain.Signed, nowMs int64) (Effects, error) {
	return m.offer(s, nowMs, operations{needs: roster.Writer, state: []state.Op{}})
}

func (m *Machine) offer(s sigchain.Signed, nowMs int64, ops operations) (Effects, error) {
	switch {
	case m.failed != nil:
		return Effects{}, m.failed
	case s.Home() != m.store || s.Seq == 0:
		return Effects{}, fmt.Errorf("entry %s of %s: %w", s.ID.Short(), s.Author.Short(), ErrForeign)
	case len(s.Bytes()) > sigchain.MaxSize:
		return Effects{}, fmt.Errorf("entry %s of %s: %w", s.ID.Short(), s.Author.Short(), sigchain.ErrTooLarge)
	}
	m.nowMs = nowMs
	at := s.Ref().Place()
	a := m.author(s.Author)
	if a.frozen(at) {
		return m.effects(Dropped, nil), nil
	}
	id, here, err := m.idAt(at)
	switch {
	case err != nil:
		return m.fail(err)
	case here && (id == s.ID || id.IsZero()):
		return m.effects(Known, nil), nil
	case here && a.forked(at): // at the base; an earlier fork is known
		return m.effects(Known, nil), nil
	case here:
		m.fork(a, at)
		return m.finish(Dropped, &Fork{s, id})
	}
	m.offered = waiter{entry: s, at: at, ops: ops}
	if !m.ready(&m.offered) {
		w := m.offered
		if ops.state != nil {
			w.ops = operations{} // when its time comes it is judged like any other
		}
		if err := m.wait(&w); err != nil {
			return Effects{}, err
		}
		return m.effects(m.status(&w), nil), nil
	}
	if err := m.enter(&m.offered); err != nil {
		return m.fail(err)
	}
	return m.finish(Entered, nil)
}

// Forked takes the proof that an author signed two entries for one place, whose
// signatures were checked: as it was kept, or as a log found it. Wraps ErrForeign
// when it is none.
func (m *Machine) Forked(one, other sigchain.Signed) (Effects, error) {
	switch {
	case m.failed != nil:
		return Effects{}, m.failed
	case one.Home() != m.store || one.Seq == 0 || !sigchain.Equivocation(one, other):
		return Effects{}, fmt.Errorf("entries %s and %s of %s are no fork: %w", one.ID.Short(), other.ID.Short(), one.Author.Short(), ErrForeign)
	}
	at := one.Ref().Place()
	a := m.author(one.Author)
	if a.forked(at) {
		return m.effects(Known, nil), nil
	}
	m.fork(a, at)
	return m.finish(Dropped, &Fork{one, other.ID})
}

// Advance lets in what the clock held, now that the wall clock says nowMs.
func (m *Machine) Advance(nowMs int64) (Effects, error) {
	if m.failed != nil {
		return Effects{}, m.failed
	}
	m.nowMs = nowMs
	for _, w := range m.waiting.due(nowMs, m.config.MaxDriftMs) {
		m.resume(w)
	}
	return m.finish(0, nil)
}

// Reset forgets what has entered and what waits, and keeps what was learned of
// forks, chains and the roster. See the package comment.
func (m *Machine) Reset() {
	m.waiting.clear()
	m.stale, m.moves = false, 0
	for _, a := range m.authors {
		a.entries, a.bytes, a.said = 0, 0, watermark.Said{}
	}
	for _, c := range m.chains {
		c.reset()
	}
	m.changes = changes{all: true}
}

// Stale reports whether a rebuild is due.
func (m *Machine) Stale() bool { return m.stale }

// Roster returns who may do what. Read-only.
func (m *Machine) Roster() *roster.Roster { return m.roster }

// idAt returns the id of the entry in a place, entered or waiting, and whether
// there is one; the id is zero when the log no longer holds it.
func (m *Machine) idAt(at sigchain.Place) (lattice.Hash, bool, error) {
	if w := m.waiting.at[at]; w != nil {
		return w.entry.ID, true, nil
	}
	c := m.chains[writerOf(at)]
	switch {
	case c == nil || at.Seq > c.tip.Seq:
		return lattice.Hash{}, false, nil
	case at.Seq < c.base.Seq:
		return lattice.Hash{}, true, nil // whether a log still has it must make no difference
	case at.Seq == c.base.Seq:
		return c.base.ID, true, nil
	case at.Seq == c.tip.Seq:
		return c.tip.ID, true, nil
	}
	s, _, err := m.entryAt(at)
	return s.ID, true, err
}

// entryAt returns the entry that came out for a place; false when the log no
// longer holds it.
func (m *Machine) entryAt(at sigchain.Place) (sigchain.Signed, bool, error) {
	for _, f := range m.out {
		if f.Entry.Ref().Place() == at {
			return f.Entry, true, nil
		}
	}
	s, ok, err := m.config.Entry(at)
	if err != nil {
		return s, false, fmt.Errorf("look up entry %s: %w", at, err)
	}
	return s, ok, nil
}

// finish lets in all that was made ready.
func (m *Machine) finish(status Status, f *Fork) (Effects, error) {
	for w := m.waiting.next(); w != nil; w = m.waiting.next() {
		if !m.ready(w) {
			m.waiting.park(w)
			continue
		}
		m.drop(w)
		if err := m.enter(w); err != nil {
			return m.fail(err)
		}
	}
	return m.effects(status, f), nil
}

func (m *Machine) effects(status Status, f *Fork) Effects {
	e := Effects{status, m.out, f, m.stale}
	m.out = nil
	return e
}

func (m *Machine) fail(err error) (Effects, error) {
	m.failed = fmt.Errorf("fold: %w", err)
	return Effects{}, m.failed
}

// enter lets an entry in whose turn it is.
func (m *Machine) enter(w *waiter) error {
	s := w.entry
	c, err := m.follow(s)
	if err != nil {
		return err
	}
	m.name(c, s)
	c.tip, c.time = s.Link(), s.Time
	f := m.judge(c, s, &w.ops)
	m.out = append(m.out, f)
	if f.Void == nil {
		m.moves++
		c.effective, c.moved = s.Link(), m.moves
	}
	m.changes.chain(c)
	m.waiting.wake(w.at)
	return nil
}
