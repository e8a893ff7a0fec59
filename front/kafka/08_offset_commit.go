package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit (key 8), versions 2 to 10.
//
//	v5   no retention time
//	v6   leader epochs, kept as they were committed (KIP-320)
//	v7   static members (KIP-345)
//	v8   flexible
//	v9   members of consumer groups: the generation is a member epoch (KIP-848)
//	v10  topic ids instead of names (KIP-516)
//
// The answer comes when the offsets are durable.

func (c *conn) offsetCommit(r *request) error {
	req, unlock, err := decode[*kmsg.OffsetCommitRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	commit := group.CommitRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation,
	}
	var at []*int16 // where the error of each offset in commit goes
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		id, known := s.committedTopic(t.Topic, t.TopicID, r.version >= 10)
		out.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			if known != nil {
				out.Partitions[j].ErrorCode = s.code(known)
				continue
			}
			commit.Offsets = append(commit.Offsets, group.OffsetCommit{
				TopicPartition: lattice.TopicPartition{Topic: id, Partition: p.Partition},
				Offset:         p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata),
			})
			at = append(at, &out.Partitions[j].ErrorCode)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(at) == 0 {
		r.answer(resp)
		return nil
	}
	s.groups.CommitOffsets(commit, func(res group.CommitResult) {
		for i, code := range at {
			err := res.Err
			if err == nil {
				err = res.Partitions[i]
			}
			if *code = s.code(err); *code == kerr.StaleMemberEpoch.Code && r.version < 9 {
				*code = kerr.UnsupportedVersion.Code // which those versions know
			}
		}
		r.answer(resp)
	})
	return nil
}

// committedTopic returns the incarnation that a name, or an id, stands for now.
func (s *Server) committedTopic(name string, id [16]byte, byID bool) (lattice.TopicID, error) {
	if byID {
		if _, ok := s.store.TopicByID(id); !ok {
			return id, kerr.UnknownTopicID
		}
		return id, nil
	}
	found, ok := s.store.TopicIDOf(name)
	if !ok {
		return found, kerr.UnknownTopicOrPartition
	}
	return found, nil
}
