// Package lattice is the vocabulary that every other package speaks: the
// identifiers of nodes, stores, topics and hashes, and the closed list of error
// kinds. It holds no behaviour beyond naming, parsing and printing, and imports
// the standard library only.
package lattice

import (
	"encoding/hex"
	"fmt"
)

// Hash is a SHA-256 digest.
type Hash [32]byte

// String returns the hash in lower-case hex, 64 characters.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 8 hex characters, for people.
func (h Hash) Short() string { return hex.EncodeToString(h[:4]) }

// IsZero reports whether h is the zero hash, which stands for "none".
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads 64 hex characters.
func ParseHash(s string) (Hash, error) {
	var h Hash
	return h, parseHex(h[:], s, "hash")
}

// AuthorID is the Ed25519 public key of a writer.
type AuthorID [32]byte

// NodeID is the author id of a running node: one node, one key.
type NodeID = AuthorID

// String returns the key in lower-case hex, 64 characters.
func (a AuthorID) String() string { return hex.EncodeToString(a[:]) }

// Short returns the first 8 hex characters, for people.
func (a AuthorID) Short() string { return hex.EncodeToString(a[:4]) }

// ParseAuthorID reads 64 hex characters.
func ParseAuthorID(s string) (AuthorID, error) {
	var a AuthorID
	return a, parseHex(a[:], s, "author id")
}

// StoreID is the hash of a store's genesis entry.
type StoreID Hash

// String returns the id in lower-case hex, 64 characters.
func (s StoreID) String() string { return Hash(s).String() }

// Short returns the first 8 hex characters, for people.
func (s StoreID) Short() string { return Hash(s).Short() }

// ParseStoreID reads 64 hex characters.
func ParseStoreID(s string) (StoreID, error) {
	h, err := ParseHash(s)
	return StoreID(h), err
}

// TopicID names one incarnation of a topic: the first 16 bytes of the hash of
// the entry that created it. A deleted and re-created topic has another id.
type TopicID [16]byte

// String returns the id in lower-case hex, 32 characters.
func (t TopicID) String() string { return hex.EncodeToString(t[:]) }

// IsZero reports whether t is the zero id, which stands for "none".
func (t TopicID) IsZero() bool { return t == TopicID{} }

// ParseTopicID reads 32 hex characters.
func ParseTopicID(s string) (TopicID, error) {
	var t TopicID
	return t, parseHex(t[:], s, "topic id")
}

// TopicPartition names one partition of one topic incarnation.
type TopicPartition struct {
	Topic     TopicID
	Partition int32
}

// String returns "<topic id>/<partition>", which is also the log's name in its
// checkpoint origin.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }

func parseHex(dst []byte, s, what string) error {
	if len(s) != 2*len(dst) {
		return E(Invalid, fmt.Errorf("%s %q: want %d hex characters, have %d", what, s, 2*len(dst), len(s)))
	}
	if _, err := hex.Decode(dst, []byte(s)); err != nil {
		return E(Invalid, fmt.Errorf("%s %q: %w", what, s, err))
	}
	return nil
}
