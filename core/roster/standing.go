package roster

import (
	"bytes"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Standing is how an author stands in the store, as far as is known.
type Standing struct {
	Author lattice.AuthorID
	// Role is what its next entry would have, if it names all grants. None: it was
	// removed, or nobody who may had granted it anything.
	Role    Role
	Creator bool
	Granted sigchain.Ref   // the entry that gave it Role; zero for the creator
	Removed []sigchain.Ref // entries that removed it and stand, ascending
	Dormant bool
	// Next is the key that took its place, if it was rotated; zero: none.
	Next lattice.AuthorID
}

// Standings returns how everyone stands whom an entry that counts made a member or
// removed, ascending by author.
func (r *Roster) Standings() []Standing {
	all := []Standing{{Author: r.creator, Role: r.Member(r.creator), Creator: true, Dormant: r.Dormant(r.creator), Next: r.next(r.creator)}}
	for author := range r.granted {
		if author == r.creator {
			continue
		}
		s := Standing{Author: author, Role: r.Member(author), Dormant: r.Dormant(author), Next: r.next(author)}
		counted := false
		for _, ref := range r.granted[author] {
			e := r.entries[ref]
			if e == nil || !r.counts(ref.Place(), e.Needs) {
				continue
			}
			counted = true
			for to, g := range e.admits {
				if to == author && (g.Role == s.Role || g.Role == None) && s.Granted.Seq == 0 {
					s.Granted = ref
				}
			}
		}
		for _, rm := range r.removals[author] {
			if r.Removed(rm.at) {
				s.Removed = append(s.Removed, rm.at)
			}
		}
		slices.SortFunc(s.Removed, sigchain.Ref.Compare)
		if counted {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Standing) int { return bytes.Compare(a.Author[:], b.Author[:]) })
	return all
}

// next returns the key to which an author's was rotated.
func (r *Roster) next(author lattice.AuthorID) lattice.AuthorID {
	for _, x := range r.rotated[author] {
		if r.counts(x.at.Place(), x.needs) {
			return x.To
		}
	}
	return lattice.AuthorID{}
}
