package group

import (
	"fmt"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"pgregory.net/rapid"
)

func drawAssign(t *rapid.T, same bool, maxMembers, maxTopics int) assignInput {
	in := assignInput{partitions: map[lattice.TopicID]int32{}}
	var topics []lattice.TopicID
	for i := range rapid.IntRange(0, maxTopics).Draw(t, "topics") {
		id := lattice.TopicID{byte(i + 1)}
		topics = append(topics, id)
		in.partitions[id] = rapid.Int32Range(0, 6).Draw(t, "partitions")
	}
	taken := partitionSet{}
	for i := range rapid.IntRange(1, maxMembers).Draw(t, "members") {
		m := assignMember{id: fmt.Sprintf("m%02d", i), current: partitionSet{}}
		if rapid.Bool().Draw(t, "static") {
			m.instance = fmt.Sprint("i", 50-i)
		}
		for _, topic := range topics {
			if same || rapid.Bool().Draw(t, "subscribes") {
				m.topics = append(m.topics, topic)
			}
			// What it has now may be of topics that shrank or that it left.
			for p := range in.partitions[topic] + 1 {
				tp := lattice.TopicPartition{Topic: topic, Partition: p}
				if !taken.has(tp) && rapid.IntRange(0, 2).Draw(t, "has") == 0 {
					taken.add(tp)
					m.current.add(tp)
				}
			}
		}
		in.members = append(in.members, m)
	}
	return in
}

// checkComplete: every partition of a topic that somebody subscribes to is with
// exactly one member, which subscribes to it.
func checkComplete(t *rapid.T, in assignInput, shares []partitionSet) {
	owner := map[lattice.TopicPartition]string{}
	for i, m := range in.members {
		for tp := range shares[i] {
			if other, ok := owner[tp]; ok {
				t.Fatalf("%s and %s both get %s", other, m.id, tp)
			}
			owner[tp] = m.id
			if !slices.Contains(m.topics, tp.Topic) || tp.Partition >= in.partitions[tp.Topic] {
				t.Fatalf("%s gets %s", m.id, tp)
			}
		}
	}
	total := 0
	for topic := range in.subscribers() {
		total += int(in.partitions[topic])
	}
	if len(owner) != total {
		t.Fatalf("%d of %d partitions are assigned", len(owner), total)
	}
}

func sizes(shares []partitionSet) []int {
	n := make([]int, len(shares))
	for i, s := range shares {
		n[i] = len(s)
	}
	return n
}

// TestUniformEven: with equal subscriptions the numbers differ by one at most,
// as many partitions stay as any balanced assignment could leave, and what is
// settled stays as it is.
func TestUniformEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAssign(t, true, 7, 4)
		shares := assignUniform(in)
		checkComplete(t, in, shares)
		n := sizes(shares)
		if slices.Max(n)-slices.Min(n) > 1 {
			t.Fatalf("sizes %v", n)
		}
		total, kept := 0, 0
		for _, size := range n {
			total += size
		}
		quota, more := total/len(n), total%len(n)
		best, above := 0, 0
		for i, m := range in.members {
			held := 0
			for tp := range m.current {
				if tp.Partition < in.partitions[tp.Topic] {
					held++
				}
				if shares[i].has(tp) {
					kept++
				}
			}
			best += min(held, quota)
			if held > quota {
				above++
			}
		}
		if best += min(above, more); kept != best {
			t.Fatalf("%d partitions stay, %d could", kept, best)
		}
		settled(t, in, shares)
	})
}

// settled: a second look at the result changes nothing.
func settled(t *rapid.T, in assignInput, shares []partitionSet) {
	for i := range in.members {
		in.members[i].current = shares[i]
	}
	for i, s := range assignUniform(in) {
		if !s.equal(shares[i]) {
			t.Fatalf("%s had %v and is given %v, though nothing changed", in.members[i].id, shares[i].sorted(), s.sorted())
		}
	}
}

// TestUniformUneven compares the balance with the best there is, found by
// trying every assignment.
func TestUniformUneven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAssign(t, false, 4, 4)
		for topic := range in.partitions {
			in.partitions[topic] = min(in.partitions[topic], 3)
		}
		shares := assignUniform(in)
		checkComplete(t, in, shares)
		cost := 0
		for _, n := range sizes(shares) {
			cost += n * n
		}
		if best := bestCost(in); cost != best {
			t.Fatalf("sizes %v cost %d, the best assignment costs %d", sizes(shares), cost, best)
		}
		settled(t, in, shares)
	})
}

// bestCost is the least sum of squares of sizes. Partitions of one topic are
// alike, so it tries how many each subscriber gets.
func bestCost(in assignInput) int {
	subs := in.subscribers()
	topics := in.sortedTopics()
	load := make([]int, len(in.members))
	best := -1
	var try func(topic, member, left int)
	try = func(topic, member, left int) {
		if topic == len(topics) {
			cost := 0
			for _, n := range load {
				cost += n * n
			}
			if best < 0 || cost < best {
				best = cost
			}
			return
		}
		who := subs[topics[topic]]
		if member == len(who)-1 {
			load[who[member]] += left
			next := 0
			if topic+1 < len(topics) {
				next = int(in.partitions[topics[topic+1]])
			}
			try(topic+1, 0, next)
			load[who[member]] -= left
			return
		}
		for n := range left + 1 {
			load[who[member]] += n
			try(topic, member+1, left-n)
			load[who[member]] -= n
		}
	}
	if len(topics) == 0 {
		return 0
	}
	try(0, 0, int(in.partitions[topics[0]]))
	return best
}

// TestRange: consecutive ranges in a fixed order, longer ones first, and topics
// that are alike are cut alike.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAssign(t, rapid.Bool().Draw(t, "same"), 6, 4)
		shares := assignRange(in)
		checkComplete(t, in, shares)
		of := func(i int, topic lattice.TopicID) []int32 {
			var ps []int32
			for _, tp := range shares[i].sorted() {
				if tp.Topic == topic {
					ps = append(ps, tp.Partition)
				}
			}
			return ps
		}
		subs := in.subscribers()
		for topic, who := range subs {
			n := int(in.partitions[topic])
			for _, i := range who {
				ps := of(i, topic)
				if len(ps) < n/len(who) || len(ps) > (n+len(who)-1)/len(who) {
					t.Fatalf("%s gets %d of %d partitions for %d members", in.members[i].id, len(ps), n, len(who))
				}
				for k, p := range ps {
					if p != ps[0]+int32(k) {
						t.Fatalf("%s gets %v", in.members[i].id, ps)
					}
				}
				for other, others := range subs {
					if in.partitions[other] == in.partitions[topic] && slices.Equal(who, others) && !slices.Equal(of(i, other), ps) {
						t.Fatalf("%s gets %v of one topic and %v of its like", in.members[i].id, ps, of(i, other))
					}
				}
			}
		}
	})
}

func BenchmarkUniformOneMore(b *testing.B) {
	for _, same := range []bool{true, false} {
		b.Run(fmt.Sprintf("same=%v", same), func(b *testing.B) {
			in := assignInput{partitions: map[lattice.TopicID]int32{}}
			for i := range 100 {
				in.partitions[lattice.TopicID{byte(i)}] = 100
			}
			var all []lattice.TopicID
			for i := range 100 {
				all = append(all, lattice.TopicID{byte(i)})
			}
			for i := range 500 {
				topics := all
				if !same {
					topics = slices.Concat(all[:i%50], all[50:])
				}
				in.members = append(in.members, assignMember{id: fmt.Sprintf("%03d", i), topics: topics})
			}
			shares := assignUniform(in)
			for i := range in.members {
				in.members[i].current = shares[i]
			}
			in.members = append(in.members, assignMember{id: "new", topics: all})
			b.ResetTimer()
			for range b.N {
				assignUniform(in)
			}
		})
	}
}
