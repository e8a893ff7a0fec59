package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions (key 37), versions 0 to 3 (KIP-195).
//
//	v2  flexible
//
// Every topic of the request is answered.

func (c *conn) createPartitions(_ *request, req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		want := &req.Topics[i]
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = want.Topic
		var err error
		if times[want.Topic] > 1 {
			err = refuse(kerr.InvalidRequest, "topic %q is named more than once", want.Topic)
		} else {
			err = c.addPartitions(want, req.ValidateOnly)
		}
		out.ErrorCode, out.ErrorMessage = c.srv.fail(err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *conn) addPartitions(want *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	s := c.srv
	t, err := s.namedTopic(want.Topic)
	if err != nil {
		return err
	}
	if want.Count <= t.Partitions {
		return refuse(kerr.InvalidPartitions, "topic %q has %d partitions, and %d is no increase", t.Name, t.Partitions, want.Count)
	}
	if more := int(want.Count - t.Partitions); want.Assignment != nil && len(want.Assignment) != more {
		return refuse(kerr.InvalidReplicaAssignment, "%d assignments for %d new partitions", len(want.Assignment), more)
	}
	for i := range want.Assignment {
		if err := s.onlyHere(want.Assignment[i].Replicas); err != nil {
			return fmt.Errorf("new partition %d: %w", int(t.Partitions)+i, err)
		}
	}
	return s.store.AddPartitions(c.ctx, t.ID, want.Count, validateOnly)
}
