package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// frontierDomain stands before a frontier's encoding where it is hashed.
const frontierDomain = "lattice/frontier-of-state/v1\x00"

// Writers returns the writers of which something is folded, ascending.
func (f Frontier) Writers() []Writer {
	ws := slices.SortedFunc(maps.Keys(f), Writer.Compare)
	return slices.DeleteFunc(ws, func(w Writer) bool { return f[w] == 0 })
}

// Entries returns how many entries are folded.
func (f Frontier) Entries() uint64 {
	n := uint64(0)
	for _, seq := range f {
		n += seq
	}
	return n
}

// Within reports whether f has nothing beyond o.
func (f Frontier) Within(o Frontier) bool {
	for w, seq := range f {
		if seq > o[w] {
			return false
		}
	}
	return true
}

// AppendTo appends the canonical encoding of a frontier:
//
//	authors uvarint, then each, ascending:
//	  author 32 | incarnations uvarint, then each, ascending:
//	    incarnation u64 big-endian | sequence number uvarint, not 0
//
// Writers of which nothing is folded are left out.
func (f Frontier) AppendTo(b []byte) []byte {
	ws := f.Writers()
	authors := 0
	for i, w := range ws {
		if i == 0 || ws[i-1].Author != w.Author {
			authors++
		}
	}
	b = binary.AppendUvarint(b, uint64(authors))
	for len(ws) > 0 {
		n := slices.IndexFunc(ws, func(w Writer) bool { return w.Author != ws[0].Author })
		if n < 0 {
			n = len(ws)
		}
		b = binary.AppendUvarint(append(b, ws[0].Author[:]...), uint64(n))
		for _, w := range ws[:n] {
			b = binary.AppendUvarint(binary.BigEndian.AppendUint64(b, w.Incarnation), f[w])
		}
		ws = ws[n:]
	}
	return b
}

// ParseFrontier reads what AppendTo wrote, and takes all of b. Wraps ErrMalformed.
func ParseFrontier(b []byte) (Frontier, error) {
	r := reader{rest: b}
	f := Frontier{}
	var last Writer
	for i := range r.count(32 + 1 + 8 + 1) {
		author := lattice.AuthorID(r.take(32))
		if i > 0 && bytes.Compare(last.Author[:], author[:]) >= 0 {
			r.bad = true
		}
		n := r.count(8 + 1)
		r.bad = r.bad || n == 0
		for j := range n {
			w := Writer{Author: author, Incarnation: binary.BigEndian.Uint64(r.take(8))}
			seq := r.uvarint()
			if seq == 0 || j > 0 && last.Incarnation >= w.Incarnation {
				r.bad = true
			}
			f[w], last = seq, w
			if r.bad {
				break
			}
		}
		if r.bad {
			break
		}
	}
	if err := r.close(); err != nil {
		return nil, fmt.Errorf("frontier: %w", err)
	}
	return f, nil
}

// Hash is a frontier in 32 bytes: SHA-256("lattice/frontier-of-state/v1\x00" | encoding).
func (f Frontier) Hash() lattice.Hash {
	return sha256.Sum256(f.AppendTo([]byte(frontierDomain)))
}
