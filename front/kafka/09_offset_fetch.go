package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (key 9), versions 1 to 10.
//
//	v2   null topics: all that the group has; an error for the whole answer
//	v5   leader epochs, as committed (KIP-320)
//	v6   flexible
//	v7   require stable (KIP-447): an offset that a transaction may still change is
//	     UNSTABLE_OFFSET_COMMIT
//	v8   several groups at once (KIP-709)
//	v9   members of consumer groups (KIP-848)
//	v10  topic ids instead of names (KIP-516)
//
// A group or topic that does not exist has no offsets: -1 and no error for each
// partition asked for. Clients stop working when they get anything else. Version
// 1 has no place for an error of the group, so that each partition carries it.

func (c *conn) offsetFetch(r *request, req *kmsg.OffsetFetchRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if r.version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, s.fetchOffsets(&req.Groups[i], r.version, req.RequireStable))
		}
		return resp
	}
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group, one.MemberEpoch = req.Group, -1
	if req.Topics != nil || r.version < 2 {
		one.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = req.Topics[i].Topic, req.Topics[i].Partitions
		one.Topics = append(one.Topics, t)
	}
	res := s.fetchOffsets(&one, r.version, r.version >= 7 && req.RequireStable)
	resp.ErrorCode = res.ErrorCode
	for i := range res.Topics {
		t := &res.Topics[i]
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			o := kmsg.NewOffsetFetchResponseTopicPartition()
			o.Partition, o.Offset, o.LeaderEpoch, o.Metadata, o.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// fetchOffsets answers for one group.
func (s *Server) fetchOffsets(req *kmsg.OffsetFetchRequestGroup, version int16, stable bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = req.Group
	ask := group.FetchRequest{Group: req.Group, MemberID: deref(req.MemberID), MemberEpoch: req.MemberEpoch, All: req.Topics == nil, Stable: stable}
	known := make([]error, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		var id lattice.TopicID
		if id, known[i] = s.committedTopic(t.Topic, t.TopicID, version >= 10); known[i] != nil {
			continue
		}
		for _, p := range t.Partitions {
			ask.Partitions = append(ask.Partitions, lattice.TopicPartition{Topic: id, Partition: p})
		}
	}
	res := s.groups.FetchOffsets(ask)
	code := s.code(res.Err)
	switch {
	case code != 0 && version >= 2:
		out.ErrorCode = code
	case ask.All:
		out.Topics = s.allOffsets(res.Offsets)
	default:
		next := 0
		for i := range req.Topics {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
			for _, p := range req.Topics[i].Partitions {
				found := group.CommittedOffset{Offset: -1, LeaderEpoch: -1}
				found.Partition = p
				if known[i] == nil && code == 0 {
					found = res.Offsets[next]
					next++
				}
				o := s.committed(found)
				if o.ErrorCode == 0 {
					o.ErrorCode = code
				}
				if known[i] != nil && version >= 10 {
					o.ErrorCode = s.code(known[i])
				}
				t.Partitions = append(t.Partitions, o)
			}
			out.Topics = append(out.Topics, t)
		}
	}
	return out
}

// allOffsets groups offsets, which are sorted by topic, by topic.
func (s *Server) allOffsets(offsets []group.CommittedOffset) []kmsg.OffsetFetchResponseGroupTopic {
	var topics []kmsg.OffsetFetchResponseGroupTopic
	for _, o := range offsets {
		if n := len(topics); n == 0 || topics[n-1].TopicID != o.TopicPartition.Topic {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic, t.TopicID = o.Topic, o.TopicPartition.Topic
			topics = append(topics, t)
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, s.committed(o))
	}
	return topics
}

// committed is one offset as it is answered. Whoever gets it goes on there, also where
// the records up to it are not here yet.
func (s *Server) committed(o group.CommittedOffset) kmsg.OffsetFetchResponseGroupTopicPartition {
	s.store.HearEnd(o.TopicPartition, o.Offset)
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = o.Partition, o.Offset, o.LeaderEpoch
	p.Metadata = &o.Metadata // null would be legal, but some clients do not take it
	if o.Unstable {
		p.ErrorCode = s.code(kerr.UnstableOffsetCommit)
	}
	return p
}
