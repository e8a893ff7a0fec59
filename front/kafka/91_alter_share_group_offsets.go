package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterShareGroupOffsets (key 91), version 0 (KIP-932).
//
// It makes a group that has no members begin elsewhere, and makes the group if there
// is none. The answer comes when that is durable.

func (c *conn) alterShareGroupOffsets(r *request) error {
	req, unlock, err := decode[*kmsg.AlterShareGroupOffsetsRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
	resp.Topics = make([]kmsg.AlterShareGroupOffsetsResponseTopic, len(req.Topics))
	var moves []share.Move
	var at []*kmsg.AlterShareGroupOffsetsResponseTopicPartition
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		id, known := s.store.TopicIDOf(t.Topic)
		out.TopicID = id
		out.Partitions = make([]kmsg.AlterShareGroupOffsetsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &out.Partitions[j]
			p.Partition = t.Partitions[j].Partition
			if !known {
				p.ErrorCode, p.ErrorMessage = s.fail(refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", t.Topic))
				continue
			}
			moves = append(moves, share.Move{
				TopicPartition: lattice.TopicPartition{Topic: id, Partition: p.Partition}, Start: t.Partitions[j].StartOffset,
			})
			at = append(at, p)
		}
	}
	s.shares.AlterOffsets(req.GroupID, moves, func(err error, errs []error) {
		if resp.ErrorCode, resp.ErrorMessage = s.fail(err); err != nil {
			resp.Topics = nil
		} else {
			for i, p := range at {
				p.ErrorCode, p.ErrorMessage = s.fail(errs[i])
			}
		}
		r.answer(resp)
	})
	return nil
}
