package group

import (
	"bytes"
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// assignUniform gives members equal numbers of partitions and moves as few as
// it can.
//
// When all subscribe to the same topics, the numbers differ by one at most, and
// no assignment that balanced could leave more partitions where they are.
//
// When they do not, as even as the subscriptions allow: no partition could be
// passed on, directly or through others, to a member that has two fewer. It
// moves nothing when that holds already. (Passing on through others is what a
// least-loaded-first assignment misses; finding it is the search for a
// cost-reducing path in a semi-matching, Harvey et al. 2003.)
func assignUniform(in assignInput) []partitionSet {
	if len(in.members) == 0 {
		return nil
	}
	first := in.members[0].topics
	for _, m := range in.members[1:] {
		if !slices.Equal(m.topics, first) {
			return assignUneven(in)
		}
	}
	return assignEven(in)
}

func assignEven(in assignInput) []partitionSet {
	free := partitionSet{}
	for _, topic := range in.sortedTopics() {
		for p := range in.partitions[topic] {
			free.add(lattice.TopicPartition{Topic: topic, Partition: p})
		}
	}
	n := len(in.members)
	quota, more := len(free)/n, len(free)%n // more members have one above the quota

	shares := make([]partitionSet, n)
	for i, m := range in.members {
		shares[i] = partitionSet{}
		limit := quota
		held := 0
		for tp := range m.current {
			if free.has(tp) {
				held++
			}
		}
		if held > quota && more > 0 {
			limit++
			more--
		}
		for _, tp := range m.current.sorted() {
			if len(shares[i]) < limit && free.has(tp) {
				shares[i].add(tp)
				delete(free, tp)
			}
		}
	}
	// Deal out the rest in turn, so that a topic's partitions spread.
	next := 0
	for _, tp := range free.sorted() {
		for limit := quota; ; {
			i, ok := nextBelow(shares, next, limit)
			if ok {
				shares[i].add(tp)
				next = (i + 1) % n
				break
			}
			limit++ // everybody has the quota: the ones above it follow
		}
	}
	return shares
}

// nextBelow returns the first share from index start, around, with fewer than
// limit partitions.
func nextBelow(shares []partitionSet, start, limit int) (int, bool) {
	for k := range shares {
		if i := (start + k) % len(shares); len(shares[i]) < limit {
			return i, true
		}
	}
	return 0, false
}

// uneven is the state of assignUneven. held counts, for each member, its
// partitions by topic.
type uneven struct {
	in     assignInput
	subs   map[lattice.TopicID][]int
	shares []partitionSet
	held   []map[lattice.TopicID]int
	work   int // search steps left
}

// unevenWork bounds the search for a better balance: a group with thousands of
// members and topics gets a valid assignment that may be less even.
const unevenWork = 5_000_000

func assignUneven(in assignInput) []partitionSet {
	u := &uneven{
		in: in, subs: in.subscribers(), work: unevenWork,
		shares: make([]partitionSet, len(in.members)), held: make([]map[lattice.TopicID]int, len(in.members)),
	}
	taken := partitionSet{}
	for i, m := range in.members {
		u.shares[i], u.held[i] = partitionSet{}, map[lattice.TopicID]int{}
		for tp := range m.current {
			_, subscribed := slices.BinarySearchFunc(m.topics, tp.Topic, compareTopics)
			if subscribed && tp.Partition < in.partitions[tp.Topic] && !taken.has(tp) {
				u.give(i, tp)
				taken.add(tp)
			}
		}
	}
	topics := in.sortedTopics()
	// Topics that few can take go first: the others have more ways to even out.
	slices.SortStableFunc(topics, func(a, b lattice.TopicID) int { return cmp.Compare(len(u.subs[a]), len(u.subs[b])) })
	for _, topic := range topics {
		for p := range in.partitions[topic] {
			if tp := (lattice.TopicPartition{Topic: topic, Partition: p}); !taken.has(tp) {
				u.give(u.leastLoaded(u.subs[topic]), tp)
			}
		}
	}
	for u.improve() {
	}
	return u.shares
}

func compareTopics(a, b lattice.TopicID) int { return bytes.Compare(a[:], b[:]) }

func (u *uneven) give(i int, tp lattice.TopicPartition) {
	u.shares[i].add(tp)
	u.held[i][tp.Topic]++
}

// pass moves one partition of the topic.
func (u *uneven) pass(from, to int, topic lattice.TopicID) {
	for p := u.in.partitions[topic] - 1; p >= 0; p-- {
		tp := lattice.TopicPartition{Topic: topic, Partition: p}
		if u.shares[from].has(tp) {
			delete(u.shares[from], tp)
			if u.held[from][topic]--; u.held[from][topic] == 0 {
				delete(u.held[from], topic)
			}
			u.give(to, tp)
			return
		}
	}
}

func (u *uneven) leastLoaded(among []int) int {
	return slices.MinFunc(among, func(a, b int) int { return cmp.Compare(len(u.shares[a]), len(u.shares[b])) })
}

// improve makes one chain of moves from a member to one with at least two
// fewer, and reports whether it found one.
//
// It searches from the fullest members down. What the search from a fuller
// member has reached without success need not be searched again: everyone there
// has too much to receive from those below.
func (u *uneven) improve() bool {
	order := make([]int, len(u.shares))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(u.shares[b]), len(u.shares[a])) })
	from := make([]hop, len(u.shares))
	seen := make([]bool, len(u.shares))
	opened := map[lattice.TopicID]bool{} // topics whose subscribers are all reached
	for _, source := range order {
		if !seen[source] {
			seen[source] = true
			from[source] = hop{member: -1}
			if end, ok := u.search(source, from, seen, opened); ok {
				for i := end; from[i].member >= 0; i = from[i].member {
					u.pass(from[i].member, i, from[i].topic)
				}
				return true
			}
		}
		if u.work <= 0 {
			return false
		}
	}
	return false
}

// hop says from whom, and by which topic, the search reached a member.
type hop struct {
	member int
	topic  lattice.TopicID
}

func (u *uneven) search(source int, from []hop, seen []bool, opened map[lattice.TopicID]bool) (int, bool) {
	enough := len(u.shares[source]) - 2
	queue := []int{source}
	for len(queue) > 0 && u.work > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, topic := range u.heldTopics(i) {
			if opened[topic] {
				continue
			}
			opened[topic] = true
			for _, j := range u.subs[topic] {
				u.work--
				if seen[j] {
					continue
				}
				seen[j] = true
				from[j] = hop{i, topic}
				if len(u.shares[j]) <= enough {
					return j, true
				}
				queue = append(queue, j)
			}
		}
	}
	return 0, false
}

func (u *uneven) heldTopics(i int) []lattice.TopicID {
	topics := make([]lattice.TopicID, 0, len(u.held[i]))
	for t := range u.held[i] {
		topics = append(topics, t)
	}
	slices.SortFunc(topics, compareTopics)
	return topics
}
