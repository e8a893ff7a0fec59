package kafka

import (
	"reflect"
	"testing"

	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestShareGroupsBesideOthers: one set of names, and a place in every list.
func TestShareGroupsBesideOthers(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	a := f.sharer("shares", "a", topic)
	a.produce(topic, 9, 0, batch(record.None, "0", "1"))
	a.fetch(topic, 0)
	c := f.dial()
	member, _ := c.join(5, "classic", "", nil)
	member, generation := c.join(5, "classic", member, nil)
	if generation != 1 {
		t.Fatalf("member %s, generation %d", member, generation)
	}
	if r := f.sharer("classic", "x").beat(0, topic); r.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("join a classic group as a share group's member: %d", r.ErrorCode)
	}
	beat := newReq[*kmsg.ConsumerGroupHeartbeatRequest](1)
	beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis, beat.SubscribedTopicNames = "shares", "c", 60_000, []string{"t"}
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if r := ask[*kmsg.ConsumerGroupHeartbeatResponse](c, beat); r.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("join a share group as a consumer: %d", r.ErrorCode)
	}
	join := newReq[*kmsg.JoinGroupRequest](3)
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "shares", "consumer", 10_000, 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	if r := ask[*kmsg.JoinGroupResponse](c, join); r.ErrorCode != kerr.InconsistentGroupProtocol.Code {
		t.Errorf("join a share group as a classic member: %d", r.ErrorCode)
	}
	list := newReq[*kmsg.ListGroupsRequest](5)
	list.TypesFilter = []string{"share"}
	if r := ask[*kmsg.ListGroupsResponse](c, list); len(r.Groups) != 1 || r.Groups[0].Group != "shares" || r.Groups[0].GroupType != "share" || r.Groups[0].GroupState != "Stable" {
		t.Errorf("%+v", r.Groups)
	}
	desc := newReq[*kmsg.ShareGroupDescribeRequest](1)
	desc.GroupIDs = []string{"shares", "classic"}
	r := ask[*kmsg.ShareGroupDescribeResponse](c, desc)
	if g := r.Groups[0]; g.ErrorCode != 0 || g.Assignor != "simple" || len(g.Members) != 1 || !reflect.DeepEqual(g.Members[0].Assignment.TopicPartitions[0].Partitions, []int32{0, 1}) {
		t.Errorf("%+v", g)
	}
	if g := r.Groups[1]; g.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("a classic group: %+v", g)
	}
	old := newReq[*kmsg.DescribeGroupsRequest](6)
	old.Groups = []string{"shares"}
	if r := ask[*kmsg.DescribeGroupsResponse](c, old); r.Groups[0].ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("DescribeGroups: %+v", r.Groups)
	}
	find := newReq[*kmsg.FindCoordinatorRequest](6)
	find.CoordinatorType, find.CoordinatorKeys = 2, []string{"shares:" + topic.ID.String() + ":0", "shares"}
	if r := ask[*kmsg.FindCoordinatorResponse](c, find); r.Coordinators[0].ErrorCode != 0 || r.Coordinators[1].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("%+v", r.Coordinators)
	}
	del := newReq[*kmsg.DeleteGroupsRequest](2)
	del.Groups = []string{"shares"}
	if r := ask[*kmsg.DeleteGroupsResponse](c, del); r.Groups[0].ErrorCode != kerr.NonEmptyGroup.Code {
		t.Errorf("delete with a member: %+v", r.Groups)
	}
	a.beat(-1)
	if r := ask[*kmsg.DeleteGroupsResponse](c, del); r.Groups[0].ErrorCode != 0 {
		t.Errorf("delete: %+v", r.Groups)
	}
	if r := ask[*kmsg.ConsumerGroupHeartbeatResponse](c, beat); r.ErrorCode != 0 {
		t.Errorf("the name is free again: %d", r.ErrorCode)
	}
}

// TestShareGroupOffsets goes through what administrators ask.
func TestShareGroupOffsets(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	c := f.dial()
	for range 5 {
		c.produce(topic, 9, 0, batch(record.None, "a", "b"))
	}
	alter := newReq[*kmsg.AlterShareGroupOffsetsRequest](0)
	alter.GroupID = "g"
	alter.Topics = []kmsg.AlterShareGroupOffsetsRequestTopic{
		{Topic: "t", Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{{Partition: 0, StartOffset: 4}, {Partition: 9, StartOffset: 4}}},
		{Topic: "none", Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{{Partition: 0, StartOffset: 4}}},
	}
	r := ask[*kmsg.AlterShareGroupOffsetsResponse](c, alter)
	unknown := kerr.UnknownTopicOrPartition.Code
	if p := r.Topics[0].Partitions; r.ErrorCode != 0 || p[0].ErrorCode != 0 || p[1].ErrorCode != unknown || r.Topics[1].Partitions[0].ErrorCode != unknown {
		t.Errorf("%+v", r)
	}
	describe := newReq[*kmsg.DescribeShareGroupOffsetsRequest](1)
	describe.Groups = []kmsg.DescribeShareGroupOffsetsRequestGroup{
		{GroupID: "g"},
		{GroupID: "g", Topics: []kmsg.DescribeShareGroupOffsetsRequestGroupTopic{{Topic: "t", Partitions: []int32{1, 0}}, {Topic: "none", Partitions: []int32{0}}}},
		{GroupID: "none"},
	}
	d := ask[*kmsg.DescribeShareGroupOffsetsResponse](c, describe)
	if g := d.Groups[0]; g.ErrorCode != 0 || len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 || g.Topics[0].Partitions[0].StartOffset != 4 || g.Topics[0].Partitions[0].Lag != 6 {
		t.Errorf("all: %+v", g)
	}
	if g := d.Groups[1]; g.Topics[0].Partitions[0].StartOffset != -1 || g.Topics[0].Partitions[1].StartOffset != 4 || g.Topics[1].Partitions[0].StartOffset != -1 {
		t.Errorf("named: %+v", g)
	}
	if g := d.Groups[2]; g.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("no group: %+v", g)
	}
	a := f.sharer("g", "a", topic)
	want(t, "from there", got(t, a.fetch(topic, 0))[:1], "a/1")
	if r := ask[*kmsg.AlterShareGroupOffsetsResponse](c, alter); r.ErrorCode != kerr.NonEmptyGroup.Code {
		t.Errorf("alter with a member: %+v", r)
	}
	a.beat(-1)
	del := newReq[*kmsg.DeleteShareGroupOffsetsRequest](0)
	del.GroupID, del.Topics = "g", []kmsg.DeleteShareGroupOffsetsRequestTopic{{Topic: "t"}, {Topic: "none"}}
	if r := ask[*kmsg.DeleteShareGroupOffsetsResponse](c, del); r.ErrorCode != 0 || r.Topics[0].ErrorCode != 0 || r.Topics[1].ErrorCode != unknown {
		t.Errorf("%+v", r)
	}
	if r := ask[*kmsg.DeleteShareGroupOffsetsResponse](c, del); r.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("delete again: %+v", r)
	}
}

// TestGroupConfigs are listed whole, set one by one, kept, and refused by name.
func TestGroupConfigs(t *testing.T) {
	f := newFixture(t, Config{})
	a := f.sharer("g", "a")
	list := func() map[string]kmsg.DescribeConfigsResponseResourceConfig {
		req := newReq[*kmsg.DescribeConfigsRequest](4)
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g"}}
		all := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
		for _, c := range ask[*kmsg.DescribeConfigsResponse](a.client, req).Resources[0].Configs {
			all[c.Name] = c
		}
		return all
	}
	a.set("share.record.lock.duration.ms", "1500")
	all := list()
	if c := all["share.record.lock.duration.ms"]; len(all) != 10 || *c.Value != "1500" || c.Source != kmsg.ConfigSourceGroupConfig || c.ConfigType != kmsg.ConfigTypeInt {
		t.Errorf("%d configs, %+v", len(all), c)
	}
	if c := all["share.delivery.count.limit"]; *c.Value != "5" || c.Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("%+v", c)
	}
	set := func(op kmsg.IncrementalAlterConfigOp, name, value string) (int16, string) {
		req := newReq[*kmsg.IncrementalAlterConfigsRequest](1)
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "g"
		res.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Op: op, Value: &value}}
		req.Resources = append(req.Resources, res)
		r := ask[*kmsg.IncrementalAlterConfigsResponse](a.client, req).Resources[0]
		return r.ErrorCode, deref(r.ErrorMessage)
	}
	for _, bad := range [][2]string{
		{"share.record.lock.duration.ms", "999"}, {"share.record.lock.duration.ms", "60001"}, {"share.auto.offset.reset", "by_duration:1h"},
		{"share.isolation.level", "x"}, {"no.such", "1"}, {"consumer.session.timeout.ms", "44999"},
	} {
		if code, text := set(kmsg.IncrementalAlterConfigOpSet, bad[0], bad[1]); code != kerr.InvalidConfig.Code || text == "" {
			t.Errorf("%v: %d %q", bad, code, text)
		}
	}
	if code, _ := set(kmsg.IncrementalAlterConfigOpDelete, "share.record.lock.duration.ms", ""); code != 0 {
		t.Errorf("delete: %d", code)
	}
	if code, _ := set(kmsg.IncrementalAlterConfigOpDelete, "no.such", ""); code != kerr.InvalidConfig.Code {
		t.Errorf("delete what is not there: %d", code)
	}
	if c := list()["share.record.lock.duration.ms"]; *c.Value != "30000" {
		t.Errorf("%+v", c)
	}
	all4 := newReq[*kmsg.ListConfigResourcesRequest](1)
	all4.ResourceTypes = []int8{int8(kmsg.ConfigResourceTypeGroupConfig)}
	if r := ask[*kmsg.ListConfigResourcesResponse](a.client, all4); len(r.ConfigResources) != 1 || r.ConfigResources[0].Name != "g" {
		t.Errorf("%+v", r)
	}
	replace := newReq[*kmsg.AlterConfigsRequest](2)
	replace.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g"}}
	if r := ask[*kmsg.AlterConfigsResponse](a.client, replace); r.Resources[0].ErrorCode != 0 {
		t.Errorf("%+v", r)
	}
	if r := ask[*kmsg.ListConfigResourcesResponse](a.client, all4); len(r.ConfigResources) != 0 {
		t.Errorf("after it was set to nothing: %+v", r)
	}
}
