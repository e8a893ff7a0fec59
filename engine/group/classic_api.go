package group

import "time"

// Protocol is one way to assign that a classic member offers, best first.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinRequest asks to enter, or enter again, a classic group (JoinGroup).
// The Manager copies what it keeps: the caller may reuse the bytes.
type JoinRequest struct {
	Group      string
	MemberID   string // "" on the first join
	InstanceID string // "" for a dynamic member
	Client     Client
	Session    time.Duration
	Rebalance  time.Duration // versions without the field: equal to Session

	ProtocolType string
	Protocols    []Protocol

	// NeedsMemberID (version >= 4) makes a dynamic member without an id ask
	// twice, so that lost answers leave no ghost members (KIP-394).
	NeedsMemberID bool
	// CanSkipAssignment (version >= 9): a static leader that returns may be told
	// that the group's assignment stands (KIP-814).
	CanSkipAssignment bool
	Reason            string // why, for the log (KIP-800)
}

// JoinedMember is what the leader is told of each member.
type JoinedMember struct {
	ID, InstanceID string
	Metadata       []byte
}

// JoinResult is the answer to a JoinRequest. MemberID is filled with errors too.
type JoinResult struct {
	Err            error
	Generation     int32 // -1 with an error
	ProtocolType   string
	Protocol       string
	Leader         string
	SkipAssignment bool
	MemberID       string
	Members        []JoinedMember // for the leader only
}

// MemberAssignment is one member's share as the leader computed it.
type MemberAssignment struct {
	MemberID   string
	Assignment []byte
}

// SyncRequest brings (leader) and asks for assignments (SyncGroup). The Manager
// copies what it keeps.
type SyncRequest struct {
	Group        string
	MemberID     string
	InstanceID   string
	Generation   int32
	ProtocolType string // "": not given (version < 5); else it must be the group's (KIP-559)
	Protocol     string // likewise
	Assignments  []MemberAssignment
}

// SyncResult carries exactly the bytes that the leader gave for the member, and
// none when it left the member out.
type SyncResult struct {
	Err          error
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// HeartbeatRequest says that a classic member lives.
type HeartbeatRequest struct {
	Group      string
	MemberID   string
	InstanceID string
	Generation int32
}

// LeavingMember names one member that leaves: by member id, or, when static, by
// instance id with or without the member id.
type LeavingMember struct {
	MemberID, InstanceID string
	Reason               string
}

// LeaveRequest takes members out of a group (LeaveGroup).
type LeaveRequest struct {
	Group   string
	Members []LeavingMember
}

// LeaveResult answers each member of the request in order, unless Err is set.
// Versions below 3 have one member and no place for its error: use Members[0].
type LeaveResult struct {
	Err     error
	Members []error
}
