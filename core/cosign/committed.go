package cosign

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// Held is how far somebody holds a log durably: so many blocks, which end at an offset.
// Which blocks those are must have been compared before.
type Held struct {
	Size uint64
	End  int64
}

// Quorum is some nodes, and how many of them have to hold a block.
type Quorum struct {
	Set []lattice.AuthorID
	Min int
}

// Alone reports whether one node is all of it.
func (q Quorum) Alone() bool { return len(q.Set) == 1 }

// Equal reports whether two are the same.
func (q Quorum) Equal(o Quorum) bool { return q.Min == o.Min && slices.Equal(q.Set, o.Set) }

// Holds returns what Min of the set hold at least: the Min-th largest.
func (q Quorum) Holds(held map[lattice.AuthorID]Held) (Held, bool) {
	all := make([]Held, 0, len(q.Set))
	for _, a := range q.Set {
		if h, ok := held[a]; ok {
			all = append(all, h)
		}
	}
	if q.Min < 1 || len(all) < q.Min {
		return Held{}, false
	}
	slices.SortFunc(all, func(a, b Held) int {
		switch {
		case a.Size > b.Size:
			return -1
		case a.Size < b.Size:
			return 1
		}
		return 0
	})
	return all[q.Min-1], true
}

// Term is what of a grant decides what is committed in its term.
type Term struct {
	Quorum
	// Before are the quorums of earlier terms that could still give the log to somebody
	// who has not heard of this term. See Committed.
	Before []Quorum
}

// Committed returns what is committed in a term, of which held says what each node has
// acknowledged (the leader: signed) under the term's grant; false: nothing is so far.
//
// It is what Min of the set hold. But while members of an earlier set do not know of the
// term, enough of them could promise the log to somebody, by that set's rule, and their
// promises would not show what is only in this term. So nothing is committed in it
// before a quorum of each earlier set has acknowledged something of it: any promises of
// that set then include one that names this term. A quorum of one is the leader that
// began the term, so a set that grows from the leader alone waits for nobody.
func (t Term) Committed(held map[lattice.AuthorID]Held) (Held, bool) {
	for _, q := range t.Before {
		if _, ok := q.Holds(held); !ok {
			return Held{}, false
		}
	}
	return t.Holds(held)
}

// Voters are those whose acknowledgements count in the term, ascending.
func (t Term) Voters() []lattice.AuthorID {
	all := slices.Clone(t.Set)
	for _, q := range t.Before {
		all = append(all, q.Set...)
	}
	slices.SortFunc(all, func(a, b lattice.AuthorID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(all)
}

// After returns a term that follows t by its own leader's word. settled: something was
// committed in t, so that its earlier quorums need not be asked any more.
func (t Term) After(q Quorum, settled bool) Term {
	next := Term{Quorum: q}
	add := func(q Quorum) {
		if q.Min > 1 && !slices.ContainsFunc(next.Before, q.Equal) {
			next.Before = append(next.Before, q)
		}
	}
	if !settled {
		for _, b := range t.Before {
			add(b)
		}
	}
	add(t.Quorum)
	return next
}

// Mark is what a node keeps of what is committed: it never goes back, so an old mark is
// true, if less than it could be.
//
// Version 1, big-endian: "LW" | version u8 = 1 | 0 u8 | term u32, of the newest term in
// which something was committed | size u64, blocks | end u64, at most 2^63-1, the offset
// at which they end.
type Mark struct {
	Term int32
	Held
}

// MarkSize is the length of an encoded Mark.
const MarkSize = 4 + 4 + 8 + 8

// AppendTo appends the encoded mark.
func (m Mark) AppendTo(b []byte) []byte {
	b = append(b, 'L', 'W', recordVersion, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Term))
	b = binary.BigEndian.AppendUint64(b, m.Size)
	return binary.BigEndian.AppendUint64(b, uint64(m.End))
}

// ParseMark reads a mark that takes all of b. Wraps ErrRecord.
func ParseMark(b []byte) (Mark, error) {
	if len(b) != MarkSize || !bytes.Equal(b[:4], []byte{'L', 'W', recordVersion, 0}) || b[4] > 127 || b[16] > 127 {
		return Mark{}, fmt.Errorf("%w: a mark of %d bytes", ErrRecord, len(b))
	}
	return Mark{int32(binary.BigEndian.Uint32(b[4:])), Held{binary.BigEndian.Uint64(b[8:]), int64(binary.BigEndian.Uint64(b[16:]))}}, nil
}
