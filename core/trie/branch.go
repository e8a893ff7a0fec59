package trie

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

const (
	nodeVersion    = 1
	nodeHeaderSize = 2 + 1 + 2 + 2
)

// Place says where a branch is stored: the first Depth groups of four bits of
// Path. The rest of Path is zero. The zero Place is the top.
type Place struct {
	Depth uint8 // less than 128
	Path  Path
}

// AppendTo appends the place as a key of a store: its depth, then as many bytes
// of the path as that needs. Nodes of one depth are neighbours.
func (p Place) AppendTo(b []byte) []byte {
	return append(append(b, p.Depth), p.Path[:(int(p.Depth)+1)/2]...)
}

// String returns the groups as hex digits.
func (p Place) String() string {
	return fmt.Sprintf("%x", p.Path[:(int(p.Depth)+1)/2])[:p.Depth]
}

// child is what one of the 16 slots of a branch holds.
type child struct {
	depth uint8        // 0: nothing; leafDepth: a leaf; otherwise a branch at this depth
	path  Path         // of the leaf; or the branch's place
	hash  lattice.Hash // the leaf's Value; or the hash of what is below the branch
}

func (c *child) empty() bool  { return c.depth == 0 }
func (c *child) isLeaf() bool { return c.depth == leafDepth }

// sum returns the hash of the child as the tree has it.
func (c *child) sum() lattice.Hash {
	if c.isLeaf() {
		return leafHash(&c.path, &c.hash)
	}
	return c.hash
}

func (c *child) leaf() Leaf { return Leaf{c.path, c.hash} }

// branch is up to four levels of the tree.
type branch struct {
	place    Place
	children [16]child
}

// count returns the number of children, and the last of them.
func (b *branch) count() (n int, last *child) {
	for i := range b.children {
		if !b.children[i].empty() {
			n, last = n+1, &b.children[i]
		}
	}
	return n, last
}

// sum returns the hash of all that is below b.
func (b *branch) sum() lattice.Hash {
	h, ok := b.sumOf(0, 16, 4*int(b.place.Depth))
	if !ok {
		return EmptyRoot()
	}
	return h
}

// sumOf hashes the children in the slots from lo on, below hi, whose number is a
// power of two; bit is the first in which their paths can differ.
func (b *branch) sumOf(lo, hi, bit int) (h lattice.Hash, ok bool) {
	if hi-lo == 1 {
		if b.children[lo].empty() {
			return h, false
		}
		return b.children[lo].sum(), true
	}
	left, okLeft := b.sumOf(lo, (lo+hi)/2, bit+1)
	right, okRight := b.sumOf((lo+hi)/2, hi, bit+1)
	switch {
	case okLeft && okRight:
		return nodeHash(bit, &left, &right), true
	case okLeft:
		return left, true
	}
	return right, okRight
}

// appendTo encodes b as the package comment draws it.
func (b *branch) appendTo(dst []byte) []byte {
	var present, leaves uint16
	for i := range b.children {
		if c := &b.children[i]; !c.empty() {
			present |= 1 << i
			if c.isLeaf() {
				leaves |= 1 << i
			}
		}
	}
	dst = append(dst, 'L', 'N', nodeVersion)
	dst = binary.BigEndian.AppendUint16(dst, present)
	dst = binary.BigEndian.AppendUint16(dst, leaves)
	from := (int(b.place.Depth) + 1) / 2
	for i := range b.children {
		c := &b.children[i]
		switch {
		case c.empty():
		case c.isLeaf():
			dst = append(append(dst, c.hash[:]...), c.path[from:]...)
		default:
			dst = append(append(dst, c.hash[:]...), c.depth)
			dst = append(dst, c.path[from:(int(c.depth)+1)/2]...)
		}
	}
	return dst
}

// parse reads the branch that is stored at a place. Wraps ErrNode.
func (b *branch) parse(at Place, data []byte) error {
	b.place = at
	bad := func(what string) error { return fmt.Errorf("%w: node %q: %s", ErrNode, at, what) }
	if len(data) < nodeHeaderSize || data[0] != 'L' || data[1] != 'N' {
		return bad("it does not begin with LN")
	}
	if data[2] != nodeVersion {
		return bad(fmt.Sprintf("version %d", data[2]))
	}
	present, leaves := binary.BigEndian.Uint16(data[3:]), binary.BigEndian.Uint16(data[5:])
	if present&leaves != leaves {
		return bad("leaves that are no children")
	}
	rest, from := data[nodeHeaderSize:], (int(at.Depth)+1)/2
	for i := range b.children {
		c := &b.children[i]
		*c = child{}
		if present>>i&1 == 0 {
			continue
		}
		c.depth = leafDepth
		size := 32 // of what was read of rest
		if len(rest) > 32 && leaves>>i&1 == 0 {
			c.depth, size = rest[32], 33
			if c.depth <= at.Depth || c.depth >= leafDepth {
				return bad(fmt.Sprintf("child %d at depth %d", i, c.depth))
			}
		}
		to := (int(c.depth) + 1) / 2
		if len(rest) < size+to-from {
			return bad("it is cut off")
		}
		c.hash = lattice.Hash(rest[:32])
		c.path = at.Path
		if at.Depth&1 == 1 {
			c.path[from-1] |= byte(i)
		}
		copy(c.path[from:], rest[size:size+to-from])
		rest = rest[size+to-from:]
		if c.path.cut(int(at.Depth)) != at.Path || c.path.group(int(at.Depth)) != i || c.path.cut(int(c.depth)) != c.path {
			return bad(fmt.Sprintf("child %d is not below it", i))
		}
	}
	if n, _ := b.count(); len(rest) != 0 || n == 0 || n == 1 && at.Depth > 0 {
		return bad(fmt.Sprintf("%d children and %d bytes more", n, len(rest)))
	}
	return nil
}
