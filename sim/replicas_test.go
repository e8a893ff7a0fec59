package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/forward"
)

// Topics with several replicas, and what acks=all promises. Checked is:
//
//   - acks=all is kept: when a leader answers, as many members of the set as the term
//     needs have the record durably, and of those each that keeps its disk has it still at
//     the end, whatever became of the leader.
//   - a cosignature is durable: after a power cut a node has what it told others that it has.
//   - the high watermark never goes back as long as a node runs; and when all of the set
//     are there at the end, all that is in the log is committed, on everybody.

// mark is a high watermark, and the term it was seen in.
type mark struct {
	term      int32
	committed int64
}

// replicas draws who is to hold a topic, of the members that a node knows, and how many
// of them acks=all needs.
func (n *node) replicas() map[string]string {
	var ids []string
	for _, m := range n.st.State().Members() {
		if p := n.w.byID(m.Author); p != nil && m.Role >= roster.Writer && (p == n || n.linked[p.i] || n.w.rng.IntN(8) == 0) && n.w.rng.IntN(6) > 0 {
			ids = append(ids, p.id.String())
		}
	}
	if len(ids) == 0 {
		return map[string]string{}
	}
	slices.Sort(ids)
	least := max(1+n.w.rng.IntN(len(ids)), 1+n.w.rng.IntN(len(ids)))
	return map[string]string{"lattice.replicas": strings.Join(ids, ","), "min.insync.replicas": strconv.Itoa(least)}
}

// replicasIn says what a topic's configuration has of them.
func (w *world) replicasIn(config map[string]string) string {
	if config["lattice.replicas"] == "" {
		return ""
	}
	var names []string
	for _, p := range w.all {
		if strings.Contains(config["lattice.replicas"], p.id.String()) {
			names = append(names, p.name)
		}
	}
	return fmt.Sprintf(", held by %s, of which %s must acknowledge", strings.Join(names, " "), config["min.insync.replicas"])
}

// noteSet remembers who was to hold a topic at some time.
func (w *world) noteSet(t lattice.TopicID, config map[string]string) {
	for _, p := range w.all {
		if strings.Contains(config["lattice.replicas"], p.id.String()) {
			w.seats[leading{t, p.i}] = true
		}
	}
}

// reseat changes who holds a topic.
func (n *node) reseat() {
	w := n.w
	t, ok := n.topic()
	if !ok {
		return
	}
	set := n.replicas()
	w.noteSet(t.ID, set)
	var changes []store.ConfigChange
	for _, name := range []string{"lattice.replicas", "min.insync.replicas"} {
		c := store.ConfigChange{Name: name, Op: "set"}
		if v, ok := set[name]; ok {
			c.Value = &v
		}
		changes = append(changes, c)
	}
	ctx, cancel := soon()
	defer cancel()
	err := n.st.AlterTopic(ctx, t.ID, changes, false, false)
	w.quiet()
	w.say("%s has %s%s: %s", n.name, t.Name, w.replicasIn(set), short(err))
	if err != nil && !n.expected(err) {
		w.fail("works", "%s cannot change who holds %s: %v", n.name, t.Name, err)
	}
	w.did("replicas changed")
	n.powerless()
}

// tellOf has the machine about batches know of a partition what is here.
func (n *node) tellOf(creator lattice.NodeID, id lattice.TopicPartition) {
	n.takeFreight(n.parts.Changed(n.have(creator, id), n.w.now))
	p := n.followed[id].p
	if p == nil {
		return
	}
	var all []batches.Ack
	for _, a := range p.Acks() {
		all = append(all, batches.Ack{Partition: id, By: a.By, Note: a.Note})
		if a.By == n.id && !n.failing() {
			n.cosigned[id] = max(n.cosigned[id], int64(p.Position().Size))
			n.w.did("cosigned")
		}
	}
	n.takeFreight(n.parts.Told(id, all, n.w.now))
}

// checkCosigned checks, when the node starts, that it has what it has told that it has.
func (n *node) checkCosigned() {
	for _, at := range inOrder(keysOf(n.cosigned)) {
		p, err := n.st.Partition(at.Topic, at.Partition)
		if err != nil {
			continue // it does not count any more
		}
		if has := int64(p.Position().Size); has < n.cosigned[at] && !n.w.lostAll[at.Topic] {
			n.w.fail("a cosignature is durable", "%s had told that it has %d batches of %s, after a restart it has %d", n.name, n.cosigned[at], topicName(at), has)
		}
	}
}

func keysOf[V any](m map[lattice.TopicPartition]V) (all []lattice.TopicPartition) {
	for at := range m {
		all = append(all, at)
	}
	return all
}

// heed gives a partition's log an acknowledgement that came.
func (n *node) heed() {
	x := n.heards[0]
	n.heards = n.heards[1:]
	p, err := n.st.Partition(x.Partition.Topic, x.Partition.Partition)
	if err == nil {
		err = p.TakeAck(x.Note)
		n.w.quiet()
	}
	n.w.say("%s hears from %s what somebody has of %s: %s", n.name, n.w.byID(x.Peer).name, topicName(x.Partition), short(err))
	n.w.poll()
	if n.powerless() || !n.up() {
		return
	}
	n.takeFreight(n.parts.AckTaken(x.Peer, x.Partition, err, n.w.now))
}

// orderOf returns whose append another node's client asks for; nil: it is none.
func (w *world) orderOf(a forward.Ask) *order {
	if a.Op != forward.Append {
		return nil
	}
	h, err := record.ParseHeader(a.Batches)
	if err != nil || h.ProducerID < 1 || h.ProducerID > int64(len(w.orders)) {
		return nil
	}
	return w.orders[h.ProducerID-1]
}

// noteSetOf remembers who is to hold what an order is about to append.
func (n *node) noteSetOf(o *order) {
	if p, err := n.partition(o.at); err == nil {
		o.was = p.AckStatus()
	}
}

// promised holds what a leader has just answered to acks=all against what there is.
func (n *node) promised(o *order, offset int64) {
	w := n.w
	if !o.all || n.lies || n.failing() || w.lostAll[o.at.Topic] {
		return
	}
	p, err := n.st.Partition(o.at.Topic, o.at.Partition)
	if err != nil || !p.Leads() {
		return
	}
	// What an earlier set has committed is committed; and what was appended before, when less
	// was asked for, may be, too.
	st := p.AckStatus()
	need, before, unknown := min(st.Min, max(o.was.Min, 1)), o.holders, 0
	o.holders = nil
	for i, r := range append(o.was.Replicas, st.Replicas...) {
		m := w.byID(r.Node)
		switch {
		case slices.ContainsFunc(append(o.was.Replicas, st.Replicas...)[:i], func(x partition.ReplicaStatus) bool { return x.Node == r.Node }):
		case !m.up():
			unknown++ // it may have it
		case m.records(o.at) > offset:
			o.holders = append(o.holders, m)
		}
	}
	switch {
	case o.asks > 1:
		if len(before) > 0 {
			o.holders = before
		}
	case len(o.holders)+unknown < need:
		w.fail("acks=all is kept", "%s acknowledges order %d at %d of %s, which %d of its set have and %d must", n.name, o.number, offset, topicName(o.at), len(o.holders), need)
	default:
		o.need = need
	}
}

// records is how many records of a partition the node has durably: one for each batch.
func (n *node) records(at lattice.TopicPartition) int64 {
	p, err := n.st.Partition(at.Topic, at.Partition)
	if err != nil {
		return 0
	}
	if p.Leads() { // power cuts show whether it is durable there
		return p.Bounds().End
	}
	return int64(p.Position().Size)
}

// watchMark holds a high watermark against what the node has shown since it started.
func (n *node) watchMark(at lattice.TopicPartition, b partition.Bounds) {
	old := n.marks[at]
	if b.Committed < old.committed && !n.w.anew(at) {
		n.w.fail("the high watermark never goes back", "%s shows %s up to %d in term %d, and has shown it up to %d in term %d", n.name, topicName(at), b.Committed, b.Term, old.committed, old.term)
	}
	n.marks[at] = mark{b.Term, b.Committed}
}

// holds reports whether the node has an order's record in its log, seen by readers or not.
func (n *node) holds(o *order) bool {
	p, err := n.st.Partition(o.at.Topic, o.at.Partition)
	if err != nil || o.offset < 0 {
		return false
	}
	s, err := p.ReadSpan(uint64(o.offset), 1)
	n.w.quiet()
	if err != nil || len(s.Batches) == 0 {
		return lattice.KindOf(err) == lattice.OutOfRange && p.Bounds().Start > o.offset
	}
	h, err := record.ParseHeader(s.Batches[0])
	if err != nil || h.BaseOffset != o.offset {
		return false
	}
	var r record.Reader
	rec, ok, err := r.FindOffset(s.Batches[0], record.Limits{}, o.offset)
	return err == nil && ok && string(rec.Value) == o.value
}

// checkHolders checks that the node has what it had when acks=all was answered.
func (w *world) checkHolders(n *node, t store.Topic) {
	for _, o := range w.orders {
		if o.at.Topic == t.ID && o.done && slices.Contains(o.holders, n) && !n.holds(o) {
			w.fail("acks=all is kept", "%s had order %d of %s when it was acknowledged at %d, and has it no more", n.name, o.number, topicName(o.at), o.offset)
		}
	}
}

// last appends a record to each topic at who leads it. Members hear of a set that has
// changed with the next batch, and what was there before is committed by that set then.
func (w *world) last() {
	for _, n := range w.honest() {
		for _, t := range n.st.Topics() {
			if p, err := n.st.Partition(t.ID, 0); err == nil && p.Leads() && w.several {
				n.append(t, false)
			}
		}
	}
}

// uncommitted says what of a partition is not committed, though all that have to
// acknowledge it, now or when its set was another, are there; empty: nothing.
func (w *world) uncommitted() string {
	all := w.honest()
	for _, t := range all[0].st.Topics() {
		if w.lostAll[t.ID] || w.liarLeads(t) {
			continue
		}
		if s := w.uncommittedOf(lattice.TopicPartition{Topic: t.ID}, all); s != "" {
			return s
		}
	}
	return ""
}

func (w *world) uncommittedOf(at lattice.TopicPartition, all []*node) string {
	lead := all[0].leaderOf(at)
	if p, err := lead.partition(at); err != nil || !p.Leads() || !slices.Contains(all, lead) {
		return ""
	}
	for _, m := range w.all {
		if w.seats[leading{at.Topic, m.i}] && !slices.Contains(all, m) {
			return ""
		}
	}
	for _, n := range all {
		p, err := n.partition(at)
		if err != nil {
			return fmt.Sprintf("%s has no %s: %v", n.name, topicName(at), err)
		}
		if b := p.Bounds(); b.Committed != b.End {
			return fmt.Sprintf("%s has %d records of %s, of which %d are committed", n.name, b.End, topicName(at), b.Committed)
		}
	}
	return ""
}
