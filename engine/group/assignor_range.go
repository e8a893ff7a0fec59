package group

import (
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// assignRange cuts each topic into consecutive ranges, one for each subscriber
// in a fixed order: static members by instance id, then the others by member
// id. The first ranges are one longer when the division leaves a rest. Topics
// with the same number of partitions and the same subscribers are cut alike, so
// partition n of one is with the member that has partition n of the other.
//
// It does not look at what members have now: an order that does not change is
// what keeps partitions in place.
func assignRange(in assignInput) []partitionSet {
	shares := make([]partitionSet, len(in.members))
	for i := range shares {
		shares[i] = partitionSet{}
	}
	subs := in.subscribers()
	for _, topic := range in.sortedTopics() {
		order := slices.Clone(subs[topic])
		slices.SortFunc(order, func(a, b int) int { return compareForRange(in.members[a], in.members[b]) })
		n, m := int(in.partitions[topic]), len(order)
		next := 0
		for i, member := range order {
			length := n / m
			if i < n%m {
				length++
			}
			for range length {
				shares[member].add(lattice.TopicPartition{Topic: topic, Partition: int32(next)})
				next++
			}
		}
	}
	return shares
}

func compareForRange(a, b assignMember) int {
	switch {
	case a.instance != "" && b.instance != "":
		return cmp.Compare(a.instance, b.instance)
	case a.instance != "":
		return -1
	case b.instance != "":
		return 1
	}
	return cmp.Compare(a.id, b.id)
}
