package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTransactions (key 65), version 0 (KIP-664).

func (c *conn) describeTransactions(_ *request, req *kmsg.DescribeTransactionsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	for _, id := range req.TransactionalIDs {
		out := kmsg.NewDescribeTransactionsResponseTransactionState()
		out.TransactionalID = id
		t, err := s.txns.Describe(id)
		if out.ErrorCode = s.code(err); err != nil {
			out.ProducerID, out.ProducerEpoch, out.StartTimestamp = -1, -1, -1
			resp.TransactionStates = append(resp.TransactionStates, out)
			continue
		}
		out.State, out.TimeoutMillis = t.State.String(), int32(t.Timeout.Milliseconds())
		out.ProducerID, out.ProducerEpoch, out.StartTimestamp = t.Producer, t.Epoch, -1
		if !t.Started.IsZero() {
			out.StartTimestamp = t.Started.UnixMilli()
		}
		for _, tp := range t.Partitions { // one topic's stand together
			topic, ok := s.store.TopicByID(tp.Topic)
			if !ok {
				continue // deleted meanwhile
			}
			if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != topic.Name {
				in := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
				in.Topic = topic.Name
				out.Topics = append(out.Topics, in)
			}
			last := &out.Topics[len(out.Topics)-1]
			last.Partitions = append(last.Partitions, tp.Partition)
		}
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return resp
}
