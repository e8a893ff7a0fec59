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
	r, err := rangeAt(l.nodes(), size)
	return r.Root(), err
}

// Extend returns what shows that the blocks [from, to) are in the tree of the first
// size blocks: the compact range of those before them, and the proof that the tree
// with them is a prefix of that one. Who has the blocks needs nothing else. It costs
// a few hundred hashes, however long the log is: less for what follows what was asked
// for before. Errors are those of RootAt.
func (l *Log) Extend(from, to, size uint64) (left, proof []lattice.Hash, err error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.hashedTo(size); err != nil {
		return nil, nil, err
	}
	nodes := l.nodes()
	r, err := rangeAt(nodes, from)
	if err != nil {
		return nil, nil, err
	}
	proof, err = merkle.Consistency(nodes, to, size)
	return r.Hashes(), proof, err
}

// hashedTo reports whether the tree has size blocks. certMu is held.
func (l *Log) hashedTo(size uint64) error {
	if have := l.edge.Size(); size > have {
		return lattice.E(lattice.NotYet, fmt.Errorf("a proof in the tree of %d blocks: %d are hashed", size, have))
	}
	return nil
}

const (
	// rememberFrom is the lowest level of tree nodes that are remembered: below it they
	// are quickly made.
	rememberFrom = 6
	// rememberMax bounds them: some 6 KB of a log that is served.
	rememberMax = 128
)

// remembered gives nodes of a log's tree, and remembers those that proofs for
// neighbouring blocks have in common, of which each costs up to 256 reads. Complete
// nodes never change.
type remembered struct {
	source merkle.Source
	known  map[nodeAt]lattice.Hash
}

type nodeAt struct {
	level uint
	index uint64
}

// nodes returns the tree's nodes, for proofs. certMu is held.
func (l *Log) nodes() remembered {
	if l.known == nil {
		l.known = map[nodeAt]lattice.Hash{}
	}
	return remembered{l.tree.source(), l.known}
}

// Node implements merkle.Nodes.
func (r remembered) Node(level uint, index uint64) (lattice.Hash, error) {
	at := nodeAt{level, index}
	if h, ok := r.known[at]; ok {
		return h, nil
	}
	h, err := r.source.Node(level, index)
	if err == nil && level >= rememberFrom {
		if len(r.known) >= rememberMax {
			clear(r.known)
		}
		r.known[at] = h
	}
	return h, err
}
