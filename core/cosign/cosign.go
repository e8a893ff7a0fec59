// Package cosign is how followers of a log acknowledge: by cosignatures of what its
// leader signed, what a node must remember of those that it gave, and what of a log is
// committed by them. It is pure.
//
// # An acknowledgement
//
// It is a C2SP signed note: the text of the leader's checkpoint (core/merkle), the
// leader's signature, and one C2SP cosignature/v1 of the follower's, dated by its clock:
//
//	lattice/<store>/<log>
//	<size>
//	<root, base64>
//	start <offset> ... time <hybrid timestamp>
//
//	— lattice/<leader> <base64: key hash 4, Ed25519 64>
//	— lattice/<follower> <base64: key hash 4, seconds since 1970 u64, Ed25519 64>
//
// The cosignature is Ed25519 over "cosignature/v1\ntime <seconds>\n" and the text. So an
// acknowledgement proves itself to whoever knows the grant of its term: that the leader
// signed this, and that the follower held it.
//
// # The record of the last one, version 1
//
// Big-endian. There is exactly one encoding.
//
//	 0  "LO"
//	 2  version  u8 = 1
//	 3  flags    u8 = 0
//	 4  term     u32, at most 2^31-1
//	 8  grant    32
//	40  size     u64, blocks
//	48  root     32
//
// A node never cosigns an older term, in one term another grant, a smaller size, or of
// one size another root (Last.May). Whoever promises a later term to somebody raises
// the record to that term first.
//
// # Rules for changing it
//
//   - A record that was ever written keeps its bytes. If a case in TestGolden changes,
//     the design is wrong, not the test.
//   - A new field needs a new version, and a row in docs/format/README.md.
package cosign

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
)

var (
	// ErrAck means bytes that are no acknowledgement. Kind Corrupt.
	ErrAck = lattice.E(lattice.Corrupt, errors.New("not an acknowledgement"))
	// ErrRecord means bytes that are no record of a last one. Kind Corrupt.
	ErrRecord = lattice.E(lattice.Corrupt, errors.New("not a record of what was cosigned"))

	// ErrOldTerm: a later term was cosigned, or promised. Kind Fenced.
	ErrOldTerm = lattice.E(lattice.Fenced, errors.New("cosigned a later term already"))
	// ErrOtherGrant: another grant of the same term was cosigned. Kind Conflict.
	ErrOtherGrant = lattice.E(lattice.Conflict, errors.New("cosigned another grant of this term"))
	// ErrSmaller: more blocks were cosigned. Kind Conflict.
	ErrSmaller = lattice.E(lattice.Conflict, errors.New("cosigned more blocks already"))
	// ErrOtherRoot: other blocks were cosigned, as many. Kind Diverged.
	ErrOtherRoot = lattice.E(lattice.Diverged, errors.New("cosigned another history of that size"))
)

// MaxNote bounds an acknowledgement in bytes.
const MaxNote = 2 << 10

// Ack is a verified acknowledgement.
type Ack struct {
	merkle.Checkpoint
	By   lattice.AuthorID
	Unix uint64 // when, by the follower's clock
}

// Sign returns signed, a checkpoint that leader signed, with key's cosignature of unix, in
// seconds since 1970. Other signatures under it are left out. Wraps merkle.ErrCheckpoint
// or identity.ErrSignature. Whether key may, and whether its node holds that much,
// is the caller's affair: see Last.
func Sign(key identity.Key, unix uint64, signed []byte, leader lattice.AuthorID) ([]byte, error) {
	c, err := merkle.OpenCheckpoint(signed, leader)
	if err != nil {
		return nil, fmt.Errorf("cosign: %w", err)
	}
	n, err := note.Open(signed, note.VerifierList(identity.NoteVerifier(leader)))
	if err != nil {
		return nil, fmt.Errorf("cosign: %w", err)
	}
	out, err := note.Sign(&note.Note{Text: string(c.Body()), Sigs: n.Sigs[:1]}, key.Cosigner(unix))
	if err == nil && len(out) > MaxNote {
		err = fmt.Errorf("%w: %d bytes", ErrAck, len(out))
	}
	return out, err
}

// Open reads an acknowledgement of what leader signed, and checks both signatures. What it
// accepts is exactly what Sign returns. Wraps ErrAck, merkle.ErrCheckpoint or
// identity.ErrSignature.
func Open(b []byte, leader lattice.AuthorID) (Ack, error) {
	if len(b) > MaxNote {
		return Ack{}, fmt.Errorf("%w: %d bytes", ErrAck, len(b))
	}
	c, all, err := merkle.OpenCosigned(b, leader)
	switch {
	case err != nil:
		return Ack{}, fmt.Errorf("acknowledgement: %w", err)
	case len(all) != 1 || all[0].Author == leader:
		return Ack{}, fmt.Errorf("%w: %d cosignatures, want one, and not the leader's", ErrAck, len(all))
	}
	return Ack{c, all[0].Author, all[0].Time}, nil
}

// Peek reads an acknowledgement without checking a signature: which term's grant says who
// must have signed it, and who says that he cosigned. Wraps ErrAck or merkle.ErrCheckpoint.
func Peek(b []byte) (merkle.Checkpoint, lattice.AuthorID, error) {
	if len(b) > MaxNote {
		return merkle.Checkpoint{}, lattice.AuthorID{}, fmt.Errorf("%w: %d bytes", ErrAck, len(b))
	}
	text, sigs, ok := bytes.Cut(b, []byte("\n\n"))
	if !ok {
		return merkle.Checkpoint{}, lattice.AuthorID{}, fmt.Errorf("%w: no signatures", ErrAck)
	}
	c, err := merkle.ParseBody(append(bytes.Clone(text), '\n'))
	if err != nil {
		return merkle.Checkpoint{}, lattice.AuthorID{}, err
	}
	for _, line := range strings.Split(string(sigs), "\n") {
		name, sig, ok := strings.Cut(strings.TrimPrefix(line, "— "), " ")
		a, err := identity.ParseNoteName(name)
		if !ok || err != nil {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(sig)
		if err == nil && len(raw) > 4 && binary.BigEndian.Uint32(raw) == identity.CosignatureVerifier(a).KeyHash() {
			return c, a, nil
		}
	}
	return c, lattice.AuthorID{}, fmt.Errorf("%w: no cosignature", ErrAck)
}

// Last is the greatest statement about a log that a node's key stands for, or may: it is
// durable before a signature leaves. The zero Last is of a node that gave none.
type Last struct {
	Term  int32
	Grant lattice.Hash
	Size  uint64
	Root  lattice.Hash
}

// LastOf is the record of having cosigned c.
func LastOf(c merkle.Checkpoint) Last { return Last{c.Term, c.Grant, c.Size, c.Root} }

// May says why c must not be cosigned after l, nil if it may. That c extends what l was is
// not to be seen from it: the log's tree says so. Wraps ErrOldTerm, ErrOtherGrant,
// ErrSmaller, ErrOtherRoot.
func (l Last) May(c merkle.Checkpoint) error {
	switch {
	case l == Last{}:
		return nil
	case c.Term < l.Term:
		return fmt.Errorf("term %d after %d: %w", c.Term, l.Term, ErrOldTerm)
	case c.Term > l.Term:
		return nil
	case c.Grant != l.Grant:
		return fmt.Errorf("term %d of grant %s, not %s: %w", c.Term, c.Grant.Short(), l.Grant.Short(), ErrOtherGrant)
	case c.Size < l.Size:
		return fmt.Errorf("%d blocks after %d: %w", c.Size, l.Size, ErrSmaller)
	case c.Size == l.Size && c.Root != l.Root:
		return fmt.Errorf("of %d blocks: %w", c.Size, ErrOtherRoot)
	}
	return nil
}

// Join returns the greater of two records of one node's.
func (l Last) Join(o Last) Last {
	if o.Term > l.Term || o.Term == l.Term && o.Size > l.Size {
		return o
	}
	return l
}

const (
	recordVersion = 1
	// RecordSize is the length of an encoded Last.
	RecordSize = 4 + 4 + 32 + 8 + 32
)

// AppendTo appends the encoded record.
func (l Last) AppendTo(b []byte) []byte {
	b = append(b, 'L', 'O', recordVersion, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(l.Term))
	b = append(b, l.Grant[:]...)
	b = binary.BigEndian.AppendUint64(b, l.Size)
	return append(b, l.Root[:]...)
}

// ParseLast reads a record that takes all of b. Wraps ErrRecord.
func ParseLast(b []byte) (Last, error) {
	if len(b) != RecordSize || !bytes.Equal(b[:4], []byte{'L', 'O', recordVersion, 0}) || b[4] > 127 {
		return Last{}, fmt.Errorf("%w: %d bytes", ErrRecord, len(b))
	}
	return Last{
		Term: int32(binary.BigEndian.Uint32(b[4:])), Grant: lattice.Hash(b[8:]),
		Size: binary.BigEndian.Uint64(b[40:]), Root: lattice.Hash(b[48:]),
	}, nil
}
