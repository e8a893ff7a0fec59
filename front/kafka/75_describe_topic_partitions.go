package kafka

import (
	"slices"
	"strings"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTopicPartitions (key 75), version 0 (KIP-966).
//
// Topics in the order of their names, and no more partitions than the client
// asked for: the cursor of the answer says where the next request goes on. A
// request without topics means all of them.

// maxDescribed is Kafka's max.request.partition.size.limit.
const maxDescribed = 2000

func (c *conn) describeTopicPartitions(_ *request, req *kmsg.DescribeTopicPartitionsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	left := int32(maxDescribed)
	if req.ResponsePartitionLimit > 0 {
		left = min(left, req.ResponsePartitionLimit)
	}
	for _, name := range c.describedNames(req) {
		t, err := c.findTopic(&name, [16]byte{}, false)
		out := kmsg.NewDescribeTopicPartitionsResponseTopic()
		out.Topic = &name
		out.AuthorizedOperations = notAsked
		if err != nil {
			out.ErrorCode = s.code(err)
			resp.Topics = append(resp.Topics, out)
			continue
		}
		first := int32(0)
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = min(max(req.Cursor.Partition, 0), t.Partitions)
		}
		if left <= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first}
			return resp
		}
		last := min(t.Partitions, first+left)
		out.TopicID, out.IsInternal = t.ID, internalName(t.Name)
		out.AuthorizedOperations = topicOperations
		for i := first; i < last; i++ {
			out.Partitions = append(out.Partitions, s.describedPartition(t, i))
		}
		resp.Topics = append(resp.Topics, out)
		if left -= last - first; last < t.Partitions {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: last}
			return resp
		}
	}
	return resp
}

// describedNames lists the topics of the request from the cursor on, in order.
func (c *conn) describedNames(req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	if len(req.Topics) == 0 {
		for _, t := range c.srv.listed() {
			names = append(names, t.Name)
		}
	}
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		i, _ := slices.BinarySearchFunc(names, req.Cursor.Topic, strings.Compare)
		names = names[i:]
	}
	return names
}

func (s *Server) describedPartition(t store.Topic, i int32) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	at := s.place(t, i)
	p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	p.Partition, p.LeaderID, p.LeaderEpoch = i, at.leader, at.epoch
	p.Replicas, p.ISR, p.OfflineReplicas, p.ErrorCode = at.replicas, at.isr, at.offline, at.code
	p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
	if p.ISR == nil {
		p.ISR = []int32{}
	}
	return p
}
