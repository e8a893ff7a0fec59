package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// TestForwardedAdministration: what clients of another node may do with a topic, and
// what they are told about the rest.
func TestForwardedAdministration(t *testing.T) {
	p := newPair(t, roster.Writer)
	topic, compacted := p.topic("t", 1), p.topic("c", 1, "cleanup.policy", "compact")
	c := p.b.dial()
	c.produce(topic, 9, 0, batch(record.None, "a", "b", "c"))
	truncate := func(topic store.Topic, before int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := newReq[*kmsg.DeleteRecordsRequest](2)
		rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
		rt.Topic, rp.Offset = topic.Name, before
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.DeleteRecordsResponse](c, req).Topics[0].Partitions[0]
	}
	if got := truncate(topic, 2); got.ErrorCode != 0 || got.LowWatermark != 2 {
		t.Errorf("delete records: %+v", got)
	}
	if got := truncate(topic, 9); got.ErrorCode != kerr.OffsetOutOfRange.Code || got.LowWatermark != -1 {
		t.Errorf("beyond the end: %+v", got)
	}
	if got := truncate(topic, -2); got.ErrorCode != kerr.OffsetOutOfRange.Code {
		t.Errorf("before -2: %+v", got)
	}
	if got := truncate(compacted, -1); got.ErrorCode != kerr.PolicyViolation.Code {
		t.Errorf("of a compacted topic: %+v", got)
	}
	p.link.set(func() fate { return away })
	if got := truncate(topic, -1); got.ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("leader away: %+v", got)
	}
	p.link.set(nil)
	// A transaction has only partitions that its coordinator leads.
	tx := p.b.producer("tx", 3)
	if code := tx.add(topic, 0); code != kerr.PolicyViolation.Code || kerr.PolicyViolation.Retriable {
		t.Errorf("added to a transaction: %d", code)
	}
	if code := tx.put(topic, 0, "x"); code != kerr.InvalidTxnState.Code {
		t.Errorf("a batch of a transaction: %d", code)
	}
	// Changes of the topic are state: they take effect where it is led.
	grow := newReq[*kmsg.CreatePartitionsRequest](3)
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = "t", 3
	grow.Topics = append(grow.Topics, gt)
	if got := ask[*kmsg.CreatePartitionsResponse](c, grow).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("create partitions: %+v", got)
	}
	p.meet()
	until(t, "the new partition at its leader", func() bool { return c.produce(topic, 9, 2, batch(record.None, "new")).ErrorCode == 0 })
	alter := newReq[*kmsg.IncrementalAlterConfigsRequest](1)
	ar, ac := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	ar.ResourceType, ar.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	ac.Name, ac.Value = "max.message.bytes", kmsg.StringPtr("100")
	ar.Configs = append(ar.Configs, ac)
	alter.Resources = append(alter.Resources, ar)
	if got := ask[*kmsg.IncrementalAlterConfigsResponse](c, alter).Resources[0]; got.ErrorCode != 0 {
		t.Fatalf("alter configs: %+v", got)
	}
	p.meet()
	until(t, "the config at the leader", func() bool {
		return c.produce(topic, 9, 0, batch(record.None, strings.Repeat("x", 200))).ErrorCode == kerr.MessageTooLarge.Code
	})
	drop := newReq[*kmsg.DeleteTopicsRequest](6)
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = kmsg.StringPtr("t")
	drop.Topics = append(drop.Topics, dt)
	if got := ask[*kmsg.DeleteTopicsResponse](c, drop).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("delete: %+v", got)
	}
	p.meet()
	until(t, "no topic at the leader", func() bool { _, ok := p.a.store.TopicByID(topic.ID); return !ok })
}
