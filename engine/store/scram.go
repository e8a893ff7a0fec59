package store

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// ScramMechanism is how a user proves to know its password (RFC 5802, RFC 7677).
// The numbers are Kafka's (KIP-554), and are in the format.
type ScramMechanism uint8

const (
	ScramSHA256 ScramMechanism = 1
	ScramSHA512 ScramMechanism = 2
)

// Bounds of what is taken; Kafka's, but for the name and the salt, which are
// without bounds there.
const (
	MinScramIterations = 4096
	MaxScramIterations = 16384
	maxScramUser       = 1024
	maxScramSalt       = 1024
	maxScramSalted     = 1024
)

// ErrNoCredential means that the user has no credential of that mechanism. Kind NotFound.
var ErrNoCredential = lattice.E(lattice.NotFound, errors.New("there is no such credential"))

// ScramCredential is what a server keeps of a password: not the password, and
// nothing that can be sent in its place.
//
// The record: version u8 = 1, iterations u32, then salt, stored key and server
// key, each after its length as u16. Big-endian.
type ScramCredential struct {
	User       string
	Mechanism  ScramMechanism
	Iterations uint32
	Salt       []byte
	StoredKey  []byte // H(HMAC(salted password, "Client Key"))
	ServerKey  []byte // HMAC(salted password, "Server Key")
}

const scramVersion = 1

// NewScramCredential makes a credential of a salted password, as a client sends
// it. It is a key of HMACs, which take any length; that it is none that the
// mechanism makes of a password is not refused, as in Kafka, whose clients send
// such ones, too. Kind Invalid.
func NewScramCredential(user string, m ScramMechanism, iterations int32, salt, salted []byte) (ScramCredential, error) {
	newHash, err := m.hash()
	if err != nil {
		return ScramCredential{}, err
	}
	bad := func(format string, args ...any) (ScramCredential, error) {
		return ScramCredential{}, lattice.E(lattice.Invalid, fmt.Errorf(format, args...))
	}
	switch {
	case user == "" || len(user) > maxScramUser:
		return bad("a user's name of %d bytes: want 1 to %d", len(user), maxScramUser)
	case iterations < MinScramIterations || iterations > MaxScramIterations:
		return bad("%d iterations: want %d to %d", iterations, MinScramIterations, MaxScramIterations)
	case len(salt) == 0 || len(salt) > maxScramSalt:
		return bad("a salt of %d bytes: want 1 to %d", len(salt), maxScramSalt)
	case len(salted) == 0 || len(salted) > maxScramSalted:
		return bad("a salted password of %d bytes: want 1 to %d", len(salted), maxScramSalted)
	}
	sum := func(what string) []byte {
		h := hmac.New(newHash, salted)
		h.Write([]byte(what))
		return h.Sum(nil)
	}
	stored := newHash()
	stored.Write(sum("Client Key"))
	return ScramCredential{user, m, uint32(iterations), slices.Clone(salt), stored.Sum(nil), sum("Server Key")}, nil
}

func (m ScramMechanism) hash() (func() hash.Hash, error) {
	switch m {
	case ScramSHA256:
		return sha256.New, nil
	case ScramSHA512:
		return sha512.New, nil
	}
	return nil, lattice.E(lattice.Unsupported, fmt.Errorf("SCRAM mechanism %d is not known here", m))
}

func scramKey(user string, m ScramMechanism) []byte {
	return append([]byte{keyScram, byte(m)}, user...)
}

func (c ScramCredential) encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte{scramVersion}, c.Iterations)
	for _, part := range [][]byte{c.Salt, c.StoredKey, c.ServerKey} {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(part))), part...)
	}
	return b
}

func decodeScram(rest, b []byte) (ScramCredential, error) {
	bad := lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: SCRAM credential %x", rest))
	if len(rest) < 2 || len(b) < 5 || b[0] != scramVersion {
		return ScramCredential{}, bad
	}
	c := ScramCredential{User: string(rest[1:]), Mechanism: ScramMechanism(rest[0]), Iterations: binary.BigEndian.Uint32(b[1:])}
	b = b[5:]
	for _, part := range []*[]byte{&c.Salt, &c.StoredKey, &c.ServerKey} {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return ScramCredential{}, bad
		}
		n := int(binary.BigEndian.Uint16(b))
		*part, b = slices.Clone(b[2:2+n]), b[2+n:]
	}
	if len(b) != 0 {
		return ScramCredential{}, bad
	}
	return c, nil
}

// ScramCredentials returns all credentials, by user and mechanism.
func (s *Store) ScramCredentials() ([]ScramCredential, error) {
	var all []ScramCredential
	err := s.cat.LoadScram(func(c ScramCredential) error { all = append(all, c); return nil })
	slices.SortFunc(all, func(a, b ScramCredential) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Mechanism, b.Mechanism))
	})
	return all, err
}

// PutScramCredential sets a user's credential for its mechanism. It is durable on return.
func (s *Store) PutScramCredential(c ScramCredential) error { return s.cat.PutScram(c) }

// DeleteScramCredential removes one. Wraps ErrNoCredential.
func (s *Store) DeleteScramCredential(user string, m ScramMechanism) error {
	return s.cat.DeleteScram(user, m)
}

// LoadScram, PutScram and DeleteScram keep credentials in the node's own records.

func (l *local) LoadScram(yield func(ScramCredential) error) error {
	return l.db.Iterate([]byte{keyScram}, func(k, v []byte) error {
		c, err := decodeScram(k[1:], v)
		if err != nil {
			return err
		}
		return yield(c)
	})
}

func (l *local) PutScram(c ScramCredential) error {
	b := l.db.Batch()
	b.Set(scramKey(c.User, c.Mechanism), c.encode())
	return l.db.Commit(b, true)
}

func (l *local) DeleteScram(user string, m ScramMechanism) error {
	_, ok, err := l.db.Get(scramKey(user, m))
	if err != nil || !ok {
		return errors.Join(err, ErrNoCredential)
	}
	b := l.db.Batch()
	b.Delete(scramKey(user, m))
	return l.db.Commit(b, true)
}
