package promise

import (
	"errors"
	"fmt"
	"math"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
)

var (
	// ErrBound: the term, or a later one, was promised to another. Kind Fenced.
	ErrBound = lattice.E(lattice.Fenced, errors.New("a promise of that term or a later one was given to another"))
	// ErrOtherGrant: another grant rules, as far as the member knows. Kind NotYet.
	ErrOtherGrant = lattice.E(lattice.NotYet, errors.New("another grant rules here"))
	// ErrNoMember: only members of the ruling term's set promise, and lead by promises.
	// Kind Denied.
	ErrNoMember = lattice.E(lattice.Denied, errors.New("no member of the term's ack set"))
	// ErrFew: there are not enough promises. Kind NotYet.
	ErrFew = lattice.E(lattice.NotYet, errors.New("not enough members have promised"))
	// ErrSplit: two members hold other blocks, as many, of one term: its leader signed two
	// histories. Kind Diverged.
	ErrSplit = lattice.E(lattice.Diverged, errors.New("two members hold other histories of one term"))
)

// Term returns the number of the term that a candidate of a ruling grant's set asks for:
// above after, not below least, and one that no other of the set asks for. Kind Unsupported:
// there is none. Wraps ErrNoMember.
func Term(ruling *grant.Signed, candidate lattice.AuthorID, after int32, least int64) (int32, error) {
	i := slices.Index(ruling.AckSet, candidate)
	if i < 0 {
		return 0, fmt.Errorf("candidate %s: %w", candidate.Short(), ErrNoMember)
	}
	n := int64(len(ruling.AckSet))
	t := max(int64(max(after, ruling.Term))+1, least)
	t += (int64(i) - t%n + n) % n
	if t > math.MaxInt32 {
		return 0, lattice.E(lattice.Unsupported, fmt.Errorf("term %d does not fit a Kafka leader epoch", t))
	}
	return int32(t), nil
}

// Bound is what a member remembers of its promises: the latest.
type Bound struct {
	Term        int32
	Candidate   lattice.AuthorID
	Incarnation uint64
}

// May says whether a member that is bound by b, and for which ruling rules, may give a
// promise: p as the candidate asks for it. If so, what it is bound by from then on is
// durable before the promise leaves. Errors wrap ErrOtherGrant, ErrNoMember, ErrBound.
func (b Bound) May(ruling *grant.Signed, p *Promise) (Bound, error) {
	next := Bound{p.Term, p.Candidate, p.Incarnation}
	i := slices.Index(ruling.AckSet, p.Candidate)
	switch {
	case p.Previous != ruling.ID || p.Store != ruling.Store || p.Partition != ruling.Partition:
		return b, fmt.Errorf("promise term %d after grant %s, %s rules: %w", p.Term, p.Previous.Short(), ruling.ID.Short(), ErrOtherGrant)
	case i < 0 || !slices.Contains(ruling.AckSet, p.Member):
		return b, fmt.Errorf("%s for %s: %w", p.Member.Short(), p.Candidate.Short(), ErrNoMember)
	case int(p.Term)%len(ruling.AckSet) != i:
		return b, fmt.Errorf("term %d is not %s's to ask for: %w", p.Term, p.Candidate.Short(), ErrNoMember)
	case p.Term <= ruling.Term, p.Term < b.Term, p.Term == b.Term && b != next:
		return b, fmt.Errorf("term %d, bound by term %d, term %d rules: %w", p.Term, b.Term, ruling.Term, ErrBound)
	}
	return next, nil
}

// Needs is how many promises a term after ruling needs.
func Needs(ruling *grant.Signed) int { return len(ruling.AckSet) - int(ruling.Min) + 1 }

// Count counts promises, whose signatures were checked, and returns the base of the term
// that they make: the most that any of them holds by a head of the ruling term, or that
// term's own base. (What is held by an older head is in that base, or is stranded by it.)
// votes says who has a vote: no member that was removed. Promises of other terms,
// candidates, incarnations or grants, and second ones, do not count. Errors wrap
// ErrNoMember, ErrFew or ErrSplit.
func Count(ruling *grant.Signed, term int32, candidate lattice.AuthorID, incarnation uint64, all []Promise, votes func(lattice.AuthorID) bool) (merge.Point, error) {
	counted := map[lattice.AuthorID]merge.Point{}
	base := merge.Point{Size: ruling.BaseSize, Root: ruling.BaseRoot, End: ruling.BaseOffset}
	for _, p := range all {
		_, err := Bound{}.May(ruling, &p)
		if err != nil || p.Term != term || p.Candidate != candidate || p.Incarnation != incarnation || !votes(p.Member) {
			continue
		}
		held := base // at least of who took nothing of the ruling term
		if p.HeldTerm == ruling.Term {
			held = p.Held
		}
		if old, twice := counted[p.Member]; !twice || held.Size > old.Size {
			counted[p.Member] = held
		}
	}
	if _, self := counted[candidate]; !self {
		return merge.Point{}, fmt.Errorf("candidate %s has not promised to itself: %w", candidate.Short(), ErrNoMember)
	}
	if len(counted) < Needs(ruling) {
		return merge.Point{}, fmt.Errorf("%d of %d: %w", len(counted), Needs(ruling), ErrFew)
	}
	for _, held := range counted {
		if held.Size > base.Size {
			base = held
		}
	}
	for _, held := range counted {
		if held.Size == base.Size && held != base {
			return merge.Point{}, fmt.Errorf("%d blocks in term %d: %w", held.Size, ruling.Term, ErrSplit)
		}
	}
	return base, nil
}
