package sim

import (
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
)

// Who leads a partition, and partitions that are given to others.

// leading is a node that led a topic at some time.
type leading struct {
	topic lattice.TopicID
	node  int
}

// partition returns a partition that is open here.
func (n *node) partition(at lattice.TopicPartition) (*partition.Partition, error) {
	if !n.up() {
		return nil, store.ErrNotOpen
	}
	return n.st.Partition(at.Topic, at.Partition)
}

// leaderOf is who leads a partition, as far as the node knows.
func (n *node) leaderOf(at lattice.TopicPartition) *node {
	id, err := n.st.LeaderOf(at.Topic, at.Partition)
	if p := n.w.byID(id); err == nil && p != nil {
		return p
	}
	return n
}

// noteLead remembers who has led what.
func (n *node) noteLead(at lattice.TopicPartition) {
	if p := n.followed[at].p; p != nil && p.Leads() {
		n.w.led[leading{at.Topic, n.i}] = true
	}
}

// leads returns who leads a topic, if that is an honest member which does.
func (w *world) leads(t store.Topic) *node {
	at := lattice.TopicPartition{Topic: t.ID}
	for _, n := range w.honest() {
		if p, err := n.partition(at); err == nil && p.Leads() {
			return n
		}
	}
	return nil
}

// loseLead notes what is lost with the disk of a node: what only its leader had.
func (n *node) loseLead() {
	w := n.w
	for l := range w.led {
		if l.node == n.i {
			w.lostAll[l.topic] = true
		}
	}
	for at := range w.records { // what others have of them is another history than the one that begins
		if w.lostAll[at.Topic] {
			delete(w.records, at)
		}
	}
	for _, o := range w.orders {
		for i, h := range o.holders {
			if h == n {
				o.holders = append(o.holders[:i:i], o.holders[i+1:]...)
				break
			}
		}
	}
}

// handoff has a client of the node give some partition to another leader.
func (n *node) handoff() {
	w := n.w
	t, ok := n.topic()
	if !ok {
		return
	}
	at := lattice.TopicPartition{Topic: t.ID}
	l := n.leaderOf(at)
	if l.up() && w.rng.IntN(3) > 0 {
		n = l
	}
	to := w.all[w.rng.IntN(len(w.all))]
	for range w.all {
		if l.linked[to.i] || w.rng.IntN(8) == 0 {
			break
		}
		to = w.all[(to.i+1)%len(w.all)]
	}
	if to == l {
		return
	}
	o := &order{w: w, number: len(w.orders), node: n, at: at, offset: -1, to: to, answers: make(chan answerTo, 1)}
	w.orders = append(w.orders, o)
	o.ask(n)
}

// leadFor is Store.Lead, but that it waits for no other node.
func (n *node) leadFor(o *order) {
	done := func(err error) { o.answers <- answerTo{0, err} }
	if o.leader != n {
		elsewhere{n}.Lead(o.leader.id, o.at, o.to.id, time.Minute, done)
		return
	}
	ctx, cancel := soon()
	defer cancel()
	done(n.st.Lead(ctx, o.at, o.to.id, time.Minute))
}

// expectsLead are errors with which a partition is not given to another.
func (o *order) expectsLead(k lattice.Kind) bool {
	switch k {
	case lattice.Invalid, lattice.Unavailable, lattice.NotLeader, lattice.NotFound, lattice.Denied:
		return true
	}
	return o.leader.expected(lattice.E(k, fmt.Errorf("it is not given to another")))
}
