package signedlog

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
)

// PrefixAt returns the root of the first size blocks that are in the tree here, and the
// offset at which they end: what a checkpoint of so many must say to be of this log.
// Errors by Kind: NotYet (fewer are here), OutOfRange (they were dropped, and what they
// were cannot be told any more), Storage.
func (l *Log) PrefixAt(size uint64) (lattice.Hash, int64, error) {
	if c := l.Checkpoint(); size == c.Size && len(c.Note) > 0 {
		return c.Root, c.End, nil
	}
	l.certMu.Lock()
	defer l.certMu.Unlock()
	switch {
	case size > l.edge.Size():
		return lattice.Hash{}, 0, lattice.E(lattice.NotYet, fmt.Errorf("%d blocks are here, not %d", l.edge.Size(), size))
	case size == l.edge.Size():
		return l.edge.Root(), l.hashed, nil
	case size == 0:
		return merkle.EmptyRoot(), 0, nil
	}
	r, err := rangeAt(l.nodes(), size)
	var last merkle.Leaf
	if err == nil && size <= l.tree.prefix.Size() {
		err = merkle.ErrDropped
	}
	if err == nil {
		last, err = l.leaf(size - 1)
	}
	if errors.Is(err, merkle.ErrDropped) {
		return lattice.Hash{}, 0, lattice.E(lattice.OutOfRange, err)
	}
	return r.Root(), last.Last + 1, err
}

// TermHere is the term of the last block that is here and in the tree.
func (l *Log) TermHere() int32 {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return l.term
}

// Edge returns the compact range of the tree over all that is here, and how many blocks
// that is.
func (l *Log) Edge() (size uint64, edge []lattice.Hash) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return l.edge.Size(), l.edge.Range().Hashes()
}

// EndOf returns the offset at which the first size blocks end, of those in the tree here.
// Errors by Kind: NotYet (fewer are here), OutOfRange (they were dropped), Storage.
func (l *Log) EndOf(size uint64) (int64, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	switch {
	case size > l.edge.Size():
		return 0, lattice.E(lattice.NotYet, fmt.Errorf("%d blocks are here, not %d", l.edge.Size(), size))
	case size == l.edge.Size():
		return l.hashed, nil
	case size == 0:
		return 0, nil
	case size <= l.tree.prefix.Size():
		return 0, lattice.E(lattice.OutOfRange, merkle.ErrDropped)
	}
	last, err := l.leaf(size - 1)
	return last.Last + 1, err
}
