package store

import (
	"encoding/json"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/txn"
)

// Catalogue keeps what a store knows beside its logs: the author's entries, the
// topics, the groups' offsets, and how far share groups are. Every method that changes something is durable
// when it returns. Implementations are safe for concurrent use.
//
// It is local to this node now: the entries that found the store and create
// topics are signed and chained already, everything else is a plain record. When
// state is folded from author logs, a second implementation takes its place and
// reads this one's records once.
type Catalogue interface {
	group.Offsets
	txn.Records
	share.Records

	// Entries yields this node's entries, in the order in which they were added.
	Entries(yield func(sigchain.Signed) error) error
	// PutEntry adds an entry that creates no topic: the genesis.
	PutEntry(s sigchain.Signed) error
	// Topics yields every topic.
	Topics(yield func(TopicRecord) error) error
	// PutTopic writes a topic, and with entry set, the entry that created it, in
	// one step.
	PutTopic(t TopicRecord, entry *sigchain.Signed) error
	// DropTopic removes a topic and marks its files for deletion, in one step:
	// Dropped yields it until Forget.
	DropTopic(id lattice.TopicID) error
	// Dropped yields topics whose files may still be there.
	Dropped(yield func(lattice.TopicID) error) error
	// Forget removes all that is known of a dropped topic's partitions.
	Forget(id lattice.TopicID) error
	// Meta returns what belongs to a partition.
	Meta(tp lattice.TopicPartition) partition.Meta
	// Reserve returns the first of n numbers that were never returned before, for
	// producer ids.
	Reserve(n uint64) (uint64, error)
	// ClockBound and PutClockBound keep how far the hybrid clock may go.
	ClockBound() (uint64, error)
	PutClockBound(bound uint64) error
	Close() error
}

// TopicRecord is one topic as it is kept.
type TopicRecord struct {
	ID         lattice.TopicID   `json:"-"`
	Name       string            `json:"name"`
	Partitions int32             `json:"partitions"`
	Config     map[string]string `json:"config"`
	Created    int64             `json:"created_ms"`
	Creation   []byte            `json:"creation"` // the creating entry's bytes
}

// Keys of the local catalogue. The first byte says what it is; numbers are
// big-endian, so that ranges are in order. See docs/format/catalogue.md.
const (
	keyEntry    = 'e' // e | number u64            -> signed entry
	keyTopic    = 't' // t | topic id              -> TopicRecord, JSON after a version byte
	keyDropped  = 'd' // d | topic id              -> empty
	keyOffset   = 'o' // o | group.Key             -> group.Value
	keyPending  = 'q' // q | group.PendingKey      -> group.Value
	keyTxn      = 'x' // x | transactional id      -> txn.Transaction
	keyShare    = 'w' // w | group.Key             -> share.State
	keyGroup    = 'n' // n | name of a group       -> its configs, JSON after a version byte
	keyCounter  = 'c' // c                         -> u64, producer ids handed out
	keyClock    = 'h' // h                         -> u64, bound of the hybrid clock
	keyGrant    = 'g' // g | topic, partition, term -> signed grant
	keySnapshot = 'p' // p | topic, partition      -> producer snapshot
	keyCleaned  = 'k' // k | topic, partition      -> i64
	keyState    = 's' // s | topic, partition, base i64, number u64 -> compaction statement
)

const topicVersion = 1

func encodeTopic(t TopicRecord) ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode topic %s: %w", t.Name, err)
	}
	return append([]byte{topicVersion}, b...), nil
}

func decodeTopic(id []byte, b []byte) (TopicRecord, error) {
	var t TopicRecord
	if len(id) != len(t.ID) || len(b) == 0 || b[0] != topicVersion {
		return t, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: topic %x has no version that is known here", id))
	}
	if err := json.Unmarshal(b[1:], &t); err != nil {
		return t, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: topic %x: %w", id, err))
	}
	copy(t.ID[:], id)
	return t, nil
}
