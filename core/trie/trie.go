// Package trie is the Merkle tree over the rows of a state: equal roots mean equal
// states, and a proof of a few hundred bytes shows one row, all rows of a key, or
// that there is none, to someone who holds nothing but the root.
//
// # The tree
//
// A row of an address (map, key, kind, sub) is a leaf. Its path is 64 bytes:
//
//	SHA-256(length of map u8 | map | key) | SHA-256(kind u8 | sub)
//
// so the rows of a key lie together. The tree is the binary radix tree of the
// paths without nodes that have one child: of the leaves below a node, the first
// bit in which they differ says who is on the left (0) and who on the right (1).
//
//	leaf = SHA-256("lattice/state-leaf/v1\x00" | path 64 | SHA-256(row))
//	node = SHA-256("lattice/state-node/v1\x00" | bit u16 | left | right)
//
// with the row in its canonical encoding (core/state), and bits counted from 0 at
// the front of the path. The root of no rows is SHA-256 of nothing. The shape, and
// so the root, follows from the set of rows alone, whatever the order in which
// they came, changed and went.
//
// # What is stored
//
// Four levels of the tree share a stored node, a branch: up to 16 children by the
// next four bits of the path. A branch lies at a Place, the part of the path that
// all leaves below it have in common, in whole groups of four bits; the one at
// the empty place, the top, is there whenever there is a leaf, and every other
// has at least two children. How nodes are stored has no part in the root.
//
//	0  "LN"
//	2  version   u8 = 1
//	3  children  u16, bit n (from the least) for child n
//	5  leaves    u16, likewise: which of them are leaves; the others are branches
//	7  each child, ascending:
//	     leaf    SHA-256(row) 32 | path from byte s on
//	     branch  hash of what is below it 32 | depth u8, in groups of four
//	             bits | place from byte s on, as many bytes as the depth needs
//
// Numbers are big-endian. s is half the depth of the branch, rounded up: bytes
// before it follow from where the child is. What a byte has beyond the depth of a
// place is zero.
//
// # Rules for changing it
//
//   - The hashes are signed as roots: they never change. If TestGoldenRoots
//     changes, the design is wrong, not the test.
//   - Stored nodes can be made again from the rows; a new layout is a new version.
package trie

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/bits"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
)

const (
	// PathSize is the length of a path in bytes.
	PathSize = 64
	// KeyBits is how many bits of a path belong to the key.
	KeyBits = 256

	pathBits  = 8 * PathSize
	leafDepth = 2 * PathSize // in groups of four bits

	leafDomain = "lattice/state-leaf/v1\x00"
	nodeDomain = "lattice/state-node/v1\x00"
)

// ErrNode means that stored bytes are no branch, or do not fit where they are.
// Kind Corrupt.
var ErrNode = lattice.E(lattice.Corrupt, errors.New("state tree is damaged"))

// Path says where the leaf of a row is.
type Path [PathSize]byte

// KeyOf returns the first half of the paths of a key's rows.
func KeyOf(m string, key []byte) lattice.Hash {
	var stack [128]byte
	b := append(append(stack[:0], byte(len(m))), m...)
	return sha256.Sum256(append(b, key...))
}

// PathOf returns the path of a row. The map's name must have at most state.MaxMap bytes.
func PathOf(a state.Address) Path {
	return PathIn(KeyOf(a.Map, a.Key), a.Kind, a.Sub)
}

// PathIn is PathOf for a key that was hashed before.
func PathIn(key lattice.Hash, kind state.Kind, sub []byte) Path {
	var stack [128]byte
	h := sha256.Sum256(append(append(stack[:0], byte(kind)), sub...))
	var p Path
	copy(p[:], key[:])
	copy(p[len(key):], h[:])
	return p
}

// Key returns the part of the path that belongs to the key.
func (p *Path) Key() lattice.Hash { return lattice.Hash(p[:KeyBits/8]) }

func (p *Path) bit(i int) int { return int(p[i>>3]>>(7-i&7)) & 1 }

// group returns the i-th group of four bits.
func (p *Path) group(i int) int { return int(p[i>>1]>>(4-4*(i&1))) & 15 }

// common returns how many leading bits p and o share.
func (p *Path) common(o *Path) int {
	for i := 0; i < PathSize; i += 8 {
		if x := binary.BigEndian.Uint64(p[i:]) ^ binary.BigEndian.Uint64(o[i:]); x != 0 {
			return 8*i + bits.LeadingZeros64(x)
		}
	}
	return pathBits
}

// cut returns p with zeros after the first depth groups.
func (p *Path) cut(depth int) Path {
	var out Path
	copy(out[:], p[:(depth+1)/2])
	if depth&1 == 1 {
		out[depth/2] &= 0xf0
	}
	return out
}

// Leaf is a row as the tree knows it. In a change, a zero Value means that the
// row is gone.
type Leaf struct {
	Path  Path
	Value lattice.Hash // SHA-256 of the row
}

// LeafOf returns the leaf of a row; with an empty row, the change that removes it.
func LeafOf(a state.Address, r state.Row) Leaf {
	l := Leaf{Path: PathOf(a)}
	if len(r) > 0 {
		l.Value = ValueOf(r.AppendTo(nil))
	}
	return l
}

// ValueOf returns the Value of a row in its canonical encoding.
func ValueOf(row []byte) lattice.Hash { return sha256.Sum256(row) }

func leafHash(path *Path, value *lattice.Hash) lattice.Hash {
	var b [len(leafDomain) + PathSize + len(value)]byte
	n := copy(b[:], leafDomain)
	n += copy(b[n:], path[:])
	copy(b[n:], value[:])
	return sha256.Sum256(b[:])
}

func nodeHash(bit int, left, right *lattice.Hash) lattice.Hash {
	var b [len(nodeDomain) + 2 + 2*len(left)]byte
	n := copy(b[:], nodeDomain)
	binary.BigEndian.PutUint16(b[n:], uint16(bit))
	n += 2
	n += copy(b[n:], left[:])
	copy(b[n:], right[:])
	return sha256.Sum256(b[:])
}

// EmptyRoot returns the root of a state without rows.
func EmptyRoot() lattice.Hash { return sha256.Sum256(nil) }

// Rebuild returns the root of the tree of these leaves, which must be ascending
// by path, each once, with values. It is what Update comes to, without a store.
func Rebuild(leaves []Leaf) lattice.Hash {
	if len(leaves) == 0 {
		return EmptyRoot()
	}
	return subtree(leaves)
}

// subtree hashes one or more leaves. Each call splits at another bit, so it goes
// at most pathBits deep.
func subtree(leaves []Leaf) lattice.Hash {
	first, last := &leaves[0], &leaves[len(leaves)-1]
	if len(leaves) == 1 {
		return leafHash(&first.Path, &first.Value)
	}
	bit := first.Path.common(&last.Path)
	lo, hi := 0, len(leaves)-1 // leaves[lo] is on the left, leaves[hi] on the right
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; leaves[mid].Path.bit(bit) == 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	left, right := subtree(leaves[:hi]), subtree(leaves[hi:])
	return nodeHash(bit, &left, &right)
}
