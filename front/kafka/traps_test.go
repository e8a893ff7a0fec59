package kafka

import (
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each TestTrap is a point at which servers that speak the Kafka protocol have
// broken real clients.

// newReq returns an empty request of a version.
func newReq[R kmsg.Request](version int16) R {
	var r R
	r = kmsg.RequestForKey(r.Key()).(R)
	r.SetVersion(version)
	return r
}

// TestTrap01 advertises Produce from version 0: older librdkafka turns
// compression off without it.
func TestTrap01ProduceIsAdvertisedFromZero(t *testing.T) {
	f := newFixture(t, Config{})
	resp := ask[*kmsg.ApiVersionsResponse](f.dial(), newReq[*kmsg.ApiVersionsRequest](0))
	for _, k := range resp.ApiKeys {
		if k.ApiKey == 0 {
			if k.MinVersion != 0 || k.MaxVersion != 13 {
				t.Errorf("Produce %d to %d", k.MinVersion, k.MaxVersion)
			}
			return
		}
	}
	t.Error("Produce is not advertised")
}

// join joins a classic group alone and syncs; it returns the member id and generation.
func (c *client) join(version int16, group, member string, instance *string) (string, int32) {
	c.t.Helper()
	req := newReq[*kmsg.JoinGroupRequest](version)
	req.Group, req.MemberID, req.InstanceID = group, member, instance
	req.ProtocolType = "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte("meta-"+group)
	req.Protocols = append(req.Protocols, p)
	resp := ask[*kmsg.JoinGroupResponse](c, req)
	if resp.ErrorCode == 79 {
		return c.join(version, group, resp.MemberID, instance)
	}
	if resp.ErrorCode != 0 {
		c.t.Fatalf("join version %d: error %d", version, resp.ErrorCode)
	}
	return resp.MemberID, resp.Generation
}

func (c *client) sync(version int16, group, member string, generation int32, assign map[string]string) *kmsg.SyncGroupResponse {
	c.t.Helper()
	req := newReq[*kmsg.SyncGroupRequest](version)
	req.Group, req.MemberID, req.Generation = group, member, generation
	for m, a := range assign {
		out := kmsg.NewSyncGroupRequestGroupAssignment()
		out.MemberID, out.MemberAssignment = m, []byte(a)
		req.GroupAssignment = append(req.GroupAssignment, out)
	}
	return ask[*kmsg.SyncGroupResponse](c, req)
}

func TestTrap02JoinGroupVersions0And1(t *testing.T) {
	f := newFixture(t, Config{})
	for v := int16(0); v <= 9; v++ {
		c := f.dial()
		group := string(rune('a' + v))
		member, generation := c.join(v, group, "", nil)
		if s := c.sync(min(v, 5), group, member, generation, map[string]string{member: "mine"}); s.ErrorCode != 0 || string(s.MemberAssignment) != "mine" {
			t.Errorf("version %d: error %d, assignment %q", v, s.ErrorCode, s.MemberAssignment)
		}
		leave := newReq[*kmsg.LeaveGroupRequest](min(v, 5))
		leave.Group, leave.MemberID = group, member
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = member
		leave.Members = append(leave.Members, m)
		if l := ask[*kmsg.LeaveGroupResponse](c, leave); l.ErrorCode != 0 || v >= 3 && l.Members[0].ErrorCode != 0 {
			t.Errorf("leave version %d: %+v", v, l)
		}
	}
}

// offsets asks for offset 0 of each topic and returns what the answer says.
func (c *client) offsets(version int16, group string, topics ...store.Topic) (got []kmsg.OffsetFetchResponseGroupTopicPartition, code int16) {
	c.t.Helper()
	req := newReq[*kmsg.OffsetFetchRequest](version)
	g := kmsg.NewOffsetFetchRequestGroup()
	req.Group, g.Group, g.MemberEpoch = group, group, -1
	for _, topic := range topics {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = topic.Name, []int32{0}
		req.Topics = append(req.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.TopicID, gt.Partitions = topic.Name, topic.ID, []int32{0}
		g.Topics = append(g.Topics, gt)
	}
	req.Groups = append(req.Groups, g)
	resp := ask[*kmsg.OffsetFetchResponse](c, req)
	if version >= 8 {
		for _, t := range resp.Groups[0].Topics {
			got = append(got, t.Partitions...)
		}
		return got, resp.Groups[0].ErrorCode
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			got = append(got, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode})
		}
	}
	return got, resp.ErrorCode
}

func TestTrap03OffsetFetchOfUnknownGroup(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	for v := int16(1); v <= 10; v++ {
		asked := []store.Topic{topic}
		if v < 10 {
			asked = append(asked, store.Topic{Name: "not-there"})
		}
		got, code := c.offsets(v, "nope", asked...)
		if code != 0 || len(got) != len(asked) {
			t.Fatalf("version %d: error %d, %d partitions", v, code, len(got))
		}
		for _, p := range got {
			if p.Offset != -1 || p.ErrorCode != 0 || p.Metadata == nil || *p.Metadata != "" {
				t.Errorf("version %d: %+v, want offset -1, no error, empty metadata", v, p)
			}
		}
		if v < 2 {
			continue
		}
		all := newReq[*kmsg.OffsetFetchRequest](v)
		all.Group = "nope"
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = "nope", -1
		all.Groups = append(all.Groups, g)
		resp := ask[*kmsg.OffsetFetchResponse](c, all)
		if len(resp.Topics) != 0 || resp.ErrorCode != 0 || v >= 8 && (resp.Groups[0].ErrorCode != 0 || len(resp.Groups[0].Topics) != 0) {
			t.Errorf("version %d, all topics: %+v", v, resp)
		}
	}
}

// TestTrap04 puts a group's error on each partition where the version has no
// other place. (An empty group id is not legal for anything but that.)
func TestTrap04OffsetFetchErrorsOnVersion1(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	// A member that a consumer group does not know is an error of the whole group.
	c.heartbeat848("g848", topic)
	req := newReq[*kmsg.OffsetFetchRequest](9)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = "g848", kmsg.StringPtr("stranger"), 1
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = "t", []int32{0}
	g.Topics = append(g.Topics, gt)
	req.Groups = append(req.Groups, g)
	if resp := ask[*kmsg.OffsetFetchResponse](c, req); resp.Groups[0].ErrorCode != 25 {
		t.Errorf("error %d, want UNKNOWN_MEMBER_ID for the group", resp.Groups[0].ErrorCode)
	}
	// The same through the code that version 1 uses.
	res := f.srv.fetchOffsets(&g, 1, false)
	if res.ErrorCode != 0 || len(res.Topics) != 1 || res.Topics[0].Partitions[0].ErrorCode != 25 || res.Topics[0].Partitions[0].Offset != -1 {
		t.Errorf("version 1: %+v, want the error on the partition", res)
	}
}

func (c *client) heartbeat848(group string, topics ...store.Topic) *kmsg.ConsumerGroupHeartbeatResponse {
	c.t.Helper()
	req := newReq[*kmsg.ConsumerGroupHeartbeatRequest](1)
	req.Group, req.MemberID = group, "0b9a7a38-6f0a-4d7e-9f29-000000000001"
	req.RebalanceTimeoutMillis = 60_000
	for _, t := range topics {
		req.SubscribedTopicNames = append(req.SubscribedTopicNames, t.Name)
	}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("consumer heartbeat: error %d", resp.ErrorCode)
	}
	return resp
}

func TestTrap05ApiVersionsFromTheFuture(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	b := []byte{0, 0, 0, 0, 0, 18, 0, 99, 0, 0, 0, 7, 0xde, 0xad, 0xbe, 0xef, 0xff}
	b[3] = byte(len(b) - 4)
	c.raw(b)
	got, err := c.readFrame()
	if err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if got[3] != 7 {
		t.Errorf("correlation id %x", got[:4])
	}
	if err := resp.ReadFrom(got[4:]); err != nil || resp.ErrorCode != 35 {
		t.Fatalf("error %d, %v", resp.ErrorCode, err)
	}
	if len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
		t.Errorf("keys %+v", resp.ApiKeys)
	}
	// The connection goes on, with a version that is served.
	if r := ask[*kmsg.ApiVersionsResponse](c, softwareReq(4, "franz-go", "v1.22.3")); r.ErrorCode != 0 || len(r.ApiKeys) < 25 {
		t.Errorf("then: %+v", r)
	}
}

func softwareReq(version int16, name, software string) *kmsg.ApiVersionsRequest {
	r := newReq[*kmsg.ApiVersionsRequest](version)
	r.ClientSoftwareName, r.ClientSoftwareVersion = name, software
	return r
}

func TestTrap06FirstRequestIsMetadata(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 3)
	for _, v := range []int16{10, 9, 0, 13} {
		req := newReq[*kmsg.MetadataRequest](v)
		resp := ask[*kmsg.MetadataResponse](f.dial(), req)
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "127.0.0.1" || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 3 {
			t.Errorf("version %d: %+v", v, resp)
		}
	}
}

func TestTrap07SyncGroupGivesTheLeadersBytes(t *testing.T) {
	f := newFixture(t, Config{})
	a, b := f.dial(), f.dial()
	leader, _ := a.join(5, "g", "", nil)
	// b joins, which makes a join again: both answers come together.
	first := newReq[*kmsg.JoinGroupRequest](3)
	first.Group, first.ProtocolType, first.SessionTimeoutMillis, first.RebalanceTimeoutMillis = "g", "consumer", 10_000, 10_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	first.Protocols = append(first.Protocols, p)
	b.send(first)
	for {
		hb := newReq[*kmsg.HeartbeatRequest](4)
		hb.Group, hb.MemberID, hb.Generation = "g", leader, 1
		if ask[*kmsg.HeartbeatResponse](a, hb).ErrorCode == 27 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	describe := newReq[*kmsg.DescribeGroupsRequest](5)
	describe.Groups = []string{"g"}
	for _, g := range ask[*kmsg.DescribeGroupsResponse](f.dial(), describe).Groups {
		if g.State != "PreparingRebalance" {
			t.Errorf("state %s", g.State)
		}
		for _, m := range g.Members {
			if len(m.MemberAssignment) != 0 {
				t.Errorf("assignment %q while rebalancing", m.MemberAssignment)
			}
		}
	}
	_, generation := a.join(5, "g", leader, nil)
	joined := b.recv().(*kmsg.JoinGroupResponse)
	if joined.ErrorCode != 0 || joined.Generation != generation {
		t.Fatalf("follower: %+v", joined)
	}
	ask := newReq[*kmsg.SyncGroupRequest](5) // the follower comes first, and waits
	ask.Group, ask.MemberID, ask.Generation = "g", joined.MemberID, generation
	b.send(ask)
	if s := a.sync(5, "g", leader, generation, map[string]string{leader: "\x00\x01all"}); string(s.MemberAssignment) != "\x00\x01all" {
		t.Errorf("leader got %q", s.MemberAssignment)
	}
	if s := b.recv().(*kmsg.SyncGroupResponse); s.ErrorCode != 0 || len(s.MemberAssignment) != 0 {
		t.Errorf("the member that was left out got error %d, %q", s.ErrorCode, s.MemberAssignment)
	}
}

func TestTrap08LeaderEpochsAgree(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	c.produce(topic, 9, 0, batch(record.None, "a", "b", "c"))
	term := f.term(topic, 0)

	meta := newReq[*kmsg.MetadataRequest](7)
	if got := ask[*kmsg.MetadataResponse](c, meta).Topics[0].Partitions[0].LeaderEpoch; got != term {
		t.Errorf("Metadata: epoch %d, want %d", got, term)
	}
	h, err := record.ParseHeader(c.fetch(topic, 12, 0, 0).RecordBatches)
	if err != nil || h.LeaderEpoch != term {
		t.Errorf("batch: epoch %d (%v), want %d", h.LeaderEpoch, err, term)
	}
	if got := c.listOffset(topic, 4, -1); got.LeaderEpoch != term || got.Offset != 3 {
		t.Errorf("ListOffsets: %+v, want epoch %d", got, term)
	}
	for v := int16(2); v <= 4; v++ {
		for _, step := range []struct {
			epoch, current, wantEpoch int32
			want                      int64
			code                      int16
		}{
			{term, term, term, 3, 0},
			{term, -1, term, 3, 0},
			{term - 1, -1, -1, -1, 0},    // before all that we know: not 0, which would look like loss
			{term + 1, -1, -1, -1, 75},   // from a future that we do not know
			{term, term - 1, -1, -1, 74}, // the client's leader is over
			{term, term + 1, -1, -1, 75},
		} {
			req := newReq[*kmsg.OffsetForLeaderEpochRequest](v)
			req.ReplicaID = -2
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.LeaderEpoch, rp.CurrentLeaderEpoch = step.epoch, step.current
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			got := ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
			if got.ErrorCode != step.code || got.LeaderEpoch != step.wantEpoch || got.EndOffset != step.want {
				t.Errorf("version %d, %+v: got %+v", v, step, got)
			}
		}
	}
	stale := fetchReq(topic, 12, 0, 0)
	stale.Topics[0].Partitions[0].CurrentLeaderEpoch = term - 1
	if p := ask[*kmsg.FetchResponse](c, stale).Topics[0].Partitions[0]; p.ErrorCode != 74 {
		t.Errorf("Fetch with an old epoch: %d", p.ErrorCode)
	}
	stale.Topics[0].Partitions[0].CurrentLeaderEpoch = term + 1
	if p := ask[*kmsg.FetchResponse](c, stale).Topics[0].Partitions[0]; p.ErrorCode != 75 {
		t.Errorf("Fetch with a newer epoch: %d", p.ErrorCode)
	}
}

func (c *client) listOffset(t store.Topic, version int16, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	req := newReq[*kmsg.ListOffsetsRequest](version)
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.Name
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp, rp.CurrentLeaderEpoch = timestamp, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0]
}

func (c *client) commit(version int16, group string, t store.Topic, offset int64, epoch int32) int16 {
	c.t.Helper()
	req := newReq[*kmsg.OffsetCommitRequest](version)
	req.Group, req.Generation = group, -1
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic, ct.TopicID = t.Name, t.ID
	cp := kmsg.NewOffsetCommitRequestTopicPartition()
	cp.Offset, cp.LeaderEpoch, cp.Metadata = offset, epoch, kmsg.StringPtr("m")
	ct.Partitions = append(ct.Partitions, cp)
	req.Topics = append(req.Topics, ct)
	return ask[*kmsg.OffsetCommitResponse](c, req).Topics[0].Partitions[0].ErrorCode
}

func TestTrap09CommittedLeaderEpochComesBack(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	c.produce(topic, 9, 0, batch(record.None, "a", "b", "c"))
	term := f.term(topic, 0)
	for v := int16(2); v <= 10; v++ {
		want := int32(-1)
		if v >= 7 {
			want = term
		}
		if code := c.commit(v, "g", topic, int64(v%3), want); code != 0 {
			t.Fatalf("commit version %d: %d", v, code)
		}
		for fv := int16(5); fv <= 10; fv++ {
			got, code := c.offsets(fv, "g", topic)
			if code != 0 || got[0].Offset != int64(v%3) || got[0].LeaderEpoch != want || *got[0].Metadata != "m" {
				t.Errorf("committed with %d, fetched with %d: %+v (%d), want epoch %d", v, fv, got, code, want)
			}
		}
	}
}
