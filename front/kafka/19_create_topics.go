package kafka

import (
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics (key 19), versions 2 to 7.
//
//	v4  -1 for the default number of partitions and replicas (KIP-464), which we
//	    take in every version
//	v5  flexible; partitions, replicas and configs in the answer (KIP-525)
//	v7  topic ids in the answer (KIP-516)
//
// A topic exists, durably, when the answer says so. There is one replica of
// everything: more is refused unless the node is configured to be lenient, and
// then described as what it is.

func (c *conn) createTopics(_ *request, req *kmsg.CreateTopicsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		want := &req.Topics[i]
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic = want.Topic
		out.NumPartitions, out.ReplicationFactor = -1, -1
		t, err := store.Topic{}, error(nil)
		switch times[want.Topic] {
		case 0:
			continue // answered already
		case 1:
			t, err = c.createTopic(want, req.ValidateOnly)
		default:
			err = refuse(kerr.InvalidRequest, "topic %q is named more than once", want.Topic)
		}
		times[want.Topic] = 0
		if out.ErrorCode, out.ErrorMessage = s.fail(err); err == nil {
			out.TopicID = t.ID
			out.NumPartitions, out.ReplicationFactor = t.Partitions, 1
			out.Configs = createdConfigs(s.store.DescribeConfig(t.Config))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *conn) createTopic(want *kmsg.CreateTopicsRequestTopic, validateOnly bool) (store.Topic, error) {
	s := c.srv
	partitions, err := s.newPartitions(want)
	if err != nil {
		return store.Topic{}, err
	}
	n := store.NewTopic{Name: want.Topic, Partitions: partitions, Config: map[string]string{}, ValidateOnly: validateOnly}
	for i := range want.Configs {
		cfg := &want.Configs[i]
		if cfg.Value == nil {
			return store.Topic{}, refuse(kerr.InvalidConfig, "config %s: null is no value", cfg.Name)
		}
		n.Config[cfg.Name] = *cfg.Value
	}
	return s.store.CreateTopic(c.ctx, n)
}

// newPartitions returns the number of partitions that a request comes to.
func (s *Server) newPartitions(want *kmsg.CreateTopicsRequestTopic) (int32, error) {
	n, replicas := want.NumPartitions, want.ReplicationFactor
	if len(want.ReplicaAssignment) > 0 {
		if n != -1 || replicas != -1 {
			return 0, refuse(kerr.InvalidRequest, "a replica assignment goes with partitions and replication factor of -1")
		}
		return s.assigned(want.ReplicaAssignment)
	}
	switch {
	case !validName(want.Topic):
		return 0, refuse(kerr.InvalidTopicException, "topic name %q: want 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", want.Topic)
	case n == -1:
		n = s.cfg.DefaultPartitions
	case n <= 0:
		return 0, refuse(kerr.InvalidPartitions, "%d partitions: want at least 1, or -1 for the default", n)
	}
	switch {
	case replicas == 0 || replicas < -1:
		return 0, refuse(kerr.InvalidReplicationFactor, "replication factor %d: want 1, or -1 for the default", replicas)
	case replicas > 1 && !s.cfg.LenientReplication:
		return 0, refuse(kerr.InvalidReplicationFactor, "replication factor %d, but there is 1 node; kafka.replication: lenient accepts it", replicas)
	}
	return n, nil
}

// assigned checks a manual assignment: partitions from 0 on, each on this node.
func (s *Server) assigned(assignment []kmsg.CreateTopicsRequestTopicReplicaAssignment) (int32, error) {
	seen := make(map[int32]bool, len(assignment))
	for i := range assignment {
		a := &assignment[i]
		if err := s.onlyHere(a.Replicas); err != nil {
			return 0, fmt.Errorf("partition %d: %w", a.Partition, err)
		}
		seen[a.Partition] = true
	}
	for i := range int32(len(assignment)) {
		if !seen[i] {
			return 0, refuse(kerr.InvalidReplicaAssignment, "partition %d is missing: want each of 0 to %d once", i, len(assignment)-1)
		}
	}
	return int32(len(assignment)), nil
}

// onlyHere refuses replicas on nodes that do not exist.
func (s *Server) onlyHere(replicas []int32) error {
	if !slices.Equal(replicas, []int32{s.nodeID()}) {
		return refuse(kerr.InvalidReplicaAssignment, "replicas on %v: node %d is the only one", replicas, s.nodeID())
	}
	return nil
}

// createdConfigs lists a new topic's configs, also when it was only validated:
// Java takes null for a fault.
func createdConfigs(entries []store.ConfigEntry) []kmsg.CreateTopicsResponseTopicConfig {
	out := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		cfg := kmsg.NewCreateTopicsResponseTopicConfig()
		cfg.Name, cfg.ReadOnly, cfg.IsSensitive = e.Name, e.ReadOnly, e.Sensitive
		cfg.Source = int8(configSource(e.Source))
		if !e.Sensitive {
			cfg.Value = &e.Value
		}
		out = append(out, cfg)
	}
	return out
}
