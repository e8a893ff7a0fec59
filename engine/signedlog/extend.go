package signedlog

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
)

// Hashed returns how many blocks the tree has: proofs can be made up to there.
func (l *Log) Hashed() uint64 {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return l.edge.Size()
}

// RootAt returns the root of the tree of the first size blocks. Errors: Kind NotYet
// when they are not hashed yet; merkle.ErrDropped; Kind Storage.
func (l *Log) RootAt(size uint64) (lattice.Hash, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.hashedTo(size); err != nil {
		return lattice.Hash{}, err
	}
	if size == l.edge.Size() {
		return l.edge.Root(), nil
	}
	r, err := l.tree.rangeAt(size)
	return r.Root(), err
}

// Extend returns what shows that the blocks [from, to) are in the tree of the first
// size blocks: the compact range of those before them, and the proof that the tree
// with them is a prefix of that one. Who has the blocks needs nothing else. It costs
// a few hundred hashes, however long the log is. Errors are those of RootAt.
func (l *Log) Extend(from, to, size uint64) (left, proof []lattice.Hash, err error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.hashedTo(size); err != nil {
		return nil, nil, err
	}
	r, err := l.tree.rangeAt(from)
	if err != nil {
		return nil, nil, err
	}
	proof, err = merkle.Consistency(l.tree.source(), to, size)
	return r.Hashes(), proof, err
}

// hashedTo reports whether the tree has size blocks. certMu is held.
func (l *Log) hashedTo(size uint64) error {
	if have := l.edge.Size(); size > have {
		return lattice.E(lattice.NotYet, fmt.Errorf("a proof in the tree of %d blocks: %d are hashed", size, have))
	}
	return nil
}
