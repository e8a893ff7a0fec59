// Package snapshot is the file that holds the state of a store, so that its
// entries can be pruned, and others can begin from it.
//
//	0      2     3
//	+------+-----+---------------------------------
//	| "LB" | 1   | chunks                             numbers big-endian
//	+------+-----+---------------------------------
//
//	chunk  kind u8 | length u32, at most 1 MiB | body | sum 32
//	sum    SHA-256("lattice/snapshot-chunk/v1\x00" | sum of the chunk before it, zeros
//	       for the first | kind | length | body)
//
// So a broken copy shows at its first broken chunk, what is whole need not be
// sent again, and the sum of the last chunk of content stands for all of it. The
// chunks' bodies, by kind, ascending; those of one kind, back to back, are items
// (uv: unsigned varint in its shortest form):
//
//	1 head       once: genesis entry, to the last 32 bytes; state root 32
//	2 frontier   author 32, incarnation u64, sequence u64: of each writer the last
//	             entry that is folded; ascending
//	3 records    uv length, key, uv length, value: of the machine that folded it
//	             (core/fold, Snapshot), ascending by key
//	4 forks      uv length, entry: two for each place that an author signed twice,
//	             as far as they are known; ascending by place and id
//	5 rows       map (length u8, bytes), uv length, key, kind u8, uv length, sub,
//	             uv length, row (core/state); ascending by address
//	6 end        once: number of items of the kinds 2 to 5, u64 each
//	7 signature  once, the last: author 32, signature 64
//
// Chunks of the kinds 2 to 5 are full but for the last of their kind, which is not
// empty. So the content, all but the signature, follows from the state and from
// what is known of forks: two nodes that have the same write the same.
//
// The node that made the file signs the store id, the root and the sum of the end:
//
//	Ed25519("lattice/snapshot/v1\x00" | store id 32 | root 32 | sum 32)
//
// # Rules for changing it
//
// A file that was written stays readable: its version keeps its bytes. If a case in
// TestGolden changes, the design is wrong, not the test. A record of the fold or a
// row that has another form is a new version of those, and of this file.
package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

const (
	version   = 1
	fileHead  = 3
	chunkHead = 1 + 4
	// MaxChunk is the longest body of a chunk.
	MaxChunk = 1 << 20
	// MaxItem is the longest item: a row, with all its heads.
	MaxItem = 1 << 30

	chunkDomain = "lattice/snapshot-chunk/v1\x00"
)

// Kind says what a chunk holds.
type Kind uint8

// The kinds of chunks, in the order in which they come.
const (
	KindHead Kind = iota + 1
	KindFrontier
	KindRecords
	KindForks
	KindRows
	KindEnd
	KindSignature
)

var (
	// ErrDamaged means bytes that are no snapshot, or a broken one. Kind Corrupt.
	ErrDamaged = lattice.E(lattice.Corrupt, errors.New("the snapshot is damaged"))
	// ErrCut means that the file ends too early: the rest of it is missing. Kind NotYet.
	ErrCut = lattice.E(lattice.NotYet, errors.New("the snapshot is not complete"))
	// ErrVersion means a snapshot of a version that this program does not read. Kind Unsupported.
	ErrVersion = lattice.E(lattice.Unsupported, errors.New("snapshot of an unknown version"))
)

// Head is what a snapshot begins with.
type Head struct {
	Genesis sigchain.Signed // of the store
	Root    lattice.Hash    // of the state
}

// Store returns the id of the store.
func (h Head) Store() lattice.StoreID { return h.Genesis.Home() }

// Counts is how many items of each kind there are.
type Counts struct{ Writers, Records, Forks, Rows uint64 }

func (c *Counts) of(k Kind) *uint64 {
	switch k {
	case KindFrontier:
		return &c.Writers
	case KindRecords:
		return &c.Records
	case KindForks:
		return &c.Forks
	}
	return &c.Rows
}

// Seal is how a snapshot ends.
type Seal struct {
	Sum       lattice.Hash // stands for all of the content
	Counts    Counts
	Signer    lattice.AuthorID
	Signature identity.Signature
}

func signed(h Head, sum lattice.Hash) []byte {
	id := h.Store()
	return append(append(append([]byte(nil), id[:]...), h.Root[:]...), sum[:]...)
}

// chain sums chunks.
type chain struct{ sum lattice.Hash }

func (c *chain) next(k Kind, body []byte) lattice.Hash {
	h := sha256.New()
	h.Write([]byte(chunkDomain))
	h.Write(c.sum[:])
	var b [chunkHead]byte
	b[0] = byte(k)
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)))
	h.Write(b[:])
	h.Write(body)
	h.Sum(c.sum[:0])
	return c.sum
}

// The encodings of items.

func appendPlace(b []byte, w state.Writer, seq uint64) []byte {
	b = binary.BigEndian.AppendUint64(append(b, w.Author[:]...), w.Incarnation)
	return binary.BigEndian.AppendUint64(b, seq)
}

const placeSize = 32 + 8 + 8

func appendBytes(b, v []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(v))), v...) }

func appendRecord(b []byte, r fold.Record) []byte {
	return appendBytes(appendBytes(b, r.Key), r.Value)
}

func appendAddress(b []byte, a state.Address) []byte {
	b = append(append(b, byte(len(a.Map))), a.Map...)
	b = append(appendBytes(b, a.Key), byte(a.Kind))
	return appendBytes(b, a.Sub)
}

// compareForks orders proofs of forks: by place, then by id.
func compareForks(a, b sigchain.Signed) int {
	return cmp.Or(a.Ref().Place().Compare(b.Ref().Place()), bytes.Compare(a.ID[:], b.ID[:]))
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
