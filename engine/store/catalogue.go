package store

import (
	"context"
	"encoding/json"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/txn"
)

// Catalogue keeps what a store knows beside its logs: the topics and the groups'
// offsets, which are state, and what belongs to this node alone, such as how far
// share groups are. Every method
// that changes something is durable when it returns; those that change state need
// the store's Run. Implementations are safe for concurrent use.
type Catalogue interface {
	group.Offsets
	txn.Records
	share.Records

	// Enter signs an entry that holds op alone, the next of this node's.
	Enter(ctx context.Context, op sigchain.Op) (sigchain.Signed, error)
	// Topics yields every topic, and Topic returns one.
	Topics(yield func(TopicRecord) error) error
	Topic(id lattice.TopicID) (TopicRecord, bool, error)
	// PutTopic writes a new topic.
	PutTopic(t TopicRecord) error
	// ChangeTopic writes what is different between two records of a topic. Wraps
	// ErrNoTopic.
	ChangeTopic(old, t TopicRecord) error
	// DropTopic removes a topic and marks its files for deletion: Dropped yields
	// it until Forget.
	DropTopic(id lattice.TopicID) error
	// MarkDropped marks alone: for a topic that another node removed.
	MarkDropped(id lattice.TopicID) error
	// Dropped yields topics whose files may still be there.
	Dropped(yield func(lattice.TopicID) error) error
	// Forget removes all that is known of a dropped topic's partitions.
	Forget(id lattice.TopicID) error
	// LoadScram, PutScram and DeleteScram keep users' credentials. DeleteScram wraps
	// ErrNoCredential.
	LoadScram(yield func(ScramCredential) error) error
	PutScram(c ScramCredential) error
	DeleteScram(user string, m ScramMechanism) error
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
	keyEntry     = 'e' // e | number u64            -> signed entry: the genesis; in older ones all of this node's
	keyTopic     = 't' // t | topic id              -> TopicRecord, JSON after a version byte; before m only
	keyDropped   = 'd' // d | topic id              -> empty
	keyOffset    = 'o' // o | group.Key             -> group.Value; before m, and in forks, only
	keyPending   = 'q' // q | group.PendingKey      -> group.Value
	keyTxn       = 'x' // x | transactional id      -> txn.Transaction
	keyShare     = 'w' // w | group.Key             -> share.State
	keyGroup     = 'n' // n | name of a group       -> its configs, JSON after a version byte
	keyScram     = 'u' // u | mechanism u8, user    -> ScramCredential
	keyCounter   = 'c' // c                         -> u64, producer ids handed out
	keyClock     = 'h' // h                         -> u64, bound of the hybrid clock
	keyGrant     = 'g' // g | topic, partition, term -> signed grant
	keyLost      = 'l' // l | topic, partition, grant id -> signed grant that another won against
	keySnapshot  = 'p' // p | topic, partition      -> producer snapshot
	keyCleaned   = 'k' // k | topic, partition      -> i64
	keyCosigned  = 'a' // a | topic, partition      -> cosign.Last
	keyPromised  = 'r' // r | topic, partition      -> promise.Bound
	keyEvidence  = 'i' // i | topic, partition, term -> promises
	keyCommitted = 'b' // b | topic, partition      -> cosign.Mark
	keyState     = 's' // s | topic, partition, base i64, number u64 -> compaction statement
	keySynced    = 'y' // y | topic, partition      -> how far a fork is brought back, see forksync.go
	keyMoved     = 'm' // m                         -> empty: topics and offsets are state
	keyJoined    = 'j' // j                         -> how another's store came to be here, see encodeJoined
)

const topicVersion = 1

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
