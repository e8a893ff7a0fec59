// Package wire takes messages of the mesh apart: big-endian numbers, hashes and counts,
// each bounded by the bytes that are there. What a message is, the protocols say.
package wire

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Reader takes a message's body apart. Once it has failed all it returns is zero. For
// one goroutine.
type Reader struct {
	Rest []byte // what was not taken yet
	Why  string // it failed; empty: it did not
}

// Fail says why the body is none. The first reason stays.
func (r *Reader) Fail(why string) {
	if r.Why == "" {
		r.Why = why
	}
	r.Rest = nil
}

// Take never returns less than n bytes, so n must be small or checked.
func (r *Reader) Take(n int) []byte {
	if n > len(r.Rest) {
		r.Fail("it is cut short")
		return make([]byte, n)
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}

// U8 takes a number of one byte.
func (r *Reader) U8() uint8 { return r.Take(1)[0] }

// U16 takes a number of two bytes.
func (r *Reader) U16() uint16 { return binary.BigEndian.Uint16(r.Take(2)) }

// U32 takes a number of four bytes.
func (r *Reader) U32() uint32 { return binary.BigEndian.Uint32(r.Take(4)) }

// U64 takes a number of eight bytes.
func (r *Reader) U64() uint64 { return binary.BigEndian.Uint64(r.Take(8)) }

// Hash takes 32 bytes.
func (r *Reader) Hash() lattice.Hash { return lattice.Hash(r.Take(32)) }

// Count bounds a number of things of at least size bytes each.
func (r *Reader) Count(n uint32, most, size int) int {
	if uint64(n) > uint64(most) || uint64(n)*uint64(size) > uint64(len(r.Rest)) {
		r.Fail(fmt.Sprintf("%d of something", n))
		return 0
	}
	return int(n)
}

// Hashes takes a number in one byte, at most most, and as many hashes; nil for none.
func (r *Reader) Hashes(most int) []lattice.Hash {
	n := r.Count(uint32(r.U8()), most, 32)
	if n == 0 {
		return nil
	}
	out := make([]lattice.Hash, n)
	for i := range out {
		out[i] = r.Hash()
	}
	return out
}
