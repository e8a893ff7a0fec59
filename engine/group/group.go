// Package group coordinates the consumer groups of one store: who is a member,
// who reads which partition, and how far each group has read.
//
// There are two kinds of group. In a classic group (KIP-62, 345, 394, 559, 814)
// one member, the leader, computes the assignment, and the coordinator only
// carries its bytes: it works for any protocol, eager or cooperative. In a
// consumer group (KIP-848) the coordinator computes the assignment itself and
// leads each member to it step by step: a partition is given to its next owner
// only after the previous one has said that it let go.
//
// # Who decides and who acts
//
// The types classic and consumer are state machines: a request and the time go
// in, replies come out. They own no lock, timer or goroutine. Manager owns
// those: it serialises the requests of one group, sets one timer for each
// group's next deadline, and hands replies out after it has let go of the lock.
//
// # What survives a restart
//
// Committed offsets do; membership does not. After a restart a group comes back
// Empty, of the classic type, with its offsets. Members of before are answered
// ErrUnknownMember, which every client takes as "join again", and a member's
// commits are refused until it has done so. A member that has not noticed yet
// may go on reading for one heartbeat interval: at least once, as ever.
//
// A group without members and without offsets leaves nothing behind.
//
// # What is not here
//
// Moving a live group from one protocol to the other (KIP-848 calls it online
// migration) is refused, as Kafka does when group.consumer.migration.policy is
// disabled. An Empty group takes either kind of member.
package group

import (
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Type is the protocol that a group speaks.
type Type uint8

const (
	// Classic groups are led by one of their members.
	Classic Type = iota
	// Consumer groups are assigned by the coordinator (KIP-848).
	Consumer
	// Share groups lock records instead of partitions (KIP-932): engine/share.
	Share
)

// String returns the type as Kafka's ListGroups spells it.
func (t Type) String() string {
	switch t {
	case Consumer:
		return "consumer"
	case Share:
		return "share"
	}
	return "classic"
}

// State is a group's state as Kafka's tools spell it: Empty,
// PreparingRebalance, CompletingRebalance, Stable (classic) and Empty,
// Assigning, Reconciling, Stable (consumer).
type State string

// The states. Dead is what front ends answer for a group that does not exist.
const (
	Empty               State = "Empty"
	PreparingRebalance  State = "PreparingRebalance"
	CompletingRebalance State = "CompletingRebalance"
	Assigning           State = "Assigning"
	Reconciling         State = "Reconciling"
	Stable              State = "Stable"
	Dead                State = "Dead"
)

// Client says who speaks for a member.
type Client struct {
	ID   string // the client's own name (client.id)
	Host string // its address, for people
}

// TopicPartitions is a set of partitions of one topic. Name is empty when the
// topic is gone; ID is zero when a classic member named a topic we do not have.
type TopicPartitions struct {
	ID         lattice.TopicID
	Name       string
	Partitions []int32 // ascending
}

// TopicInfo is what the coordinator needs to know of a topic.
type TopicInfo struct {
	ID         lattice.TopicID
	Name       string
	Partitions int32 // 0..Partitions-1 exist
}

// Topics is where the coordinator learns about topics and logs. Implementations
// MUST be safe for concurrent use, MUST NOT block on I/O, and MUST NOT call the
// Manager from inside: the Manager calls them with a group's lock held. After
// any change the owner MUST call Manager.TopicsChanged.
type Topics interface {
	// TopicByName finds a topic by the name it has now.
	TopicByName(name string) (TopicInfo, bool)
	// TopicByID finds a topic incarnation.
	TopicByID(id lattice.TopicID) (TopicInfo, bool)
	// AllTopics returns every topic, in any order.
	AllTopics() []TopicInfo
	// Committed returns the partition's high watermark and current term, false
	// when there is no such partition here.
	Committed(tp lattice.TopicPartition) (offset int64, term int32, ok bool)
	// TermEnd returns where the log left the given term: the end offset of the
	// largest term <= term, as OffsetForLeaderEpoch answers; false when unknown.
	TermEnd(tp lattice.TopicPartition, term int32) (end int64, ok bool)
}

// Description is everything there is to say about one group, but for offsets.
type Description struct {
	Group           string
	Type            Type
	State           State
	ProtocolType    string // "consumer" for consumers, "" for a group of offsets only
	Protocol        string // classic: the chosen protocol; consumer: the assignor
	Leader          string // classic: member id of the leader
	Epoch           int32  // classic: generation; consumer: group epoch
	AssignmentEpoch int32  // consumer only
	Members         []MemberDescription
}

// MemberDescription is one member as people see it.
type MemberDescription struct {
	ID         string
	InstanceID string // "" when not static
	Rack       string
	Client     Client
	Epoch      int32 // consumer: member epoch; classic: the generation

	// Metadata and Assignment are the classic protocol's own bytes; both are
	// empty unless the group is Stable.
	Metadata, Assignment []byte

	// Subscribed, Regex, Assigned and Target say the same in words. For a
	// classic member they are decoded from the bytes when those are the
	// consumer protocol's, and nil when they are not. Target is consumer only.
	Subscribed []string
	Regex      string
	Assigned   []TopicPartitions
	Target     []TopicPartitions
}

// Listing is one line of a list of groups.
type Listing struct {
	Group        string
	Type         Type
	State        State
	ProtocolType string
	Members      int
}

// never is the zero time: no deadline.
var never time.Time
