package kafka

import (
	"cmp"
	"slices"

	"github.com/lattice-log/lattice/engine/partition"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers (key 61), version 0 (KIP-664): the producers that a partition
// knows, and since where their transactions are open.

func (c *conn) describeProducers(_ *request, req *kmsg.DescribeProducersRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		for _, n := range t.Partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = n
			log, err := s.partition(t.Topic, n)
			if p.ErrorCode, p.ErrorMessage = s.fail(err); err == nil {
				p.ActiveProducers = activeProducers(log)
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func activeProducers(log *partition.Partition) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	all := log.Producers()
	slices.SortFunc(all, func(a, b partition.ProducerState) int { return cmp.Compare(a.ID, b.ID) })
	var out []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for _, p := range all {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = p.ID, int32(p.Epoch), p.LastSequence, p.LastTimestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = 0, p.TxnStart
		out = append(out, a)
	}
	return out
}
