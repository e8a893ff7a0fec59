package p2p

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// The asking end of /lattice/forward/1 and /lattice/groups/1, as mesh/forward draws them.
//
// A pipe is one stream of one of them to one leader about one store. It is made by the first ask, and
// ends with its stream: when the peer goes, when the leader breaks the rules, or when
// nothing was asked for a while. What comes then makes another. Its goroutines are one
// that opens the stream and writes, and one that reads.

// pipeKey names the leader of partitions, or the home of groups, of a store.
type pipeKey struct {
	store lattice.StoreID
	node  lattice.NodeID
	lane  forward.Lane
}

// pipes are the streams on which this node asks.
type pipes struct {
	mu    sync.Mutex
	byKey map[pipeKey]*askPipe
}

// Forward has the leader of a partition, or the home of a group, do what it is asked, and
// calls done once, with no lock held, possibly before Forward returns: with the leader's
// answer, or with an error that wraps forward.ErrUnreachable, ErrBusy, ErrLost or
// ErrTooLarge. It waits for nobody: Batches and Body are copied before it returns, and done
// is called after wait at the latest. What is asked of one leader comes there in the order
// of the calls, as long as the stream lasts. The caller sees to it that leader leads. The
// function returned ends the wait early, as if its time were over.
func (m *Mesh) Forward(store lattice.StoreID, leader lattice.NodeID, a forward.Ask, wait time.Duration, done func(forward.Answer, error)) (cancel func()) {
	c := m.store(store)
	if c == nil || leader == m.node || c.store.Member(leader) != nil {
		done(forward.Answer{}, fmt.Errorf("ask %s: it is no member that is known here: %w", leader.Short(), forward.ErrUnreachable))
		return func() {}
	}
	a.Wait = uint32(min(wait.Milliseconds(), 1<<31))
	lane := forward.Records
	if a.Op == forward.Call {
		lane = forward.Groups
	}
	for {
		p, begin := m.pipe(c, leader, lane)
		if id, ok := p.ask(a, wait, done); ok {
			if begin && !m.spawn(p.run) {
				p.end(ErrClosed)
			}
			return func() { p.late(id) }
		}
		p.forget() // it ended just now
	}
}

// Reaches reports whether a node is connected.
func (m *Mesh) Reaches(n lattice.NodeID) bool {
	id, err := peerOf(n)
	return err == nil && m.host.Network().Connectedness(id) == network.Connected
}

// pipe returns the pipe to a leader. begin: it is new, and the caller has it run.
func (m *Mesh) pipe(c *carrier, leader lattice.NodeID, lane forward.Lane) (p *askPipe, begin bool) {
	m.asking.mu.Lock()
	defer m.asking.mu.Unlock()
	k := pipeKey{c.id, leader, lane}
	if p = m.asking.byKey[k]; p != nil {
		return p, false
	}
	p = &askPipe{
		mesh: m, carrier: c, key: k, wake: make(chan struct{}, 1), over: make(chan struct{}),
		books: forward.NewAsker[*pending](forward.Limits{Bytes: m.c.Limits.Asking, Asks: asksUnder}),
	}
	if m.asking.byKey == nil {
		m.asking.byKey = map[pipeKey]*askPipe{}
	}
	m.asking.byKey[k] = p
	return p, true
}

// asksUnder is how many asks to one leader may be without an answer.
const asksUnder = 1 << 13

// askPipe is a stream to a leader.
type askPipe struct {
	mesh    *Mesh
	carrier *carrier
	key     pipeKey
	wake    chan struct{} // one place: there is something to send
	over    chan struct{} // closed by end

	mu     sync.Mutex
	books  *forward.Asker[*pending]
	stream network.Stream // nil: not open yet
	ended  bool
}

// pending is who waits for an answer.
type pending struct {
	done  func(forward.Answer, error)
	timer *time.Timer
}

// forget has the next ask find another pipe.
func (p *askPipe) forget() {
	m := p.mesh
	m.asking.mu.Lock()
	defer m.asking.mu.Unlock()
	if m.asking.byKey[p.key] == p {
		delete(m.asking.byKey, p.key)
	}
}

// ask takes an ask, or reports that the pipe has ended. id is 0 if it was refused.
func (p *askPipe) ask(a forward.Ask, wait time.Duration, done func(forward.Answer, error)) (id uint64, ok bool) {
	w := &pending{done: done}
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return 0, false
	}
	id, err := p.books.Ask(a, w)
	if err == nil {
		w.timer = time.AfterFunc(wait, func() { p.late(id) })
		p.patience()
	}
	p.mu.Unlock()
	if err != nil {
		done(forward.Answer{}, fmt.Errorf("ask %s: %w", p.key.node.Short(), err))
		return 0, true
	}
	poke(p.wake)
	return id, true
}

// patience has the reader wait for IdleTime from now on, or, for the home of a group of
// which something is asked, as long as there is a connection: members wait for each other.
// p.mu is held.
func (p *askPipe) patience() {
	if p.stream == nil {
		return
	}
	until := time.Now().Add(p.mesh.c.Limits.IdleTime)
	if p.key.lane == forward.Groups && p.books.Out() > 0 {
		until = time.Time{}
	}
	_ = p.stream.SetReadDeadline(until) // fails on a closed stream: so does reading
}

// late gives an ask up.
func (p *askPipe) late(id uint64) {
	p.mu.Lock()
	w, why, ok := p.books.GiveUp(id)
	p.mu.Unlock()
	if ok {
		w.timer.Stop()
		poke(p.wake) // the home of a group is told
		w.done(forward.Answer{}, fmt.Errorf("ask %s: %w in time", p.key.node.Short(), why))
	}
}

// run opens the stream, and sends what is asked until the pipe ends.
func (p *askPipe) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { p.end(ErrClosed) })
	defer stop()
	p.end(p.send(ctx))
}

func (p *askPipe) send(ctx context.Context) error {
	m := p.mesh
	id, err := peerOf(p.key.node)
	if err != nil {
		return err
	}
	if m.host.Network().Connectedness(id) != network.Connected {
		m.look()
		return errors.New("it is not connected")
	}
	s, err := m.stream(ctx, id, protocol.ID(p.key.lane.Protocol()))
	if err != nil {
		return plain(err)
	}
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return s.Reset()
	}
	p.stream = s
	p.patience()
	p.mu.Unlock()
	if err := write(s, p.key.lane.Opening(p.key.store), &m.c.Limits); err != nil {
		return err
	}
	if !m.spawn(func(context.Context) { p.end(p.hear(s)) }) {
		return ErrClosed
	}
	for {
		select {
		case <-p.wake:
		case <-p.over:
			return nil
		case <-p.carrier.over:
			return errClosing
		}
		if err := p.flush(s); err != nil {
			return err
		}
	}
}

// flush sends all that waits. The leader reads as fast as it likes; whoever asked
// waits no longer than it said.
func (p *askPipe) flush(s network.Stream) error {
	m := p.mesh
	for {
		b := m.buffers.get()
		p.mu.Lock()
		b = p.books.Take(b, batchSize)
		p.mu.Unlock()
		if len(b) == 0 {
			m.buffers.put(b)
			return nil
		}
		err := write(s, b, &m.c.Limits)
		m.buffers.put(b)
		if err != nil {
			return err
		}
	}
}

// hear reads answers until the stream ends, and returns why.
func (p *askPipe) hear(s network.Stream) error {
	in := bufio.NewReaderSize(s, smallRead)
	var head [forward.LengthSize]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		n, err := p.key.lane.AnswerLength(head)
		if err != nil {
			return err
		}
		b, err := readGrowing(in, n)
		if err != nil {
			return err
		}
		a, err := p.key.lane.ParseAnswer(b)
		if err != nil {
			return err
		}
		p.mu.Lock()
		w, told, err := p.books.Answered(a)
		p.patience()
		p.mu.Unlock()
		if err != nil {
			return err
		}
		if told {
			w.timer.Stop()
			w.done(a, nil)
		}
	}
}

// readGrowing reads n bytes into memory that grows as they come.
func readGrowing(in io.Reader, n int) ([]byte, error) {
	var b []byte
	for len(b) < n {
		more := make([]byte, min(n, max(firstPiece, 2*len(b))))
		at := copy(more, b)
		if _, err := io.ReadFull(in, more[at:]); err != nil {
			return nil, err
		}
		b = more
	}
	return b, nil
}

// end ends the pipe, once: whoever waits is told.
func (p *askPipe) end(why error) {
	type lost struct {
		w   *pending
		err error
	}
	var all []lost
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return
	}
	p.ended = true
	close(p.over)
	p.books.End(func(w *pending, err error) { all = append(all, lost{w, err}) })
	s := p.stream
	p.mu.Unlock()
	p.forget()
	if s != nil {
		_ = s.Reset()
	}
	if errors.Is(why, forward.ErrMessage) {
		p.carrier.current.refuse(reconcile.BadMessage)
		p.carrier.log.Warn("a leader does not keep to the protocol", "leader", p.key.node.Short(), "err", why)
	}
	for _, l := range all {
		l.w.timer.Stop()
		err := fmt.Errorf("ask %s: %w", p.key.node.Short(), l.err)
		if why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		l.w.done(forward.Answer{}, err)
	}
}
