// Package merkle is the tree over a log's blocks: leaf records, the right edge
// of a growing tree, inclusion and consistency proofs, signed checkpoints and
// compaction statements.
//
// The tree is that of RFC 6962: a leaf's hash is SHA-256(0x00 || leaf record), a
// node's is SHA-256(0x01 || left || right), the empty tree's is SHA-256("").
// Nodes are named by (level, index): node (l, i) covers the leaves from i<<l up
// to, and without, (i+1)<<l.
//
// # Leaf record, version 1
//
// What the tree commits to for each block: 64 bytes, big-endian.
//
//	 0  base offset     int64, >= 0
//	 8  last offset     int64, >= base offset
//	16  max timestamp   int64, ms since 1970, -1: none (whatever the block says)
//	24  leader epoch    int32, -1: none
//	28  length          uint32, bytes of the block, > 0
//	32  SHA-256 of the block's bytes
//	64
//
// # Compact range
//
// The root hashes of the complete subtrees that cover leaves [0, size), one for
// each 1 bit of size, from left (the largest) to right. It is enough to go on
// appending and to compute the root, and it is all that is kept of a dropped
// prefix, with the nodes at StoredLevels.
//
//	0  size            uint64, big-endian
//	8  hashes          32 bytes for each 1 bit of size
//
// It has no magic of its own: the file that holds it has one.
//
// # Checkpoint, version 1
//
// A C2SP tlog-checkpoint: a C2SP signed note whose text is exactly these lines,
// each ended by a newline. Numbers are decimal without leading zeros.
//
//	lattice/<store id, 64 hex>/<log name>
//	<size: blocks in the tree>
//	<root: padded standard base64>
//	start <first offset still offered>
//	end <next offset>
//	term <leader epoch>
//	grant <hash of the grant of this term, 64 hex; all zero: none>
//	incarnation <of the signing node>
//	time <hybrid timestamp: ms<<16 | counter>
//
// followed by an empty line and the signature lines. The log's writer signs with
// its Ed25519 key under the name that identity.NoteName gives; followers add
// C2SP cosignatures under theirs. start <= end, size <= end, and a tree of size
// 0 has the empty root. The log name is 1 to 255 bytes of printable ASCII
// without spaces or plus signs; a partition's is "<topic id>/<number>".
//
// # Compaction statement, version 1
//
// See Compaction.
//
// # Rules for changing it
//
//   - A leaf record, checkpoint or statement that was ever signed keeps its
//     bytes. If a case in TestGoldenBytes changes, the design is wrong, not the test.
//   - A new line in a checkpoint is a new version, told apart by the origin's
//     first element; a new field in a statement is a new version byte.
//   - One meaning has one encoding: what parses prints back to the same bytes.
package merkle

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// LeafSize is the length of a leaf record in bytes.
const LeafSize = 64

// ErrMalformed means that bytes are not what they are said to be. Kind Corrupt.
var ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed"))

// Leaf is what the tree commits to for one block. See the package comment.
type Leaf struct {
	Base, Last int64        // offsets that the block covers, both included
	MaxTime    int64        // ms since 1970; -1: none
	Epoch      int32        // leader epoch; -1: none
	Length     uint32       // bytes of the block
	Sum        lattice.Hash // SHA-256 of the block's bytes
}

// AppendTo appends the leaf record, LeafSize bytes, to dst.
func (l Leaf) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Base))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Last))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.MaxTime))
	dst = binary.BigEndian.AppendUint32(dst, uint32(l.Epoch))
	dst = binary.BigEndian.AppendUint32(dst, l.Length)
	return append(dst, l.Sum[:]...)
}

// Hash returns the leaf's hash in the tree. It does not allocate.
func (l Leaf) Hash() lattice.Hash {
	var buf [1 + LeafSize]byte // buf[0] is RFC 6962's leaf prefix, 0
	l.AppendTo(buf[:1])
	return sha256.Sum256(buf[:])
}

// ParseLeaf reads a leaf record of exactly LeafSize bytes. Wraps ErrMalformed.
func ParseLeaf(b []byte) (Leaf, error) {
	if len(b) != LeafSize {
		return Leaf{}, fmt.Errorf("%w leaf record: %d bytes, want %d", ErrMalformed, len(b), LeafSize)
	}
	l := Leaf{
		Base:    int64(binary.BigEndian.Uint64(b)),
		Last:    int64(binary.BigEndian.Uint64(b[8:])),
		MaxTime: int64(binary.BigEndian.Uint64(b[16:])),
		Epoch:   int32(binary.BigEndian.Uint32(b[24:])),
		Length:  binary.BigEndian.Uint32(b[28:]),
		Sum:     lattice.Hash(b[32:]),
	}
	switch {
	case l.Base < 0 || l.Last < l.Base:
		return Leaf{}, fmt.Errorf("%w leaf record: offsets %d to %d", ErrMalformed, l.Base, l.Last)
	case l.Epoch < -1:
		return Leaf{}, fmt.Errorf("%w leaf record: epoch %d", ErrMalformed, l.Epoch)
	case l.Length == 0:
		return Leaf{}, fmt.Errorf("%w leaf record: an empty block", ErrMalformed)
	}
	return l, nil
}

// LeafHash returns the hash of a leaf record that is already encoded, LeafSize
// bytes. It does not allocate.
func LeafHash(record *[LeafSize]byte) lattice.Hash {
	var buf [1 + LeafSize]byte
	copy(buf[1:], record[:])
	return sha256.Sum256(buf[:])
}

// NodeHash returns the hash of the node above left and right. It does not allocate.
func NodeHash(left, right lattice.Hash) lattice.Hash {
	var buf [1 + 2*len(left)]byte
	buf[0] = 1
	copy(buf[1:], left[:])
	copy(buf[1+len(left):], right[:])
	return sha256.Sum256(buf[:])
}

// EmptyRoot is the root of the tree without leaves.
func EmptyRoot() lattice.Hash { return sha256.Sum256(nil) }
