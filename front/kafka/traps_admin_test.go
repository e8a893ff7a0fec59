package kafka

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTrap18 uses an instance id with every version that has one, together.
func TestTrap18StaticMembers(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	instance := kmsg.StringPtr("a/0")
	member, generation := c.join(5, "g", "", instance)
	sync := newReq[*kmsg.SyncGroupRequest](3)
	sync.Group, sync.MemberID, sync.InstanceID, sync.Generation = "g", member, instance, generation
	if r := ask[*kmsg.SyncGroupResponse](c, sync); r.ErrorCode != 0 {
		t.Fatalf("sync: %d", r.ErrorCode)
	}
	hb := newReq[*kmsg.HeartbeatRequest](3)
	hb.Group, hb.MemberID, hb.InstanceID, hb.Generation = "g", member, instance, generation
	if r := ask[*kmsg.HeartbeatResponse](c, hb); r.ErrorCode != 0 {
		t.Fatalf("heartbeat: %d", r.ErrorCode)
	}
	commit := newReq[*kmsg.OffsetCommitRequest](7)
	commit.Group, commit.MemberID, commit.InstanceID, commit.Generation = "g", member, instance, generation
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic = topic.Name
	ct.Partitions = append(ct.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	commit.Topics = append(commit.Topics, ct)
	if r := ask[*kmsg.OffsetCommitResponse](c, commit); r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("commit: %d", r.Topics[0].Partitions[0].ErrorCode)
	}
	// Another member takes the instance id over: the first one is fenced.
	second, _ := f.dial().join(5, "g", "", instance)
	if second == member {
		t.Error("the new member has the old one's id")
	}
	if r := ask[*kmsg.HeartbeatResponse](c, hb); r.ErrorCode != 82 {
		t.Errorf("the old member's heartbeat: %d, want FENCED_INSTANCE_ID", r.ErrorCode)
	}
}

// TestTrap19 loses a member: the group empties by its session timer.
func TestTrap19GroupOfLostMemberEmpties(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	req := newReq[*kmsg.JoinGroupRequest](3)
	req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "g", "consumer", 150, 150
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	req.Protocols = append(req.Protocols, p)
	if r := ask[*kmsg.JoinGroupResponse](c, req); r.ErrorCode != 0 {
		t.Fatal(r.ErrorCode)
	}
	c.Close() // without SyncGroup
	other := f.dial()
	describe := newReq[*kmsg.DescribeGroupsRequest](5)
	describe.Groups = []string{"g"}
	for state := ""; state != "Empty" && state != "Dead"; time.Sleep(5 * time.Millisecond) {
		state = ask[*kmsg.DescribeGroupsResponse](other, describe).Groups[0].State // until the connection's deadline
	}
}

func TestTrap21TooLargeAndRecordWithoutKey(t *testing.T) {
	f := newFixture(t, Config{})
	small := f.topic("small", 1, "max.message.bytes", "1000")
	c := f.dial()
	for v := int16(3); v <= 13; v++ {
		if p := c.produce(small, v, 0, batch(record.None, strings.Repeat("x", 1000))); p.ErrorCode != 10 {
			t.Errorf("version %d: %d, want MESSAGE_TOO_LARGE", v, p.ErrorCode)
		}
	}
	compacted := f.topic("compacted", 1, "cleanup.policy", "compact")
	b := record.NewBuilder(record.None, 0)
	b.Add(1, []byte("k"), []byte("v"), nil)
	b.Add(2, nil, []byte("v"), nil)
	b.Add(3, []byte("k"), []byte("v"), nil)
	b.Add(4, nil, []byte("v"), nil)
	bad := b.Build(nil)
	for v := int16(3); v <= 13; v++ {
		p := c.produce(compacted, v, 0, bad)
		if p.ErrorCode != 87 || p.BaseOffset != -1 {
			t.Fatalf("version %d: %+v, want INVALID_RECORD", v, p)
		}
		if v < 8 {
			continue
		}
		if len(p.ErrorRecords) != 2 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorRecords[1].RelativeOffset != 3 ||
			p.ErrorRecords[0].ErrorMessage == nil || p.ErrorMessage == nil {
			t.Errorf("version %d: %+v", v, p)
		}
	}
}

// TestTrap22 refuses what Kafka 4 refuses: the connection closes.
func TestTrap22OffsetCommitVersion1IsRefused(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	c.send(newReq[*kmsg.OffsetCommitRequest](1))
	c.closed()
}

func TestTrap23CreatePartitionsEchoesAndConfigsAreWhole(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("a", 1)
	f.topic("b", 2, "retention.ms", "1000")
	c := f.dial()
	for v := int16(0); v <= 3; v++ {
		req := newReq[*kmsg.CreatePartitionsRequest](v)
		for _, name := range []string{"a", "b", "none"} {
			ct := kmsg.NewCreatePartitionsRequestTopic()
			ct.Topic, ct.Count = name, 3+int32(v)
			if name == "b" {
				ct.Count = 2
			}
			req.Topics = append(req.Topics, ct)
		}
		got := map[string]int16{}
		for _, r := range ask[*kmsg.CreatePartitionsResponse](c, req).Topics {
			got[r.Topic] = r.ErrorCode
		}
		if want := (map[string]int16{"a": 0, "b": 37, "none": 3}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("version %d: %v, want %v", v, got, want)
		}
	}
	if topic, _ := f.store.Topic("a"); topic.Partitions != 6 {
		t.Errorf("%d partitions, want 6", topic.Partitions)
	}
	for v := int16(1); v <= 4; v++ {
		req := newReq[*kmsg.DescribeConfigsRequest](v)
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		for kind, name := range map[kmsg.ConfigResourceType]string{kmsg.ConfigResourceTypeTopic: "b", kmsg.ConfigResourceTypeBroker: fmt.Sprint(f.srv.nodeID())} {
			rr := kmsg.NewDescribeConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = kind, name
			req.Resources = append(req.Resources, rr)
		}
		for _, r := range ask[*kmsg.DescribeConfigsResponse](c, req).Resources {
			if r.ErrorCode != 0 || len(r.Configs) < 10 {
				t.Fatalf("version %d: %s: error %d, %d configs", v, r.ResourceName, r.ErrorCode, len(r.Configs))
			}
			for _, cfg := range r.Configs {
				wantSource := kmsg.ConfigSourceDefaultConfig
				if cfg.Name == "retention.ms" {
					wantSource = kmsg.ConfigSourceDynamicTopicConfig
					if *cfg.Value != "1000" || len(cfg.ConfigSynonyms) != 2 {
						t.Errorf("version %d: %+v", v, cfg)
					}
				}
				if r.ResourceType == kmsg.ConfigResourceTypeTopic && cfg.Source != wantSource {
					t.Errorf("version %d: %s has source %v", v, cfg.Name, cfg.Source)
				}
				if v >= 3 && (cfg.Documentation == nil || cfg.ConfigType == 0) {
					t.Errorf("version %d: %s: documentation or type is missing", v, cfg.Name)
				}
			}
		}
	}
}

func TestTrap24FetchSessions(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	for v := int16(7); v <= 18; v++ {
		for _, step := range []struct {
			id, epoch int32
			code      int16
		}{
			{0, -1, 0}, {0, 0, 0}, {0, 1, 70}, {77, 5, 70}, {77, 0, 0}, {77, -1, 0}, {77, -2, 71},
		} {
			req := fetchReq(topic, v, 0, 0)
			req.SessionID, req.SessionEpoch = step.id, step.epoch
			r := ask[*kmsg.FetchResponse](c, req)
			if r.ErrorCode != step.code || r.SessionID != 0 || (len(r.Topics) == 1) != (step.code == 0) {
				t.Errorf("version %d, session %d epoch %d: error %d, session %d, %d topics", v, step.id, step.epoch, r.ErrorCode, r.SessionID, len(r.Topics))
			}
		}
	}
}

// TestTrap25 tells a client the address that it came by, unless configured.
func TestTrap25AdvertisedAddress(t *testing.T) {
	f := newFixture(t, Config{})
	_, port, _ := net.SplitHostPort(f.addr)
	for v := int16(0); v <= 13; v++ {
		b := ask[*kmsg.MetadataResponse](f.dial(), newReq[*kmsg.MetadataRequest](v)).Brokers[0]
		if b.Host != "127.0.0.1" || fmt.Sprint(b.Port) != port {
			t.Errorf("version %d: %s:%d, want 127.0.0.1:%s", v, b.Host, b.Port, port)
		}
	}
	f.stop()
	f.serve(Config{AdvertisedHost: "localhost", AdvertisedPort: 9092})
	c := f.dial()
	if b := ask[*kmsg.MetadataResponse](c, newReq[*kmsg.MetadataRequest](9)).Brokers[0]; b.Host != "localhost" || b.Port != 9092 {
		t.Errorf("configured: %s:%d", b.Host, b.Port)
	}
	find := newReq[*kmsg.FindCoordinatorRequest](4)
	find.CoordinatorKeys = []string{"g", "h"}
	for _, co := range ask[*kmsg.FindCoordinatorResponse](c, find).Coordinators {
		if co.Host != "localhost" || co.Port != 9092 || co.NodeID != f.srv.nodeID() || co.ErrorCode != 0 {
			t.Errorf("coordinator %+v", co)
		}
	}
	if r := ask[*kmsg.DescribeClusterResponse](c, newReq[*kmsg.DescribeClusterRequest](0)); r.Brokers[0].Host != "localhost" || r.ClusterID != f.store.Info().ID.String() {
		t.Errorf("cluster %+v", r)
	}
}

// TestTrap27 keeps what clients hide in their client id.
func TestTrap27ClientIDIsKept(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	id := "app,ws_az=use1,ws_x=ü"
	req := newReq[*kmsg.JoinGroupRequest](3)
	req.Group, req.ProtocolType, req.SessionTimeoutMillis = "g", "consumer", 10_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	req.Protocols = append(req.Protocols, p)
	c.raw(kmsg.NewRequestFormatter(kmsg.FormatterClientID(id)).AppendRequest(nil, req, 1))
	if _, err := c.readFrame(); err != nil {
		t.Fatal(err)
	}
	d, err := f.store.Groups().Describe("g")
	if err != nil || len(d.Members) != 1 || d.Members[0].Client.ID != id || d.Members[0].Client.Host != "/127.0.0.1" {
		t.Errorf("%+v, %v", d.Members, err)
	}
}
