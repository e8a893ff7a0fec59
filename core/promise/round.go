package promise

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
)

// ErrUnproven: a member's answer is not a promise of its own for what was asked. Kind
// Corrupt.
var ErrUnproven = lattice.E(lattice.Corrupt, errors.New("the answer is no promise for what was asked"))

// Round is one candidacy: what a candidate was answered for one term. Not safe for
// concurrent use.
type Round struct {
	ruling *grant.Signed
	mine   Promise
	votes  func(lattice.AuthorID) bool
	got    []vote // the candidate's own first
	why    map[lattice.AuthorID]error
	bound  int32
}

type vote struct {
	Promise
	signed []byte
}

// NewRound begins with the candidate's own promise, signed. votes says who is a member:
// of others nothing counts, and they are not asked. Wraps ErrUnproven or the errors of Parse.
func NewRound(ruling *grant.Signed, own []byte, votes func(lattice.AuthorID) bool) (*Round, error) {
	p, err := Parse(own)
	switch {
	case err != nil:
		return nil, err
	case p.Member != p.Candidate || p.Previous != ruling.ID:
		return nil, ErrUnproven
	}
	return &Round{ruling: ruling, mine: p, votes: votes, got: []vote{{p, own}}, why: map[lattice.AuthorID]error{}, bound: p.Term}, nil
}

// Asked is what the others are asked to promise.
func (r *Round) Asked() Promise {
	ask := r.mine
	ask.HeldTerm, ask.Held, ask.Member = 0, merge.Point{}, lattice.AuthorID{}
	return ask
}

// Ask returns who is to be asked: the set without the candidate, and without those who
// have no vote.
func (r *Round) Ask() (all []lattice.AuthorID) {
	for _, a := range r.ruling.AckSet {
		if a != r.mine.Candidate && r.votes(a) {
			all = append(all, a)
		}
	}
	return all
}

// Take takes what a member answered, of whoever sent it as that member. Errors wrap
// ErrUnproven, or are those of Parse.
func (r *Round) Take(from lattice.AuthorID, signed []byte) error {
	p, err := Parse(signed)
	asked := r.mine
	asked.HeldTerm, asked.Held, asked.Member = p.HeldTerm, p.Held, from
	if err == nil && (p != asked || !slices.Contains(r.ruling.AckSet, from)) {
		err = ErrUnproven
	}
	if err != nil {
		r.Refused(from, err, 0)
		return err
	}
	r.got = append(r.got, vote{p, bytes.Clone(signed)})
	delete(r.why, from)
	return nil
}

// Refused says that a member did not promise, and why, also that it cannot be reached;
// and what it is bound by.
func (r *Round) Refused(by lattice.AuthorID, why error, bound int32) {
	r.why[by], r.bound = why, max(r.bound, bound)
}

// Bound is the latest term that anybody who answered is bound by: another try asks for a
// later one.
func (r *Round) Bound() int32 { return r.bound }

// Enough reports whether enough members have promised.
func (r *Round) Enough() bool {
	_, _, err := r.Choose(func(merge.Point) bool { return true })
	return err == nil
}

// Choose returns the base of the term that the promises make, and those that make it,
// encoded: of what the candidate can have, the most. can says whether it has a base or may
// still get it. A base that nobody can supply is passed over if those that know of less are
// enough without it: what it had beyond was on no other member that is needed. Errors:
// ErrFew, which says who is missing and why; ErrSplit; ErrMissing.
func (r *Round) Choose(can func(merge.Point) bool) (merge.Point, []byte, error) {
	all := slices.Clone(r.got)
	slices.SortStableFunc(all, func(a, b vote) int {
		return cmp.Or(cmp.Compare(r.counts(b).Size, r.counts(a).Size), bytes.Compare(a.Member[:], b.Member[:]))
	})
	var missing []string
	for {
		promises := make([]Promise, len(all))
		for i, v := range all {
			promises[i] = v.Promise
		}
		base, err := Count(r.ruling, r.mine.Term, r.mine.Candidate, r.mine.Incarnation, promises, r.votes)
		switch {
		case err != nil && len(missing) > 0:
			return merge.Point{}, nil, fmt.Errorf("%w: %s", ErrMissing, strings.Join(missing, "; "))
		case err != nil:
			return merge.Point{}, nil, r.explain(err)
		case can(base):
			return base, encode(all), nil
		}
		most := 0 // whose promise made the base
		for most < len(all) && (r.counts(all[most]) != base || all[most].Member == r.mine.Candidate) {
			most++
		}
		if most == len(all) {
			return merge.Point{}, nil, fmt.Errorf("%w: %d batches, which the grant that rules is based on", ErrMissing, base.Size)
		}
		missing = append(missing, fmt.Sprintf("%d batches up to offset %d, which %s says it has", base.Size, base.End, all[most].Member.Short()))
		all = slices.Delete(all, most, most+1)
	}
}

// ErrMissing: nobody can supply what the base of the term must have. Kind Unavailable.
var ErrMissing = lattice.E(lattice.Unavailable, errors.New("batches that must be in the new term can be had from nobody now"))

// counts is what a promise is worth.
func (r *Round) counts(v vote) merge.Point {
	if v.HeldTerm == r.ruling.Term {
		return v.Held
	}
	return merge.Point{Size: r.ruling.BaseSize, Root: r.ruling.BaseRoot, End: r.ruling.BaseOffset}
}

func encode(all []vote) (b []byte) {
	for _, v := range all {
		b = append(b, v.signed...)
	}
	return b
}

// explain says how many promises there are, and who gave none.
func (r *Round) explain(err error) error {
	if !errors.Is(err, ErrFew) {
		return err
	}
	var who []string
	for _, a := range r.ruling.AckSet {
		switch why := r.why[a]; {
		case !r.votes(a):
			who = append(who, a.Short()+": it was removed")
		case why != nil:
			who = append(who, fmt.Sprintf("%s: %v", a.Short(), why))
		}
	}
	text := fmt.Sprintf("%d of the %d members that have to promise did", len(r.got), Needs(r.ruling))
	if len(who) > 0 {
		text += " (" + strings.Join(who, "; ") + ")"
	}
	return fmt.Errorf("%w: %s", ErrFew, text)
}
