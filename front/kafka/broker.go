package kafka

import (
	"errors"
	"slices"

	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What this node says of itself to clients, in one place.

// Operations that a caller may do, as bit sets of Kafka's AclOperation codes:
// everything, since there are no ACLs.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11 // read, write, create, delete, alter, describe, describe and alter configs
	groupOperations   = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11                      // read, delete, describe, describe and alter configs
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12       // create, alter, describe, cluster action, configs, idempotent write
	notAsked          = -1 << 31
)

// maxPartitions bounds what one request can create in one topic.
const maxPartitions = 10_000

// nodeID is this node's broker id.
func (s *Server) nodeID() int32 { return s.store.Info().KafkaNodeID }

// placed is where a partition is, as clients are told.
type placed struct {
	leader, epoch          int32 // -1: none that can be reached by way of this node
	replicas, isr, offline []int32
	code                   int16
}

// place says where a partition is: here, whoever leads it, since this node serves
// reads from its replica and has the leader do the rest. A term that is not known here
// yet is -1, which clients take as none. Where the leader cannot be asked and there is
// no replica, that node is the only one, and out of reach for clients of this one, which
// Kafka calls LEADER_NOT_AVAILABLE.
func (s *Server) place(t store.Topic, index int32) placed {
	p, err := s.store.Partition(t.ID, index)
	if err == nil || errors.Is(err, store.ErrNotLeader) && s.store.Forwards() {
		here := []int32{s.nodeID()}
		out := placed{leader: here[0], epoch: -1, replicas: here, isr: here, offline: []int32{}}
		if p != nil {
			if term := p.Bounds().Term; term > 0 {
				out.epoch = term
			}
			out.replicas, out.isr = s.members(p, here)
		}
		return out
	}
	holder := []int32{s.store.KafkaNodeIDOf(t.Leader)}
	out := placed{leader: -1, epoch: -1, replicas: holder, offline: []int32{}, code: kerr.LeaderNotAvailable.Code}
	if holder[0] != s.nodeID() {
		out.offline = holder
	}
	return out
}

// members are the nodes that hold a partition, as clients are told: this node stands for the
// leader, whom clients reach by it, and the others that have to hold it follow.
func (s *Server) members(p *partition.Partition, here []int32) (replicas, inSync []int32) {
	acks := p.AckStatus()
	if len(acks.Replicas) < 2 {
		return here, here
	}
	self := s.store.Info().Node // whom this node stands for: itself, or else the leader
	if !slices.ContainsFunc(acks.Replicas, func(r partition.ReplicaStatus) bool { return r.Node == self }) {
		self = p.Leader()
	}
	replicas, inSync = slices.Clone(here), slices.Clone(here)
	for _, r := range acks.Replicas {
		if r.Node == self {
			continue
		}
		id := s.store.KafkaNodeIDOf(r.Node)
		replicas = append(replicas, id)
		if r.InSync {
			inSync = append(inSync, id)
		}
	}
	return replicas, inSync
}

// operations returns ops if the client asked for them.
func operations(asked bool, ops int32) int32 {
	if asked {
		return ops
	}
	return notAsked
}

// validName applies Kafka's rules for names of topics.
func validName(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > 249 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// internalName reports the names that Kafka keeps for itself: that of the
// store's internal topic, and of others that are none here unless somebody
// creates them. Tools that copy topics from elsewhere rely on the mark.
func internalName(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state":
		return true
	}
	return false
}

// deref returns what p points to, "" for nil.
func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// optional returns nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
