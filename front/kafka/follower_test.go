package kafka

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// replicate gives b's replica of a partition up to that many more batches, -1: all.
func (p *pair) replicate(topic store.Topic, n int32, batches int) {
	t := p.a.t
	t.Helper()
	from, err := p.a.store.Partition(topic.ID, n)
	if err != nil {
		t.Fatal(err)
	}
	to, err := p.b.store.Partition(topic.ID, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i != batches; i++ {
		s, err := from.ReadSpan(to.Position().Size, 1)
		if lattice.KindOf(err) == lattice.NotYet && err != nil {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Receive(s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplicaReads: what a client sees of a partition that another node leads, as far
// as its records have come. It is told of that node's terms, and where this replica
// ends, its position waits.
func TestReplicaReads(t *testing.T) {
	p := newPair(t, roster.Writer)
	topic := p.topic("t", 1)
	c := p.b.dial()
	for i := range 5 {
		if got := c.produce(topic, 9, 0, batch(record.None, fmt.Sprint(i))); got.ErrorCode != 0 || got.BaseOffset != int64(i) {
			t.Fatalf("produce: %+v", got)
		}
	}
	term := p.a.term(topic, 0)
	p.replicate(topic, 0, 2)
	if part := ask[*kmsg.MetadataResponse](c, newReq[*kmsg.MetadataRequest](12)).Topics[0].Partitions[0]; part.ErrorCode != 0 || part.LeaderEpoch != term || part.Leader != p.b.srv.nodeID() {
		t.Errorf("metadata: %+v, want epoch %d", part, term)
	}
	if got := c.fetch(topic, 12, 0, 0); got.ErrorCode != 0 || got.HighWatermark != 2 || got.LastStableOffset != 2 || !slices.Equal(values(t, got.RecordBatches), []string{"0", "1"}) {
		t.Errorf("what is here: %+v", got)
	}
	list := func(at int64) kmsg.ListOffsetsResponseTopicPartition {
		req := newReq[*kmsg.ListOffsetsRequest](7)
		lt, lp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		lt.Topic, lp.Timestamp, lp.CurrentLeaderEpoch = "t", at, term
		lt.Partitions = append(lt.Partitions, lp)
		req.Topics = append(req.Topics, lt)
		return ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0]
	}
	if e, l := list(earliestOffset), list(latestOffset); e.ErrorCode != 0 || e.Offset != 0 || l.ErrorCode != 0 || l.Offset != 2 || l.LeaderEpoch != term {
		t.Errorf("earliest %+v, latest %+v", e, l)
	}
	// Whoever read on at another node is behind the end here: that is neither out of
	// range nor another history, by whichever way it asks.
	for _, last := range []int32{-1, term} {
		for _, at := range []int64{3, 5, 9} {
			req := fetchReq(topic, 12, 0, at)
			req.MaxWaitMillis = 20
			part := &req.Topics[0].Partitions[0]
			part.LastFetchedEpoch, part.CurrentLeaderEpoch = last, term
			if got := ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != 2 || got.DivergingEpoch.EndOffset != -1 {
				t.Errorf("fetch at %d, last epoch %d: %+v", at, last, got)
			}
		}
	}
	end := func(epoch, current int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		req := newReq[*kmsg.OffsetForLeaderEpochRequest](4)
		et, ep := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		et.Topic, ep.LeaderEpoch, ep.CurrentLeaderEpoch = "t", epoch, current
		et.Partitions = append(et.Partitions, ep)
		req.Topics = append(req.Topics, et)
		return ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
	}
	// By the answers to its own clients this node knows that the log goes to 5.
	if got := end(term, term); got.ErrorCode != 0 || got.LeaderEpoch != term || got.EndOffset != 5 {
		t.Errorf("end of the epoch: %+v", got)
	}
	// Epochs that are over, and that are not known here.
	if got := end(term, term-1); got.ErrorCode != kerr.FencedLeaderEpoch.Code {
		t.Errorf("an old epoch: %+v", got)
	}
	if got := end(term, term+1); got.ErrorCode != kerr.UnknownLeaderEpoch.Code {
		t.Errorf("a new epoch: %+v", got)
	}
	for current, want := range map[int32]*kerr.Error{term - 1: kerr.FencedLeaderEpoch, term + 1: kerr.UnknownLeaderEpoch} {
		req := fetchReq(topic, 12, 0, 0)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = current
		if got := ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0]; got.ErrorCode != want.Code {
			t.Errorf("fetch with epoch %d: %+v, want %v", current, got, want)
		}
	}
	// A fetch that waits behind the end goes on when the records come.
	req := fetchReq(topic, 12, 0, 3)
	req.MaxWaitMillis = 60_000
	c.send(req)
	p.replicate(topic, 0, -1)
	if got := c.recv().(*kmsg.FetchResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || !slices.Equal(values(t, got.RecordBatches), []string{"3", "4"}) && !slices.Equal(values(t, got.RecordBatches), []string{"3"}) {
		t.Errorf("after the wait: %+v", got)
	}
}

// TestCommittedElsewhere: a member of a group that moves to a node whose replica is
// behind goes on where the group is, and is not sent back.
func TestCommittedElsewhere(t *testing.T) {
	p := newPair(t, roster.Writer)
	topic := p.topic("t", 1)
	p.link.home = p.a.srv
	ca, cb := p.a.dial(), p.b.dial()
	for i := range 4 {
		ca.produce(topic, 9, 0, batch(record.None, fmt.Sprint(i)))
	}
	term := p.a.term(topic, 0)
	p.replicate(topic, 0, 1)
	commit := newReq[*kmsg.OffsetCommitRequest](8)
	commit.Group, commit.Generation = "g", -1
	ct, cp := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	ct.Topic, cp.Offset, cp.LeaderEpoch = "t", 4, term
	ct.Partitions = append(ct.Partitions, cp)
	commit.Topics = append(commit.Topics, ct)
	if got := ask[*kmsg.OffsetCommitResponse](ca, commit).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Fatalf("commit: %+v", got)
	}
	fetched := func(c *client) kmsg.OffsetFetchResponseTopicPartition {
		req := newReq[*kmsg.OffsetFetchRequest](7)
		req.Group = "g"
		ft := kmsg.NewOffsetFetchRequestTopic()
		ft.Topic, ft.Partitions = "t", []int32{0}
		req.Topics = append(req.Topics, ft)
		return ask[*kmsg.OffsetFetchResponse](c, req).Topics[0].Partitions[0]
	}
	until(t, "the group's offset on the other node", func() bool { p.meet(); return fetched(cb).Offset == 4 })
	req := newReq[*kmsg.OffsetForLeaderEpochRequest](4)
	et, ep := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	et.Topic, ep.LeaderEpoch, ep.CurrentLeaderEpoch = "t", term, term
	et.Partitions = append(et.Partitions, ep)
	req.Topics = append(req.Topics, et)
	if got := ask[*kmsg.OffsetForLeaderEpochResponse](cb, req).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.EndOffset < 4 {
		t.Errorf("end of the epoch: %+v: the member would go back", got)
	}
	// What it commits on that node, the other sees.
	commit.Topics[0].Partitions[0].Offset = 3
	commit.Group = "h"
	if got := ask[*kmsg.OffsetCommitResponse](cb, commit).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Fatalf("commit at the other node: %+v", got)
	}
}
