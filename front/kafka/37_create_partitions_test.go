package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCreatePartitionsWithAssignment: new partitions may be assigned by hand, each
// to this node, and to no other.
func TestCreatePartitionsWithAssignment(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 1)
	c := f.dial()
	here := f.srv.nodeID()
	total := int32(1)
	for v := int16(0); v <= 3; v++ {
		for _, step := range []struct {
			assignment [][]int32
			code       int16
		}{
			{[][]int32{{here}}, 39},             // one for two new partitions
			{[][]int32{{here}, {here + 1}}, 39}, // a node that is not there
			{[][]int32{{here}, {here, here}}, 39},
			{[][]int32{{here}, {}}, 39},
			{[][]int32{{here}, {here}}, 0},
		} {
			req := newReq[*kmsg.CreatePartitionsRequest](v)
			in := kmsg.NewCreatePartitionsRequestTopic()
			in.Topic, in.Count = "t", total+2
			for _, replicas := range step.assignment {
				a := kmsg.NewCreatePartitionsRequestTopicAssignment()
				a.Replicas = replicas
				in.Assignment = append(in.Assignment, a)
			}
			req.Topics = append(req.Topics, in)
			got := ask[*kmsg.CreatePartitionsResponse](c, req).Topics[0]
			if got.ErrorCode != step.code || (got.ErrorMessage == nil) != (step.code == 0) {
				t.Errorf("version %d, %v: %+v, want error %d", v, step.assignment, got, step.code)
			}
		}
		total += 2
		if topic, _ := f.store.Topic("t"); topic.Partitions != total {
			t.Fatalf("version %d: %d partitions, want %d", v, topic.Partitions, total)
		}
	}
}
