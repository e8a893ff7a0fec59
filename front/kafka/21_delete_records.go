package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteRecords (key 21), versions 0 to 2 (KIP-107).
//
//	v2  flexible
//
// The start of the log moves forward, durably, where the partition is led; -1 stands
// for the high watermark.

func (c *conn) deleteRecords(_ *request, req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			res := kmsg.NewDeleteRecordsResponseTopicPartition()
			res.Partition = p.Partition
			start, err := c.truncate(t.Topic, p.Partition, p.Offset, remoteWait(req.TimeoutMillis))
			if res.LowWatermark = start; err != nil {
				res.LowWatermark = -1
			}
			res.ErrorCode = c.srv.code(err)
			out.Partitions = append(out.Partitions, res)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *conn) truncate(topic string, index int32, before int64, wait time.Duration) (int64, error) {
	id, ok := c.srv.store.TopicIDOf(topic)
	if !ok {
		return -1, kerr.UnknownTopicOrPartition
	}
	_, _, err := c.srv.store.Route(id, index)
	switch {
	case err != nil:
		return -1, err
	case before < -1:
		return -1, refuse(kerr.OffsetOutOfRange, "offset %d: want -1 or an offset of the log", before)
	}
	return c.srv.store.Truncate(c.ctx, id, index, before, wait)
}
