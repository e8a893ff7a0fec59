package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDescribeLogDirs: sizes are those of the stored batches, and the volume's
// room is said from version 4 on.
func TestDescribeLogDirs(t *testing.T) {
	f := newFixture(t, Config{})
	f.fs.SetUsage(vfs.DiskUsage{TotalBytes: 9 << 40, AvailBytes: 3 << 40})
	full := f.topic("full", 2)
	f.topic("empty", 1)
	c := f.dial()
	b := batch(record.None, "a", "b")
	if p := c.produce(full, 9, 1, b); p.ErrorCode != 0 {
		t.Fatal(p.ErrorCode)
	}
	for v := int16(1); v <= 4; v++ {
		req := newReq[*kmsg.DescribeLogDirsRequest](v) // null: all topics
		resp := ask[*kmsg.DescribeLogDirsResponse](c, req)
		if resp.ErrorCode != 0 || len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 0 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		dir := resp.Dirs[0]
		if !strings.HasPrefix(dir.Dir, "/data/stores/") || v >= 4 && (dir.TotalBytes != 9<<40 || dir.UsableBytes != 3<<40) {
			t.Errorf("version %d: %+v", v, dir)
		}
		got := map[string]int64{}
		for _, topic := range dir.Topics {
			for _, p := range topic.Partitions {
				got[fmt.Sprint(topic.Topic, p.Partition)] = p.Size
			}
		}
		if want := map[string]int64{"empty0": 0, "full0": 0, "full1": int64(len(b))}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("version %d: sizes %v, want %v", v, got, want)
		}
		one := kmsg.NewDescribeLogDirsRequestTopic()
		one.Topic, one.Partitions = "full", []int32{1, 7}
		none := kmsg.NewDescribeLogDirsRequestTopic()
		none.Topic, none.Partitions = "none", []int32{0}
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{one, none}
		dir = ask[*kmsg.DescribeLogDirsResponse](c, req).Dirs[0]
		if len(dir.Topics) != 1 || len(dir.Topics[0].Partitions) != 1 || dir.Topics[0].Partitions[0].Partition != 1 {
			t.Errorf("version %d: %+v for one partition that is here and others that are not", v, dir.Topics)
		}
	}
}

func TestElectLeaders(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 2)
	c := f.dial()
	for v := int16(0); v <= 2; v++ {
		req := newReq[*kmsg.ElectLeadersRequest](v)
		if resp := ask[*kmsg.ElectLeadersResponse](c, req); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
			t.Errorf("version %d: all partitions: %+v", v, resp)
		}
		in := kmsg.NewElectLeadersRequestTopic()
		in.Topic, in.Partitions = "t", []int32{1, 2}
		req.Topics = append(req.Topics, in)
		parts := ask[*kmsg.ElectLeadersResponse](c, req).Topics[0].Partitions
		if len(parts) != 2 || parts[0].ErrorCode != 84 || parts[0].ErrorMessage == nil || parts[1].ErrorCode != 3 {
			t.Errorf("version %d: %+v, want ELECTION_NOT_NEEDED and UNKNOWN_TOPIC_OR_PARTITION", v, parts)
		}
		if v == 0 {
			continue
		}
		req.ElectionType = 2
		if resp := ask[*kmsg.ElectLeadersResponse](c, req); resp.ErrorCode != 42 {
			t.Errorf("version %d: election type 2: %+v, want INVALID_REQUEST", v, resp)
		}
	}
}

func TestPartitionReassignments(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 5)
	c := f.dial()
	here := f.srv.nodeID()
	for v := int16(0); v <= 1; v++ {
		req := newReq[*kmsg.AlterPartitionAssignmentsRequest](v)
		in := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		in.Topic = "t"
		for i, replicas := range [][]int32{{here}, nil, {here, here + 1}, {here + 1}, {}, {here}} {
			p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			p.Partition, p.Replicas = int32(i), replicas
			in.Partitions = append(in.Partitions, p)
		}
		req.Topics = append(req.Topics, in)
		var got []int16
		for _, p := range ask[*kmsg.AlterPartitionAssignmentsResponse](c, req).Topics[0].Partitions {
			got = append(got, p.ErrorCode)
			if (p.ErrorMessage == nil) != (p.ErrorCode == 0) {
				t.Errorf("version %d: %+v", v, p)
			}
		}
		// Granted, nothing to cancel, three places that are not, no such partition.
		if want := []int16{0, 85, 39, 39, 39, 3}; !slices.Equal(got, want) {
			t.Errorf("version %d: %v, want %v", v, got, want)
		}
	}
	if resp := ask[*kmsg.ListPartitionReassignmentsResponse](c, newReq[*kmsg.ListPartitionReassignmentsRequest](0)); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("under way: %+v, want none", resp)
	}
}

func TestUpdateFeatures(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	for _, step := range []struct {
		feature string
		level   int16
		kind    int8
		code    int16
	}{
		{"group.version", 1, 1, 0},
		{"group.version", 1, 2, 0},
		{"group.version", 2, 1, 95},
		{"group.version", 0, 1, 95},
		{"group.version", 0, 2, 96},
		{"transaction.version", 2, 1, 95},
	} {
		for v := int16(0); v <= 2; v++ {
			req := newReq[*kmsg.UpdateFeaturesRequest](v)
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = step.feature, step.level, step.kind, step.kind > 1
			req.FeatureUpdates = append(req.FeatureUpdates, u)
			resp := ask[*kmsg.UpdateFeaturesResponse](c, req)
			if resp.ErrorCode != step.code {
				t.Errorf("version %d: %s to level %d, kind %d: error %d, want %d", v, step.feature, step.level, step.kind, resp.ErrorCode, step.code)
			}
			// As in Kafka 4: a result for each change that was made, in versions that have them.
			if made := step.code == 0 && v < 2; made != (len(resp.Results) == 1) || made && resp.Results[0].ErrorCode != 0 {
				t.Errorf("version %d: %s to level %d, kind %d: results %+v", v, step.feature, step.level, step.kind, resp.Results)
			}
		}
	}
	req := newReq[*kmsg.UpdateFeaturesRequest](1)
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = "group.version", 1, 9
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	if r := ask[*kmsg.UpdateFeaturesResponse](c, req); r.ErrorCode != 95 {
		t.Errorf("kind of change 9: %+v, want INVALID_UPDATE_VERSION", r)
	}
	req.FeatureUpdates[0].UpgradeType = 1
	req.FeatureUpdates = append(req.FeatureUpdates, req.FeatureUpdates[0])
	if r := ask[*kmsg.UpdateFeaturesResponse](c, req); r.ErrorCode != 42 || len(r.Results) != 0 {
		t.Errorf("named twice: %+v, want INVALID_REQUEST", r)
	}
}

func TestListConfigResources(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("a", 1)
	f.topic("b", 1)
	node := fmt.Sprint(f.srv.nodeID())
	c := f.dial()
	if resp := ask[*kmsg.ListConfigResourcesResponse](c, newReq[*kmsg.ListConfigResourcesRequest](0)); resp.ErrorCode != 0 || len(resp.ConfigResources) != 0 {
		t.Errorf("version 0: %+v, want no subscriptions", resp)
	}
	for _, step := range []struct {
		kinds []int8
		code  int16
		want  string
	}{
		{nil, 0, "[2a 2b 4" + node + "]"},
		{[]int8{2}, 0, "[2a 2b]"},
		{[]int8{4, 16, 32}, 0, "[4" + node + "]"},
		{[]int8{2, 3}, 35, "[]"},
	} {
		req := newReq[*kmsg.ListConfigResourcesRequest](1)
		req.ResourceTypes = step.kinds
		resp := ask[*kmsg.ListConfigResourcesResponse](c, req)
		got := []string{}
		for _, r := range resp.ConfigResources {
			got = append(got, fmt.Sprint(r.Type, r.Name))
		}
		if fmt.Sprint(got) != step.want || resp.ErrorCode != step.code {
			t.Errorf("kinds %v: error %d, %v, want %d, %s", step.kinds, resp.ErrorCode, got, step.code, step.want)
		}
	}
}

// TestNodeConfigsCannotBeSet, but resetting what is not set is no fault.
func TestNodeConfigsCannotBeSet(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	node := fmt.Sprint(f.srv.nodeID())
	for _, step := range []struct {
		name string
		op   kmsg.IncrementalAlterConfigOp
		code int16
	}{
		{node, kmsg.IncrementalAlterConfigOpDelete, 0},
		{"", kmsg.IncrementalAlterConfigOpDelete, 0},
		{"77", kmsg.IncrementalAlterConfigOpDelete, 42},
		{node, kmsg.IncrementalAlterConfigOpSet, 42},
		{node, kmsg.IncrementalAlterConfigOpAppend, 42},
	} {
		for v := int16(0); v <= 1; v++ {
			req := newReq[*kmsg.IncrementalAlterConfigsRequest](v)
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, step.name
			cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			cfg.Name, cfg.Op = "leader.replication.throttled.rate", step.op
			if step.op != kmsg.IncrementalAlterConfigOpDelete {
				cfg.Value = kmsg.StringPtr("1")
			}
			r.Configs = append(r.Configs, cfg)
			req.Resources = append(req.Resources, r)
			if got := ask[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources[0]; got.ErrorCode != step.code {
				t.Errorf("version %d, broker %q, operation %d: %+v, want %d", v, step.name, step.op, got, step.code)
			}
		}
	}
}

func TestAlterReplicaLogDirs(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 1)
	c := f.dial()
	for v := int16(1); v <= 2; v++ {
		req := newReq[*kmsg.AlterReplicaLogDirsRequest](v)
		for _, dir := range []string{f.store.Volume().Dir, "/elsewhere"} {
			d := kmsg.NewAlterReplicaLogDirsRequestDir()
			d.Dir = dir
			in := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
			in.Topic, in.Partitions = "t", []int32{0, 1}
			d.Topics = append(d.Topics, in)
			req.Dirs = append(req.Dirs, d)
		}
		var got []int16
		for _, topic := range ask[*kmsg.AlterReplicaLogDirsResponse](c, req).Topics {
			for _, p := range topic.Partitions {
				got = append(got, p.ErrorCode)
			}
		}
		if want := []int16{0, 3, 57, 3}; !slices.Equal(got, want) { // LOG_DIR_NOT_FOUND
			t.Errorf("version %d: %v, want %v", v, got, want)
		}
	}
}

// TestWriteTxnMarkers: a transaction that its coordinator knows is not ended from
// outside; engine/store tests one that it has forgotten.
func TestWriteTxnMarkers(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	p := f.producer("p", 3)
	p.ok(p.add(topic, 0))
	p.ok(p.put(topic, 0, "a"))
	c := f.dial()
	for v := int16(1); v <= 2; v++ {
		req := newReq[*kmsg.WriteTxnMarkersRequest](v)
		for _, m := range []struct {
			producer int64
			commit   bool
		}{{p.id, false}, {p.id, true}, {-1, false}, {p.id + 1, false}} {
			marker := kmsg.NewWriteTxnMarkersRequestMarker()
			marker.ProducerID, marker.ProducerEpoch, marker.Committed = m.producer, p.epoch, m.commit
			in := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			in.Topic, in.Partitions = "t", []int32{0, 1}
			marker.Topics = append(marker.Topics, in)
			req.Markers = append(req.Markers, marker)
		}
		var got []int16
		for _, m := range ask[*kmsg.WriteTxnMarkersResponse](c, req).Markers {
			for _, part := range m.Topics[0].Partitions {
				got = append(got, part.ErrorCode)
			}
		}
		// Known to its coordinator, a commit, no producer, none to end; and no such partition each time.
		if want := []int16{48, 3, 42, 3, 42, 3, 0, 3}; !slices.Equal(got, want) {
			t.Errorf("version %d: %v, want %v", v, got, want)
		}
	}
	p.ok(p.put(topic, 0, "b"))
	p.ok(p.end(true))
	if got := committed(t, c.stable(topic, 12, 0)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("committed: %q", got)
	}
}
