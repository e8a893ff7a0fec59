package kafka

import (
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Partitions that another node leads. Clients see this node as their leader: what they
// read comes from the replica here, what they write goes to the leader, and its answer
// is theirs.
//
// Two errors are this node's own, both of which clients retry:
//
//   - LEADER_NOT_AVAILABLE: the leader is out of reach, or has more to do than it takes.
//     Nothing was sent to it, so nothing is there.
//   - REQUEST_TIMED_OUT: it was asked and did not answer in the request's time, or the
//     connection with it broke. The batch may be there. An idempotent producer sends it
//     again, and the leader answers where it is; its batches behind it, which the leader
//     may have taken or refused meanwhile, follow in their order, as with any Kafka
//     broker that is lost with requests in flight.

const (
	// usualWait is for requests that say no time: what most clients wait themselves.
	usualWait = 30 * time.Second
	// longestWait bounds what an unanswered request holds.
	longestWait = 2 * time.Minute
)

// remoteWait is how long another node's answer may take, by the timeout of a request.
func remoteWait(ms int32) time.Duration {
	if ms <= 0 {
		return usualWait
	}
	return min(time.Duration(ms)*time.Millisecond, longestWait)
}

// route returns a partition that this node leads, or nil and its leader. It does not
// allocate unless it fails.
func (s *Server) route(id lattice.TopicID, index int32) (*partition.Partition, lattice.NodeID, error) {
	p, leader, err := s.store.Route(id, index)
	if err != nil {
		if _, ok := s.store.TopicByID(id); !ok {
			return nil, leader, kerr.UnknownTopicID
		}
	}
	return p, leader, err
}

// forward begins the append of a batch that was checked at another leader.
func (p *producePart) forward(s *Server, topic lattice.TopicID, leader lattice.NodeID) {
	if h, err := record.ParseHeader(p.records); err == nil && h.Transactional() {
		p.complete(p.res, fmt.Errorf("another node leads the partition: %w", partition.ErrTransaction))
		return
	}
	s.store.AppendElsewhere(leader, store.RemoteAppend{
		Partition: lattice.TopicPartition{Topic: topic, Partition: p.index}, Acks: int8(p.op.acks), Wait: p.op.wait,
		Append: partition.Append{Batches: p.records, Done: p.done},
	})
}

// errNotOurTransaction refuses a partition to a transaction.
var errNotOurTransaction = refuse(kerr.PolicyViolation, "another node leads the partition: transactions reach those that their coordinator leads; connect to that node")

// ownTransaction says whether a transaction can have a partition: there must be one,
// and this node must lead it, since the coordinator here writes the transaction's end.
func (s *Server) ownTransaction(id lattice.TopicID, index int32) error {
	p, _, err := s.store.Route(id, index)
	if err == nil && p == nil {
		err = errNotOurTransaction
	}
	return err
}

// errNotOurGroup refuses a group to a transaction.
var errNotOurGroup = refuse(kerr.PolicyViolation, "another node coordinates the group: transactions commit offsets of groups that are at home on the node of their coordinator; connect there, or move the group")

// ownGroup says whether a transaction can commit offsets of a group: this node must
// coordinate it, since what waits for the transaction's end waits here.
func (s *Server) ownGroup(name string) error {
	home, err := s.store.Coordinator(name, true)
	if err == nil && home != s.store.Info().Node {
		s.log.Warn("kafka: a transaction wants to commit offsets of a group whose home is elsewhere", "group", name, "home", home.Short())
		err = errNotOurGroup
	}
	return err
}

// ownPartition finds a partition that this node leads.
func (s *Server) ownPartition(topic string, index int32) (*partition.Partition, error) {
	id, ok := s.store.TopicIDOf(topic)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	p, leader, err := s.store.Route(id, index)
	if err == nil && p == nil {
		err = fmt.Errorf("%s leads it: %w", leader.Short(), store.ErrNotLeader)
	}
	return p, err
}

// answeredError is a leader's error as it told it, where it is one of Kafka's.
func answeredError(a *store.Answered) *kerr.Error {
	var e *kerr.Error
	if errors.As(kerr.ErrorForCode(a.Code), &e) {
		return e
	}
	return kerr.UnknownServerError
}

// Refusal is an error as clients are told it, for who carries it to another node: a
// Kafka code that is not 0, the reason, and the records for which a batch is refused.
func Refusal(err error) (code int16, text string, records []*record.RecordError) {
	return kafkaError(err).Code, reason(err), recordErrors(err)
}
