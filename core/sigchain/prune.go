package sigchain

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Prune says that its author's node has dropped the entries up to a frontier, and
// what they came to. It has no effect: what each node has dropped differs.
//
//	5 prune  u8 1 | state root 32 | sum of the snapshot's content 32 | u32 n, then
//	         n x: author 32, incarnation u64, sequence u64; ascending, one a writer
type Prune struct {
	Root     lattice.Hash // of the state
	Snapshot lattice.Hash // sum of the content (core/snapshot)
	Frontier []Place      // of each writer the last entry that was dropped, or covered
}

const placeSize = 32 + 8 + 8

// Op encodes p. Wraps ErrOp.
func (p Prune) Op() (Op, error) {
	if err := p.check(); err != nil {
		return Op{}, fmt.Errorf("%w: prune: %w", ErrOp, err)
	}
	b := append(make([]byte, 0, 1+32+32+4+len(p.Frontier)*placeSize), 1)
	b = append(append(b, p.Root[:]...), p.Snapshot[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.Frontier)))
	for _, x := range p.Frontier {
		b = binary.BigEndian.AppendUint64(append(b, x.Author[:]...), x.Incarnation)
		b = binary.BigEndian.AppendUint64(b, x.Seq)
	}
	return Op{KindPrune, b}, nil
}

func (p Prune) check() error {
	for i, x := range p.Frontier {
		if x.Seq == 0 {
			return fmt.Errorf("place %d names no entry", i)
		}
		if b := i - 1; i > 0 && (p.Frontier[b].Compare(x) >= 0 || p.Frontier[b].Author == x.Author && p.Frontier[b].Incarnation == x.Incarnation) {
			return fmt.Errorf("place %d is out of order", i)
		}
	}
	return nil
}

// ParsePrune reads a prune operation. Wraps ErrOp or ErrVersion.
func ParsePrune(op Op) (Prune, error) {
	r, err := open(op, KindPrune)
	if err != nil {
		return Prune{}, err
	}
	p := Prune{Root: lattice.Hash(r.take(32)), Snapshot: lattice.Hash(r.take(32))}
	if n, ok := r.count(placeSize); ok {
		p.Frontier = make([]Place, n)
	}
	for i := range p.Frontier {
		p.Frontier[i] = Place{lattice.AuthorID(r.take(32)), r.u64(), r.u64()}
	}
	if err := r.close(p.check()); err != nil {
		return Prune{}, fmt.Errorf("%w: prune: %w", ErrOp, err)
	}
	return p, nil
}
