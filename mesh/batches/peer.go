package batches

import (
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// peer is a connection to another node. A later connection is another peer.
type peer struct {
	id      lattice.NodeID
	gone    bool
	greeted bool // its hello has come
	session uint64
	version uint16 // that is spoken with it
	theirs  Root   // where its partitions are, as last told

	settled  bool  // it was told where all is, since something was lacking
	strikes  int   // how much of it was refused
	compared int64 // when this replica began to compare last
	told     int64 // when it was last told the frontier

	has     map[lattice.TopicPartition]Item // more of these than is here
	sources int                             // partitions that are followed at it
	follows []Follow                        // to be sent
	count   uint64                          // spans that came
	heard   int64                           // when the last did

	window  int // bytes of spans that it may send unasked
	granted int // of those, what it may still send
	stale   int // of those, bytes that may answer follows which have ended
	owed    int // bytes to be granted again
	budget  int // of other messages
	filled  int64

	credit  int // bytes of spans that may be sent to it
	unsent  int // bytes that wait to go to it
	held    int // bytes for which reads are under way
	reading int
	loaded  []Spans // read, and waiting for credit
	serving map[lattice.TopicPartition]*serving
	live    []*serving // those that have something to send, in turn
	bulk    []*serving
	waiting []*serving // nothing to be read could be proven: tried again at the next tick
	turns   int

	news    map[lattice.TopicPartition]bool // to be offered
	offered map[lattice.TopicPartition]bool // since the last tick
	acking  acking
	room    int // bytes of offers, until the next tick
}

// Connect begins a session with a peer that is authenticated and a member. An older
// session with it ends.
func (r *Replica) Connect(id lattice.NodeID, nowMs int64) Effects {
	r.now = nowMs
	r.disconnect(id)
	switch {
	case id == r.c.Node:
		r.eff.Drop = append(r.eff.Drop, Drop{id, reconcile.WrongNode})
		return r.done()
	case nowMs < r.banned[id]:
		r.eff.Drop = append(r.eff.Drop, Drop{id, reconcile.TooMuch})
		return r.done()
	}
	i, _ := r.findPeer(id)
	window := r.window()
	p := &peer{
		id: id, window: window, acking: acking{room: ackBytes, sent: nowMs, budget: ackBurst, filled: nowMs}, granted: window, budget: r.c.Burst, filled: nowMs, told: nowMs, room: r.c.Offers, has: map[lattice.TopicPartition]Item{},
		serving: map[lattice.TopicPartition]*serving{}, news: map[lattice.TopicPartition]bool{}, offered: map[lattice.TopicPartition]bool{},
	}
	r.peers = slices.Insert(r.peers, i, p)
	r.send(p, Hello{Version, VersionAcks, r.c.Store, r.c.Node, r.c.Session, r.index.Root(), uint32(window)})
	return r.done()
}

// wide is how many peers are given the whole window.
const wide = 8

// window is what the next peer may send unasked. A wide one lets a log that syncs slowly
// take more at each sync; what all peers may send together stays bounded.
func (r *Replica) window() int {
	n := 0
	for _, p := range r.peers {
		if p.window == r.c.Window {
			n++
		}
	}
	if n < wide {
		return r.c.Window
	}
	return max(r.c.Window/8, 1)
}

// Waiting says how many bytes wait to be sent to each peer, whenever some have gone. With
// Config.Unsent it keeps history from piling up before what is appended meanwhile.
func (r *Replica) Waiting(bytes func(lattice.NodeID) int, nowMs int64) Effects {
	r.now = nowMs
	for _, p := range r.peers {
		p.unsent = bytes(p.id)
	}
	return r.done()
}

// Disconnect says that the connection to a peer has ended.
func (r *Replica) Disconnect(id lattice.NodeID, nowMs int64) Effects {
	r.now = nowMs
	r.disconnect(id)
	return r.done()
}

func (r *Replica) disconnect(id lattice.NodeID) {
	i, ok := r.findPeer(id)
	if !ok {
		return
	}
	p := r.peers[i]
	p.gone = true
	r.peers = slices.Delete(r.peers, i, i+1)
	if p.sources == 0 {
		return
	}
	for _, t := range r.parts {
		if t.source == p {
			r.unsource(t)
		}
	}
}

func (r *Replica) peer(id lattice.NodeID) *peer {
	i, ok := r.findPeer(id)
	if !ok {
		return nil
	}
	return r.peers[i]
}

func (r *Replica) findPeer(id lattice.NodeID) (int, bool) {
	return slices.BinarySearchFunc(r.peers, id, func(p *peer, id lattice.NodeID) int { return slices.Compare(p.id[:], id[:]) })
}

// charge takes what a message costs from the peer's budget, which fills with time.
func (r *Replica) charge(p *peer, bytes int) error {
	p.budget = int(min(int64(r.c.Burst), int64(p.budget)+(r.now-p.filled)*int64(r.c.Budget)/1000))
	p.filled = r.now
	if p.budget -= bytes; p.budget < 0 {
		return fault(reconcile.TooMuch, "it sends more than %d bytes a second beside spans", r.c.Budget)
	}
	return nil
}

// faultError is an offence that ends a session.
type faultError struct {
	reason Reason
	text   string
}

func (e *faultError) Error() string { return e.text }
func (e *faultError) Unwrap() error { return ErrPeer }

func fault(reason Reason, format string, args ...any) error {
	return &faultError{reason, fmt.Sprintf(format, args...)}
}

// Step takes a message of a peer, as it came. An error wraps ErrPeer: the peer is
// disconnected here, and the connection must end after Effects.Send, which says why.
func (r *Replica) Step(from lattice.NodeID, message []byte, nowMs int64) (Effects, error) {
	return r.StepReady(from, Take(message), nowMs)
}

// StepReady is Step of a message that has been taken apart.
func (r *Replica) StepReady(from lattice.NodeID, m Ready, nowMs int64) (Effects, error) {
	r.now = nowMs
	p := r.peer(from)
	if p == nil {
		return r.done(), fmt.Errorf("message of %s: %w", from.Short(), fault(reconcile.NotAsked, "it is not connected"))
	}
	err := m.err
	if err != nil {
		err = fault(reconcile.BadMessage, "%v", err)
	} else {
		err = r.step(p, m)
	}
	if err != nil {
		reason := reconcile.BadMessage
		if f, ok := err.(*faultError); ok {
			reason = f.reason
		}
		r.refuse(p, lattice.TopicPartition{}, 0, reason, err)
		r.hangUp(p, reason)
		return r.done(), fmt.Errorf("message of %s: %w", from.Short(), err)
	}
	return r.done(), nil
}

// perMessage is what any message costs beside its bytes.
const perMessage = 64

func (r *Replica) step(p *peer, ready Ready) error {
	m := ready.message
	if k := m.Kind(); k != KindSpan && k != KindAcks { // they cost credit, and what hearAcks says
		if err := r.charge(p, ready.size+perMessage); err != nil {
			return err
		}
	}
	if b, ok := m.(Bye); ok {
		return fault(reconcile.Closing, "it ends the session: %s", b.Reason)
	}
	if h, ok := m.(Hello); ok || !p.greeted {
		if !ok {
			return fault(reconcile.BadMessage, "%s before hello", m.Kind())
		}
		return r.hello(p, h)
	}
	switch m := m.(type) {
	case Ranges:
		return r.ranges(p, m)
	case Offer:
		return r.learnAll(p, m.Items)
	case Acks:
		return r.hearAcks(p, m, ready.size+perMessage*len(m.All))
	case Follows:
		return r.followed(p, m)
	case Spans:
		return r.span(p, m, ready.size)
	case Ended:
		r.ended(p, m)
	case Refuse:
		if x := p.serving[m.Partition]; x != nil && x.ask == m.Ask {
			r.stop(p, x)
			p.news[m.Partition] = true // it hears of it all the same, for when it can take it
		}
	case Credit:
		if int64(p.credit)+int64(m.Bytes) > 1<<31 {
			return fault(reconcile.TooMuch, "it grants more credit than was used")
		}
		p.credit += int(m.Bytes)
	case Frontier:
		p.theirs = m.Root
		if m.Root == r.index.Root() {
			r.lags.Equal(p.id, r.now)
		}
		if m.Root != r.index.Root() && r.first(p) && r.now-p.compared >= r.c.CompareMs/2 {
			r.compare(p)
		}
	}
	return nil
}

// first reports whether it is this replica that compares, and not the peer.
func (r *Replica) first(p *peer) bool { return slices.Compare(r.c.Node[:], p.id[:]) < 0 }

func (r *Replica) hello(p *peer, h Hello) error {
	switch {
	case p.greeted:
		return fault(reconcile.BadMessage, "a second hello")
	case h.Min > VersionAcks || h.Max < Version:
		return fault(reconcile.NoVersion, "it speaks versions %d to %d, this node %d to %d", h.Min, h.Max, Version, VersionAcks)
	case h.Store != r.c.Store:
		return fault(reconcile.WrongStore, "it speaks of store %s", h.Store.Short())
	case h.Node != p.id:
		return fault(reconcile.WrongNode, "it says that it is %s", h.Node.Short())
	}
	p.version = min(h.Max, VersionAcks)
	r.greetAcks(p)
	p.greeted, p.settled, p.session, p.theirs, p.credit = true, true, h.Session, h.Root, int(min(h.Window, 1<<30))
	r.sees(p, h.Root)
	if h.Root != r.index.Root() && r.first(p) {
		r.compare(p)
	}
	return nil
}

// compare asks a peer about all partitions.
func (r *Replica) compare(p *peer) {
	p.compared = r.now
	r.question(p, Bound{}, ask(r.index.items, Bound{}))
}

// question sends ranges, in as many messages as they need.
func (r *Replica) question(p *peer, from Bound, all []Range) {
	all = merged(all)
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < maxRanges && size < maxControl/4 {
			size += 64 + len(all[n].Items)*itemSize
			n++
		}
		r.send(p, Ranges{from, all[:n:n]})
		from, all = all[n-1].To, all[n:]
	}
}

// ranges answers a question: by offers, and by smaller questions.
func (r *Replica) ranges(p *peer, m Ranges) error {
	var offers []Item
	var next []Range
	from := m.From
	for _, x := range m.Ranges {
		if x.Mode != ModeEqual {
			if err := r.charge(p, len(r.index.between(from, x.To))*4); err != nil {
				return err
			}
		}
		o, n := r.index.answer(from, x)
		r.lacking(p, from, x)
		offers, next, from = append(offers, o...), append(next, n...), x.To
	}
	for _, x := range m.Ranges {
		if err := r.learnAll(p, x.Items); err != nil {
			return err
		}
	}
	for len(offers) > 0 {
		n := min(len(offers), maxItems)
		r.send(p, Offer{offers[:n:n]})
		offers = offers[n:]
	}
	r.question(p, m.From, next)
	return nil
}
