package sim

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
)

// order is what a client wants of a topic: a record appended, or the start moved. It may
// ask any node, and asks again, maybe another, if the answer was lost.
type order struct {
	w      *world
	number int
	node   *node // that was asked last
	at     lattice.TopicPartition
	leader *node // of the partition, when it was asked

	value  string
	batch  []byte // one record of an idempotent producer of its own; nil: it is about the start
	before int64
	to     *node // who is to lead; nil: it is about something else

	all     bool // acks=all
	asks    int
	was     partition.AckStatus // who was to have it, when it was asked for last
	need    int                 // how many had to have it when it was acknowledged
	holders []*node             // who had it then, and has not lost its disk since

	asked   bool // and there is no answer yet
	answers chan answerTo
	done    bool // it was told where the record is
	offset  int64
	unsure  bool // some answer was lost: it may be there or not
}

// answerTo is what a client is told.
type answerTo struct {
	offset int64
	err    error
}

// topic draws a topic that the node knows.
func (n *node) topic() (store.Topic, bool) {
	all := n.st.Topics()
	if len(all) == 0 {
		return store.Topic{}, false
	}
	return all[n.w.rng.IntN(len(all))], true
}

// produce has a client of the node append a record to some topic.
func (n *node) produce() {
	if t, ok := n.topic(); ok {
		n.append(t, n.w.several && n.w.rng.IntN(3) > 0)
	}
}

// append has a client of the node append a record to a topic.
func (n *node) append(t store.Topic, all bool) {
	w := n.w
	o := &order{
		w: w, number: len(w.orders), node: n, at: lattice.TopicPartition{Topic: t.ID}, offset: -1, all: all,
		value: fmt.Sprintf("r%d of %s %s", len(w.orders), n.name, bytes.Repeat([]byte("y"), w.rng.IntN(200))), answers: make(chan answerTo, 1),
	}
	b := record.NewBuilder(record.None, 0)
	b.Add(n.clock.Now().UnixMilli(), nil, []byte(o.value), nil)
	o.batch = b.Build(nil)
	record.SetProducer(o.batch, int64(1+o.number), 0, 0)
	w.orders = append(w.orders, o)
	o.ask(n)
}

// truncate has a client of the node move the start of some topic.
func (n *node) truncate() {
	w := n.w
	t, ok := n.topic()
	if !ok {
		return
	}
	p, err := n.st.Partition(t.ID, 0)
	if err != nil {
		return
	}
	b := p.Bounds()
	if b.Committed <= b.Start {
		return
	}
	o := &order{
		w: w, number: len(w.orders), node: n, at: lattice.TopicPartition{Topic: t.ID}, offset: -1,
		before: b.Start + 1 + int64(w.rng.IntN(int(b.Committed-b.Start))), answers: make(chan answerTo, 1),
	}
	w.orders = append(w.orders, o)
	w.low[o.at] = max(w.low[o.at], o.before)
	o.ask(n)
}

// again has a client ask again whose answer was lost, or got lost on the way to it.
func (n *node) retry() {
	var can []*order
	for _, o := range n.w.orders {
		if _, ok := n.st.TopicByID(o.at.Topic); ok && !o.asked && o.batch != nil && (o.unsure || o.done) {
			can = append(can, o)
		}
	}
	if len(can) > 0 {
		n.w.did("asked again")
		can[n.w.rng.IntN(len(can))].ask(n)
	}
}

// ask gives the order to a node.
func (o *order) ask(n *node) {
	w := o.w
	o.node, o.asked, o.leader = n, true, n.leaderOf(o.at)
	o.asks++
	if o.leader == n {
		n.noteSetOf(o)
	}
	acks := int8(1)
	if o.all {
		acks = -1
	}
	switch {
	case o.to != nil:
		w.say("%s is asked to have %s lead %s, which %s leads", n.name, o.to.name, topicName(o.at), o.leader.name)
		n.leadFor(o)
	case o.batch != nil:
		w.say("%s is asked to append record %d to %s, which %s leads, acks %d", n.name, o.number, topicName(o.at), o.leader.name, acks)
		n.st.Append(o.at.Topic, 0, acks, time.Minute/2, partition.Append{Batches: bytes.Clone(o.batch), Done: func(r partition.Result, err error) { o.answers <- answerTo{r.Base, err} }})
	default:
		w.say("%s is asked to truncate %s before %d", n.name, topicName(o.at), o.before)
		n.truncateFor(o)
	}
	w.quiet()
	w.poll() // what a node without power says nobody hears
	n.powerless()
}

// truncateFor is Store.Truncate, but that it waits for no other node.
func (n *node) truncateFor(o *order) {
	done := func(start int64, err error) { o.answers <- answerTo{start, err} }
	if o.leader != n {
		elsewhere{n}.Truncate(o.leader.id, o.at, o.before, time.Minute, done)
		return
	}
	ctx, cancel := soon()
	defer cancel()
	done(n.st.Truncate(ctx, o.at.Topic, 0, o.before, time.Minute))
}

// poll tells clients what they wait for; false: nothing came.
func (w *world) poll() (any bool) {
	for _, o := range w.orders {
		if !o.asked {
			continue
		}
		select {
		case a := <-o.answers:
			o.asked, any = false, true
			o.hears(a)
		default:
		}
	}
	return any
}

// hears takes an answer.
func (o *order) hears(a answerTo) {
	w, n := o.w, o.node
	w.say("the client of order %d hears from %s: %d, %s", o.number, n.name, a.offset, short(a.err))
	switch {
	case a.err != nil:
		o.unsure = true
		if !o.expects(a.err) {
			w.fail("works", "order %d cannot be done by %s: %v", o.number, n.name, a.err)
		}
	case n.failing() || o.leader.failing():
		o.unsure = true
	case o.to != nil:
		w.did("leader moved")
	case o.batch == nil:
		w.began[o.at] = max(w.began[o.at], o.before)
		w.did("truncated")
	case w.lostAll[o.at.Topic]: // what counts of it now is not known
	default:
		if o.leader == n {
			n.promised(o, a.offset)
		}
		if o.done && o.offset != a.offset {
			w.fail("a record is appended once", "order %d was told that it is at %d, and now %d", o.number, o.offset, a.offset)
		}
		o.done, o.offset = true, a.offset
		if old, ok := w.records[place{o.at, a.offset}]; ok && old.value != o.value {
			w.fail("an offset has one value", "%s gave offset %d of %s to %q, and now to %q", o.leader.name, a.offset, topicName(o.at), old.value, o.value)
		}
		w.records[place{o.at, a.offset}] = produced{o.leader, o.value}
		w.did("record acknowledged")
		if o.need > 1 {
			w.did("record acknowledged by several")
		}
		if o.leader != n {
			w.did("record forwarded")
		}
	}
}

// expects are errors that a client may be told.
func (o *order) expects(err error) bool {
	if o.node.expected(err) {
		return true
	}
	k := lattice.KindOf(err)
	if o.to != nil {
		return o.expectsLead(k)
	}
	if o.all && (errors.Is(err, partition.ErrNotEnough) || errors.Is(err, partition.ErrNotEnoughAfter)) {
		o.w.did("too few replicas")
		return true
	}
	if k == lattice.NotLeader || errors.Is(err, partition.ErrClosed) { // another was to lead in between
		return o.w.moves || o.w.several
	}
	if k == lattice.Unavailable && o.w.several { // it led before it was started, and nobody promises it here that it leads on
		return true
	}
	if o.leader != o.node { // it may know less than this node, and may be out of reach
		return k == lattice.Unavailable || k == lattice.Denied || k == lattice.NotFound || k == lattice.NotLeader || k == lattice.OutOfRange || o.leader.expected(err)
	}
	return o.w.lostAll[o.at.Topic] || o.batch == nil && k == lattice.OutOfRange
}

// fetch has a client read all of a topic from the node's replica.
func (n *node) fetch() {
	if t, ok := n.topic(); ok {
		n.show(t, true)
	}
}

// inTerm is an offset in a term, which never names two records.
type inTerm struct {
	place
	term int32
}

// show reads a partition as a client would, and holds what it sees against what anybody
// has seen. It returns the values from the start on.
func (n *node) show(t store.Topic, said bool) (start int64, values []string) {
	w := n.w
	at := lattice.TopicPartition{Topic: t.ID}
	p, err := n.st.Partition(t.ID, 0)
	if err != nil {
		return 0, nil
	}
	b := p.Bounds()
	for offset := b.Start; offset < b.Committed; offset++ {
		v, term, err := readAt(p, offset)
		if err != nil {
			w.fail("what is readable can be read", "%s: offset %d of %s, %d to %d: %v", n.name, offset, topicName(at), b.Start, b.Committed, err)
		}
		key := inTerm{place{at, offset}, term}
		if old, ok := w.shown[key]; ok && old != v {
			w.fail("an offset has one value", "%s has %q at offset %d of term %d of %s, somebody read %q", n.name, v, offset, term, topicName(at), old)
		}
		w.shown[key] = v
		key.term = -1
		if old, ok := w.shown[key]; ok && old != v && !w.lostAll[t.ID] {
			w.fail("an offset has one value", "%s has %q at offset %d of %s, somebody read %q", n.name, v, offset, topicName(at), old)
		}
		w.shown[key] = v
		values = append(values, v)
	}
	n.readable[at] = max(n.readable[at], b.Committed)
	n.watchMark(at, b)
	if said {
		w.say("a client reads %s at %s: %d to %d", topicName(at), n.name, b.Start, b.Committed)
		w.did("fetched")
	}
	return b.Start, values
}

// checkReadable checks, when the node starts, that what readers were shown is there still.
func (n *node) checkReadable() {
	for _, at := range inOrder(slices.Collect(maps.Keys(n.readable))) {
		p, err := n.st.Partition(at.Topic, at.Partition)
		if err != nil {
			continue // it does not count any more
		}
		b := p.Bounds()
		if n.w.several { // who else has it is heard again; what was shown is there still
			b.Committed = b.End
		}
		if b.Committed < n.readable[at] && !n.w.lostAll[at.Topic] {
			n.w.fail("what was readable stays readable", "%s showed %s up to %d, after a restart it has it up to %d", n.name, topicName(at), n.readable[at], b.Committed)
		}
	}
}

// readAt returns the record at an offset, and its term.
func readAt(p *partition.Partition, offset int64) (value string, term int32, err error) {
	s, err := p.Read(offset, 1)
	if err != nil {
		return "", 0, err
	}
	defer s.Release()
	data := make([]byte, s.Len())
	for got := 0; got < len(data); {
		k, err := s.NextChunk(data[got:])
		if err != nil {
			return "", 0, err
		}
		got += k
	}
	h, err := record.ParseHeader(data)
	if err != nil {
		return "", 0, err
	}
	var r record.Reader
	rec, ok, err := r.FindOffset(data, record.Limits{}, offset)
	if err == nil && !ok {
		err = fmt.Errorf("nothing is there")
	}
	return string(rec.Value), h.LeaderEpoch, err
}
