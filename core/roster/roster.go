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
	// Sound is Valid whatever was folded for good: whether the chain holds up to there
	// by what is known now.
	Sound(at sigchain.Place) bool
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
	adopted  map[lattice.AuthorID][]adoption     // by whose entries they adopt
	presence map[lattice.AuthorID][]said         // by of whom they say it
	rotated  map[lattice.AuthorID][]rotation     // by whose key they are, ascending
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

	Returns   []Return
	Adopts    []Adopt
	Presences []Presence
	Rotates   []Rotate
}

// Len is how many operations it has.
func (e *Entry) Len() int {
	return len(e.Members) + len(e.Removes) + len(e.Invites) + len(e.Revokes) + len(e.Claims) + len(e.Returns) + len(e.Adopts) + len(e.Presences) + len(e.Rotates)
}

type removal struct {
	at    sigchain.Ref
	needs Role
	Remove
}

type adoption struct {
	at    sigchain.Ref
	needs Role
	Adopt
}

type said struct {
	at    sigchain.Ref
	needs Role
	Presence
}

type rotation struct {
	at    sigchain.Ref
	needs Role
	Rotate
}

// question is whether what stands at a place has a role.
type question struct {
	at   sigchain.Place
	role Role
	in   mode
}

// New returns the roster of a store that creator began.
func New(creator lattice.AuthorID, h History) *Roster {
	return &Roster{
		creator: creator, history: h, entries: map[sigchain.Ref]*Entry{}, granted: map[lattice.AuthorID][]sigchain.Ref{},
		removals: map[lattice.AuthorID][]removal{}, adopted: map[lattice.AuthorID][]adoption{}, presence: map[lattice.AuthorID][]said{},
		rotated: map[lattice.AuthorID][]rotation{}, invites: invitations{}, stands: map[question]bool{},
	}
}

// Add adds what an entry says, whether it counts or not, and reports whether that
// was new.
func (r *Roster) Add(e Entry) bool {
	if _, ok := r.entries[e.At]; ok {
		return false
	}
	r.entries[e.At] = &e
	for to := range e.admits {
		refs := r.granted[to]
		if i, ok := slices.BinarySearchFunc(refs, e.At, sigchain.Ref.Compare); !ok {
			r.granted[to] = slices.Insert(refs, i, e.At)
		}
	}
	for _, x := range e.Removes {
		r.removals[x.Author] = append(r.removals[x.Author], removal{e.At, e.Needs, x})
	}
	for _, x := range e.Adopts {
		r.adopted[x.Author] = append(r.adopted[x.Author], adoption{e.At, e.Needs, x})
	}
	for _, x := range e.Presences {
		r.presence[x.Author] = append(r.presence[x.Author], said{e.At, e.Needs, x})
	}
	for _, x := range e.Rotates {
		all := append(r.rotated[e.At.Author], rotation{e.At, e.Needs, x})
		slices.SortStableFunc(all, func(a, b rotation) int { return a.at.Compare(b.at) })
		r.rotated[e.At.Author] = all
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

// Named yields the authors that an entry gives something, whether it counts or not, in no
// order, and the creator.
func (r *Roster) Named(yield func(lattice.AuthorID) bool) {
	if _, ok := r.granted[r.creator]; !ok && !yield(r.creator) {
		return
	}
	for a := range r.granted {
		if !yield(a) {
			return
		}
	}
}

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

// Cuts yields the places behind which what an author may do can change because of what
// others, or its own rotations, say of its chains.
func (r *Roster) Cuts(of lattice.AuthorID) iter.Seq[sigchain.Link] {
	return func(yield func(sigchain.Link) bool) {
		var all []sigchain.Link
		for _, x := range r.removals[of] {
			all = append(all, x.Cut...)
		}
		for _, x := range r.adopted[of] {
			all = append(all, x.Upto...)
		}
		for _, x := range r.rotated[of] {
			all = append(append(all, x.Cut...), x.at.Link)
		}
		for _, l := range all {
			if !yield(l) {
				return
			}
		}
	}
}

// Changes yields the adoptions and rotations of an author's chains that count, with the
// last entry of one incarnation that is as it would be without.
func (r *Roster) Changes(of lattice.AuthorID, incarnation uint64) iter.Seq2[sigchain.Ref, uint64] {
	upto := func(cut []sigchain.Link) uint64 {
		for _, l := range cut {
			if l.Incarnation == incarnation {
				return l.Seq
			}
		}
		return 0
	}
	return func(yield func(sigchain.Ref, uint64) bool) {
		for _, x := range r.adopted[of] {
			if upto(x.Upto) > 0 && r.counts(x.at.Place(), x.needs) && !yield(x.at, 0) {
				return
			}
		}
		for _, x := range r.rotated[of] {
			last := upto(x.Cut)
			if x.at.Incarnation == incarnation {
				last = x.at.Seq
			}
			if r.counts(x.at.Place(), x.needs) && !yield(x.at, last) {
				return
			}
		}
	}
}
