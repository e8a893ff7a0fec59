package promise

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
)

// The record of what a member is bound by, version 1. Big-endian; there is exactly one
// encoding, of 48 bytes.
//
//	 0  "LY"
//	 2  version      u8 = 1
//	 3  flags        u8 = 0
//	 4  term         u32, at most 2^31-1
//	 8  candidate    32
//	40  incarnation  u64, of the candidate

const (
	boundVersion = 1
	// BoundSize is the length of an encoded Bound.
	BoundSize = 4 + 4 + 32 + 8
)

// ErrBoundRecord means bytes that are no record of a Bound. Kind Corrupt.
var ErrBoundRecord = lattice.E(lattice.Corrupt, errors.New("not a record of what was promised"))

// AppendTo appends the encoded record.
func (b Bound) AppendTo(to []byte) []byte {
	to = append(to, 'L', 'Y', boundVersion, 0)
	to = binary.BigEndian.AppendUint32(to, uint32(b.Term))
	to = append(to, b.Candidate[:]...)
	return binary.BigEndian.AppendUint64(to, b.Incarnation)
}

// ParseBound reads a record that takes all of b. Wraps ErrBoundRecord.
func ParseBound(b []byte) (Bound, error) {
	if len(b) != BoundSize || !bytes.Equal(b[:4], []byte{'L', 'Y', boundVersion, 0}) || b[4] > 127 {
		return Bound{}, fmt.Errorf("%w: %d bytes", ErrBoundRecord, len(b))
	}
	return Bound{int32(binary.BigEndian.Uint32(b[4:])), lattice.AuthorID(b[8:]), binary.BigEndian.Uint64(b[40:])}, nil
}

// MaxEvidence bounds how many promises are looked at beside one grant.
const MaxEvidence = 256

// Evidence is what makes a grant of kind promises: the encoded promises, one behind the
// other, and behind them the term's first checkpoint, signed by its leader, of the base
// (core/merkle). So who holds the base can acknowledge it in the term before anything is
// written.
type Evidence []byte

// Split returns the promises and the checkpoint. It checks nothing.
func (e Evidence) Split() (promises [][]byte, first []byte) {
	for len(e) >= Size && e[0] == 'L' {
		promises, e = append(promises, e[:Size:Size]), e[Size:]
	}
	return promises, e
}

// ErrEvidence: a grant of kind promises is not one that its evidence makes. Kind Denied.
var ErrEvidence = lattice.E(lattice.Denied, errors.New("the grant's promises do not make it"))

// Judge says why a grant of kind promises, whose signature was checked, does not follow
// ruling by its evidence. nil: it does. It depends
// on nothing else, so all who have the three judge alike, whenever they do: who was a
// member when is the candidate's to see to, which counts no votes of others. Wraps
// ErrEvidence or grant.ErrSuccession.
func Judge(ruling, g *grant.Signed, evidence Evidence) error {
	refuse := func(err error) error {
		return fmt.Errorf("grant %s of term %d: %w: %w", g.ID.Short(), g.Term, ErrEvidence, err)
	}
	if err := g.Follows(ruling); err != nil {
		return err
	}
	switch {
	case g.Kind != grant.Promises || g.Signer != g.Leader:
		return refuse(fmt.Errorf("of kind %s, by %s for %s", g.Kind, g.Signer.Short(), g.Leader.Short()))
	case g.Min != ruling.Min || len(g.AckSet) != len(ruling.AckSet):
		return refuse(errors.New("another set than that which promised"))
	case len(evidence) > MaxEvidence*Size:
		return refuse(fmt.Errorf("%d bytes of evidence", len(evidence)))
	}
	for i, a := range g.AckSet {
		if a != ruling.AckSet[i] {
			return refuse(errors.New("another set than that which promised"))
		}
	}
	var all []Promise
	promises, first := evidence.Split()
	for _, b := range promises {
		p, err := Parse(b)
		if err != nil {
			return refuse(err)
		}
		all = append(all, p)
	}
	base, err := Count(ruling, g.Term, g.Leader, g.Incarnation, all, func(lattice.AuthorID) bool { return true })
	switch {
	case err != nil:
		return refuse(err)
	case base.Size != g.BaseSize || base.Root != g.BaseRoot || base.End != g.BaseOffset:
		return refuse(fmt.Errorf("%d blocks were promised, its base is of %d", base.Size, g.BaseSize))
	}
	c, err := merkle.OpenCheckpoint(first, g.Leader)
	switch {
	case err != nil:
		return refuse(err)
	case c.Origin != merkle.Origin(g.Store, g.Partition.String()) || c.Grant != g.ID || c.Term != g.Term || c.Incarnation != g.Incarnation:
		return refuse(errors.New("its first checkpoint is of another term"))
	case c.Size != base.Size || c.Root != base.Root || c.End != base.End:
		return refuse(fmt.Errorf("its first checkpoint is of %d blocks", c.Size))
	}
	return nil
}
