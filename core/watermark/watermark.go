// Package watermark is up to where every member of a store has its entries, so that
// those can be pruned: what members say of themselves, as operations in entries, and
// the least of that.
//
// # Operation
//
// Body, version 1:
//
//	20 report  u8 1 | frontier, as core/state encodes it
//
// Its author says that all entries up to the frontier are folded and durable with its
// node. The first report of an incarnation says all; each one after it says what has
// come on since the one before. Of an author counts the last report in the order of
// incarnation and sequence number: a node that has lost its disk says less than
// before, and that holds. The entry of a report is itself covered by it.
//
// A report speaks for its author alone. Who says more than is true can lose what others
// then prune, and gets it back as a snapshot; who says nothing keeps others from pruning
// until it is dormant, or removed.
//
// # Rules for changing it
//
//   - A body that was ever signed keeps its meaning, and its bytes. If a case in
//     TestGolden changes, the design is wrong, not the test.
package watermark

import (
	"errors"
	"fmt"
	"maps"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// KindReport is the operation's kind.
const KindReport uint16 = 20

const opVersion = 1

// MaxWriters is how many writers a report may name, and all reports of an incarnation together.
const MaxWriters = 1 << 16

// ErrOp means that an operation's body breaks its kind's format. Kind Corrupt.
var ErrOp = lattice.E(lattice.Corrupt, errors.New("malformed report"))

// Op encodes a report of f. Wraps ErrOp.
func Op(f state.Frontier) (sigchain.Op, error) {
	if n := len(f.Writers()); n == 0 || n > MaxWriters {
		return sigchain.Op{}, fmt.Errorf("%w: it names %d writers", ErrOp, n)
	}
	return sigchain.Op{Kind: KindReport, Body: f.AppendTo([]byte{opVersion})}, nil
}

// Parse reads a report. Wraps ErrOp or sigchain.ErrVersion.
func Parse(op sigchain.Op) (state.Frontier, error) {
	switch {
	case op.Kind != KindReport:
		return nil, fmt.Errorf("%w: kind %d, want %d", ErrOp, op.Kind, KindReport)
	case len(op.Body) == 0:
		return nil, fmt.Errorf("%w: empty", ErrOp)
	case op.Body[0] != opVersion:
		return nil, fmt.Errorf("%w: operation of kind %d, version %d", sigchain.ErrVersion, KindReport, op.Body[0])
	}
	f, err := state.ParseFrontier(op.Body[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOp, err)
	}
	if len(f) == 0 || len(f) > MaxWriters {
		return nil, fmt.Errorf("%w: it names %d writers", ErrOp, len(f))
	}
	return f, nil
}

// Said is the last that an author has reported, and in which entry. Zero: nothing.
type Said struct {
	At       sigchain.Place
	Frontier state.Frontier // not to be changed
}

// After returns what s is after another report of its author, whatever the order in
// which they come from different incarnations; those of one incarnation come in theirs.
func (s Said) After(at sigchain.Place, f state.Frontier) Said {
	if at.Compare(s.At) <= 0 {
		return s
	}
	next := Said{at, make(state.Frontier, len(s.Frontier)+len(f))}
	if s.At.Seq > 0 && s.At.Incarnation == at.Incarnation {
		maps.Copy(next.Frontier, s.Frontier)
	}
	for w, seq := range f {
		next.Frontier[w] = max(next.Frontier[w], seq)
	}
	own := state.Writer{Author: at.Author, Incarnation: at.Incarnation}
	next.Frontier[own] = max(next.Frontier[own], at.Seq)
	if len(next.Frontier) > MaxWriters+1 {
		return s // no node writes that
	}
	return next
}

// Join returns the later of two, both of one author. What two replicas know of one
// report is the same; if it is not, because what came before it counts with one of
// them only, it is what both know.
func (s Said) Join(o Said) Said {
	switch c := s.At.Compare(o.At); {
	case c < 0:
		return o
	case c > 0 || maps.Equal(s.Frontier, o.Frontier):
		return s
	}
	return Said{s.At, Least(s.Frontier, o.Frontier)}
}

// Since returns what a report of f by an author's incarnation has to say after s, nil
// when that is nothing.
func (s Said) Since(own state.Writer, f state.Frontier) state.Frontier {
	out := state.Frontier{}
	for w, seq := range f {
		if s.At.Incarnation != own.Incarnation || s.Frontier[w] < seq {
			out[w] = seq
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Least returns up to where all of these are. Without any it is empty.
func Least(all ...state.Frontier) state.Frontier {
	out := state.Frontier{}
	if len(all) == 0 {
		return out
	}
	for w, seq := range all[0] {
		for _, f := range all[1:] {
			seq = min(seq, f[w])
		}
		if seq > 0 {
			out[w] = seq
		}
	}
	return out
}
