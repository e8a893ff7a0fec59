package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// epochs asks a node where a leader epoch ends.
func epochs(t *testing.T, n *Node, topic string, epoch int32) (int32, int64, error) {
	t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	rt, rp := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rt.Topic, rp.LeaderEpoch, rp.CurrentLeaderEpoch = topic, epoch, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := client(t, n).SeedBrokers()[0].RetriableRequest(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	return p.LeaderEpoch, p.EndOffset, kerr.ErrorForCode(p.ErrorCode)
}

// fetchAt fetches from an offset as a client that knows an epoch.
func fetchAt(t *testing.T, n *Node, topic store.Topic, epoch int32, offset int64) error {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 1, 0, 1<<20
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rt.TopicID, rp.CurrentLeaderEpoch, rp.FetchOffset, rp.PartitionMaxBytes = topic.Name, topic.ID, epoch, offset, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := client(t, n).SeedBrokers()[0].RetriableRequest(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return kerr.ErrorForCode(resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode)
}

// records reads records of a topic's only partition from its start, with their headers.
func records(t *testing.T, n *Node, topic string, want int) (all []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl := client(t, n, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(all) < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(all), err)
		}
		fetches.EachRecord(func(r *kgo.Record) { all = append(all, r) })
	}
	return all
}

// TestUnclean: the leader is out of reach and has records that the other node lacks. That is
// an admin, and takes the lead. Kafka clients see a new epoch, and where the old one ended. When
// they meet again the old leader follows, what only it had is stranded there, and is
// re-produced once however often that is asked for.
func TestUnclean(t *testing.T) {
	c := newCoupleAs(t, roster.Admin)
	orders := c.topic("orders", 1)
	tp := lattice.TopicPartition{Topic: orders.ID}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	write := func(n *Node, from, to int) {
		t.Helper()
		cl := client(t, n, kgo.DefaultProduceTopic("orders"))
		for i := from; i < to; i++ {
			r := &kgo.Record{Key: []byte("k"), Value: fmt.Append(nil, i), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(c.a, 0, 5)
	sameRecords(t, c.sa, c.sb, tp)
	c.cut(true)
	write(c.a, 5, 8)
	pa, err := c.sa.Partition(tp.Topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := pa.Bounds().Term

	if u, err := c.sb.LeadUnclean(ctx, tp, c.sb.Info().Node, true); err != nil || u.Base != 5 || u.Committed != 5 || u.Old != c.sa.Info().Node {
		t.Fatalf("%+v, %v", u, err)
	}
	if leader, err := c.sb.LeaderOf(tp.Topic, 0); err != nil || leader != c.sa.Info().Node {
		t.Fatalf("asking what would be lost has changed something: %v", err)
	}
	if _, err := c.sb.LeadUnclean(ctx, tp, c.sb.Info().Node, false); err != nil {
		t.Fatal(err)
	}
	write(c.b, 100, 104)
	c.cut(false)
	c.leads(tp, c.sb, c.sa)
	sameRecords(t, c.sb, c.sa, tp)

	for _, n := range []*Node{c.a, c.b} {
		if term, end, err := epochs(t, n, "orders", old); err != nil || term != old || end != 5 {
			t.Fatalf("epoch %d is %d and ends at %d: %v", old, term, end, err)
		}
		if err := fetchAt(t, n, orders, old, 6); !errors.Is(err, kerr.FencedLeaderEpoch) {
			t.Fatalf("a fetch in the old epoch: %v", err)
		}
	}
	if err := fetchAt(t, c.b, orders, -1, 50); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Fatalf("a fetch beyond the end: %v", err)
	}

	all, err := c.sa.Stranded(tp)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d branches: %v", len(all), err)
	}
	b := all[0]
	if b.First != 5 || b.End != 8 || b.Records != 3 || b.FirstTerm != old || b.Leader != c.sa.Info().Node || c.sa.StrandedBlocks() != int64(b.Blocks) {
		t.Fatalf("offsets %d to %d, %d records of term %d, %d batches are counted", b.First, b.End, b.Records, b.FirstTerm, c.sa.StrandedBlocks())
	}
	for i := range 3 {
		if i == 2 { // a stop came before it was noted: the leader knows the batch again
			p, err := c.sa.Partition(tp.Topic, 0)
			if err != nil {
				t.Fatal(err)
			}
			again, err := p.FindStranded(b.ID())
			if err == nil {
				err = p.MarkStranded(again, branch.Progress{State: branch.Underway, Producer: again.Progress.Producer})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		done, err := c.sa.Reproduce(ctx, tp, b.ID())
		if err != nil || done.State != branch.Reproduced || done.Records != 3 || done.First != 9 || done.End != 12 {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	if n := c.sa.StrandedBlocks(); n != 0 {
		t.Fatalf("%d batches are stranded", n)
	}
	sameRecords(t, c.sb, c.sa, tp)
	got := records(t, c.b, "orders", 12)
	var values []string
	for _, r := range got {
		values = append(values, string(r.Value))
	}
	if want := []string{"0", "1", "2", "3", "4", "100", "101", "102", "103", "5", "6", "7"}; !slices.Equal(values, want) {
		t.Fatalf("%v, want %v", values, want)
	}
	r := got[10]
	from := fmt.Sprintf("orders/0/%d/6", old)
	if len(r.Headers) != 2 || r.Headers[1].Key != store.StrandedHeader || string(r.Headers[1].Value) != from || string(r.Key) != "k" ||
		!r.Timestamp.Equal(time.UnixMilli(1_700_000_000_006)) {
		t.Fatalf("%+v of %s at %s", r.Headers, r.Key, r.Timestamp)
	}
	if err := c.sa.Discard(tp, b.ID()); err != nil {
		t.Fatal(err)
	}
	if all, err := c.sa.Stranded(tp); err != nil || len(all) != 0 {
		t.Fatalf("%d branches: %v", len(all), err)
	}
}

// TestUncleanByAWriter: who is no admin cannot, and is told so.
func TestUncleanByAWriter(t *testing.T) {
	c := newCouple(t)
	orders := c.topic("orders", 1)
	tp := lattice.TopicPartition{Topic: orders.ID}
	produceTo(t, c.sa, tp, 1, "x")
	sameRecords(t, c.sa, c.sb, tp)
	if _, err := c.sb.LeadUnclean(t.Context(), tp, c.sb.Info().Node, false); !errors.Is(err, store.ErrRole) {
		t.Fatal(err)
	}
}
