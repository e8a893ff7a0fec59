package roster

import (
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// maxGrounds bounds the entries that prove a removal.
const maxGrounds = 32

// Grounds returns the entries that prove that an author was removed: first a removal that
// stands, by the most senior, then those that gave its author the right to it, up to the
// creator. None: it has a role, or nothing removed it, or it was never a member, or
// the proof would be longer than any should be.
func (r *Roster) Grounds(of lattice.AuthorID) []sigchain.Ref {
	if r.Member(of) != None || !r.Introduced(of) {
		return nil
	}
	var first sigchain.Ref
	best := None
	for _, rm := range r.removals[of] {
		rank := r.rank(rm.at.Place(), max(rm.needs, Admin), false)
		if rank > best || rank == best && best > None && rm.at.Compare(first) < 0 {
			first, best = rm.at, rank
		}
	}
	if best == None {
		return nil
	}
	out := []sigchain.Ref{first}
	in := mode{above: best}
	for i, needs := 0, best; i < len(out); i++ { // each is named by what comes before it
		at := out[i].Place()
		if at.Author == r.creator {
			continue
		}
		if i > 0 {
			needs = r.entries[out[i]].Needs
		}
		next, ok := r.giver(at, needs, in)
		if !ok || len(out) >= maxGrounds {
			return nil
		}
		if !slices.Contains(out, next) {
			out = append(out, next)
		}
	}
	return out
}

// giver returns an entry by which the author of what stands at a place has a role there.
func (r *Roster) giver(at sigchain.Place, needs Role, in mode) (sigchain.Ref, bool) {
	for _, ref := range r.history.Named(at) {
		e := r.entries[ref]
		if e == nil || !r.has(ref.Place(), e.Needs, in) {
			continue
		}
		for to, g := range e.admits {
			if to == at.Author && (g.Role >= needs || g.Role == None && r.has(ref.Place(), needs, in)) {
				return ref, true
			}
		}
	}
	return sigchain.Ref{}, false
}

// Proves reports whether entries prove that an author with a role was removed from the
// store that creator began, and by the first of them. That they are signed, and of the
// store, is the caller's to check. What is asked for is that the remover was given
// the right, not where it first used it: that is for who has the logs.
func Proves(creator, of lattice.AuthorID, role Role, entries []Entry) bool {
	if len(entries) == 0 || len(entries) > maxGrounds || of == creator {
		return false
	}
	h := &given{}
	r := New(creator, h)
	h.r = r
	for _, e := range entries {
		r.Add(e)
	}
	first := entries[0]
	removes := slices.ContainsFunc(first.Removes, func(x Remove) bool { return x.Author == of })
	return removes && r.rank(first.At.Place(), max(role, first.Needs, Admin), false) != None
}

// given is the history of a few entries: every grant among them is named by whom it is for.
type given struct{ r *Roster }

func (*given) Valid(sigchain.Place) bool                { return true }
func (*given) Sound(sigchain.Place) bool                { return true }
func (*given) Final(sigchain.Place) (Role, bool)        { return None, false }
func (h *given) Named(at sigchain.Place) []sigchain.Ref { return h.r.granted[at.Author] }

// Refuted reports whether what is known here cuts off a removal, so that it does not stand.
func (r *Roster) Refuted(removal sigchain.Place) bool {
	most := Admin
	for _, ref := range r.granted[removal.Author] {
		for to, g := range r.entries[ref].admits {
			if to == removal.Author {
				most = max(most, g.Role)
			}
		}
	}
	return removal.Author != r.creator && r.removed(removal, sigchain.Ref{}, Return{}, most+1, mode{above: most})
}
