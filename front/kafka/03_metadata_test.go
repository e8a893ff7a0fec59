package kafka

import (
	"testing"

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
