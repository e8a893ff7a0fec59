package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete (key 47), version 0 (KIP-496).
//
// Offsets of topics that a member is subscribed to stay: GROUP_SUBSCRIBED_TO_TOPIC.

func (c *conn) offsetDelete(r *request) error {
	req, unlock, err := decode[*kmsg.OffsetDeleteRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var ask []lattice.TopicPartition
	var at []*int16 // where the error of each partition in ask goes
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = t.Topic
		id, known := s.committedTopic(t.Topic, [16]byte{}, false)
		out.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			out.Partitions[j].Partition = t.Partitions[j].Partition
			if known != nil {
				out.Partitions[j].ErrorCode = s.code(known)
				continue
			}
			ask = append(ask, lattice.TopicPartition{Topic: id, Partition: t.Partitions[j].Partition})
			at = append(at, &out.Partitions[j].ErrorCode)
		}
		resp.Topics = append(resp.Topics, out)
	}
	s.groups.DeleteOffsets(req.Group, ask, func(res group.DeleteOffsetsResult) {
		if resp.ErrorCode = s.code(res.Err); res.Err != nil {
			resp.Topics = nil
		}
		for i, code := range at {
			if res.Err == nil {
				*code = s.code(res.Partitions[i])
			}
		}
		r.answer(resp)
	})
	return nil
}
