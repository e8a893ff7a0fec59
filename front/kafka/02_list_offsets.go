package kafka

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets (key 2), versions 1 to 11.
//
//	v1   one offset and its timestamp
//	v2   isolation level: read_committed stops at the last stable offset
//	v4   leader epochs (KIP-320)
//	v6   flexible
//	v7   -3, the record with the greatest timestamp (KIP-734)
//	v8   -4, the earliest local offset: all of ours are local (KIP-405)
//	v9   -5, the latest tiered offset: none (KIP-1005)
//	v10  a timeout for the remote lookups of others
//	v11  -6, the earliest offset pending upload: none (KIP-1023)

// Timestamps with a meaning of their own.
const (
	latestOffset   = -1
	earliestOffset = -2
	maxTimeOffset  = -3
	earliestLocal  = -4
	latestTiered   = -5
	earliestUpload = -6
)

func (c *conn) listOffsets(r *request, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			res := kmsg.NewListOffsetsResponseTopicPartition()
			res.Partition = p.Partition
			found, err := c.listOffset(t.Topic, p, r.version, r.version >= 2 && req.IsolationLevel == readCommitted)
			res.Offset, res.Timestamp, res.LeaderEpoch = found.Offset, found.Time, found.Term
			res.ErrorCode = c.srv.code(err)
			out.Partitions = append(out.Partitions, res)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// readCommitted is the isolation level that sees committed records only.
const readCommitted = 1

func (c *conn) listOffset(topic string, p *kmsg.ListOffsetsRequestTopicPartition, version int16, stable bool) (partition.TimeOffset, error) {
	none := partition.TimeOffset{Offset: -1, Time: -1, Term: -1}
	log, err := c.srv.partition(topic, p.Partition)
	if err != nil {
		return none, err
	}
	if version >= 4 {
		if err := checkTerm(log, p.CurrentLeaderEpoch); err != nil {
			return none, err
		}
	}
	at := func(offset int64) partition.TimeOffset {
		return partition.TimeOffset{Offset: offset, Time: -1, Term: log.TermAt(offset)}
	}
	lowest := map[int64]int16{maxTimeOffset: 7, earliestLocal: 8, latestTiered: 9, earliestUpload: 11}
	if need, special := lowest[p.Timestamp]; special && version < need {
		return none, fmt.Errorf("%w: timestamp %d needs version %d", kerr.UnsupportedVersion, p.Timestamp, need)
	}
	found := none
	switch p.Timestamp {
	case latestOffset:
		b := log.Bounds()
		if stable {
			return at(b.Stable), nil
		}
		return at(b.Committed), nil
	case earliestOffset, earliestLocal:
		return at(log.Bounds().Start), nil
	case latestTiered, earliestUpload:
		return none, nil
	case maxTimeOffset:
		found, err = log.MaxTime(c.ctx)
	default:
		if p.Timestamp < 0 {
			return none, fmt.Errorf("%w: timestamp %d has no meaning", kerr.InvalidRequest, p.Timestamp)
		}
		found, err = log.OffsetForTime(c.ctx, p.Timestamp)
	}
	switch {
	case err != nil && lattice.KindOf(err) == lattice.Corrupt, err != nil && lattice.KindOf(err) == lattice.Storage:
		return none, fmt.Errorf("%w: %w", kerr.KafkaStorageError, err) // whatever the cause
	case err != nil:
		return none, err
	case found.Offset < 0, stable && found.Offset >= log.Bounds().Stable:
		return none, nil
	}
	return found, nil
}

// partition finds a partition by its topic's name.
func (s *Server) partition(topic string, index int32) (*partition.Partition, error) {
	id, ok := s.store.TopicIDOf(topic)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	return s.store.Partition(id, index)
}

// partitionByID tells a topic id that we do not know from a partition that the
// topic does not have. It does not allocate unless it fails.
func (s *Server) partitionByID(id lattice.TopicID, index int32) (*partition.Partition, error) {
	p, err := s.store.Partition(id, index)
	if err != nil {
		if _, ok := s.store.TopicByID(id); !ok {
			return nil, kerr.UnknownTopicID
		}
	}
	return p, err
}
