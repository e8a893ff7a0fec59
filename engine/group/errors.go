package group

import (
	"errors"

	lattice "github.com/lattice-log/lattice"
)

// The answers that callers branch on, with the Kafka error code that each one
// stands for. Test with errors.Is: some are wrapped with details.
//
//	ErrUnknownTopicOrPartition  3  UNKNOWN_TOPIC_OR_PARTITION
//	ErrOffsetMetadataTooLarge  12  OFFSET_METADATA_TOO_LARGE
//	ErrNotStored               15  COORDINATOR_NOT_AVAILABLE (retriable, as Kafka answers when its log refuses)
//	ErrClosed                  15  COORDINATOR_NOT_AVAILABLE
//	ErrDenied                  30  GROUP_AUTHORIZATION_FAILED
//	ErrIllegalGeneration       22  ILLEGAL_GENERATION
//	ErrInconsistentProtocol    23  INCONSISTENT_GROUP_PROTOCOL
//	ErrShareGroup              23  INCONSISTENT_GROUP_PROTOCOL, or 69 GROUP_ID_NOT_FOUND
//	ErrInvalidGroupID          24  INVALID_GROUP_ID
//	ErrUnknownMember           25  UNKNOWN_MEMBER_ID
//	ErrInvalidSession          26  INVALID_SESSION_TIMEOUT
//	ErrRebalanceInProgress     27  REBALANCE_IN_PROGRESS
//	ErrInvalidRequest          42  INVALID_REQUEST
//	ErrNonEmpty                68  NON_EMPTY_GROUP
//	ErrGroupNotFound           69  GROUP_ID_NOT_FOUND
//	ErrMemberIDRequired        79  MEMBER_ID_REQUIRED (the result carries the new member id)
//	ErrMaxSize                 81  GROUP_MAX_SIZE_REACHED
//	ErrFencedInstance          82  FENCED_INSTANCE_ID
//	ErrSubscribedToTopic       86  GROUP_SUBSCRIBED_TO_TOPIC
//	ErrFencedMemberEpoch      110  FENCED_MEMBER_EPOCH
//	ErrUnreleasedInstance     111  UNRELEASED_INSTANCE_ID
//	ErrUnsupportedAssignor    112  UNSUPPORTED_ASSIGNOR
//	ErrStaleMemberEpoch       113  STALE_MEMBER_EPOCH
//	ErrInvalidRegex           128  INVALID_REGULAR_EXPRESSION
var (
	ErrUnknownTopicOrPartition = lattice.E(lattice.NotFound, errors.New("group: no such topic or partition"))
	ErrOffsetMetadataTooLarge  = lattice.E(lattice.TooLarge, errors.New("group: the offset's metadata exceeds offset.metadata.max.bytes"))
	ErrNotStored               = lattice.E(lattice.Storage, errors.New("group: the offsets were not stored"))
	ErrDenied                  = lattice.E(lattice.Denied, errors.New("group: this node may not commit offsets in the store"))
	ErrClosed                  = lattice.E(lattice.Unavailable, errors.New("group: the coordinator is closed"))
	ErrIllegalGeneration       = lattice.E(lattice.Fenced, errors.New("group: not the group's generation"))
	ErrInconsistentProtocol    = lattice.E(lattice.Conflict, errors.New("group: the member's protocols do not fit the group's"))
	ErrShareGroup              = lattice.E(lattice.Conflict, errors.New("group: a share group has that name"))
	ErrInvalidGroupID          = lattice.E(lattice.Invalid, errors.New("group: invalid group id"))
	ErrUnknownMember           = lattice.E(lattice.NotFound, errors.New("group: no such member: join again"))
	ErrInvalidSession          = lattice.E(lattice.Invalid, errors.New("group: the session timeout is outside group.min/max.session.timeout.ms"))
	ErrRebalanceInProgress     = lattice.E(lattice.Unavailable, errors.New("group: rebalance in progress: join again"))
	ErrInvalidRequest          = lattice.E(lattice.Invalid, errors.New("group: invalid request"))
	ErrNonEmpty                = lattice.E(lattice.Conflict, errors.New("group: the group has members"))
	ErrGroupNotFound           = lattice.E(lattice.NotFound, errors.New("group: no such group"))
	ErrMemberIDRequired        = lattice.E(lattice.Unavailable, errors.New("group: join again with the member id given"))
	ErrMaxSize                 = lattice.E(lattice.TooLarge, errors.New("group: the group has group.max.size members"))
	ErrFencedInstance          = lattice.E(lattice.Fenced, errors.New("group: another member took over this instance id"))
	ErrSubscribedToTopic       = lattice.E(lattice.Conflict, errors.New("group: members are subscribed to the topic"))
	ErrFencedMemberEpoch       = lattice.E(lattice.Fenced, errors.New("group: not the member's epoch: join again"))
	ErrUnreleasedInstance      = lattice.E(lattice.Exists, errors.New("group: a live member holds this instance id"))
	ErrUnsupportedAssignor     = lattice.E(lattice.Unsupported, errors.New("group: unknown assignor; there are uniform and range"))
	ErrStaleMemberEpoch        = lattice.E(lattice.Fenced, errors.New("group: the member's epoch is older than the group knows"))
	ErrInvalidRegex            = lattice.E(lattice.Invalid, errors.New("group: invalid regular expression"))
)
