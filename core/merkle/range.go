package merkle

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// The levels whose complete nodes are kept for all history, in files of their
// own: about a quarter byte a block in all.
const (
	firstStored = 8
	lastStored  = 32
	storedStep  = 8
	// MaxLevel is the highest level that Source computes: 2^40 blocks.
	MaxLevel = lastStored + storedStep
)

// StoredLevels returns the levels whose complete nodes are kept: 8, 16, 24, 32.
func StoredLevels() []uint { return []uint{8, 16, 24, 32} }

func isStored(level uint) bool {
	return level >= firstStored && level <= lastStored && level%storedStep == 0
}

// Range is the compact range of leaves [0, Size): see the package comment. The
// zero value is the empty tree. A Range is a value: none of its methods changes
// it, and it shares no memory with what it was made from.
type Range struct {
	size   uint64
	hashes []lattice.Hash // left to right; one for each 1 bit of size
}

// NewRange makes a range of hashes, left to right, which it copies.
func NewRange(size uint64, hashes []lattice.Hash) (Range, error) {
	if want := bits.OnesCount64(size); len(hashes) != want {
		return Range{}, fmt.Errorf("%w compact range: %d hashes for size %d, want %d", ErrMalformed, len(hashes), size, want)
	}
	return Range{size, slices.Clone(hashes)}, nil
}

// Size returns the number of leaves.
func (r Range) Size() uint64 { return r.size }

// Hashes returns a copy of the hashes, left to right.
func (r Range) Hashes() []lattice.Hash { return slices.Clone(r.hashes) }

// Equal reports whether both are ranges of the same tree.
func (r Range) Equal(o Range) bool { return r.size == o.size && slices.Equal(r.hashes, o.hashes) }

// Root returns the root of the tree of the first Size leaves.
func (r Range) Root() lattice.Hash {
	if r.size == 0 {
		return EmptyRoot()
	}
	root := r.hashes[len(r.hashes)-1]
	for i := len(r.hashes) - 2; i >= 0; i-- {
		root = NodeHash(r.hashes[i], root)
	}
	return root
}

// node returns the hash of (level, index) if it is one of the range's own.
func (r Range) node(level uint, index uint64) (lattice.Hash, bool) {
	if level > 63 || r.size>>level&1 == 0 || index != r.size>>level-1 {
		return lattice.Hash{}, false
	}
	return r.hashes[bits.OnesCount64(r.size>>level)-1], true
}

// AppendTo appends the range's encoding to dst: 8 bytes and 32 for each hash.
func (r Range) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.size)
	for _, h := range r.hashes {
		dst = append(dst, h[:]...)
	}
	return dst
}

// ParseRange reads an encoded range that takes all of b. Wraps ErrMalformed.
func ParseRange(b []byte) (Range, error) {
	r, rest, err := CutRange(b)
	if err == nil && len(rest) != 0 {
		return Range{}, fmt.Errorf("%w compact range: %d bytes too many", ErrMalformed, len(rest))
	}
	return r, err
}

// CutRange reads an encoded range from the front of b and returns what follows
// it. Wraps ErrMalformed.
func CutRange(b []byte) (r Range, rest []byte, err error) {
	if len(b) < 8 {
		return Range{}, nil, fmt.Errorf("%w compact range: %d bytes", ErrMalformed, len(b))
	}
	size, b := binary.BigEndian.Uint64(b), b[8:]
	n := bits.OnesCount64(size)
	if len(b) < n*len(lattice.Hash{}) {
		return Range{}, nil, fmt.Errorf("%w compact range: %d bytes of hashes for size %d", ErrMalformed, len(b), size)
	}
	if n > 0 {
		r.hashes = make([]lattice.Hash, n)
	}
	r.size = size
	for i := range r.hashes {
		r.hashes[i], b = lattice.Hash(b), b[len(lattice.Hash{}):]
	}
	return r, b, nil
}

// Node is the hash of one node of the tree.
type Node struct {
	Level uint
	Index uint64
	Hash  lattice.Hash
}

// Appender grows a tree at its right edge. Not safe for concurrent use; copying
// the value copies the tree.
type Appender struct {
	size uint64
	edge [64]lattice.Hash // edge[l] is the complete subtree for bit l of size, if set
}

// NewAppender goes on from r, which may be the zero Range.
func NewAppender(r Range) *Appender {
	a := &Appender{size: r.size}
	for i, size := len(r.hashes)-1, r.size; i >= 0; i-- {
		a.edge[bits.TrailingZeros64(size)] = r.hashes[i]
		size &= size - 1
	}
	return a
}

// Append adds a leaf by its hash. Nodes that this completes at StoredLevels are
// appended to done, lower levels first, and done is returned: the caller stores
// them. It does not allocate unless done must grow.
func (a *Appender) Append(done []Node, leaf lattice.Hash) []Node {
	level, h := uint(0), leaf
	for ; a.size>>level&1 == 1; level++ {
		h = NodeHash(a.edge[level], h)
		if isStored(level + 1) {
			done = append(done, Node{level + 1, a.size >> (level + 1), h})
		}
	}
	a.edge[level] = h
	a.size++
	return done
}

// Size returns the number of leaves.
func (a *Appender) Size() uint64 { return a.size }

// Root returns the root of the tree.
func (a *Appender) Root() lattice.Hash {
	if a.size == 0 {
		return EmptyRoot()
	}
	rest := a.size
	root := a.edge[bits.TrailingZeros64(rest)]
	for rest &= rest - 1; rest != 0; rest &= rest - 1 {
		root = NodeHash(a.edge[bits.TrailingZeros64(rest)], root)
	}
	return root
}

// Range returns the right edge as a compact range.
func (a *Appender) Range() Range {
	r := Range{size: a.size}
	for level := bits.Len64(a.size) - 1; level >= 0; level-- {
		if a.size>>level&1 == 1 {
			r.hashes = append(r.hashes, a.edge[level])
		}
	}
	return r
}
