package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteShareGroupOffsets (key 92), version 0 (KIP-932).
//
// It makes a group that has no members forget topics. The answer comes when that is
// durable.

func (c *conn) deleteShareGroupOffsets(r *request) error {
	req, unlock, err := decode[*kmsg.DeleteShareGroupOffsetsRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
	resp.Topics = make([]kmsg.DeleteShareGroupOffsetsResponseTopic, len(req.Topics))
	all, err := s.shares.Offsets(req.GroupID, nil)
	var parts []lattice.TopicPartition
	var at []int // which topic of the answer each belongs to
	for i := range req.Topics {
		out := &resp.Topics[i]
		out.Topic = req.Topics[i].Topic
		id, known := s.store.TopicIDOf(out.Topic)
		if out.TopicID = id; !known {
			out.ErrorCode, out.ErrorMessage = s.fail(refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", out.Topic))
		}
		for _, p := range all {
			if known && p.Topic == id {
				parts, at = append(parts, p.TopicPartition), append(at, i)
			}
		}
	}
	answer := func(err error, errs []error) {
		if resp.ErrorCode, resp.ErrorMessage = s.fail(err); err != nil {
			resp.Topics = nil
		} else {
			for i, err := range errs {
				if out := &resp.Topics[at[i]]; err != nil {
					out.ErrorCode, out.ErrorMessage = s.fail(err)
				}
			}
		}
		r.answer(resp)
	}
	if err != nil {
		answer(err, nil)
		return nil
	}
	s.shares.DeleteOffsets(req.GroupID, parts, answer)
	return nil
}
