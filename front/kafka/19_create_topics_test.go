package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestValidateOnlySaysConfigs: a topic that was only validated is answered with
// its configs, since Java's Admin breaks on null.
func TestValidateOnlySaysConfigs(t *testing.T) {
	f := newFixture(t, Config{})
	req := newReq[*kmsg.CreateTopicsRequest](7)
	req.ValidateOnly = true
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "maybe", 1, 1
	rt.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: kmsg.StringPtr("1000")}}
	req.Topics = append(req.Topics, rt)
	got := ask[*kmsg.CreateTopicsResponse](f.dial(), req).Topics[0]
	if got.ErrorCode != 0 || got.NumPartitions != 1 {
		t.Fatalf("%+v", got)
	}
	found := false
	for _, c := range got.Configs {
		found = found || c.Name == "retention.ms" && *c.Value == "1000"
	}
	if !found {
		t.Errorf("retention.ms=1000 is not in %+v", got.Configs)
	}
	if _, ok := f.store.Topic("maybe"); ok {
		t.Error("the topic was made")
	}
}
