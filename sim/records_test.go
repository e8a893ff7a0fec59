package sim

import (
	"bytes"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// What is checked of records, beside what check_test.go says:
//
//   - an offset has one value: whoever reads an offset, at whichever node and whenever,
//     reads the same record; in one term even if the leader's disk was lost.
//   - what was readable stays readable: a power cut takes nothing back that a reader was
//     shown at that node.
//   - a record is appended once, however often its producer asks, and by way of whom.
//   - a claim is durable: no node says that it has what it has not made durable.
//   - converge: a topic whose leader is there is the same on all honest members, to the
//     last batch and root; one whose leader is gone has on each what anybody can prove.

// anew reports whether a topic's leader has lost what it wrote, and begins anew.
func (w *world) anew(id lattice.TopicPartition) bool { return w.lostAll[id.Topic] }

// apart says in which topic honest members differ; empty: in none.
func (w *world) apart() string {
	all := w.honest()
	for _, t := range all[0].st.Topics() {
		if w.lostAll[t.ID] {
			continue
		}
		id := lattice.TopicPartition{Topic: t.ID}
		at, lead := make([]batches.Where, len(all)), -1
		most := uint64(0)
		for i, n := range all {
			p, err := n.st.Partition(t.ID, 0)
			if err != nil {
				return fmt.Sprintf("%s has no %s: %v", n.name, t.Name, err)
			}
			if at[i] = whereIs(p); n == w.leads(t) {
				lead = i
			}
			most = max(most, at[i].Proven)
			if a, b := n.leaderOf(id), all[0].leaderOf(id); a != b {
				return fmt.Sprintf("%s has %s as leader of %s, and %s has %s", n.name, a.name, topicName(id), all[0].name, b.name)
			}
		}
		for i, n := range all {
			switch {
			case lead >= 0 && at[i] != at[lead]:
				return fmt.Sprintf("%s has %d batches of %s, proven %d (%s); its leader %s %d, proven %d (%s)", n.name, at[i].Size, topicName(id),
					at[i].Proven, at[i].Root.Short(), all[lead].name, at[lead].Size, at[lead].Proven, at[lead].Root.Short())
			case lead < 0 && at[i].Size < most && !w.liarLeads(t):
				return fmt.Sprintf("%s has %d batches of %s, whose leader is gone; somebody can prove %d", n.name, at[i].Size, t.Name, most)
			}
		}
	}
	return ""
}

func (w *world) liarLeads(t store.Topic) bool {
	return w.all[w.nodes-1].lies && w.led[leading{t.ID, w.nodes - 1}]
}

// checkTopics reads all records of a node, and looks for those of which a client was told.
func (w *world) checkTopics(n *node) {
	for _, t := range n.st.Topics() {
		at := lattice.TopicPartition{Topic: t.ID}
		start, values := n.show(t, false)
		times := map[string]int{}
		for _, v := range values {
			times[v]++
		}
		w.checkHolders(n, t)
		if w.lostAll[t.ID] {
			continue
		}
		if start > w.low[at] {
			w.fail("nothing acknowledged is lost", "%s begins %s at %d, nobody wanted more than %d gone", n.name, topicName(at), start, w.low[at])
		}
		if n == w.leads(t) && start < w.began[at] && !w.moves { // a new leader may not have heard of it
			w.fail("nothing acknowledged is lost", "%s begins %s at %d, a client was told that it begins at %d", n.name, topicName(at), start, w.began[at])
		}
		for _, o := range w.orders {
			if o.at != at || o.batch == nil {
				continue
			}
			if times[o.value] > 1 {
				w.fail("a record is appended once", "%s has order %d %d times in %s", n.name, o.number, times[o.value], topicName(at))
			}
			if o.done && o.offset >= start && w.leads(t) != nil {
				if i := o.offset - start; (i >= int64(len(values)) || values[i] != o.value) && !n.holds(o) {
					w.fail("nothing acknowledged is lost", "%s has %d records of %s from %d on, not order %d at %d, which was acknowledged", n.name, len(values), topicName(at), start, o.number, o.offset)
				}
			}
		}
	}
}

// checkEverywhere checks that all have the same records, wherever they begin.
func (w *world) checkEverywhere(all []*node) {
	for _, t := range all[0].st.Topics() {
		if w.lostAll[t.ID] || w.leads(t) == nil {
			continue
		}
		first, want := all[0].show(t, false)
		for _, n := range all[1:] {
			start, values := n.show(t, false)
			from := max(first, start)
			a, b := behind(want, from-first), behind(values, from-start)
			both := min(len(a), len(b)) // where somebody of the set is missing, one may know of less that is committed
			if both < max(len(a), len(b)) && !w.several || !slices.Equal(a[:both], b[:both]) {
				w.fail("converge", "%s and %s have other records of %s", all[0].name, n.name, t.Name)
			}
		}
	}
}

func behind(all []string, n int64) []string { return all[min(n, int64(len(all))):] }

// claims checks that a node has what it says that it has of partitions.
func (n *node) claims(m batches.Message) {
	o, ok := m.(batches.Offer)
	if !ok || n.lies {
		return
	}
	for _, i := range o.Items {
		p, err := n.st.Partition(i.Partition.Topic, i.Partition.Partition)
		if err == nil && whereIs(p).Proven < i.Size {
			n.w.fail("a claim is durable", "%s says that it has %d batches of %s, and can prove %d", n.name, i.Size, topicName(i.Partition), whereIs(p).Proven)
		}
	}
}

// claimsEntries checks that a node has what it says that it has of authors' logs.
func (n *node) claimsEntries(m reconcile.Message) {
	o, ok := m.(reconcile.Offer)
	if !ok || n.lies {
		return
	}
	for _, s := range n.st.State().LogStates() {
		k := reconcile.LogKey(s.Writer)
		for _, i := range o.Items {
			if bytes.Equal(i.Key[:], k[:]) && i.N > s.Tip.Seq {
				n.w.fail("a claim is durable", "%s says that it has %d entries of %s, and has %d", n.name, i.N, n.w.name(s.Writer.Author), s.Tip.Seq)
			}
		}
	}
}
