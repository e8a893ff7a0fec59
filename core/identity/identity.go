// Package identity is who signed what: Ed25519 keys, the domains under which
// they sign, note signers for checkpoints, and the text of a key file.
//
// # Signing domains
//
// A key signs messages of several kinds. What is signed is always the domain
// string followed by the message, so that a signature made for one kind is never
// a signature for another. Every domain ends in its only zero byte; none is
// therefore a prefix of another. Checkpoints are signed as C2SP notes, without
// a domain: a note holds no control character but newline, so no note is a
// domain-separated message.
//
//	"lattice/entry/v1\x00"       an entry of an author log (core/sigchain)
//	"lattice/grant/v1\x00"       the beginning of a term (core/grant)
//	"lattice/compaction/v1\x00"  a compaction statement (core/merkle)
//	"lattice/snapshot/v1\x00"    the snapshot of a store's state (core/snapshot)
//
// # Which signatures count
//
// Every node must give the same answer for the same bytes for ever. A signature
// counts when crypto/ed25519 accepts it (RFC 8032 with a canonical S, without the
// cofactor) and the public key is not of small order: for such a key anybody
// can make signatures, so nobody is its owner.
//
// # Key file
//
//	lattice-key-v1 <seed, 32 bytes, padded standard base64, 44 characters>\n
//
// One line, 60 bytes, exactly one encoding. This package parses and prints it;
// reading and writing the file is the business of storage/keyfile.
//
// # Rules for changing it
//
//   - A domain string never changes meaning; a new message format gets a new one.
//   - A new kind of key gets a new first word in the key file.
package identity

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
)

// Domain is the fixed string in front of a signed message. Use the constants.
type Domain string

// The signing domains. A domain that was ever used is never reused.
const (
	DomainEntry      Domain = "lattice/entry/v1\x00"
	DomainGrant      Domain = "lattice/grant/v1\x00"
	DomainCompaction Domain = "lattice/compaction/v1\x00"
	DomainSnapshot   Domain = "lattice/snapshot/v1\x00"
	DomainInvite     Domain = "lattice/invite/v1\x00"
	DomainRotate     Domain = "lattice/rotate/v1\x00"
	DomainPromise    Domain = "lattice/promise/v1\x00"
	DomainForkpoint  Domain = "lattice/forkpoint/v1\x00"
)

// Domains returns every signing domain, for tests that check the set.
func Domains() []Domain {
	return []Domain{DomainEntry, DomainGrant, DomainCompaction, DomainSnapshot, DomainInvite, DomainRotate, DomainPromise, DomainForkpoint}
}

// SignatureSize is the length of a signature in bytes.
const SignatureSize = ed25519.SignatureSize

// Signature is an Ed25519 signature.
type Signature [SignatureSize]byte

// ErrSignature means that a signature does not belong to the key and message.
var ErrSignature = lattice.E(lattice.Corrupt, errors.New("signature does not match"))

// ErrKeyFile means that the text is not a key file of a version known here.
var ErrKeyFile = lattice.E(lattice.Invalid, errors.New("not a lattice-key-v1 file"))

// Key is a private Ed25519 key. The zero value is no key: IsZero reports it,
// and signing with it panics. A Key prints as its public half only.
type Key struct{ private ed25519.PrivateKey }

// Generate makes a key from 32 bytes of random.
func Generate(random io.Reader) (Key, error) {
	var seed [ed25519.SeedSize]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return Key{}, fmt.Errorf("generate key: %w", err)
	}
	return FromSeed(seed), nil
}

// FromSeed makes the key that belongs to a seed (RFC 8032, section 5.1.5).
func FromSeed(seed [32]byte) Key { return Key{ed25519.NewKeyFromSeed(seed[:])} }

// IsZero reports whether k holds no key.
func (k Key) IsZero() bool { return len(k.private) == 0 }

// Author returns the public key.
func (k Key) Author() lattice.AuthorID {
	var a lattice.AuthorID
	if !k.IsZero() {
		copy(a[:], k.private[ed25519.SeedSize:])
	}
	return a
}

// String names the public key.
func (k Key) String() string { return "key of " + k.Author().String() }

// Private returns the key itself, for a transport that proves the same identity. What
// it signs must begin as no signing domain does: libp2p's handshakes begin with
// "libp2p-tls-handshake:" and "noise-libp2p-static-key:".
func (k Key) Private() ed25519.PrivateKey { return slices.Clone(k.private) }

// Format prints String for every verb, so that no log line gives the secret away.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// Sign signs domain || msg.
func (k Key) Sign(domain Domain, msg []byte) Signature {
	return Signature(ed25519.Sign(k.private, message(domain, msg)))
}

// SignWhole is Sign for whole, which begins with domain.
func (k Key) SignWhole(domain Domain, whole []byte) Signature {
	if !bytes.HasPrefix(whole, []byte(domain)) {
		panic(lattice.E(lattice.Internal, fmt.Errorf("identity: what is signed does not begin with its domain %q", domain)))
	}
	return Signature(ed25519.Sign(k.private, whole))
}

// Verify reports whether sig is author's signature over domain || msg. See the
// package comment for what counts.
func Verify(author lattice.AuthorID, domain Domain, msg []byte, sig Signature) bool {
	return verifyRaw(author, message(domain, msg), sig[:])
}

func verifyRaw(author lattice.AuthorID, msg, sig []byte) bool {
	return len(sig) == SignatureSize && !smallOrder(author) && ed25519.Verify(author[:], msg, sig)
}

func message(domain Domain, msg []byte) []byte {
	return append(append(make([]byte, 0, len(domain)+len(msg)), domain...), msg...)
}

// smallOrder reports whether a decodes to one of the eight points whose order
// divides 8, in any of the encodings that crypto/ed25519 accepts. The sign bit
// is ignored: it picks the other point of a pair, or is itself non-canonical.
func smallOrder(a lattice.AuthorID) bool {
	a[31] &= 0x7f
	switch string(a[:]) {
	case "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", // y = 0, order 4
		"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", // y = 1, the identity
		"\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0\xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05", // order 8
		"\xc7\x17\x6a\x70\x3d\x4d\xd8\x4f\xba\x3c\x0b\x76\x0d\x10\x67\x0f\x2a\x20\x53\xfa\x2c\x39\xcc\xc6\x4e\xc7\xfd\x77\x92\xac\x03\x7a", // order 8
		"\xec\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", // y = p-1, order 2
		"\xed\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", // y = p, that is 0
		"\xee\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f": // y = p+1, that is 1
		return true
	}
	return false
}

const keyFileWord = "lattice-key-v1 "

// KeyFileSize is the length of a key file in bytes.
const KeyFileSize = len(keyFileWord) + 44 + 1

// KeyFile returns the text of k's key file. It holds the secret.
func (k Key) KeyFile() []byte {
	return []byte(keyFileWord + base64.StdEncoding.EncodeToString(k.private.Seed()) + "\n")
}

// ParseKeyFile reads a key file. Its errors never quote the text, which may be
// a secret. Wraps ErrKeyFile.
func ParseKeyFile(text []byte) (Key, error) {
	if len(text) != KeyFileSize {
		return Key{}, fmt.Errorf("%w: %d bytes long, want %d", ErrKeyFile, len(text), KeyFileSize)
	}
	body, ok := strings.CutPrefix(string(text), keyFileWord)
	if !ok {
		return Key{}, fmt.Errorf("%w: it starts with another word", ErrKeyFile)
	}
	// Decoding allocates what the text may hold: without padding that is more
	// than a seed.
	seed, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(body, "\n"))
	if err != nil || len(seed) != ed25519.SeedSize {
		return Key{}, fmt.Errorf("%w: the seed is not 32 bytes of base64", ErrKeyFile)
	}
	k := FromSeed([32]byte(seed))
	if string(k.KeyFile()) != string(text) {
		return Key{}, fmt.Errorf("%w: the seed has another encoding", ErrKeyFile)
	}
	return k, nil
}
