package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"golang.org/x/mod/sumdb/note"
)

// Algorithm bytes of C2SP signed-note keys. They go into the key hash.
const (
	algEd25519     = 1 // a log's own signature
	algCosignature = 4 // a timestamped cosignature/v1 (C2SP tlog-cosignature)
)

const noteNamePrefix = "lattice/"

// NoteName returns the name under which author signs notes: "lattice/" and the
// key in hex. It has neither spaces nor plus signs, as C2SP signed-note asks.
func NoteName(author lattice.AuthorID) string { return noteNamePrefix + author.String() }

// ParseNoteName returns the author that a note's key name stands for. The name
// holds the whole key, so such a signature can be checked without a key list.
func ParseNoteName(name string) (lattice.AuthorID, error) {
	hex, ok := strings.CutPrefix(name, noteNamePrefix)
	if !ok {
		return lattice.AuthorID{}, lattice.E(lattice.Invalid, fmt.Errorf("note key name %q: want lattice/<key>", name))
	}
	a, err := lattice.ParseAuthorID(hex)
	if err == nil && a.String() != hex {
		err = lattice.E(lattice.Invalid, fmt.Errorf("note key name %q: the key is not in lower case", name))
	}
	return a, err
}

func noteKeyHash(author lattice.AuthorID, alg byte) uint32 {
	b := append([]byte(NoteName(author)), '\n', alg)
	sum := sha256.Sum256(append(b, author[:]...))
	return binary.BigEndian.Uint32(sum[:])
}

// NoteSigner returns a signer of C2SP signed notes (Ed25519, key type 1).
func (k Key) NoteSigner() note.Signer {
	return noteSigner{k.Author(), algEd25519, func(msg []byte) []byte { return ed25519.Sign(k.private, msg) }}
}

// Cosigner returns a signer that adds a C2SP cosignature/v1 (key type 4) dated
// unix, in seconds since 1970.
func (k Key) Cosigner(unix uint64) note.Signer {
	return noteSigner{k.Author(), algCosignature, func(msg []byte) []byte {
		sig := binary.BigEndian.AppendUint64(make([]byte, 0, 8+SignatureSize), unix)
		return append(sig, ed25519.Sign(k.private, cosigned(unix, msg))...)
	}}
}

// NoteVerifier returns the verifier of author's note signatures (key type 1).
func NoteVerifier(author lattice.AuthorID) note.Verifier {
	return noteVerifier{author, algEd25519, func(msg, sig []byte) bool { return verifyRaw(author, msg, sig) }}
}

// CosignatureVerifier returns the verifier of author's cosignatures (key type 4).
func CosignatureVerifier(author lattice.AuthorID) note.Verifier {
	return noteVerifier{author, algCosignature, func(msg, sig []byte) bool {
		return len(sig) == 8+SignatureSize &&
			verifyRaw(author, cosigned(binary.BigEndian.Uint64(sig), msg), sig[8:])
	}}
}

// VerifierKey returns author's key in the text form that other note tools take:
// name+hash+base64.
func VerifierKey(author lattice.AuthorID) string {
	key, err := note.NewEd25519VerifierKey(NoteName(author), author[:])
	if err != nil { // only for a key of another length
		panic(err)
	}
	return key
}

func cosigned(unix uint64, msg []byte) []byte {
	return fmt.Appendf(make([]byte, 0, len(msg)+48), "cosignature/v1\ntime %d\n%s", unix, msg)
}

type noteSigner struct {
	author lattice.AuthorID
	alg    byte
	sign   func(msg []byte) []byte
}

func (s noteSigner) Name() string                    { return NoteName(s.author) }
func (s noteSigner) KeyHash() uint32                 { return noteKeyHash(s.author, s.alg) }
func (s noteSigner) Sign(msg []byte) ([]byte, error) { return s.sign(msg), nil }

type noteVerifier struct {
	author lattice.AuthorID
	alg    byte
	verify func(msg, sig []byte) bool
}

func (v noteVerifier) Name() string                { return NoteName(v.author) }
func (v noteVerifier) KeyHash() uint32             { return noteKeyHash(v.author, v.alg) }
func (v noteVerifier) Verify(msg, sig []byte) bool { return v.verify(msg, sig) }
