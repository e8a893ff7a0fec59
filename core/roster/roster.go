package roster

import (
	"iter"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// History is what a Roster asks about chains. Its answers for a place may change
// only together with Forget.
type History interface {
	// Valid reports whether what stands at a place can count, roles aside: its
	// chain holds up to there, and its author has not forked before.
	Valid(at sigchain.Place) bool
	// Named returns the entries, among those that Grants reports, which the entry
	// at a place or one that it follows in its author's chain has as parents.
	Named(at sigchain.Place) []sigchain.Ref
	// Final returns the role with which what stands at a place was folded, when
	// that is for good, whatever else comes to light.
	Final(at sigchain.Place) (Role, bool)
}

// Roster is the grants and removals of a store. It is a set: the order in which
// they are added does not matter. Not safe for concurrent use.
type Roster struct {
	creator  lattice.AuthorID
	history  History
	entries  map[sigchain.Ref]*Entry
	granted  map[lattice.AuthorID][]sigchain.Ref // ascending, by whom they are for
	removals map[lattice.AuthorID][]removal      // by whom they remove
	invites  invitations
	stands   map[question]bool
}

// Entry is what an entry says about the roster.
type Entry struct {
	At      sigchain.Ref
	Needs   Role // the greatest that any of the entry's operations needs
	Members []Member
	Removes []Remove
	Invites []Invite
	Revokes []Revoke
	Claims  []Claim
}

type removal struct {
	at    sigchain.Ref
	needs Role
	Remove
}

type question struct {
	at   sigchain.Place
	role Role
}

// New returns the roster of a store that creator began.
func New(creator lattice.AuthorID, h History) *Roster {
	return &Roster{
		creator: creator, history: h, entries: map[sigchain.Ref]*Entry{}, granted: map[lattice.AuthorID][]sigchain.Ref{},
		removals: map[lattice.AuthorID][]removal{}, invites: invitations{}, stands: map[question]bool{},
	}
}

// Add adds what an entry says, whether it counts or not, and reports whether that
// was new.
func (r *Roster) Add(e Entry) bool {
	if _, ok := r.entries[e.At]; ok {
		return false
	}
	r.entries[e.At] = &e
	for _, m := range e.Members {
		refs := r.granted[m.Author]
		if i, ok := slices.BinarySearchFunc(refs, e.At, sigchain.Ref.Compare); !ok {
			r.granted[m.Author] = slices.Insert(refs, i, e.At)
		}
	}
	for _, rm := range e.Removes {
		r.removals[rm.Author] = append(r.removals[rm.Author], removal{e.At, e.Needs, rm})
	}
	r.invites.addEntry(e)
	r.Forget()
	return true
}

// Forget forgets what was concluded from History's answers, which have changed.
func (r *Roster) Forget() { clear(r.stands) }

// Entries yields all that was added, in no order.
func (r *Roster) Entries(yield func(Entry) bool) {
	for _, e := range r.entries {
		if !yield(*e) {
			return
		}
	}
}

// Grants reports whether an entry grants something to an author, so that it
// matters who names it as a parent.
func (r *Roster) Grants(at sigchain.Ref, to lattice.AuthorID) bool {
	_, ok := slices.BinarySearchFunc(r.granted[to], at, sigchain.Ref.Compare)
	return ok
}

// GrantsTo returns the entries that grant something to an author, ascending: what
// the author names as parents when it first uses them. Read-only.
func (r *Roster) GrantsTo(to lattice.AuthorID) []sigchain.Ref { return r.granted[to] }

// Removals yields what removes an author and where, whether it counts or not.
func (r *Roster) Removals(of lattice.AuthorID) iter.Seq2[sigchain.Ref, Remove] {
	return func(yield func(sigchain.Ref, Remove) bool) {
		for _, rm := range r.removals[of] {
			if !yield(rm.at, rm.Remove) {
				return
			}
		}
	}
}

// Entry returns what was added of an entry.
func (r *Roster) Entry(at sigchain.Ref) (Entry, bool) {
	e, ok := r.entries[at]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// Role returns the role that counts at a place of a chain.
func (r *Roster) Role(at sigchain.Place) Role {
	if role, ok := r.history.Final(at); ok {
		return role
	}
	return r.greatest(at, r.history.Named(at), r.history.Valid(at))
}

// Member returns the role that an author's next entry would have in a chain that
// counts so far, if it names all grants. It goes in chains that no removal names.
func (r *Roster) Member(author lattice.AuthorID) Role {
	return r.greatest(sigchain.Place{Author: author, Incarnation: 1<<64 - 1, Seq: 1<<64 - 1}, r.granted[author], true)
}

func (r *Roster) greatest(at sigchain.Place, named []sigchain.Ref, valid bool) Role {
	if !valid {
		return None
	}
	if at.Author == r.creator {
		return Owner
	}
	best := None
	for _, ref := range named {
		e := r.entries[ref]
		if e == nil {
			continue
		}
		for _, m := range e.Members {
			if m.Author == at.Author && m.Role > best && r.counts(ref.Place(), e.Needs) && !r.removed(at, m.Role) {
				best = m.Role
			}
		}
	}
	return best
}

// counts reports whether an entry of the roster has at least a role. Its answers are
// remembered. It asks about entries that count by earlier grants, or about roles
// senior to the one in question, so it comes to an end.
func (r *Roster) counts(at sigchain.Place, needs Role) bool {
	q := question{at, needs}
	yes, ok := r.stands[q]
	if !ok {
		r.stands[q] = false // what rests on itself does not count; only damaged records say so
		yes = r.has(at, needs)
		r.stands[q] = yes
	}
	return yes
}

func (r *Roster) has(at sigchain.Place, needs Role) bool {
	if role, ok := r.history.Final(at); ok {
		return role >= needs
	}
	if !r.history.Valid(at) {
		return false
	}
	if at.Author == r.creator {
		return true
	}
	for _, ref := range r.history.Named(at) {
		e := r.entries[ref]
		if e == nil {
			continue
		}
		for _, m := range e.Members {
			if m.Author == at.Author && m.Role >= needs && r.counts(ref.Place(), e.Needs) && !r.removed(at, m.Role) {
				return true
			}
		}
	}
	return false
}

// removed reports whether a removal by a senior to role, which counts, cuts off
// what stands at a place.
func (r *Roster) removed(at sigchain.Place, role Role) bool {
	if role >= Owner {
		return false
	}
	for _, rm := range r.removals[at.Author] {
		if rm.beyond(at) && r.counts(rm.at.Place(), max(rm.needs, role+1)) {
			return true
		}
	}
	return false
}
