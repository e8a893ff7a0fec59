package kafka

import (
	"fmt"
	"log/slog"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata (key 3), versions 0 to 13.
//
//	v0   no topics: all of them
//	v1   null: all topics; racks, controller, internal topics
//	v2   cluster id: the store's id
//	v4   the client may forbid auto-creation
//	v5   offline replicas
//	v7   leader epochs (KIP-320)
//	v8   authorized operations (KIP-430); those of the cluster until v10
//	v9   flexible
//	v10  topic ids in the answer (KIP-516)
//	v12  topics asked for by id
//	v13  an error for the whole answer (KIP-1102)

func (c *conn) metadata(r *request, req *kmsg.MetadataRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID = s.nodeID()
	b.Host, b.Port = c.advertised()
	resp.Brokers = append(resp.Brokers, b)
	resp.ControllerID = b.NodeID
	resp.ClusterID = kmsg.StringPtr(s.store.Info().ID.String())
	resp.AuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)

	ops := operations(req.IncludeTopicAuthorizedOperations, topicOperations)
	if req.Topics == nil || r.version == 0 && len(req.Topics) == 0 {
		for _, t := range s.listed() {
			resp.Topics = append(resp.Topics, c.topicMetadata(t, ops))
		}
		return resp
	}
	create := s.cfg.AutoCreate && (r.version < 4 || req.AllowAutoTopicCreation)
	for i := range req.Topics {
		want := &req.Topics[i]
		t, err := c.findTopic(want.Topic, want.TopicID, create)
		if err == nil {
			resp.Topics = append(resp.Topics, c.topicMetadata(t, ops))
			continue
		}
		none := kmsg.NewMetadataResponseTopic()
		none.ErrorCode = s.code(err)
		none.Topic, none.TopicID = want.Topic, want.TopicID
		switch {
		case r.version < 12 && none.Topic == nil:
			none.Topic = kmsg.StringPtr("") // null is legal from version 12
		case r.version >= 12 && want.TopicID != [16]byte{}:
			none.Topic = nil
		}
		none.AuthorizedOperations = notAsked
		resp.Topics = append(resp.Topics, none)
	}
	return resp
}

// listed returns the topics that a client sees which asks for all of them.
func (s *Server) listed() []store.Topic { return append(s.store.Topics(), s.store.InternalTopics()...) }

// findTopic looks a topic up, by id if there is one, and makes it if told to.
// Beside an id, Java sends an empty name and others none.
func (c *conn) findTopic(name *string, id lattice.TopicID, create bool) (store.Topic, error) {
	s := c.srv
	if name == nil || id != (lattice.TopicID{}) {
		t, ok := s.store.TopicByID(id)
		if !ok {
			return t, kerr.UnknownTopicID
		}
		return t, nil
	}
	t, ok := s.store.Topic(*name)
	switch {
	case ok:
		return t, nil
	case !validName(*name):
		return t, kerr.InvalidTopicException
	case !create:
		return t, kerr.UnknownTopicOrPartition
	}
	t, err := s.store.CreateTopic(c.ctx, store.NewTopic{Name: *name, Partitions: s.cfg.DefaultPartitions})
	switch {
	case err == nil:
		s.log.InfoContext(c.ctx, "kafka: topic created because a client asked for it", slog.String("topic", t.Name), c.peer())
		return t, nil
	case lattice.KindOf(err) == lattice.Exists:
		if t, ok := s.store.Topic(*name); ok { // somebody else did
			return t, nil
		}
	}
	return t, fmt.Errorf("create topic %q on demand: %w", *name, err)
}

// topicMetadata describes one topic.
func (c *conn) topicMetadata(t store.Topic, ops int32) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic = kmsg.StringPtr(t.Name)
	out.TopicID = t.ID
	out.IsInternal = internalName(t.Name)
	out.AuthorizedOperations = ops
	for i := range t.Partitions {
		at := c.srv.place(t, i)
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = i, at.leader, at.epoch
		p.Replicas, p.ISR, p.OfflineReplicas, p.ErrorCode = at.replicas, at.isr, at.offline, at.code
		out.Partitions = append(out.Partitions, p)
	}
	return out
}
