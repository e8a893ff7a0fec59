package kafka

import (
	"github.com/lattice-log/lattice/engine/store"
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

// epochOf returns the leader epoch of a partition, and false when the partition
// is not open here.
func (s *Server) epochOf(t store.Topic, index int32) (int32, bool) {
	p, err := s.store.Partition(t.ID, index)
	if err != nil {
		return -1, false
	}
	return p.Bounds().Term, true
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
