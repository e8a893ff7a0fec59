// Package sigchain is the signed entry: one atomic batch of operations by one
// author, chained to the author's entry before it and to the entries of others
// that it depends on. It encodes, parses and verifies entries and checks one
// author's chain. What operations mean, and who may issue them, is decided
// elsewhere.
//
// # Entry, version 1
//
// Big-endian. There is exactly one encoding.
//
//	  0  "LE"
//	  2  version       u8 = 1
//	  3  flags         u8 = 0
//	  4  store         32; zero in the genesis entry
//	 36  author        32, Ed25519 public key
//	 68  incarnation   u64, of the author's node
//	 76  sequence      u64, from 1 without gaps within the incarnation
//	 84  time          u64, hybrid timestamp (core/clock)
//	 92  previous: incarnation u64, sequence u64, id 32; all zero in an author's
//	     very first entry
//	140  parents       u32 n, then n x 80: author 32, incarnation u64,
//	                   sequence u64, id 32; strictly ascending as bytes
//	     operations    u32 n, then n x: kind u16, length u32, body
//	     signature     64
//
// The id of an entry is SHA-256("lattice/entry/v1\x00" || all bytes before the
// signature). The signature is Ed25519 over the same. The whole is at most
// MaxSize bytes, which is part of the version: all nodes must agree.
//
// Within an incarnation the previous entry is the one with the sequence number
// below. The first entry of an incarnation names the tip of an earlier one, whose
// number is lower, or nothing.
//
// The store's id is the id of its genesis entry: sequence 1, no previous, no
// parents, and one operation of kind 1, which stands in no other entry. A
// topic's id is the first 16 bytes of the id of the entry whose only operation
// creates it.
//
// # Operations
//
// Kinds unknown to this version parse as opaque bodies: an old node stores and
// relays what it does not understand.
//
//	1 genesis        version u8 = 1, name u16 length + bytes, random 16
//	2 create topic   version u8 = 1, name u16 length + bytes, partitions u32,
//	                 configs u32 n, then n x: key u16 length + bytes,
//	                 value u32 length + bytes; keys strictly ascending
//
// A store's name is 1 to 255 bytes of UTF-8 without control characters. A
// topic's is 1 to 249 of a-z, A-Z, 0-9, dot, underscore and hyphen, and neither
// "." nor ".." (Kafka's rule). Partitions are 1 to 2^31-1.
//
// # Rules for changing it
//
//   - An entry that was ever signed keeps its bytes. If a case in
//     TestGoldenBytes changes, the design is wrong, not the test.
//   - A new field needs a new version, and a row in docs/format/README.md. A new
//     operation needs a new kind; a changed body a new version byte in it.
//   - No floats, no maps, no optional order: one meaning has one encoding.
package sigchain

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
)

const (
	// MaxSize bounds an entry in bytes. It is fixed by the version.
	MaxSize = 16 << 20

	version      = 1
	linkSize     = 8 + 8 + 32
	refSize      = 32 + linkSize
	opHeaderSize = 2 + 4
	headerSize   = 4 + 32 + 32 + 8 + 8 + 8 + linkSize
	minSize      = headerSize + 4 + 4 + identity.SignatureSize
)

var (
	// ErrMalformed means that bytes are no entry, or break a rule that needs
	// nothing but the entry to check. Kind Corrupt.
	ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed entry"))
	// ErrVersion means an entry or operation of a later version. Kind Unsupported.
	ErrVersion = lattice.E(lattice.Unsupported, errors.New("entry of an unknown version"))
	// ErrTooLarge means more than MaxSize bytes. Kind TooLarge.
	ErrTooLarge = lattice.E(lattice.TooLarge, fmt.Errorf("entry larger than %d bytes", MaxSize))
)

// Link names an entry of the same author.
type Link struct {
	Incarnation, Seq uint64
	ID               lattice.Hash
}

// IsZero reports whether l names nothing.
func (l Link) IsZero() bool { return l == Link{} }

func (l Link) appendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, l.Incarnation)
	dst = binary.BigEndian.AppendUint64(dst, l.Seq)
	return append(dst, l.ID[:]...)
}

// Ref names an entry of any author.
type Ref struct {
	Author lattice.AuthorID
	Link
}

// Compare orders refs by author, incarnation, sequence and id, as parents are
// ordered in an entry.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(
		bytes.Compare(r.Author[:], o.Author[:]),
		cmp.Compare(r.Incarnation, o.Incarnation),
		cmp.Compare(r.Seq, o.Seq),
		bytes.Compare(r.ID[:], o.ID[:]),
	)
}

func (r Ref) appendTo(dst []byte) []byte { return r.Link.appendTo(append(dst, r.Author[:]...)) }

// Op is one operation. Body's format belongs to its Kind.
type Op struct {
	Kind uint16
	Body []byte
}

// Entry is what an author says. Sign makes it a Signed.
type Entry struct {
	Store       lattice.StoreID // zero in the genesis entry
	Author      lattice.AuthorID
	Incarnation uint64
	Seq         uint64
	Time        uint64 // hybrid timestamp (core/clock)
	Prev        Link   // zero in the author's very first entry
	Parents     []Ref  // strictly ascending
	Ops         []Op
}

// Signed is an entry with its id and signature, as Sign or Parse return it.
// Change none of its fields. Its operations share memory with Bytes.
type Signed struct {
	Entry
	ID        lattice.Hash
	Signature identity.Signature
	raw       []byte
}

// Bytes returns the encoded entry. Do not change it.
func (s Signed) Bytes() []byte { return s.raw }

// Clone returns the entry in memory of its own: what Parse returns goes on using what
// it was given, which may be a part of something larger.
func (s Signed) Clone() Signed {
	c, err := Parse(bytes.Clone(s.raw))
	if err != nil {
		return s // neither Sign nor Parse made it
	}
	return c
}

// Ref names the entry.
func (s Signed) Ref() Ref { return Ref{s.Author, Link{s.Incarnation, s.Seq, s.ID}} }

// Link names the entry within its author's chain.
func (s Signed) Link() Link { return s.Ref().Link }

// Home returns the store that the entry belongs to: for a genesis entry the one
// that it begins.
func (s Signed) Home() lattice.StoreID {
	if s.Store == (lattice.StoreID{}) {
		return lattice.StoreID(s.ID)
	}
	return s.Store
}

// Verify checks the author's signature. Wraps identity.ErrSignature. Whether the
// author may say it is another question.
func (s Signed) Verify() error {
	if len(s.raw) < minSize ||
		!identity.Verify(s.Author, identity.DomainEntry, s.raw[:len(s.raw)-identity.SignatureSize], s.Signature) {
		return fmt.Errorf("entry %s of %s: %w", s.ID.Short(), s.Author.Short(), identity.ErrSignature)
	}
	return nil
}

// Sign encodes and signs e; e.Author is set to the key's. Parents are sorted.
// Errors wrap ErrMalformed or ErrTooLarge: nothing that Parse would refuse is
// ever signed.
func Sign(key identity.Key, e Entry) (Signed, error) {
	e.Author = key.Author()
	e.Parents = slices.Clone(e.Parents)
	slices.SortFunc(e.Parents, Ref.Compare)
	size := minSize + len(e.Parents)*refSize
	for _, op := range e.Ops {
		size += opHeaderSize + len(op.Body)
	}
	if size > MaxSize {
		return Signed{}, fmt.Errorf("sign: %w: %d", ErrTooLarge, size)
	}
	const domain = identity.DomainEntry // in front, so that nothing is copied to be signed
	whole := e.appendTo(append(make([]byte, 0, len(domain)+size), domain...))
	sig := key.SignWhole(domain, whole)
	s, err := Parse(append(whole, sig[:]...)[len(domain):])
	if err != nil {
		return Signed{}, fmt.Errorf("sign: %w", err)
	}
	return s, nil
}

// appendTo appends everything but the signature.
func (e Entry) appendTo(b []byte) []byte {
	b = append(b, 'L', 'E', version, 0)
	b = append(b, e.Store[:]...)
	b = append(b, e.Author[:]...)
	b = binary.BigEndian.AppendUint64(b, e.Incarnation)
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint64(b, e.Time)
	b = e.Prev.appendTo(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Parents)))
	for _, p := range e.Parents {
		b = p.appendTo(b)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Ops)))
	for _, op := range e.Ops {
		b = binary.BigEndian.AppendUint16(b, op.Kind)
		b = binary.BigEndian.AppendUint32(b, uint32(len(op.Body)))
		b = append(b, op.Body...)
	}
	return b
}

// Parse reads an encoded entry that takes all of b, which the result goes on
// using. It checks all that needs nothing but the entry; the signature is
// checked by Verify. Errors wrap ErrMalformed, ErrVersion or ErrTooLarge.
func Parse(b []byte) (Signed, error) {
	switch {
	case len(b) > MaxSize:
		return Signed{}, fmt.Errorf("%w: %d", ErrTooLarge, len(b))
	case len(b) < 3 || b[0] != 'L' || b[1] != 'E':
		return Signed{}, fmt.Errorf("%w: it does not begin with LE", ErrMalformed)
	case b[2] != version:
		return Signed{}, fmt.Errorf("%w: %d", ErrVersion, b[2])
	case len(b) < minSize:
		return Signed{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	case b[3] != 0:
		return Signed{}, fmt.Errorf("%w: flags %#x", ErrMalformed, b[3])
	}
	signed := b[:len(b)-identity.SignatureSize]
	s := Signed{raw: b, ID: entryID(signed), Signature: identity.Signature(b[len(signed):])}
	r := reader{rest: signed[4:]}
	s.Store = lattice.StoreID(r.take(32))
	s.Author = lattice.AuthorID(r.take(32))
	s.Incarnation, s.Seq, s.Time = r.u64(), r.u64(), r.u64()
	s.Prev = r.link()
	if n, ok := r.count(refSize); ok {
		s.Parents = make([]Ref, n)
	}
	for i := range s.Parents {
		s.Parents[i] = Ref{lattice.AuthorID(r.take(32)), r.link()}
	}
	if n, ok := r.count(opHeaderSize); ok {
		s.Ops = make([]Op, n)
	}
	for i := range s.Ops {
		s.Ops[i].Kind = r.u16()
		s.Ops[i].Body = r.take(r.u32())
	}
	if r.bad || len(r.rest) != 0 {
		return Signed{}, fmt.Errorf("%w: lengths do not add up", ErrMalformed)
	}
	if err := s.check(); err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s, nil
}

func entryID(signed []byte) lattice.Hash {
	var small [2048]byte // most entries fit: no memory is taken for a hash
	if n := len(identity.DomainEntry); n+len(signed) <= len(small) {
		copy(small[copy(small[:], identity.DomainEntry):], signed)
		return sha256.Sum256(small[:n+len(signed)])
	}
	h := sha256.New()
	h.Write([]byte(identity.DomainEntry))
	h.Write(signed)
	return lattice.Hash(h.Sum(small[:0]))
}

// check holds the rules that need nothing but the entry.
func (e Entry) check() error {
	if e.Seq == 0 {
		return errors.New("sequence 0")
	}
	p := e.Prev
	switch {
	case p.IsZero() && e.Seq > 1:
		return fmt.Errorf("sequence %d without a previous entry", e.Seq)
	case p.IsZero():
	case p.Seq == 0 || p.ID.IsZero():
		return errors.New("the previous entry is half named")
	case e.Seq > 1 && (p.Incarnation != e.Incarnation || p.Seq != e.Seq-1):
		return fmt.Errorf("sequence %d follows %d of incarnation %d", e.Seq, p.Seq, p.Incarnation)
	case e.Seq == 1 && p.Incarnation >= e.Incarnation:
		return fmt.Errorf("incarnation %d follows %d", e.Incarnation, p.Incarnation)
	}
	for i, r := range e.Parents {
		switch {
		case i > 0 && e.Parents[i-1].Compare(r) >= 0:
			return fmt.Errorf("parent %d is out of order", i)
		case r.Seq == 0 || r.ID.IsZero():
			return fmt.Errorf("parent %d names no entry", i)
		case r.Author == e.Author && r.Incarnation == e.Incarnation && r.Seq >= e.Seq:
			return fmt.Errorf("parent %d is not before the entry", i)
		}
	}
	genesis := slices.ContainsFunc(e.Ops, func(op Op) bool { return op.Kind == KindGenesis })
	switch zero := e.Store == (lattice.StoreID{}); {
	case genesis != zero:
		return errors.New("a genesis operation and no store id go together")
	case genesis && (e.Seq != 1 || !p.IsZero() || len(e.Parents) != 0 || len(e.Ops) != 1):
		return errors.New("a genesis entry says nothing else and follows nothing")
	}
	return nil
}

// reader takes big-endian fields from rest. Once something is missing, bad is
// set and everything reads as zero.
type reader struct {
	rest []byte
	bad  bool
}

// take returns the next n bytes, capped so that appending cannot reach beyond.
// When there are fewer it returns at most 32 zero bytes, enough for any fixed field.
func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return make([]byte, min(n, 32))
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) link() Link  { return Link{r.u64(), r.u64(), lattice.Hash(r.take(32))} }

// u32 reads a number that no valid entry has above 2^31-1, so that it is a
// positive int on every machine.
func (r *reader) u32() int {
	n := binary.BigEndian.Uint32(r.take(4))
	if n > 1<<31-1 {
		r.bad = true
		return 0
	}
	return int(n)
}

// count reads a number of items of at least size bytes each; ok is false when
// there are none, or more than the rest can hold.
func (r *reader) count(size int) (n int, ok bool) {
	n = r.u32()
	if n > len(r.rest)/size {
		r.bad = true
	}
	return n, n > 0 && !r.bad
}
