// Package share coordinates the share groups of one store (KIP-932): their
// members take records of the same partitions, each record by one member at a
// time, and acknowledge them one by one.
//
// # A record
//
//	                 +---- released, lock over ----+
//	                 v                             |
//	(new) ---> Available ---acquired---> Acquired -+--accepted---> Acknowledged
//	                 |                             |
//	                 +-- too many deliveries ------+--rejected---> Archived
//
// window is that machine for one partition of one group: requests and the time go
// in, what a member may have comes out. It keeps runs of offsets that share a fate,
// from the start offset, below which everything is settled, to the last record that
// was looked at; Settings.MaxLocks bounds how many records lie between. Offsets at
// which there is nothing for a member (markers, aborted transactions, what a
// compaction took) are passed over and not counted.
//
// # Who decides and who acts
//
// window and membership own no lock, timer or goroutine. Manager serialises the
// requests of a group, sets one timer for the next time that something ends in it,
// finds out which batches are where, and makes states durable.
//
// # What survives, and what a crash at each step leaves
//
//  1. Where a group begins in a partition is made durable before it gets a record
//     of it. A crash before that leaves nothing, and nobody was told of a record.
//  2. Records are acquired in memory only. A crash makes them available again, with
//     the delivery count of the last state that was written, or one that counts the
//     delivery which the crash cut short.
//  3. An acknowledgement takes effect in memory, and is answered when the
//     partition's state with it is durable. A crash between the two delivers those
//     records again, as their member must expect that has no answer. When the write
//     fails the member is told so; the effect stays, and is written with the next
//     try: the member has done with those records, and it did not ask for them again.
//  4. What ends a lock (its time, a session, a member) is written, and waited for by
//     nobody: a crash ends the lock as well.
//
// Membership and sessions do not survive: members are answered ErrUnknownMember and
// ErrSessionNotFound, which make every client join and fetch anew.
//
// # What it does not do
//
// It has no dead-letter topics: a record that was delivered too often is archived.
package share

import (
	"errors"

	lattice "github.com/lattice-log/lattice"
)

// AckType is what a member says of records that it acquired.
type AckType int8

// The types; their numbers are the protocol's.
const (
	Gap     AckType = 0 // there is no record at this offset
	Accept  AckType = 1 // processed
	Release AckType = 2 // not processed: deliver it again, to anyone
	Reject  AckType = 3 // never to be processed
	Renew   AckType = 4 // still being processed: lock it for as long again (KIP-1222)
)

// Ack is what a member says of a run of offsets: one type for all of them, or one
// for each.
type Ack struct {
	First, Last int64
	Types       []AckType
}

// Acquired is a run of offsets that a member has from now on, until it acknowledges
// them or its lock is over.
type Acquired struct {
	First, Last int64
	Deliveries  int16 // how often they were delivered, with this time
}

// The answers that callers branch on, with the Kafka error code that each one
// stands for. Test with errors.Is: some are wrapped with details.
//
//	ErrUnknownTopicOrPartition  3  UNKNOWN_TOPIC_OR_PARTITION
//	ErrNotStored               15  COORDINATOR_NOT_AVAILABLE (retriable)
//	ErrClosed                  15  COORDINATOR_NOT_AVAILABLE
//	ErrUnknownMember           25  UNKNOWN_MEMBER_ID
//	ErrInvalidRequest          42  INVALID_REQUEST
//	ErrNonEmpty                68  NON_EMPTY_GROUP
//	ErrGroupNotFound           69  GROUP_ID_NOT_FOUND
//	ErrMaxSize                 81  GROUP_MAX_SIZE_REACHED
//	ErrUnknownTopicID         100  UNKNOWN_TOPIC_ID
//	ErrFencedMemberEpoch      110  FENCED_MEMBER_EPOCH
//	ErrRecordState            121  INVALID_RECORD_STATE
//	ErrSessionNotFound        122  SHARE_SESSION_NOT_FOUND
//	ErrSessionEpoch           123  INVALID_SHARE_SESSION_EPOCH
//	ErrSessionLimit           133  SHARE_SESSION_LIMIT_REACHED
var (
	ErrUnknownTopicOrPartition = lattice.E(lattice.NotFound, errors.New("share group: no such topic or partition"))
	ErrUnknownTopicID          = lattice.E(lattice.NotFound, errors.New("share group: no such topic id"))
	ErrNotStored               = lattice.E(lattice.Storage, errors.New("share group: its state was not stored"))
	ErrClosed                  = lattice.E(lattice.Unavailable, errors.New("share group: the coordinator is closed"))
	ErrUnknownMember           = lattice.E(lattice.NotFound, errors.New("share group: no such member: join again"))
	ErrInvalidRequest          = lattice.E(lattice.Invalid, errors.New("share group: invalid request"))
	ErrNonEmpty                = lattice.E(lattice.Conflict, errors.New("share group: the group has members"))
	ErrGroupNotFound           = lattice.E(lattice.NotFound, errors.New("share group: no such group"))
	ErrMaxSize                 = lattice.E(lattice.TooLarge, errors.New("share group: the group has group.share.max.size members"))
	ErrFencedMemberEpoch       = lattice.E(lattice.Fenced, errors.New("share group: not the member's epoch: join again"))
	ErrRecordState             = lattice.E(lattice.Conflict, errors.New("share group: the member does not have these records"))
	ErrSessionNotFound         = lattice.E(lattice.NotFound, errors.New("share group: no such share session: open one"))
	ErrSessionEpoch            = lattice.E(lattice.Fenced, errors.New("share group: not the share session's epoch: open another one"))
	ErrSessionLimit            = lattice.E(lattice.TooLarge, errors.New("share group: there are group.share.max.share.sessions sessions"))
)
