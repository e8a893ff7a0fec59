package reconcile

import (
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
)

// peer is a connection to another node. A later connection is another peer.
type peer struct {
	id      lattice.NodeID
	gone    bool
	greeted bool // its hello has come
	session uint64
	theirs  Root // its frontier, as last told
	in, out uint64

	questions int          // that it has not answered
	settled   bool         // it was told that nothing is outstanding
	strange   []Item       // logs that it has of authors that were denied here
	strikes   int          // how much of it was refused
	heard     int64        // when blocks came last
	asked     int64        // when its frontier was compared last
	has       map[Key]Item // more of these than is here
	sources   int          // logs that are wanted from it

	granted int // bytes of blocks that it may still send
	owed    int // bytes to be granted again
	budget  int // of other messages
	filled  int64

	credit  int // bytes of blocks that may be sent to it
	held    int // bytes for which reads are under way
	reading int
	ready   []Blocks // read, and waiting for credit
	serving map[Key]*serving
	live    []*serving // those that have something to send, in turn
	bulk    []*serving
	turns   int

	offered map[Key]bool // since the last tick
	wants   Want
	news    []Key // to be offered
	later   []Key // to be offered at the next tick

	compared int64 // when it was last told the frontier
}

// Connect begins a session with a peer that is authenticated and a member. An
// older session with it ends.
func (r *Replica) Connect(id lattice.NodeID, nowMs int64) Effects {
	r.now = nowMs
	r.disconnect(id)
	switch {
	case id == r.c.Node:
		r.eff.Drop = append(r.eff.Drop, Drop{id, WrongNode})
		return r.done()
	case nowMs < r.banned[id]:
		r.eff.Drop = append(r.eff.Drop, Drop{id, TooMuch})
		return r.done()
	}
	i, _ := r.findPeer(id)
	p := &peer{id: id, granted: r.c.Window, budget: r.c.Burst, filled: nowMs, has: map[Key]Item{}, serving: map[Key]*serving{}, offered: map[Key]bool{}, compared: nowMs}
	r.peers = slices.Insert(r.peers, i, p)
	r.send(p, Hello{Version, Version, r.c.Store, r.c.Node, r.c.Session, r.front.Root(), uint32(r.c.Window)})
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
	for _, l := range r.logs {
		if l.search != nil && l.search.peer == p {
			r.endSearch(l)
		}
		if l.source == p {
			r.unsource(l)
		}
	}
}

func (p *peer) asking() bool { return p.questions > 0 }

// charge takes what a message costs from the peer's budget, which fills with time.
func (r *Replica) charge(p *peer, bytes int) error {
	p.budget = int(min(int64(r.c.Burst), int64(p.budget)+(r.now-p.filled)*int64(r.c.Budget)/1000))
	p.filled = r.now
	if p.budget -= bytes; p.budget < 0 {
		return fault(TooMuch, "it sends more than %d bytes a second beside blocks", r.c.Budget)
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
		return r.done(), fmt.Errorf("message of %s: %w", from.Short(), fault(NotAsked, "it is not connected"))
	}
	p.in += uint64(m.size)
	err := m.err
	if err != nil {
		err = fault(BadMessage, "%v", err)
	} else {
		err = r.step(p, m)
	}
	if err != nil {
		reason := BadMessage
		if f, ok := err.(*faultError); ok {
			reason = f.reason
		}
		r.refuse(p, state.Writer{}, 0, reason, err)
		r.hangUp(p, reason)
		return r.done(), fmt.Errorf("message of %s: %w", from.Short(), err)
	}
	return r.done(), nil
}

// perMessage is what any message costs beside its bytes.
const perMessage = 64

func (r *Replica) step(p *peer, ready Ready) error {
	m, size := ready.message, ready.size
	switch m.Kind() {
	case KindBlocks: // they cost credit
	case KindFork: // rare, may be large, and is looked at once
		size /= 16
		fallthrough
	default:
		if err := r.charge(p, size+perMessage); err != nil {
			return err
		}
	}
	if h, ok := m.(Hello); ok || !p.greeted {
		if !ok {
			if b, bye := m.(Bye); bye {
				return fault(Closing, "it ends the session: %s", b.Reason)
			}
			return fault(BadMessage, "%s before hello", m.Kind())
		}
		return r.hello(p, h)
	}
	switch m := m.(type) {
	case Ranges:
		return r.ranges(p, m)
	case Offer:
		return r.learnAll(p, m.Items)
	case Want:
		return r.want(p, m)
	case Blocks:
		return r.blocks(p, m, ready)
	case Fork:
		r.forked(p, m)
	case Statements:
		r.statements(p, m)
	case Pruned:
		r.pruned(p, m)
	case Refuse:
		r.refusedThere(p, m)
	case Credit:
		if int64(p.credit)+int64(m.Bytes) > 1<<31 {
			return fault(TooMuch, "it grants more credit than was used")
		}
		p.credit += int(m.Bytes)
	case Frontier:
		r.frontier(p, m)
	case Bye:
		return fault(Closing, "it ends the session: %s", m.Reason)
	}
	return nil
}

func (r *Replica) hello(p *peer, h Hello) error {
	switch {
	case p.greeted:
		return fault(BadMessage, "a second hello")
	case h.Min > Version || h.Max < Version:
		return fault(NoVersion, "it speaks versions %d to %d, this node %d", h.Min, h.Max, Version)
	case h.Store != r.c.Store:
		return fault(WrongStore, "it speaks of store %s", h.Store.Short())
	case h.Node != p.id:
		return fault(WrongNode, "it says that it is %s", h.Node.Short())
	}
	p.greeted, p.settled, p.session, p.theirs, p.credit = true, true, h.Session, h.Root, int(min(h.Window, 1<<30))
	r.sees(p, h.Root)
	if h.Root != r.front.Root() && slices.Compare(r.c.Node[:], p.id[:]) < 0 {
		r.compare(p)
	}
	return nil
}

// frontier takes what the peer says its frontier is, when it has all that this
// replica told it of, or now and then.
func (r *Replica) frontier(p *peer, m Frontier) {
	p.theirs = m.Root
	if m.Root == r.front.Root() {
		r.lags.Equal(p.id, r.now)
		p.settled = true
		return
	}
	// Where two cannot come to the same, they compare again now and then only.
	if r.idle(p) && slices.Compare(r.c.Node[:], p.id[:]) < 0 && r.now-p.asked >= r.c.CompareMs/2 {
		r.compare(p)
	}
}

// refusedThere hears that the peer refused entries: it gets no more of that log
// until it wants them again.
func (r *Replica) refusedThere(p *peer, m Refuse) {
	if x := p.serving[LogKey(m.Log)]; x != nil {
		r.stop(p, x)
	}
}
