package sigchain

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

var (
	// ErrForeign means an entry of another store, author or incarnation. Kind Invalid.
	ErrForeign = lattice.E(lattice.Invalid, errors.New("entry belongs to another chain"))
	// ErrKnown means that the entry is the tip already. Kind Exists.
	ErrKnown = lattice.E(lattice.Exists, errors.New("entry is here already"))
	// ErrOld means an entry below the tip: compare it with the stored one of that
	// sequence number (Equivocation). Kind Exists.
	ErrOld = lattice.E(lattice.Exists, errors.New("entry is below the tip"))
	// ErrGap means that entries before this one are missing. Kind NotYet.
	ErrGap = lattice.E(lattice.NotYet, errors.New("entries before it are missing"))
	// ErrForked means that the entry does not follow the entry that we have in
	// its predecessor's place, or differs from the one in its own. Kind Diverged.
	ErrForked = lattice.E(lattice.Diverged, errors.New("entry belongs to another history"))
	// ErrClock means an entry that is not later than the one before. Kind Invalid.
	ErrClock = lattice.E(lattice.Invalid, errors.New("entry is not later than the one before it"))
)

// Chain is how far one author's log of one incarnation has come. The zero value
// takes the first entry of any author in any store; then those are fixed. It
// says whether an entry comes next; signatures are the caller's to check, before.
type Chain struct {
	Store       lattice.StoreID
	Author      lattice.AuthorID
	Incarnation uint64
	Tip         Link   // zero: empty
	Time        uint64 // of the tip
}

// Check reports whether s is the next entry: nil, or an error that wraps one of
// the sentinels of this file.
func (c Chain) Check(s Signed) error {
	fixed := c.Author != lattice.AuthorID{}
	switch {
	case fixed && (s.Home() != c.Store || s.Author != c.Author || s.Incarnation != c.Incarnation):
		return fmt.Errorf("entry %d of %s: %w", s.Seq, s.Author.Short(), ErrForeign)
	case s.Seq == c.Tip.Seq && s.ID == c.Tip.ID:
		return fmt.Errorf("entry %d of %s: %w", s.Seq, s.Author.Short(), ErrKnown)
	case s.Seq == c.Tip.Seq:
		return fmt.Errorf("entry %d of %s is %s here and %s there: %w", s.Seq, s.Author.Short(), c.Tip.ID.Short(), s.ID.Short(), ErrForked)
	case s.Seq < c.Tip.Seq:
		return fmt.Errorf("entry %d of %s, the tip is %d: %w", s.Seq, s.Author.Short(), c.Tip.Seq, ErrOld)
	case s.Seq > c.Tip.Seq+1:
		return fmt.Errorf("entry %d of %s after %d: %w", s.Seq, s.Author.Short(), c.Tip.Seq, ErrGap)
	case s.Seq > 1 && s.Prev != c.Tip:
		return fmt.Errorf("entry %d of %s follows %s, the tip is %s: %w", s.Seq, s.Author.Short(), s.Prev.ID.Short(), c.Tip.ID.Short(), ErrForked)
	case s.Seq > 1 && s.Time <= c.Time:
		return fmt.Errorf("entry %d of %s: %w", s.Seq, s.Author.Short(), ErrClock)
	}
	return nil
}

// Next returns the chain with s as its tip, or the error of Check.
func (c Chain) Next(s Signed) (Chain, error) {
	if err := c.Check(s); err != nil {
		return c, err
	}
	return Chain{s.Home(), s.Author, s.Incarnation, s.Link(), s.Time}, nil
}

// Equivocation reports whether a and b are two different entries of one author
// in one place of one store: with valid signatures, proof that the author forked
// its log.
func Equivocation(a, b Signed) bool {
	return a.Home() == b.Home() && a.Author == b.Author && a.Incarnation == b.Incarnation && a.Seq == b.Seq && a.ID != b.ID
}
