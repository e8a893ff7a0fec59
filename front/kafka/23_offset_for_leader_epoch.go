package kafka

import (
	"fmt"

	"github.com/lattice-log/lattice/engine/partition"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch (key 23), versions 2 to 4.
//
//	v3  a consumer sends replica id -2
//	v4  flexible
//
// It answers where the records of an epoch end here, so that a consumer can see
// whether its position belongs to this history (KIP-320). An epoch from before
// the oldest that we know of is (-1, -1), never 0.

func (c *conn) offsetForLeaderEpoch(_ *request, req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			res := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			res.Partition, res.LeaderEpoch, res.EndOffset = p.Partition, -1, -1
			log, err := s.partition(t.Topic, p.Partition)
			if err == nil {
				err = checkTerm(log, p.CurrentLeaderEpoch)
			}
			if err == nil {
				res.LeaderEpoch, res.EndOffset, err = s.termEnd(log, p.LeaderEpoch)
			}
			res.ErrorCode = s.code(err)
			out.Partitions = append(out.Partitions, res)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// termEnd is where the records of an epoch end. On a replica that has not all of them
// it is at least where this node has heard that the leader's log goes: a client that
// read on elsewhere would take less for truncation, and go back.
func (s *Server) termEnd(log *partition.Partition, epoch int32) (int32, int64, error) {
	if epoch < 0 {
		return -1, -1, nil
	}
	term, end, err := log.TermEnd(epoch)
	if err != nil {
		return -1, -1, fmt.Errorf("%w: %w", kerr.UnknownLeaderEpoch, err)
	}
	if !log.Leads() && end == log.Bounds().Committed {
		end = max(end, s.store.HeardEnd(log.ID()))
	}
	return term, end, nil
}
