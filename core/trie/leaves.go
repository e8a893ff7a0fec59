package trie

import (
	lattice "github.com/lattice-log/lattice"
)

// Leaves yields the leaves of a key, ascending by path, at the cost of those and
// the way to them. yield returns an error to stop. Wraps ErrNode, or what the
// store or yield return.
func Leaves(s Store, key lattice.Hash, yield func(Leaf) error) error {
	var p Path
	copy(p[:], key[:])
	for at := (Place{}); ; {
		var b branch
		if err := b.load(s, at); err != nil {
			return err
		}
		c := &b.children[p.group(int(at.Depth))]
		switch {
		case c.empty() || c.path.common(&p) < min(4*int(c.depth), KeyBits):
			return nil
		case c.isLeaf():
			return yield(c.leaf())
		case 4*int(c.depth) >= KeyBits:
			_, err := check(s, Place{c.depth, c.path}, yield)
			return err
		}
		at = Place{c.depth, c.path}
	}
}
