package kafka

import (
	"testing"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestMetadataByID: Java's consumers of KIP-848 ask by id and with an empty
// name, others with none. Kafka goes by the id.
func TestMetadataByID(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("named", 2)
	c := f.dial()
	for v := int16(12); v <= 13; v++ {
		for _, name := range []*string{nil, kmsg.StringPtr("")} {
			req := newReq[*kmsg.MetadataRequest](v)
			for _, id := range [][16]byte{topic.ID, {1, 2, 3}} {
				rt := kmsg.NewMetadataRequestTopic()
				rt.Topic, rt.TopicID = name, id
				req.Topics = append(req.Topics, rt)
			}
			got := ask[*kmsg.MetadataResponse](c, req).Topics
			if len(got) != 2 {
				t.Fatalf("version %d: %d topics, want 2", v, len(got))
			}
			if r := got[0]; r.ErrorCode != 0 || r.Topic == nil || *r.Topic != "named" || len(r.Partitions) != 2 {
				t.Errorf("version %d: %+v", v, r)
			}
			if r := got[1]; r.ErrorCode != 100 || r.Topic != nil || r.TopicID != [16]byte{1, 2, 3} {
				t.Errorf("version %d, unknown: %+v", v, r)
			}
		}
	}
}

// TestNodeID: a node's id is derived from its key, and the same after every
// start, unless the configuration gives one; then that is its id everywhere.
func TestNodeID(t *testing.T) {
	derived := newFixture(t, Config{}).store.Info().KafkaNodeID
	if again := newFixture(t, Config{}).store.Info().KafkaNodeID; derived <= 0 || again != derived {
		t.Errorf("derived: %d, then %d", derived, again)
	}
	f := &fixture{t: t, fs: disk.NewMem()}
	f.store = newStore(t, f.fs, func(c *store.Config) { c.KafkaNodeID = 7 })
	f.serve(Config{})
	f.topic("t", 1)
	got := ask[*kmsg.MetadataResponse](f.dial(), newReq[*kmsg.MetadataRequest](12))
	if len(got.Brokers) != 1 || got.Brokers[0].NodeID != 7 || got.ControllerID != 7 || got.Topics[0].Partitions[0].Leader != 7 {
		t.Errorf("metadata: %+v", got)
	}
	if err := f.srv.onlyHere([]int32{7}); err != nil {
		t.Errorf("a replica assignment to it: %v", err)
	}
	if err := f.srv.onlyHere([]int32{derived}); err == nil {
		t.Error("a replica assignment to the derived id is taken")
	}
}
