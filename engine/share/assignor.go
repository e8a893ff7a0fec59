package share

import (
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// assign gives each partition of each subscribed topic to members that subscribe to
// it: to one each, if there are at least as many partitions as members, else to
// several, so that nobody is without work. Shares differ by one at the most, in a
// topic and, as far as that allows, over all. Members keep what they have where they
// can. It is a pure function, called "simple" as Kafka's is.
//
// members are sorted by id; topics holds the topics that exist, by name.
func assign(members []*member, topics map[string]topic) {
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	total := map[*member]int{}
	shares := map[*member]map[lattice.TopicPartition]struct{}{}
	for _, m := range members {
		shares[m] = map[lattice.TopicPartition]struct{}{}
	}
	for _, name := range names {
		var subs []*member
		for _, m := range members {
			if _, ok := slices.BinarySearch(m.topics, name); ok {
				subs = append(subs, m)
			}
		}
		assignTopic(topics[name], subs, total, shares)
	}
	for _, m := range members {
		m.assigned = shares[m]
	}
}

// assignTopic adds one topic's partitions to the shares of its subscribers.
func assignTopic(t topic, subs []*member, total map[*member]int, shares map[*member]map[lattice.TopicPartition]struct{}) {
	n, p := len(subs), int(t.partitions)
	if n == 0 || p == 0 {
		return
	}
	// Of the larger side, each gets one of the other; of the smaller, some get one
	// more than the rest.
	each, rest := 1, 0
	if p > n {
		each, rest = p/n, p%n
	}
	room := map[*member]int{}
	byLoad := slices.Clone(subs)
	had := func(m *member) int {
		count := 0
		for tp := range m.assigned {
			if tp.Topic == t.id {
				count++
			}
		}
		return count
	}
	slices.SortStableFunc(byLoad, func(a, b *member) int {
		return cmp.Or(cmp.Compare(total[a], total[b]), cmp.Compare(had(b), had(a)))
	})
	for i, m := range byLoad {
		room[m] = each
		if i < rest {
			room[m]++
		}
		total[m] += room[m]
	}
	most, extra := 1, 0 // members of a partition; so many partitions have one more
	if n > p {
		most, extra = n/p, n%p
	}
	count := make([]int, p)
	give := func(m *member, i int) {
		shares[m][lattice.TopicPartition{Topic: t.id, Partition: int32(i)}] = struct{}{}
		room[m]--
		if count[i]++; count[i] == most+1 {
			extra--
		}
	}
	open := func(i int) bool { return count[i] < most || count[i] == most && extra > 0 }
	for _, m := range subs { // what they keep
		for i := 0; i < p && room[m] > 0; i++ {
			if _, has := m.assigned[lattice.TopicPartition{Topic: t.id, Partition: int32(i)}]; has && open(i) {
				give(m, i)
			}
		}
	}
	for _, m := range subs { // the emptiest partitions first
		for room[m] > 0 {
			best := -1
			for i := range count {
				if _, has := shares[m][lattice.TopicPartition{Topic: t.id, Partition: int32(i)}]; !has && open(i) && (best < 0 || count[i] < count[best]) {
					best = i
				}
			}
			if best < 0 {
				break
			}
			give(m, best)
		}
	}
}
