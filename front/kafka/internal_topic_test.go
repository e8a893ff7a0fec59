package kafka

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// allTopics returns what a client sees that asks for all topics.
func allTopics(c *client) []kmsg.MetadataResponseTopic {
	req := newReq[*kmsg.MetadataRequest](12)
	req.Topics = nil
	return ask[*kmsg.MetadataResponse](c, req).Topics
}

// TestInternalTopic: __consumer_offsets appears with the first look for a group's
// coordinator, can be read, and gives Kafka's error to whoever wants to change it.
func TestInternalTopic(t *testing.T) {
	f := newFixture(t, Config{AutoCreate: true, DefaultPartitions: 1})
	c := f.dial()
	find := newReq[*kmsg.FindCoordinatorRequest](4)
	find.CoordinatorType, find.CoordinatorKeys = coordinatorOfTransactions, []string{"x"}
	ask[*kmsg.FindCoordinatorResponse](c, find)
	if got := allTopics(c); len(got) != 0 {
		t.Fatalf("before a group's coordinator was looked for: %+v", got)
	}
	find.CoordinatorType = coordinatorOfGroups
	ask[*kmsg.FindCoordinatorResponse](c, find)
	all := allTopics(c)
	if len(all) != 1 || *all[0].Topic != store.OffsetsTopic || !all[0].IsInternal || len(all[0].Partitions) != 1 || all[0].TopicID == [16]byte{} {
		t.Fatalf("afterwards: %+v", all)
	}
	described := ask[*kmsg.DescribeTopicPartitionsResponse](c, newReq[*kmsg.DescribeTopicPartitionsRequest](0)).Topics
	if len(described) != 1 || !described[0].IsInternal || described[0].TopicID != all[0].TopicID {
		t.Errorf("described: %+v", described)
	}

	topic, _ := f.store.Topic(store.OffsetsTopic)
	for v := int16(9); v <= 13; v += 4 { // by name, by id
		if got := ask[*kmsg.ProduceResponse](c, produceReq(topic, v, 0, batch(record.None, "v"))).Topics[0].Partitions[0]; got.ErrorCode != kerr.InvalidTopicException.Code {
			t.Errorf("produce, version %d: error %d", v, got.ErrorCode)
		}
	}
	del := newReq[*kmsg.DeleteTopicsRequest](5)
	del.TopicNames = []string{store.OffsetsTopic}
	if got := ask[*kmsg.DeleteTopicsResponse](c, del).Topics[0]; got.ErrorCode != kerr.InvalidTopicException.Code || got.ErrorMessage == nil {
		t.Errorf("delete: %+v", got)
	}
	create := newReq[*kmsg.CreateTopicsRequest](7)
	want := kmsg.NewCreateTopicsRequestTopic()
	want.Topic, want.NumPartitions, want.ReplicationFactor = store.OffsetsTopic, 50, 1
	create.Topics = append(create.Topics, want)
	if got := ask[*kmsg.CreateTopicsResponse](c, create).Topics[0]; got.ErrorCode != kerr.TopicAlreadyExists.Code {
		t.Errorf("create: error %d", got.ErrorCode)
	}
	purge := newReq[*kmsg.DeleteRecordsRequest](2)
	pt, pp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	pp.Offset = -1
	pt.Topic, pt.Partitions = store.OffsetsTopic, append(pt.Partitions, pp)
	purge.Topics = append(purge.Topics, pt)
	if got := ask[*kmsg.DeleteRecordsResponse](c, purge).Topics[0].Partitions[0]; got.ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("delete records: error %d", got.ErrorCode)
	}
}

// TestInternalTopicByPattern: a pattern that the node resolves matches it, and
// reading it is waiting, not failing.
func TestInternalTopicByPattern(t *testing.T) {
	f := newFixture(t, Config{AutoCreate: true, DefaultPartitions: 1})
	f.topic("plain", 1)
	cl := f.kgo(kgo.ConsumerGroup("g"), kgo.ConsumeRegex(), kgo.ConsumeTopics("^(plain|__consumer_.*)$"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ServerSideBalancer(), kgo.FetchMaxWait(100*time.Millisecond))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "plain", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for seen := 0; seen == 0; {
		fetched := cl.PollFetches(ctx)
		for _, e := range fetched.Errors() {
			t.Fatalf("fetch %s: %v", e.Topic, e.Err)
		}
		seen = fetched.NumRecords()
	}
	d, err := f.store.Groups().Describe("g")
	if err != nil || len(d.Members) != 1 {
		t.Fatalf("describe the group: %+v, %v", d, err)
	}
	internal, _ := f.store.Topic(store.OffsetsTopic)
	if !slices.ContainsFunc(d.Members[0].Target, func(a group.TopicPartitions) bool { return a.ID == internal.ID }) {
		t.Errorf("the member is to read %+v, without the internal topic", d.Members[0].Target)
	}
}
