package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics (key 20), versions 1 to 6.
//
//	v4  flexible
//	v5  a message beside the error (KIP-599)
//	v6  topics by id (KIP-516)

func (c *conn) deleteTopics(r *request, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	wants := req.Topics
	if r.version < 6 {
		wants = nil
		for i := range req.TopicNames {
			w := kmsg.NewDeleteTopicsRequestTopic()
			w.Topic = &req.TopicNames[i]
			wants = append(wants, w)
		}
	}
	for i := range wants {
		want := &wants[i]
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = want.Topic, want.TopicID
		t, err := s.toDelete(want)
		if err == nil {
			out.Topic, out.TopicID = &t.Name, t.ID
			err = s.store.DeleteTopic(c.ctx, t.ID)
		}
		out.ErrorCode, out.ErrorMessage = s.fail(err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (s *Server) toDelete(want *kmsg.DeleteTopicsRequestTopic) (store.Topic, error) {
	id := lattice.TopicID(want.TopicID)
	switch {
	case want.Topic != nil && !id.IsZero():
		return store.Topic{}, refuse(kerr.InvalidRequest, "topic %q: want a name or an id, not both", *want.Topic)
	case want.Topic == nil:
		t, ok := s.store.TopicByID(id)
		if !ok {
			return t, refuse(kerr.UnknownTopicID, "no topic has the id %s", id)
		}
		return t, nil
	}
	t, ok := s.store.Topic(*want.Topic)
	if !ok {
		return t, refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", *want.Topic)
	}
	return t, nil
}
