package group

import (
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Member epochs with a meaning of their own in a ConsumerHeartbeat.
const (
	// EpochJoin enters the group, or enters it again.
	EpochJoin int32 = 0
	// EpochLeave leaves for good.
	EpochLeave int32 = -1
	// EpochLeaveStatic leaves for a while: the instance id's partitions wait for
	// it until the session is over.
	EpochLeaveStatic int32 = -2
)

// ConsumerHeartbeatRequest is KIP-848's one request: join, stay, change, leave.
// Fields that the client left out (null, -1) keep what the member said before.
// The Manager copies what it keeps.
type ConsumerHeartbeatRequest struct {
	Group       string
	MemberID    string
	MemberEpoch int32
	InstanceID  string // "" for null
	Rack        string // "" for null
	Rebalance   time.Duration
	// Topics are subscribed names; nil: as before, empty: none.
	Topics []string
	// Regex is an RE2 pattern that must match a whole topic name; nil: as
	// before, "": none.
	Regex *string
	// Assignor is "" for "as before, or the coordinator's choice".
	Assignor string
	// Owned is what the member holds now; nil: as before. A partition that the
	// coordinator asked back counts as released once it is missing here.
	Owned  []lattice.TopicPartition
	Client Client
	// ClientMakesID (version >= 1): an empty member id is an error instead of a
	// request for one.
	ClientMakesID bool
}

// ConsumerHeartbeatResult is the answer. With Assign, Assigned is all that the
// member may own, and what it owns beyond it is to be let go; without, nothing
// changed.
type ConsumerHeartbeatResult struct {
	Err         error
	MemberID    string
	MemberEpoch int32
	Interval    time.Duration // send the next heartbeat after this
	Assign      bool
	Assigned    []TopicPartitions // sorted by topic id
}
