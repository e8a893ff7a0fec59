package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/kafka"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// A connection of two nodes carries three streams, as in mesh/p2p: about entries
// (node_test.go), about record batches, and what clients of the one want of
// partitions that the other leads. This file is the last two.

// stream says what a message is about.
type stream int

const (
	aboutEntries stream = iota
	aboutBatches
	aboutAsks
	aboutAnswers
	streams
)

var streamNames = [streams]string{"", "batches: ", "asks: ", "answers: "}

// freight is what a node has under way about records. It is made anew at each start.
type freight struct {
	parts    *batches.Replica
	receives []batches.Receive
	loads    []batches.Read
	heards   []batches.Heard // acknowledgements of other members
	followed map[lattice.TopicPartition]followed
	unwatch  func()
	askers   []*forward.Asker[*asked] // by leader
	leaders  []*forward.Leader        // by who asks
	asks     []*asked
}

// followed is a partition as it was opened.
type followed struct {
	p      *partition.Partition
	cancel func()
}

// asked is what a client of this node wants of another leader.
type asked struct {
	id     uint64
	leader int
	due    int64
	done   func(forward.Answer, error)
}

// answered is an answer that a leader has for somebody.
type answered struct {
	to     int
	books  *forward.Leader // of the stream on which it was asked
	answer forward.Answer
	order  *order // if it is an append
}

// carry prepares the node for records when it starts.
func (n *node) carry() {
	w := n.w
	n.freight = freight{followed: map[lattice.TopicPartition]followed{}, askers: make([]*forward.Asker[*asked], w.nodes), leaders: make([]*forward.Leader, w.nodes)}
	n.st.UseElsewhere(elsewhere{n})
	n.unwatch = n.st.WatchTopics(func() { n.post(func(m *mail) { m.topics = true }) })
	n.parts = batches.New(batches.Config{
		Store: n.st.Info().ID, Node: n.id, Session: w.rng.Uint64(), Window: 8000, Turn: 1000, StallMs: 3000, BarMs: 10_000, CompareMs: 4000, RetryMs: 500,
	}, nil, w.now)
	n.lookAtTopics()
}

// unload lets go of all partitions before the store is closed.
func (n *node) unload() {
	n.unwatch()
	for _, x := range n.followed {
		if x.cancel != nil {
			x.cancel()
		}
	}
	n.followed = nil
}

// lookAtTopics follows partitions that came, and lets go of those that went.
func (n *node) lookAtTopics() {
	here := map[lattice.TopicPartition]bool{}
	for _, t := range n.st.Topics() {
		for i := range t.Partitions {
			id := lattice.TopicPartition{Topic: t.ID, Partition: i}
			p, _ := n.st.Partition(t.ID, i)
			here[id] = true
			old, ok := n.followed[id]
			if ok && old.p == p {
				continue
			}
			if old.cancel != nil {
				old.cancel()
			}
			x := followed{p: p}
			if p != nil {
				x.cancel = p.Follow(func() { n.post(func(m *mail) { m.grew(id) }) })
			}
			n.followed[id] = x
			n.noteLead(id)
			n.tellOf(t.Leader, id)
		}
	}
	var gone []lattice.TopicPartition
	for id := range n.followed {
		if !here[id] {
			gone = append(gone, id)
		}
	}
	for _, id := range inOrder(gone) {
		if x := n.followed[id]; x.cancel != nil {
			x.cancel()
		}
		delete(n.followed, id)
		n.takeFreight(n.parts.Gone(id, n.w.now))
	}
}

func inOrder(all []lattice.TopicPartition) []lattice.TopicPartition {
	slices.SortFunc(all, func(a, b lattice.TopicPartition) int {
		if c := bytes.Compare(a.Topic[:], b.Topic[:]); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return all
}

func (n *node) have(leader lattice.NodeID, id lattice.TopicPartition) batches.Have {
	h := batches.Have{Partition: id, Leader: leader}
	if p := n.followed[id].p; p != nil {
		h.Where, h.Leader = whereIs(p), p.Leader()
		if h.Leader == n.id && !p.Leads() { // it is to lead: what it lacks, anybody may have
			h.Leader = lattice.NodeID{}
		}
	}
	return h
}

// whereIs is what package node says of a partition.
func whereIs(p *partition.Partition) batches.Where {
	var at batches.Where
	if c, ok, err := p.Checkpoint(context.Background(), false); ok && err == nil {
		at.Proven, at.Root = c.Size, c.Root
	}
	at.Size = max(p.Next(), at.Proven)
	return at
}

// takeFreight takes effects of the machine about batches.
func (n *node) takeFreight(e batches.Effects) {
	w := n.w
	if n.failing() {
		return
	}
	n.receives, n.loads, n.heards = append(n.receives, e.Receive...), append(n.loads, e.Read...), append(n.heards, e.Heard...)
	for _, x := range e.Refused {
		p := w.byID(x.Peer)
		w.say("%s refuses batch %d of %s from %s: %s: %s", n.name, x.Leaf, topicName(x.Partition), p.name, x.Reason, short(x.Err))
		w.did("batches refused: " + x.Reason.String())
		if !n.lies && !p.lies && faultOfPeer(x.Reason) && x.Reason != reconcile.OutOfTime && !w.anew(x.Partition) { // an acknowledgement may come twice
			w.fail("a lying peer harms only itself", "%s refuses batches of %s from %s: %s, %v", n.name, topicName(x.Partition), p.name, x.Reason, x.Err)
		}
	}
	for _, s := range e.Send {
		to := w.byID(s.To)
		if !n.linked[to.i] {
			continue
		}
		n.claims(s.Message)
		all := []batches.Message{s.Message}
		if n.lies {
			all = n.lieAboutBatches(s.Message)
		}
		for _, m := range all {
			n.send(to, aboutBatches, batches.Encode(m))
		}
	}
	for _, d := range e.Drop {
		w.cut(n, w.byID(d.Peer), fmt.Sprintf("%s drops it for its batches, %s", n.name, d.Reason))
	}
}

func topicName(id lattice.TopicPartition) string {
	return fmt.Sprintf("%x/%d", id.Topic[:3], id.Partition)
}

// send puts a message on its way.
func (n *node) send(to *node, about stream, b []byte) {
	w := n.w
	to.inbox[n.i][about] = append(to.inbox[n.i][about], message{w.now + w.slow[[2]int{n.i, to.i}], b})
}

// receive gives a partition's log the next span that came.
func (n *node) receive() {
	x := n.receives[0]
	n.receives = n.receives[1:]
	id := x.Span.Partition
	var at batches.Where
	p, err := n.st.Partition(id.Topic, id.Partition)
	if err == nil {
		_, err = p.Receive(x.Span)
		n.w.quiet()
		at = whereIs(p)
	}
	n.w.say("%s takes %d batches of %s behind %d: %s, it is at %d", n.name, len(x.Span.Batches), topicName(id), x.Span.From, short(err), at.Size)
	if n.powerless() || !n.up() {
		return
	}
	if err == nil {
		n.w.did("span taken")
	}
	n.takeFreight(n.parts.Received(x.ID, at, err, n.w.now))
}

// loadSpan reads what the machine wants to send.
func (n *node) loadSpan() {
	i := n.w.rng.IntN(len(n.loads))
	x := n.loads[i]
	n.loads = slices.Delete(n.loads, i, i+1)
	got := batches.Loaded{ID: x.ID}
	p, err := n.st.Partition(x.Partition.Topic, x.Partition.Partition)
	if err == nil {
		got.Span, err = p.ReadSpan(x.From, x.Max)
		n.w.quiet()
	}
	switch {
	case err == nil:
	case lattice.KindOf(err) == lattice.NotYet:
		got.Span = span.Span{}
	default:
		got.First, got.Err = got.Span.From, err
	}
	if n.powerless() || !n.up() {
		return
	}
	n.takeFreight(n.parts.Loaded(got, n.w.now))
}

// hearOfRecords does what the store and its leaders have told.
func (n *node) hearOfRecords(m mail) {
	if m.topics {
		n.lookAtTopics()
	}
	var grown []lattice.TopicPartition
	for id := range m.changed {
		grown = append(grown, id)
	}
	for _, id := range inOrder(grown) {
		if t, ok := n.st.TopicByID(id.Topic); ok && n.followed[id].p != nil {
			n.tellOf(t.Leader, id)
		}
	}
	for _, a := range m.answers {
		if a.order != nil && !a.answer.Refused {
			n.promised(a.order, a.answer.Base)
		}
		if books := n.leaders[a.to]; books == a.books && books != nil && books.Done(a.answer.ID) > 0 && n.linked[a.to] {
			n.send(n.w.all[a.to], aboutAnswers, a.answer.AppendTo(nil))
		}
	}
}

// elsewhere is store.Elsewhere over the streams of a run.
type elsewhere struct{ n *node }

// Append implements store.Elsewhere.
func (e elsewhere) Append(leader lattice.NodeID, a store.RemoteAppend) {
	e.n.request(leader, forward.Ask{Op: forward.Append, Acks: a.Acks, Partition: a.Partition, Batches: a.Batches}, func(x forward.Answer, err error) {
		if err = asStore(x, err); err != nil {
			a.Done(partition.Result{Base: -1, AppendTime: -1, Start: -1}, err)
			return
		}
		a.Done(partition.Result{Base: x.Base, AppendTime: x.Time, Start: x.Start}, nil)
	})
}

// Truncate implements store.Elsewhere.
func (e elsewhere) Truncate(leader lattice.NodeID, tp lattice.TopicPartition, before int64, _ time.Duration, done func(int64, error)) {
	e.n.request(leader, forward.Ask{Op: forward.Truncate, Partition: tp, Before: before}, func(x forward.Answer, err error) { done(x.Start, asStore(x, err)) })
}

// Lead implements store.Elsewhere.
func (e elsewhere) Lead(leader lattice.NodeID, tp lattice.TopicPartition, to lattice.NodeID, _ time.Duration, done func(error)) {
	e.n.request(leader, forward.Ask{Op: forward.Lead, Partition: tp, To: to}, func(x forward.Answer, err error) { done(asStore(x, err)) })
}

// Ask implements store.Elsewhere. Groups are not in the simulation.
func (e elsewhere) Ask(_ lattice.NodeID, _ []byte, _ time.Duration, done func([]byte, error)) (cancel func()) {
	done(nil, store.ErrAway)
	return func() {}
}

// Reaches implements store.Elsewhere.
func (e elsewhere) Reaches(id lattice.NodeID) bool {
	p := e.n.w.byID(id)
	return p != nil && e.n.linked[p.i]
}

// asStore is what became of an ask, as the store's clients are told it.
func asStore(x forward.Answer, err error) error {
	switch {
	case errors.Is(err, forward.ErrLost):
		return fmt.Errorf("%w: %w", store.ErrNoAnswer, err)
	case err != nil:
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	case x.Refused:
		return lattice.E(x.Kind, &store.Answered{Code: x.Code, Text: x.Text})
	}
	return nil
}

// patience is how long a client waits for another leader, in ms.
const patience = 8000

// request sends an ask to a leader.
func (n *node) request(leader lattice.NodeID, a forward.Ask, done func(forward.Answer, error)) {
	p := n.w.byID(leader)
	if p == nil || !n.linked[p.i] || n.askers[p.i] == nil {
		done(forward.Answer{}, forward.ErrUnreachable)
		return
	}
	x := &asked{leader: p.i, done: done, due: n.w.now + patience}
	id, err := n.askers[p.i].Ask(a, x)
	if err != nil {
		done(forward.Answer{}, err)
		return
	}
	x.id = id
	n.asks = append(n.asks, x)
	n.send(p, aboutAsks, n.askers[p.i].Take(nil, 1<<20))
}

// lead does what another node's client wants.
func (n *node) lead(from *node, b []byte) {
	books := n.leaders[from.i]
	a, err := books.Asked(b[forward.LengthSize:])
	if err != nil {
		n.w.cut(n, from, short(err))
		return
	}
	reply := func(x forward.Answer, err error) {
		if err != nil {
			x = forward.Answer{Refused: true, Kind: lattice.KindOf(err), Base: -1, Time: -1, Start: -1}
			x.Code, x.Text, _ = kafka.Refusal(err)
		}
		x.ID = a.ID
		n.post(func(m *mail) { m.answers = append(m.answers, answered{from.i, books, x, n.w.orderOf(a)}) })
	}
	switch a.Op {
	case forward.Append:
		if o := n.w.orderOf(a); o != nil {
			n.noteSetOf(o)
		}
		n.st.AppendLed(from.id, a.Partition, partition.Append{Batches: a.Batches, All: a.Acks == -1, Wait: patience * time.Millisecond / 2, Done: func(r partition.Result, err error) {
			reply(forward.Answer{Base: r.Base, Time: r.AppendTime, Start: r.Start}, err)
		}})
	case forward.Truncate:
		ctx, cancel := soon()
		start, err := n.st.TruncateLed(ctx, from.id, a.Partition, a.Before)
		cancel()
		reply(forward.Answer{Base: -1, Time: -1, Start: start}, err)
	case forward.Lead:
		ctx, cancel := soon()
		err := n.st.LeadLed(ctx, from.id, a.Partition, a.To)
		cancel()
		reply(forward.Answer{Base: -1, Time: -1}, err)
	}
	n.w.quiet()
	n.powerless()
}

// answer takes what a leader says.
func (n *node) answer(from *node, b []byte) {
	x, err := forward.Records.ParseAnswer(b[forward.LengthSize:])
	var tag *asked
	told := false
	if err == nil {
		tag, told, err = n.askers[from.i].Answered(x)
	}
	if err != nil {
		n.w.cut(n, from, short(err))
		return
	}
	if told {
		tag.done(x, nil)
	}
}

// beginAsks opens the streams of asks with a node, endAsks ends them.
func (n *node) beginAsks(p *node) {
	l := forward.Limits{Bytes: 1 << 20, Asks: 64}
	n.askers[p.i], n.leaders[p.i] = forward.NewAsker[*asked](l), forward.NewLeader(forward.Records, l)
}

func (n *node) endAsks(p *node) {
	if a := n.askers[p.i]; a != nil {
		n.askers[p.i], n.leaders[p.i] = nil, nil
		a.End(func(x *asked, why error) { x.done(forward.Answer{}, why) })
	}
}

// giveUp ends the wait of clients for leaders that do not answer.
func (n *node) giveUp() {
	var left []*asked
	for _, x := range n.asks {
		a := n.askers[x.leader]
		switch {
		case x.due > n.w.now:
			left = append(left, x)
		case a != nil:
			if tag, why, ok := a.GiveUp(x.id); ok && tag == x {
				x.done(forward.Answer{}, why)
			}
		}
	}
	n.asks = left
}
