package merkle

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// ErrDropped means that a proof needs a node below the dropped prefix that is
// not kept. Kind OutOfRange. It says nothing against the log.
var ErrDropped = lattice.E(lattice.OutOfRange, errors.New("tree nodes were dropped with the prefix"))

// ErrProof means that a proof does not lead to the root. Kind Corrupt.
var ErrProof = lattice.E(lattice.Corrupt, errors.New("proof does not match"))

// ErrBounds means that a proof is asked for an index or size that the tree does
// not have. Kind Invalid.
var ErrBounds = lattice.E(lattice.Invalid, errors.New("outside the tree"))

// Nodes gives the hashes of complete nodes. Index is below size>>level for the
// tree size at hand.
type Nodes interface {
	Node(level uint, index uint64) (lattice.Hash, error)
}

// Source computes complete nodes from what a log keeps. Below the dropped prefix
// these are the prefix's compact range and the nodes at StoredLevels; from there
// on also all leaves. Reading a node costs at most 255 leaf hashes or 256 stored
// nodes, however long the history is.
type Source struct {
	// Leaves returns the hashes of leaves [from, to), at most 128 of them, all
	// at or beyond the prefix.
	Leaves func(from, to uint64) ([]lattice.Hash, error)
	// Upper returns a complete node at one of StoredLevels, also below the prefix.
	Upper func(level uint, index uint64) (lattice.Hash, error)
	// Prefix is the compact range of the dropped leaves.
	Prefix Range
}

// Node returns the hash of a complete node, or an error that wraps ErrDropped,
// ErrBounds (a level above MaxLevel) or whatever Leaves and Upper return.
func (s Source) Node(level uint, index uint64) (lattice.Hash, error) {
	switch {
	case level > MaxLevel || index >= 1<<(63-level):
		return lattice.Hash{}, fmt.Errorf("tree node (%d, %d): %w", level, index, ErrBounds)
	}
	if h, ok := s.Prefix.node(level, index); ok {
		return h, nil
	}
	switch {
	case isStored(level):
		return s.upper(level, index)
	case level > firstStored && s.straddles(level, index):
		return s.Join(level, index)
	case level > firstStored:
		return s.fromStored(level, index)
	}
	return s.fromLeaves(level, index)
}

// straddles reports whether a node has leaves on both sides of the prefix's end.
func (s Source) straddles(level uint, index uint64) bool {
	return index<<level < s.Prefix.size && s.Prefix.size < (index+1)<<level
}

// Join computes a complete node, above the leaves, of its two halves. Of one that has
// leaves on both sides of the prefix's end, the left half is the prefix's own or is
// joined likewise, so that it needs nothing that was dropped.
func (s Source) Join(level uint, index uint64) (lattice.Hash, error) {
	left, err := s.Node(level-1, 2*index)
	if err != nil {
		return left, err
	}
	right, err := s.Node(level-1, 2*index+1)
	return NodeHash(left, right), err
}

func (s Source) upper(level uint, index uint64) (lattice.Hash, error) {
	h, err := s.Upper(level, index)
	if err != nil {
		return h, fmt.Errorf("tree node (%d, %d): %w", level, index, err)
	}
	return h, nil
}

// fromStored folds the stored nodes below a node: at most 256.
func (s Source) fromStored(level uint, index uint64) (lattice.Hash, error) {
	low := min((level-1)/storedStep*storedStep, lastStored)
	from, n := index<<(level-low), uint64(1)<<(level-low)
	row := make([]lattice.Hash, n)
	for i := range row {
		h, err := s.upper(low, from+uint64(i))
		if err != nil {
			return h, err
		}
		row[i] = h
	}
	return fold(row), nil
}

// fromLeaves returns a node below the first stored level. A node that straddles
// the prefix is made of its halves, and so on: the parts left of the boundary
// are then nodes of the prefix's own compact range.
func (s Source) fromLeaves(level uint, index uint64) (lattice.Hash, error) {
	from, to := index<<level, (index+1)<<level
	switch {
	case from >= s.Prefix.size:
		row, err := s.Leaves(from, to)
		if err != nil {
			return lattice.Hash{}, fmt.Errorf("leaves %d to %d: %w", from, to, err)
		}
		if uint64(len(row)) != to-from {
			return lattice.Hash{}, lattice.E(lattice.Corrupt, fmt.Errorf("leaves %d to %d: have %d", from, to, len(row)))
		}
		return fold(append([]lattice.Hash(nil), row...)), nil
	case to <= s.Prefix.size:
		if h, ok := s.Prefix.node(level, index); ok {
			return h, nil
		}
		return lattice.Hash{}, fmt.Errorf("tree node (%d, %d) of leaves %d to %d below %d: %w",
			level, index, from, to, s.Prefix.size, ErrDropped)
	}
	left, err := s.fromLeaves(level-1, 2*index)
	if err != nil {
		return left, err
	}
	right, err := s.fromLeaves(level-1, 2*index+1)
	return NodeHash(left, right), err
}

// fold hashes a row of 2^n nodes, which it overwrites, up to their root.
func fold(row []lattice.Hash) lattice.Hash {
	for ; len(row) > 1; row = row[:len(row)/2] {
		for i := range len(row) / 2 {
			row[i] = NodeHash(row[2*i], row[2*i+1])
		}
	}
	return row[0]
}

// Inclusion returns the proof that leaf index is in the tree of the first size
// leaves. Errors: ErrBounds, and what nodes returns.
func Inclusion(nodes Nodes, index, size uint64) ([]lattice.Hash, error) {
	if index >= size {
		return nil, fmt.Errorf("inclusion of leaf %d in %d: %w", index, size, ErrBounds)
	}
	n, err := proof.Inclusion(index, size)
	if err != nil {
		return nil, fmt.Errorf("inclusion of leaf %d in %d: %w", index, size, err)
	}
	p, err := build(nodes, n)
	if err != nil {
		return nil, fmt.Errorf("inclusion of leaf %d in %d: %w", index, size, err)
	}
	return p, nil
}

// Consistency returns the proof that the tree of size2 leaves extends that of
// size1. It is empty when size1 is 0 or equals size2. Errors: ErrBounds, and
// what nodes returns.
func Consistency(nodes Nodes, size1, size2 uint64) ([]lattice.Hash, error) {
	if size1 > size2 {
		return nil, fmt.Errorf("consistency of %d with %d: %w", size1, size2, ErrBounds)
	}
	n, err := proof.Consistency(size1, size2)
	if err != nil {
		return nil, fmt.Errorf("consistency of %d with %d: %w", size1, size2, err)
	}
	p, err := build(nodes, n)
	if err != nil {
		return nil, fmt.Errorf("consistency of %d with %d: %w", size1, size2, err)
	}
	return p, nil
}

func build(nodes Nodes, n proof.Nodes) ([]lattice.Hash, error) {
	hashes := make([][]byte, len(n.IDs))
	for i, id := range n.IDs {
		h, err := nodes.Node(id.Level, id.Index)
		if err != nil {
			return nil, err
		}
		hashes[i] = h[:]
	}
	hashes, err := n.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
	if err != nil {
		return nil, err
	}
	p := make([]lattice.Hash, len(hashes))
	for i, h := range hashes {
		p[i] = lattice.Hash(h)
	}
	return p, nil
}

// VerifyInclusion checks that leaf, a leaf's hash, is at index in the tree of
// size leaves with this root. The error wraps ErrProof.
func VerifyInclusion(index, size uint64, leaf lattice.Hash, p []lattice.Hash, root lattice.Hash) error {
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, size, leaf[:], asSlices(p), root[:]); err != nil {
		return fmt.Errorf("leaf %d in a tree of %d: %w: %w", index, size, ErrProof, err)
	}
	return nil
}

// VerifyConsistency checks that the tree (size2, root2) extends (size1, root1).
// The tree of size 0 has EmptyRoot and is extended by every tree. The error
// wraps ErrProof.
func VerifyConsistency(size1, size2 uint64, p []lattice.Hash, root1, root2 lattice.Hash) error {
	if size1 == 0 && root1 != EmptyRoot() || size2 == 0 && root2 != EmptyRoot() {
		return fmt.Errorf("tree of size 0: %w: it has another root", ErrProof)
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, size1, size2, asSlices(p), root1[:], root2[:]); err != nil {
		return fmt.Errorf("tree of %d within a tree of %d: %w: %w", size1, size2, ErrProof, err)
	}
	return nil
}

// asSlices gives the hashes as the slices that the proof library takes.
func asSlices(p []lattice.Hash) [][]byte {
	s := make([][]byte, len(p))
	for i := range p {
		s[i] = p[i][:]
	}
	return s
}
