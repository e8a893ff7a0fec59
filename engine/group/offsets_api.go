package group

import (
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Key names one committed offset.
type Key struct {
	Group string
	lattice.TopicPartition
}

// PendingKey names an offset that a producer committed in a transaction: it counts
// once the transaction is committed. One producer has one transaction at a time.
type PendingKey struct {
	Key
	Producer int64
}

// Change writes (Value != nil) or removes (nil) the offset at Key, or, with Pending
// set, what Producer's transaction is to bring there.
type Change struct {
	Key      Key
	Value    *Value
	Pending  bool
	Producer int64
}

// Offsets keeps committed offsets. Of this node's the Manager is the only writer and
// calls Apply from Run alone, one call at a time, in the order of the commits. Other
// nodes write too: see Refresh.
type Offsets interface {
	// Load yields every stored offset, in any order; own: this node committed it. The
	// value that the Manager finds twice for a key is joined (see Join).
	Load(yield func(k Key, v Value, own bool) error) error
	// Read returns one stored offset; ok: there is one.
	Read(k Key) (v Value, own, ok bool, err error)
	// LoadPending yields every offset of a transaction, in any order.
	LoadPending(yield func(PendingKey, Value) error) error
	// Apply makes all the changes, as one atomic and durable step, in order: a
	// later change of a key wins. What another node committed that the Manager has
	// not heard of is joined with it. On an error the Manager assumes that nothing
	// was applied, and tells the committers so; it is harmless if it was.
	Apply([]Change) error
}

// OffsetCommit is one partition of a commit.
type OffsetCommit struct {
	lattice.TopicPartition
	Offset      int64
	LeaderEpoch int32 // -1: none
	Metadata    string
}

// CommitRequest commits offsets. A member gives its id and generation (classic)
// or member epoch (consumer). An administrator, or a client that assigns
// partitions by hand, gives "", "" and -1; that needs a group without members.
type CommitRequest struct {
	Group      string
	MemberID   string
	InstanceID string
	Generation int32
	Offsets    []OffsetCommit
}

// CommitResult answers each partition of the request in order, unless Err is set.
type CommitResult struct {
	Err        error
	Partitions []error
}

// FetchRequest asks for committed offsets.
type FetchRequest struct {
	Group string
	// MemberID and MemberEpoch are a consumer group member's (version >= 9). An
	// empty MemberID is nobody in particular, who may always read.
	MemberID    string
	MemberEpoch int32
	// Partitions asked for; All: every partition with an offset.
	Partitions []lattice.TopicPartition
	All        bool
	// Stable marks offsets as Unstable while a transaction may still change them.
	Stable bool
}

// CommittedOffset is one answer. Offset -1: none was ever committed.
type CommittedOffset struct {
	lattice.TopicPartition
	Topic       string // the topic's name; "" when there is no such topic
	Offset      int64
	LeaderEpoch int32 // as committed; -1: none
	Metadata    string
	Committed   time.Time // zero when there is none
	Unstable    bool      // a transaction that is under way has another; the fields above say nothing
}

// FetchResult holds the partitions asked for in order, or, with All, those that
// have an offset and whose topic exists, sorted by topic name and partition. A
// group that does not exist has no offsets; that is no error.
type FetchResult struct {
	Err     error
	Offsets []CommittedOffset
}

// DeleteOffsetsResult answers each partition in order, unless Err is set.
type DeleteOffsetsResult struct {
	Err        error
	Partitions []error
}
