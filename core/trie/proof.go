package trie

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// ErrProof means that a proof does not show what it should. Kind Corrupt.
var ErrProof = lattice.E(lattice.Corrupt, errors.New("state proof does not hold"))

// Step is a node on the way from the root down to what a proof is about.
type Step struct {
	Bit   uint16       // in which its two sides differ
	Other lattice.Hash // of the side that the way does not take
}

// Proof ties a row, the rows of a key, or the absence of either to a root. Its
// encoding, big-endian:
//
//	0  "LV"
//	2  version  u8 = 1
//	3  near     u8: 1 if a leaf follows, 0 if not
//	   leaf     path 64, SHA-256(row) 32
//	   steps    u16 n, at most 512, then n x: bit u16, hash 32; bits ascending
//
// What is there is shown by hashing up from it. What is not is shown by Near: the
// leaf that a search for it ends at, which is another; the nodes on the way
// say by their bits that the search went right. That a root speaks for all rows,
// and only for them, is the word of whoever signed it.
type Proof struct {
	Near  *Leaf  // in a proof of absence; nil when there are no rows at all
	Steps []Step // from the root down
}

// ProveRow returns the proof that the row of a path is there or, as present then
// says, that it is not.
func ProveRow(s Store, p Path) (proof Proof, present bool, err error) { return prove(s, p, pathBits) }

// ProveKey is ProveRow for all rows of a key.
func ProveKey(s Store, key lattice.Hash) (proof Proof, present bool, err error) {
	var p Path
	copy(p[:], key[:])
	return prove(s, p, KeyBits)
}

// prove searches for what has the first n bits of p as its own.
func prove(s Store, p Path, n int) (proof Proof, present bool, err error) {
	for at := (Place{}); ; {
		var b branch
		if err := b.load(s, at); err != nil {
			return Proof{}, false, err
		}
		if k, _ := b.count(); k == 0 {
			return proof, false, nil
		}
		c := &b.children[proof.descend(&b, p, n)]
		switch {
		case 4*int(c.depth) >= n && c.path.common(&p) >= n:
			return proof, true, nil
		case c.isLeaf():
			near := c.leaf()
			proof.Near = &near
			return proof, false, nil
		}
		at = Place{c.depth, c.path}
	}
}

// descend appends the steps within b and returns the slot that the search for p
// comes to: of two sides the one of p's bit, left beyond the first n bits.
func (proof *Proof) descend(b *branch, p Path, n int) int {
	lo, hi := 0, 16
	for bit := 4 * int(b.place.Depth); hi-lo > 1; bit++ {
		mid := (lo + hi) / 2
		left, okLeft := b.sumOf(lo, mid, bit+1)
		right, okRight := b.sumOf(mid, hi, bit+1)
		goRight := okRight && (!okLeft || bit < n && p.bit(bit) == 1)
		if okLeft && okRight {
			other := right
			if goRight {
				other = left
			}
			proof.Steps = append(proof.Steps, Step{uint16(bit), other})
		}
		if goRight {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// Row checks that the row is in the state of that root. Wraps ErrProof.
func (proof Proof) Row(root lattice.Hash, l Leaf) error {
	if proof.Near != nil || l.Value.IsZero() {
		return fmt.Errorf("%w: it is of an absence", ErrProof)
	}
	return proof.climb(root, &l.Path, leafHash(&l.Path, &l.Value), pathBits)
}

// Rows checks that these are all rows of a key in the state of that root:
// ascending by path, at least one. Wraps ErrProof.
func (proof Proof) Rows(root lattice.Hash, key lattice.Hash, leaves []Leaf) error {
	if proof.Near != nil || len(leaves) == 0 {
		return fmt.Errorf("%w: it is of an absence", ErrProof)
	}
	for i := range leaves {
		switch {
		case leaves[i].Path.Key() != key || leaves[i].Value.IsZero():
			return fmt.Errorf("%w: row %d is none of the key", ErrProof, i)
		case i > 0 && bytes.Compare(leaves[i-1].Path[:], leaves[i].Path[:]) >= 0:
			return fmt.Errorf("%w: row %d is out of order", ErrProof, i)
		}
	}
	return proof.climb(root, &leaves[0].Path, subtree(leaves), KeyBits)
}

// NoRow checks that there is no row of that path in the state of that root. Wraps
// ErrProof.
func (proof Proof) NoRow(root lattice.Hash, p Path) error { return proof.absent(root, p, pathBits) }

// NoKey checks that the key has no rows in the state of that root. Wraps ErrProof.
func (proof Proof) NoKey(root lattice.Hash, key lattice.Hash) error {
	var p Path
	copy(p[:], key[:])
	return proof.absent(root, p, KeyBits)
}

func (proof Proof) absent(root lattice.Hash, p Path, n int) error {
	near := proof.Near
	if near == nil {
		if root != EmptyRoot() || len(proof.Steps) != 0 {
			return fmt.Errorf("%w: it names no row in the place", ErrProof)
		}
		return nil
	}
	if near.Path.common(&p) >= n {
		return fmt.Errorf("%w: the row in the place is the one that should not be there", ErrProof)
	}
	for _, s := range proof.Steps {
		if int(s.Bit) < n && near.Path.bit(int(s.Bit)) != p.bit(int(s.Bit)) {
			return fmt.Errorf("%w: the search goes another way at bit %d", ErrProof, s.Bit)
		}
	}
	return proof.climb(root, &near.Path, leafHash(&near.Path, &near.Value), pathBits)
}

// climb hashes from what lies below the steps up to the root. Steps are at bits
// below n only.
func (proof Proof) climb(root lattice.Hash, p *Path, h lattice.Hash, n int) error {
	for i := len(proof.Steps) - 1; i >= 0; i-- {
		s := &proof.Steps[i]
		bit := int(s.Bit)
		if bit >= n {
			return fmt.Errorf("%w: a step at bit %d of %d", ErrProof, bit, n)
		}
		n = bit
		if p.bit(bit) == 0 {
			h = nodeHash(bit, &h, &s.Other)
		} else {
			h = nodeHash(bit, &s.Other, &h)
		}
	}
	if h != root {
		return fmt.Errorf("%w: it leads to root %s, not %s", ErrProof, h.Short(), root.Short())
	}
	return nil
}

const (
	proofVersion = 1
	stepSize     = 2 + 32
)

// AppendTo encodes the proof.
func (proof Proof) AppendTo(b []byte) []byte {
	b = append(b, 'L', 'V', proofVersion)
	if proof.Near == nil {
		b = append(b, 0)
	} else {
		b = append(append(append(b, 1), proof.Near.Path[:]...), proof.Near.Value[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(proof.Steps)))
	for _, s := range proof.Steps {
		b = append(binary.BigEndian.AppendUint16(b, s.Bit), s.Other[:]...)
	}
	return b
}

// ParseProof reads an encoded proof that takes all of b. Whether it shows
// anything is another question. Wraps ErrProof.
func ParseProof(b []byte) (Proof, error) {
	bad := func(what string) (Proof, error) { return Proof{}, fmt.Errorf("%w: %s", ErrProof, what) }
	if len(b) < 6 || b[0] != 'L' || b[1] != 'V' {
		return bad("it does not begin with LV")
	}
	if b[2] != proofVersion {
		return Proof{}, lattice.E(lattice.Unsupported, fmt.Errorf("%w: version %d", ErrProof, b[2]))
	}
	var proof Proof
	near, rest := b[3], b[4:]
	if near == 1 && len(rest) >= PathSize+32 {
		proof.Near = &Leaf{Path(rest[:PathSize]), lattice.Hash(rest[PathSize : PathSize+32])}
		rest = rest[PathSize+32:]
	} else if near != 0 {
		return bad("it is cut off")
	}
	if len(rest) < 2 {
		return bad("it is cut off")
	}
	n := int(binary.BigEndian.Uint16(rest))
	rest = rest[2:]
	if n > pathBits || len(rest) != n*stepSize {
		return bad(fmt.Sprintf("%d steps in %d bytes", n, len(rest)))
	}
	for ; len(rest) > 0; rest = rest[stepSize:] {
		s := Step{binary.BigEndian.Uint16(rest), lattice.Hash(rest[2:stepSize])}
		if k := len(proof.Steps); s.Bit >= pathBits || k > 0 && proof.Steps[k-1].Bit >= s.Bit {
			return bad("its steps are out of order")
		}
		proof.Steps = append(proof.Steps, s)
	}
	return proof, nil
}
