package kafka

import (
	"errors"
	"fmt"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/twmb/franz-go/pkg/kerr"
)

// codeOfKind is the Kafka error for each kind of error, where nothing more is
// known than the kind. A test fails when a kind is missing.
func codeOfKind(k lattice.Kind) (*kerr.Error, bool) {
	switch k {
	case lattice.Internal:
		return kerr.UnknownServerError, true
	case lattice.Invalid, lattice.Conflict:
		return kerr.InvalidRequest, true
	case lattice.NotFound:
		return kerr.UnknownTopicOrPartition, true
	case lattice.Exists:
		return kerr.TopicAlreadyExists, true
	case lattice.Unavailable:
		return kerr.LeaderNotAvailable, true // clients retry it, and look at the metadata again
	case lattice.NotLeader:
		return kerr.NotLeaderForPartition, true
	case lattice.Fenced, lattice.Diverged:
		return kerr.FencedLeaderEpoch, true
	case lattice.OutOfRange:
		return kerr.OffsetOutOfRange, true
	case lattice.NotYet:
		return kerr.OffsetNotAvailable, true
	case lattice.TooLarge:
		return kerr.MessageTooLarge, true
	case lattice.Storage, lattice.Corrupt:
		return kerr.KafkaStorageError, true
	case lattice.Denied:
		return kerr.TopicAuthorizationFailed, true
	case lattice.Unsupported:
		return kerr.UnsupportedVersion, true
	}
	return kerr.UnknownServerError, false
}

// known pairs the errors that engines name with Kafka's.
type known struct {
	err   error
	kafka *kerr.Error
}

// named lists the engines' sentinels. It is a function because a table could be
// changed.
func named() []known {
	return []known{
		{group.ErrUnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{group.ErrOffsetMetadataTooLarge, kerr.OffsetMetadataTooLarge},
		{group.ErrNotStored, kerr.CoordinatorNotAvailable},
		{group.ErrClosed, kerr.CoordinatorNotAvailable},
		{group.ErrDenied, kerr.GroupAuthorizationFailed},
		{group.ErrIllegalGeneration, kerr.IllegalGeneration},
		{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
		{group.ErrInvalidGroupID, kerr.InvalidGroupID},
		{group.ErrUnknownMember, kerr.UnknownMemberID},
		{group.ErrInvalidSession, kerr.InvalidSessionTimeout},
		{group.ErrRebalanceInProgress, kerr.RebalanceInProgress},
		{group.ErrInvalidRequest, kerr.InvalidRequest},
		{group.ErrNonEmpty, kerr.NonEmptyGroup},
		{group.ErrGroupNotFound, kerr.GroupIDNotFound},
		{group.ErrMemberIDRequired, kerr.MemberIDRequired},
		{group.ErrMaxSize, kerr.GroupMaxSizeReached},
		{group.ErrFencedInstance, kerr.FencedInstanceID},
		{group.ErrSubscribedToTopic, kerr.GroupSubscribedToTopic},
		{group.ErrFencedMemberEpoch, kerr.FencedMemberEpoch},
		{group.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
		{group.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
		{group.ErrStaleMemberEpoch, kerr.StaleMemberEpoch},
		{group.ErrInvalidRegex, kerr.InvalidRegularExpression},

		{group.ErrShareGroup, kerr.InconsistentGroupProtocol},

		{share.ErrUnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{share.ErrUnknownTopicID, kerr.UnknownTopicID},
		{share.ErrNotStored, kerr.CoordinatorNotAvailable},
		{share.ErrClosed, kerr.CoordinatorNotAvailable},
		{share.ErrUnknownMember, kerr.UnknownMemberID},
		{share.ErrInvalidRequest, kerr.InvalidRequest},
		{share.ErrNonEmpty, kerr.NonEmptyGroup},
		{share.ErrGroupNotFound, kerr.GroupIDNotFound},
		{share.ErrMaxSize, kerr.GroupMaxSizeReached},
		{share.ErrFencedMemberEpoch, kerr.FencedMemberEpoch},
		{share.ErrRecordState, kerr.InvalidRecordState},
		{share.ErrSessionNotFound, kerr.ShareSessionNotFound},
		{share.ErrSessionEpoch, kerr.InvalidShareSessionEpoch},
		{share.ErrSessionLimit, kerr.ShareSessionLimitReached},

		{partition.ErrProducerEpoch, kerr.InvalidProducerEpoch},
		{partition.ErrOutOfOrder, kerr.OutOfOrderSequenceNumber},
		{partition.ErrDuplicate, kerr.DuplicateSequenceNumber},
		{partition.ErrUnknownProducer, kerr.UnknownProducerID},
		{partition.ErrTooLarge, kerr.MessageTooLarge},
		{partition.ErrTimestamp, kerr.InvalidTimestamp},
		{partition.ErrRecord, kerr.InvalidRecord},
		{partition.ErrReadOnly, kerr.InvalidTopicException},
		{partition.ErrNotEnough, kerr.NotEnoughReplicas},
		{partition.ErrNotEnoughAfter, kerr.NotEnoughReplicasAfterAppend},

		{partition.ErrTransaction, kerr.InvalidTxnState},

		{txn.ErrNotStored, kerr.CoordinatorNotAvailable},
		{txn.ErrClosed, kerr.CoordinatorNotAvailable},
		{txn.ErrInvalidRequest, kerr.InvalidRequest},
		{txn.ErrTooMany, kerr.PolicyViolation},
		{txn.ErrEpoch, kerr.InvalidProducerEpoch},
		{txn.ErrState, kerr.InvalidTxnState},
		{txn.ErrProducer, kerr.InvalidProducerIDMapping},
		{txn.ErrTimeout, kerr.InvalidTransactionTimeout},
		{txn.ErrConcurrent, kerr.ConcurrentTransactions},
		{txn.ErrFenced, kerr.ProducerFenced},
		{txn.ErrNotFound, kerr.TransactionalIDNotFound},

		{store.ErrTopicName, kerr.InvalidTopicException},
		{store.ErrInternal, kerr.InvalidTopicException},
		{store.ErrPartitions, kerr.InvalidPartitions},
		{store.ErrTopicExists, kerr.TopicAlreadyExists},
		{store.ErrNoTopic, kerr.UnknownTopicOrPartition},
		{store.ErrNotLeader, kerr.NotLeaderForPartition},
		{store.ErrNotOpen, kerr.LeaderNotAvailable},
		{store.ErrTooMany, kerr.PolicyViolation},
		{store.ErrAway, kerr.LeaderNotAvailable},
		{store.ErrNoAnswer, kerr.RequestTimedOut},
		{store.ErrKept, kerr.PolicyViolation},
		{store.ErrMayNotWrite, kerr.TopicAuthorizationFailed},
		{store.ErrHomeAway, kerr.CoordinatorNotAvailable},
		{store.ErrNotHome, kerr.NotCoordinator},
		{group.ErrMoving, kerr.NotCoordinator},

		{record.ErrCRC, kerr.CorruptMessage},
		{record.ErrShort, kerr.CorruptMessage},
		{record.ErrMalformed, kerr.CorruptMessage},
		{record.ErrMagic, kerr.InvalidRecord},
		{record.ErrTimestamp, kerr.InvalidTimestamp},
		{record.ErrInvalid, kerr.InvalidRecord},
		{record.ErrCodec, kerr.UnsupportedCompressionType},
		{record.ErrTooLarge, kerr.MessageTooLarge},
	}
}

// kafkaError returns the Kafka error for err, nil for nil. An err that wraps one
// of Kafka's own is that.
func kafkaError(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	var own *kerr.Error
	if errors.As(err, &own) {
		return own
	}
	var other *store.Answered
	if errors.As(err, &other) {
		return answeredError(other)
	}
	for _, k := range named() {
		if errors.Is(err, k.err) {
			return k.kafka
		}
	}
	var config *store.ConfigError
	switch {
	case recordErrors(err) != nil:
		return kerr.InvalidRecord
	case errors.As(err, &config):
		return kerr.InvalidConfig
	}
	e, _ := codeOfKind(lattice.KindOf(err))
	return e
}

// reason is an error in words, short enough for any of Kafka's string types:
// what went wrong may quote a name that fills one by itself. "" for nil.
func reason(err error) string {
	const most = 1 << 10
	if err == nil {
		return ""
	}
	text := err.Error()
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// code returns the error code for err, 0 for nil, and counts it.
func (s *Server) code(err error) int16 {
	e := kafkaError(err)
	if e == nil {
		return 0
	}
	s.metrics.errors.WithLabelValues(e.Message).Inc()
	return e.Code
}

// fail returns code and, for APIs that have room for it, the reason in words.
func (s *Server) fail(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	text := reason(err)
	return s.code(err), &text
}

// refuse is a Kafka error with a reason of ours.
func refuse(e *kerr.Error, format string, args ...any) error {
	return &refusal{e, fmt.Sprintf(format, args...)}
}

// refusal says why, and is e to errors.As.
type refusal struct {
	kafka *kerr.Error
	text  string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kafka }
