package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeShareGroupOffsets (key 90), versions 0 to 1 (KIP-932).
//
//	v1  the lag (KIP-1226)
//
// A partition of which the group has had nothing has start offset -1 and no error, and
// so has one that does not exist.

func (c *conn) describeShareGroupOffsets(_ *request, req *kmsg.DescribeShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
	for i := range req.Groups {
		g := &req.Groups[i]
		out := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		out.GroupID = g.GroupID
		if g.Topics == nil {
			c.everyShareOffset(&out)
		} else {
			c.shareOffsets(&out, g)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

// everyShareOffset answers for all that the group has had something of.
func (c *conn) everyShareOffset(out *kmsg.DescribeShareGroupOffsetsResponseGroup) {
	all, err := c.srv.shares.Offsets(out.GroupID, nil)
	out.ErrorCode, out.ErrorMessage = c.srv.fail(err)
	for _, p := range all {
		t, ok := c.srv.store.TopicByID(p.Topic)
		if !ok {
			continue
		}
		if n := len(out.Topics); n == 0 || out.Topics[n-1].TopicID != t.ID {
			topic := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
			topic.Topic, topic.TopicID = t.Name, t.ID
			out.Topics = append(out.Topics, topic)
		}
		last := &out.Topics[len(out.Topics)-1]
		last.Partitions = append(last.Partitions, shareOffset(p))
	}
}

// shareOffsets answers for what the request names.
func (c *conn) shareOffsets(out *kmsg.DescribeShareGroupOffsetsResponseGroup, g *kmsg.DescribeShareGroupOffsetsRequestGroup) {
	for i := range g.Topics {
		t := &g.Topics[i]
		topic := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
		topic.Topic = t.Topic
		id, _ := c.srv.store.TopicIDOf(t.Topic)
		topic.TopicID = id
		parts := make([]lattice.TopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			parts[j] = lattice.TopicPartition{Topic: id, Partition: p}
		}
		progress, err := c.srv.shares.Offsets(g.GroupID, parts)
		for j, p := range t.Partitions {
			one := shareOffset(share.Progress{TopicPartition: lattice.TopicPartition{Partition: p}, Start: -1, Lag: -1})
			if err == nil {
				one = shareOffset(progress[j])
			}
			topic.Partitions = append(topic.Partitions, one)
		}
		out.Topics = append(out.Topics, topic)
	}
}

func shareOffset(p share.Progress) kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition {
	out := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
	out.Partition, out.StartOffset, out.LeaderEpoch, out.Lag = p.Partition, p.Start, max(p.Term, 0), p.Lag
	return out
}
