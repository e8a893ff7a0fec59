// Package grant is the signed beginning of a term: who leads a partition from
// which point of its log, who must acknowledge, and by what right.
//
// # Grant, version 1
//
// Big-endian. There is exactly one encoding.
//
//	  0  "LG"
//	  2  version        u8 = 1
//	  3  flags          u8 = 0
//	  4  store          32
//	 36  topic          16, the topic's incarnation
//	 52  partition      u32, at most 2^31-1
//	 56  term           u32, at most 2^31-1: Kafka's leader epoch
//	 60  leader         32, Ed25519 public key
//	 92  incarnation    u64, of the leader's node
//	100  base size      u64, blocks before the term
//	108  base root      32, of the tree of those
//	140  base offset    u64, at most 2^63-1: first offset of the term
//	148  previous       32, id of the grant before; zero: the first
//	180  ack set        u16 n >= 1, then n x 32 keys, strictly ascending
//	     minimum        u16, 1 to n: how many of the set make a block committed
//	     kind           u8: 1 self, 2 seal, 3 promises, 4 unclean
//	     signer         32
//	     signature      64
//
// The id is SHA-256("lattice/grant/v1\x00" || all bytes before the signature),
// the signature Ed25519 over the same. The leader is one of the ack set. A base
// of 0 blocks has the empty root and offset 0; the first grant has that base.
//
// The kinds are the rights on which a term can begin: a new incarnation of a
// leader that is the whole ack set ("self"), the old leader's seal, promises by
// enough of the previous ack set, or an admin's word ("unclean").
//
// # Rules for changing it
//
//   - A grant that was ever signed keeps its bytes. If a case in TestGoldenBytes
//     changes, the design is wrong, not the test.
//   - A new field or kind needs a new version, and a row in docs/format/README.md.
package grant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
)

// Kind is the right on which a term begins.
type Kind uint8

// The kinds of grants.
const (
	Self     Kind = 1 // a new incarnation of the leader, which is the whole ack set
	Seal     Kind = 2 // the old leader sealed a committed head
	Promises Kind = 3 // enough of the previous ack set promised
	Unclean  Kind = 4 // an admin's explicit word; what was acknowledged may be lost
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case Self:
		return "self"
	case Seal:
		return "seal"
	case Promises:
		return "promises"
	case Unclean:
		return "unclean"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

const (
	version   = 1
	fixedSize = 4 + 32 + 16 + 4 + 4 + 32 + 8 + 8 + 32 + 8 + 32 + 2 // up to and with the set's length
	tailSize  = 2 + 1 + 32 + identity.SignatureSize
)

var (
	// ErrMalformed means that bytes are no grant, or break a rule that needs
	// nothing but the grant to check. Kind Corrupt.
	ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed grant"))
	// ErrVersion means a grant of a later version. Kind Unsupported.
	ErrVersion = lattice.E(lattice.Unsupported, errors.New("grant of an unknown version"))
	// ErrSuccession means that a grant does not follow the one before. Kind Denied.
	ErrSuccession = lattice.E(lattice.Denied, errors.New("grant does not follow the one before"))
)

// Grant is the beginning of a term. Sign makes it a Signed.
type Grant struct {
	Store       lattice.StoreID
	Partition   lattice.TopicPartition
	Term        int32
	Leader      lattice.AuthorID
	Incarnation uint64
	BaseSize    uint64       // blocks
	BaseRoot    lattice.Hash // merkle.EmptyRoot for none
	BaseOffset  int64
	Previous    lattice.Hash // id of the grant before; zero: the first
	AckSet      []lattice.AuthorID
	Min         uint16
	Kind        Kind
	Signer      lattice.AuthorID
}

// Signed is a grant with its id and signature, as Sign or Parse return it.
// Change none of its fields.
type Signed struct {
	Grant
	ID        lattice.Hash
	Signature identity.Signature
	raw       []byte
}

// Bytes returns the encoded grant. Do not change it.
func (s Signed) Bytes() []byte { return s.raw }

// Verify checks the signer's signature. Wraps identity.ErrSignature. Whether the
// signer had the right is another question: see Follows.
func (s Signed) Verify() error {
	if len(s.raw) < fixedSize+tailSize ||
		!identity.Verify(s.Signer, identity.DomainGrant, s.raw[:len(s.raw)-identity.SignatureSize], s.Signature) {
		return fmt.Errorf("grant %s of term %d: %w", s.ID.Short(), s.Term, identity.ErrSignature)
	}
	return nil
}

// Sign encodes and signs g; g.Signer is set to the key's author and the ack set
// is sorted. Wraps ErrMalformed when g breaks a rule.
func Sign(key identity.Key, g Grant) (Signed, error) {
	g.Signer = key.Author()
	g.AckSet = slices.Clone(g.AckSet)
	slices.SortFunc(g.AckSet, func(a, b lattice.AuthorID) int { return bytes.Compare(a[:], b[:]) })
	if err := g.check(); err != nil {
		return Signed{}, fmt.Errorf("sign: %w: %w", ErrMalformed, err)
	}
	b := g.appendTo(make([]byte, 0, fixedSize+32*len(g.AckSet)+tailSize))
	sig := key.Sign(identity.DomainGrant, b)
	return Parse(append(b, sig[:]...))
}

// appendTo appends everything but the signature.
func (g Grant) appendTo(b []byte) []byte {
	b = append(b, 'L', 'G', version, 0)
	b = append(b, g.Store[:]...)
	b = append(b, g.Partition.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(g.Partition.Partition))
	b = binary.BigEndian.AppendUint32(b, uint32(g.Term))
	b = append(b, g.Leader[:]...)
	b = binary.BigEndian.AppendUint64(b, g.Incarnation)
	b = binary.BigEndian.AppendUint64(b, g.BaseSize)
	b = append(b, g.BaseRoot[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(g.BaseOffset))
	b = append(b, g.Previous[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(g.AckSet)))
	for _, a := range g.AckSet {
		b = append(b, a[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, g.Min)
	b = append(b, byte(g.Kind))
	return append(b, g.Signer[:]...)
}

// Parse reads an encoded grant that takes all of b, which the result goes on
// using. It checks all that needs nothing but the grant; the signature is
// checked by Verify. Errors wrap ErrMalformed or ErrVersion.
func Parse(b []byte) (Signed, error) {
	s, rest, err := Cut(b)
	if err == nil && len(rest) != 0 {
		return Signed{}, fmt.Errorf("%w: %d bytes too many", ErrMalformed, len(rest))
	}
	return s, err
}

// Cut is Parse for a grant at the front of b; it returns what follows it.
func Cut(b []byte) (s Signed, rest []byte, err error) {
	switch {
	case len(b) < 3 || b[0] != 'L' || b[1] != 'G':
		return Signed{}, nil, fmt.Errorf("%w: it does not begin with LG", ErrMalformed)
	case b[2] != version:
		return Signed{}, nil, fmt.Errorf("%w: %d", ErrVersion, b[2])
	case len(b) < fixedSize+tailSize:
		return Signed{}, nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	case b[3] != 0:
		return Signed{}, nil, fmt.Errorf("%w: flags %#x", ErrMalformed, b[3])
	}
	n := int(binary.BigEndian.Uint16(b[fixedSize-2:]))
	size := fixedSize + 32*n + tailSize
	if len(b) < size {
		return Signed{}, nil, fmt.Errorf("%w: %d bytes for an ack set of %d", ErrMalformed, len(b), n)
	}
	b, rest = b[:size:size], b[size:]
	s.raw = b
	s.Store = lattice.StoreID(b[4:])
	s.Partition.Topic = lattice.TopicID(b[36:])
	s.Partition.Partition = int32(binary.BigEndian.Uint32(b[52:]))
	s.Term = int32(binary.BigEndian.Uint32(b[56:]))
	s.Leader = lattice.AuthorID(b[60:])
	s.Incarnation = binary.BigEndian.Uint64(b[92:])
	s.BaseSize = binary.BigEndian.Uint64(b[100:])
	s.BaseRoot = lattice.Hash(b[108:])
	s.BaseOffset = int64(binary.BigEndian.Uint64(b[140:]))
	s.Previous = lattice.Hash(b[148:])
	s.AckSet = make([]lattice.AuthorID, n)
	for i := range s.AckSet {
		s.AckSet[i] = lattice.AuthorID(b[fixedSize+32*i:])
	}
	tail := b[fixedSize+32*n:]
	s.Min, s.Kind = binary.BigEndian.Uint16(tail), Kind(tail[2])
	s.Signer = lattice.AuthorID(tail[3:])
	s.Signature = identity.Signature(tail[35:])
	if err := s.check(); err != nil {
		return Signed{}, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	h := sha256.New()
	h.Write([]byte(identity.DomainGrant))
	h.Write(b[:size-identity.SignatureSize])
	s.ID = lattice.Hash(h.Sum(nil))
	return s, rest, nil
}

// check holds the rules that need nothing but the grant.
func (g Grant) check() error {
	switch {
	case g.Partition.Partition < 0 || g.Term < 0 || g.BaseOffset < 0:
		return fmt.Errorf("partition %d, term %d, base offset %d", g.Partition.Partition, g.Term, g.BaseOffset)
	case g.BaseSize > uint64(g.BaseOffset):
		return fmt.Errorf("%d blocks end at offset %d", g.BaseSize, g.BaseOffset)
	case g.BaseSize == 0 && (g.BaseOffset != 0 || g.BaseRoot != merkle.EmptyRoot()):
		return errors.New("a base of no blocks that is not the empty log")
	case g.Previous.IsZero() && g.BaseSize != 0:
		return fmt.Errorf("the first grant has a base of %d blocks", g.BaseSize)
	case len(g.AckSet) == 0 || len(g.AckSet) > 1<<16-1:
		return fmt.Errorf("an ack set of %d", len(g.AckSet))
	case g.Min == 0 || int(g.Min) > len(g.AckSet):
		return fmt.Errorf("%d acknowledgements of %d", g.Min, len(g.AckSet))
	case g.Kind < Self || g.Kind > Unclean:
		return fmt.Errorf("kind %d", uint8(g.Kind))
	case !slices.Contains(g.AckSet, g.Leader):
		return errors.New("the leader is not in the ack set")
	case g.Kind == Self && (g.Signer != g.Leader || len(g.AckSet) != 1):
		return errors.New("a leader grants a term to itself only when it is the whole ack set")
	}
	for i := 1; i < len(g.AckSet); i++ {
		if bytes.Compare(g.AckSet[i-1][:], g.AckSet[i][:]) >= 0 {
			return fmt.Errorf("the ack set is out of order at %d", i)
		}
	}
	return nil
}

// differ counts those that are in one of two ascending sets.
func differ(a, b []lattice.AuthorID) int {
	n := 0
	for _, x := range a {
		if !slices.Contains(b, x) {
			n++
		}
	}
	return n + len(b) - (len(a) - n)
}

// Follows checks what two grants alone can show about g coming directly after
// prev (nil: g is the partition's first). Wraps ErrSuccession.
//
// It does not check the signature, that the base is in the log, nor the evidence
// for promises and for an admin's right, which is kept elsewhere. Only an
// unclean grant may have a base below the one before.
func (s Signed) Follows(prev *Signed) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("grant %s of term %d: %w: %w", s.ID.Short(), s.Term, ErrSuccession, fmt.Errorf(format, args...))
	}
	if prev == nil {
		if !s.Previous.IsZero() {
			return refuse("it follows %s, which is not here", s.Previous.Short())
		}
		return nil
	}
	switch {
	case s.Previous != prev.ID:
		return refuse("it follows %s, not %s", s.Previous.Short(), prev.ID.Short())
	case s.Store != prev.Store || s.Partition != prev.Partition:
		return refuse("it belongs to another partition")
	case s.Term <= prev.Term:
		return refuse("the term before is %d", prev.Term)
	case s.Leader == prev.Leader && s.Incarnation < prev.Incarnation:
		return refuse("incarnation %d after %d", s.Incarnation, prev.Incarnation)
	case s.Kind == Unclean:
		return nil
	case s.BaseSize < prev.BaseSize || s.BaseOffset < prev.BaseOffset:
		return refuse("its base of %d blocks is below that of the term before, %d", s.BaseSize, prev.BaseSize)
	case s.BaseSize == prev.BaseSize && (s.BaseRoot != prev.BaseRoot || s.BaseOffset != prev.BaseOffset):
		return refuse("its base is not that of the term before")
	case s.Kind == Self && (len(prev.AckSet) != 1 || prev.Leader != s.Leader):
		return refuse("the leader was not the whole ack set of the term before")
	case s.Kind == Seal && s.Signer != prev.Leader:
		return refuse("the seal is not the old leader's")
	case s.Kind == Seal && s.Leader == prev.Leader && differ(s.AckSet, prev.AckSet) > 1:
		return refuse("more than one member joins or leaves the ack set")
	}
	return nil
}
