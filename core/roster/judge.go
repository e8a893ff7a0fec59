package roster

import (
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// This file is the judgement: which role counts where. The package comment has the rules.

// admits yields to whom an entry gives a role, and the grant as a return: of others, one
// that lifts nothing. Of a rotation the role is None: that which its author has there.
func (e *Entry) admits(yield func(lattice.AuthorID, Return) bool) {
	for _, m := range e.Members {
		if !yield(m.Author, Return{Member: m}) {
			return
		}
	}
	for _, x := range e.Returns {
		if !yield(x.Author, x) {
			return
		}
	}
	for _, x := range e.Rotates {
		if !yield(x.To, Return{Member: Member{Author: x.To}}) {
			return
		}
	}
}

// Role returns the role that counts at a place of a chain.
func (r *Roster) Role(at sigchain.Place) Role {
	if role, ok := r.history.Final(at); ok {
		return role
	}
	if !r.history.Valid(at) {
		return None
	}
	return r.greatest(at, r.history.Named(at))
}

// Member returns the role that an author's next entry would have in a chain that
// counts so far, if it names all grants. It goes in chains that no removal names.
func (r *Roster) Member(author lattice.AuthorID) Role {
	return r.greatest(sigchain.Place{Author: author, Incarnation: 1<<64 - 1, Seq: 1<<64 - 1}, r.granted[author])
}

func (r *Roster) greatest(at sigchain.Place, named []sigchain.Ref) Role {
	for role := Owner; role > None; role-- {
		if r.holds(at, named, role, mode{}) {
			return role
		}
	}
	return None
}

// Removed reports whether an entry removes somebody, as far as its author had the
// right to remove at all.
func (r *Roster) Removed(at sigchain.Ref) bool {
	e := r.entries[at]
	return e != nil && len(e.Removes) > 0 && r.rank(at.Place(), max(Admin, e.Needs), false) != None
}

// Introduced reports whether entries of an author may be here: the creator, and whom an
// entry names whose author had the right to, at some time. Removals and forks do not
// matter, so the answer once given stays.
func (r *Roster) Introduced(author lattice.AuthorID) bool {
	return author == r.creator || slices.ContainsFunc(r.granted[author], func(ref sigchain.Ref) bool {
		e := r.entries[ref]
		return e != nil && r.has(ref.Place(), e.Needs, mode{above: always})
	})
}

// Dormant reports whether a member is said to be dormant.
func (r *Roster) Dormant(author lattice.AuthorID) bool {
	_, dormant := r.Turn(author)
	return dormant
}

// Turn returns what counts of what was said of an author's presence, and in which turn.
func (r *Roster) Turn(author lattice.AuthorID) (turn uint32, dormant bool) {
	for _, x := range r.presence[author] {
		switch {
		case x.Turn < turn || !r.counts(x.at.Place(), x.needs):
		case x.Turn > turn:
			turn, dormant = x.Turn, x.Dormant
		default:
			dormant = dormant && x.Dormant
		}
	}
	return turn, dormant
}

// mode is what is asked of what could take a right away.
type mode struct {
	above Role // removals by those senior to it only
	plain bool // nothing that was adopted
}

// counts reports whether an entry of the roster has at least a role.
func (r *Roster) counts(at sigchain.Place, needs Role) bool { return r.has(at, needs, mode{}) }

// has reports whether what stands at a place has at least a role. Its answers are
// remembered. It asks about what the entry names, which is older; about removals, by ever
// greater roles; and about what was adopted once: so it comes to an end.
func (r *Roster) has(at sigchain.Place, needs Role, in mode) bool {
	q := question{at, needs, in}
	yes, ok := r.stands[q]
	if !ok {
		r.stands[q] = false // what rests on itself does not count; only damaged records say so
		yes = r.find(at, needs, in)
		r.stands[q] = yes
	}
	return yes
}

func (r *Roster) find(at sigchain.Place, needs Role, in mode) bool {
	if in.above < always {
		role, final := r.history.Final(at)
		switch {
		case final && role >= needs && role > None:
			return true
		case final && in.above == None, final && !r.history.Sound(at), !final && !r.history.Valid(at):
			return false
		}
	}
	return r.holds(at, r.history.Named(at), needs, in)
}

// holds is has for a place in a chain that holds, where these grants are named.
func (r *Roster) holds(at sigchain.Place, named []sigchain.Ref, needs Role, in mode) bool {
	if r.handedOn(at, in) {
		return false
	}
	if at.Author == r.creator {
		return true
	}
	for _, ref := range named {
		e := r.entries[ref]
		if e == nil {
			continue
		}
		for to, g := range e.admits {
			if to != at.Author {
				continue
			}
			role := g.Role
			if role == None { // a rotation: the role that the old key has there
				role = creator
				for role > None && !r.has(ref.Place(), role, in) {
					role--
				}
			}
			if role >= needs && role >= Reader && r.has(ref.Place(), e.Needs, in) && !r.removed(at, ref, g, role, in) {
				return true
			}
		}
	}
	return false
}

// rank returns the greatest role, from least on, that the author of a removal has at its
// place, as removals are judged; None: it has none of them.
func (r *Roster) rank(at sigchain.Place, least Role, plain bool) Role {
	for role := creator; role >= least; role-- {
		if r.has(at, role, mode{role, plain}) {
			return role
		}
	}
	return None
}

// removed reports whether a removal that is not by a junior to role cuts off what stands at a
// place by a grant: g, of the entry by.
func (r *Roster) removed(at sigchain.Place, by sigchain.Ref, g Return, role Role, in mode) bool {
	if in.above >= creator {
		return false
	}
	for _, rm := range r.removals[at.Author] {
		if !rm.beyond(at) {
			continue
		}
		rank := r.rank(rm.at.Place(), max(role, rm.needs, Admin, in.above+1), in.plain)
		switch {
		case rank == None:
		case slices.Contains(g.Lifts, rm.at) && r.has(by.Place(), rank, in):
		case !in.plain && r.adopts(at, rm.at, rank, in.above):
		default:
			return true
		}
	}
	return false
}

// adopts reports whether what stands at a place was adopted in spite of a removal. Who
// was removed itself, and whose entry would have to be adopted, adopts nothing.
func (r *Roster) adopts(at sigchain.Place, removal sigchain.Ref, rank, above Role) bool {
	return slices.ContainsFunc(r.adopted[at.Author], func(a adoption) bool {
		return slices.Contains(a.Lifts, removal) && !(Remove{Cut: a.Upto}).beyond(at) && r.has(a.at.Place(), max(a.needs, rank), mode{above, true})
	})
}

// handedOn reports whether what stands at a place comes after its author's key was rotated.
func (r *Roster) handedOn(at sigchain.Place, in mode) bool {
	for _, x := range r.rotated[at.Author] {
		own := x.at.Place()
		if own == at {
			return false // the first that counts is looked at first, and itself depends on those before it
		}
		beyond := (Remove{Cut: x.Cut}).beyond(at)
		if at.Incarnation == own.Incarnation {
			beyond = at.Seq > own.Seq
		}
		if beyond && r.has(own, x.needs, in) {
			return true
		}
	}
	return false
}
