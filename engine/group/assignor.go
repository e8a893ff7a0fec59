package group

import (
	"bytes"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// The assignors of consumer groups, by the names that clients ask for them. The
// first is the coordinator's choice when no member asks.
const (
	uniformAssignor = "uniform"
	rangeAssignor   = "range"
)

// Assignors returns the names of the assignors, the default first.
func Assignors() []string { return []string{uniformAssignor, rangeAssignor} }

// assignMember is one member as an assignor sees it.
type assignMember struct {
	id, instance string
	topics       []lattice.TopicID // that it subscribes to and that exist; sorted, each once
	current      partitionSet      // its share so far
}

// assignInput is what an assignor decides on. Members are sorted by id. A
// partition is in no more than one member's current share.
type assignInput struct {
	members    []assignMember
	partitions map[lattice.TopicID]int32 // of each topic that a member subscribes to
}

// An assignor gives every partition of every topic in the input to exactly one
// member that subscribes to the topic. It is a pure function: equal inputs get
// equal results. The result is parallel to the members.
type assignor func(assignInput) []partitionSet

func assignorFor(name string) assignor {
	if name == rangeAssignor {
		return assignRange
	}
	return assignUniform
}

// sortedTopics returns the topics that anybody subscribes to, by id.
func (in assignInput) sortedTopics() []lattice.TopicID {
	seen := map[lattice.TopicID]bool{}
	topics := []lattice.TopicID{}
	for _, m := range in.members {
		for _, t := range m.topics {
			if !seen[t] {
				seen[t] = true
				topics = append(topics, t)
			}
		}
	}
	slices.SortFunc(topics, func(a, b lattice.TopicID) int { return bytes.Compare(a[:], b[:]) })
	return topics
}

// subscribers returns, for each topic, the indexes of its members.
func (in assignInput) subscribers() map[lattice.TopicID][]int {
	subs := map[lattice.TopicID][]int{}
	for i, m := range in.members {
		for _, t := range m.topics {
			subs[t] = append(subs[t], i)
		}
	}
	return subs
}
