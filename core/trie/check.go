package trie

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Check reads a whole tree, checks that every hash and shape in it is what it
// should be, and returns the root. It yields the leaves, ascending by path, for the
// caller to compare with the rows; yield returns an error to stop. Wraps ErrNode,
// or what the store or yield return.
func Check(s Store, yield func(Leaf) error) (lattice.Hash, error) {
	return check(s, Place{}, yield)
}

func check(s Store, at Place, yield func(Leaf) error) (lattice.Hash, error) {
	var b branch
	if err := b.load(s, at); err != nil {
		return lattice.Hash{}, err
	}
	for i := range b.children {
		c := &b.children[i]
		switch {
		case c.empty():
		case c.isLeaf():
			if err := yield(c.leaf()); err != nil {
				return lattice.Hash{}, err
			}
		default:
			h, err := check(s, Place{c.depth, c.path}, yield)
			if err != nil {
				return lattice.Hash{}, err
			}
			if h != c.hash {
				return lattice.Hash{}, fmt.Errorf("%w: node %q does not match its hash", ErrNode, Place{c.depth, c.path})
			}
		}
	}
	return b.sum(), nil
}
