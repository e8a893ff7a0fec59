package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// partitionSet is a set of partitions. The nil set is empty and must not be
// written to.
type partitionSet map[lattice.TopicPartition]struct{}

func setOf(partitions []lattice.TopicPartition) partitionSet {
	s := make(partitionSet, len(partitions))
	for _, tp := range partitions {
		s.add(tp)
	}
	return s
}

func (s partitionSet) add(tp lattice.TopicPartition) { s[tp] = struct{}{} }

func (s partitionSet) has(tp lattice.TopicPartition) bool { _, ok := s[tp]; return ok }

// within reports whether all of s is in t.
func (s partitionSet) within(t partitionSet) bool {
	for tp := range s {
		if !t.has(tp) {
			return false
		}
	}
	return true
}

// meets reports whether s and t share a partition.
func (s partitionSet) meets(t partitionSet) bool {
	for tp := range s {
		if t.has(tp) {
			return true
		}
	}
	return false
}

func (s partitionSet) equal(t partitionSet) bool { return len(s) == len(t) && s.within(t) }

// sorted returns the partitions by topic id, then number.
func (s partitionSet) sorted() []lattice.TopicPartition {
	return slices.SortedFunc(maps.Keys(s), comparePartitions)
}

func comparePartitions(a, b lattice.TopicPartition) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// byTopic groups the set for an answer, sorted by topic id.
func (s partitionSet) byTopic(name func(lattice.TopicID) string) []TopicPartitions {
	all := []TopicPartitions{}
	for _, tp := range s.sorted() {
		if n := len(all); n == 0 || all[n-1].ID != tp.Topic {
			all = append(all, TopicPartitions{ID: tp.Topic, Name: name(tp.Topic)})
		}
		last := &all[len(all)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return all
}
