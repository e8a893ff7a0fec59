package p2p

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/forward"
)

// The leader's end of /lattice/forward/1, and the home's of /lattice/groups/1.
//
// A stream has a goroutine that reads and begins what is asked, in order, and one that
// writes answers. Nothing is read while too much is under way, so that the asker's
// queue fills up and it refuses its clients.

// Leader is a Store whose node leads partitions: it does what other members' clients
// want there. The mesh asks it of stores that implement it; others take no asks.
type Leader interface {
	// Lead does what is asked, and calls done once, possibly before it returns, when it
	// is done or refused; done does not block. Only the answer's ID is set by the mesh.
	// from is a member, which may be hostile: a is to be checked as if a client had
	// sent it, and whether from may write. Lead must not block; what it is asked by one
	// goroutine takes effect in that order. Batches are the store's until done.
	Lead(from lattice.NodeID, a forward.Ask, done func(forward.Answer))
}

// Home is a Store whose node coordinates groups: it does what other members' clients ask of
// them. Stores that do not implement it take no such asks.
type Home interface {
	// Call does what body asks, and calls done once, possibly before it returns, when it is
	// done or refused; done does not block. from is a member, which may be hostile. wait is
	// for how long it waits at most. cancel says that nobody waits any more: done is called
	// soon, if it was not. Call must not block; what it is asked by one goroutine is begun
	// in that order. body is the store's until done.
	Call(from lattice.NodeID, body []byte, wait time.Duration, done func(forward.Answer)) (cancel func())
}

// leading is the streams on which this node is asked, and what they hold.
type leading struct {
	mu    sync.Mutex
	turns map[pipeKey]*leadTurn // the newest stream of each asker
	held  int                   // bytes of asks, of all askers
	freed chan struct{}         // closed and replaced when some are given back
}

// leadTurn is one stream's time.
type leadTurn struct {
	stop func()
	over chan struct{} // it begins nothing more
}

// enter ends an earlier stream of the asker, and returns when that begins nothing more.
func (l *leading) enter(k pipeKey, stop func()) (leave func()) {
	t := &leadTurn{stop, make(chan struct{})}
	l.mu.Lock()
	if l.turns == nil {
		l.turns = map[pipeKey]*leadTurn{}
	}
	old := l.turns[k]
	l.turns[k] = t
	l.mu.Unlock()
	if old != nil {
		old.stop()
		<-old.over
	}
	return func() {
		close(t.over)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.turns[k] == t {
			delete(l.turns, k)
		}
	}
}

// take takes room for n bytes of asks out of most, and waits for it; false: it did not
// come in time, or over is closed.
func (l *leading) take(n, most int, wait time.Duration, over <-chan struct{}) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		l.mu.Lock()
		if l.held == 0 || l.held+n <= most {
			l.held += n
			l.mu.Unlock()
			return true
		}
		if l.freed == nil {
			l.freed = make(chan struct{})
		}
		freed := l.freed
		l.mu.Unlock()
		select {
		case <-freed:
		case <-late.C:
			return false
		case <-over:
			return false
		}
	}
}

func (l *leading) give(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= n
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Of one stream.
const (
	leadAsks  = 1 << 10 // under way
	leadBytes = 8 << 20 // and their bytes, beyond which none is read
	// Members wait for each other, so a home takes all that an asker may have out.
	homeAsks  = asksUnder + 1
	homeBytes = 48 << 20
	// unsentBytes of answers, beyond which no ask is read until the asker takes them.
	unsentBytes = 8 << 20
)

// leadStream is a stream on which this node is asked.
type leadStream struct {
	mesh   *Mesh
	lane   forward.Lane
	begin  func(a forward.Ask, done func(forward.Answer)) (cancel func())
	peer   lattice.NodeID
	stream network.Stream
	over   chan struct{} // closed when nothing is to be done any more
	wake   chan struct{} // one place: there are answers to send
	moved  chan struct{} // one place: an ask is done

	mu    sync.Mutex
	books *forward.Leader
	out   []byte            // answers to be sent
	calls map[uint64]func() // what ends those that are under way
}

// beginner returns what does the asks of a lane; nil: the store does none.
func beginner(store Store, lane forward.Lane, node lattice.NodeID) func(forward.Ask, func(forward.Answer)) func() {
	if lane == forward.Groups {
		if h, ok := store.(Home); ok {
			return func(a forward.Ask, done func(forward.Answer)) func() {
				return h.Call(node, a.Body, time.Duration(a.Wait)*time.Millisecond, done)
			}
		}
		return nil
	}
	if l, ok := store.(Leader); ok {
		return func(a forward.Ask, done func(forward.Answer)) func() {
			l.Lead(node, a, done)
			return nil
		}
	}
	return nil
}

// askedForward serves a stream of asks.
func (m *Mesh) askedForward(ctx context.Context, lane forward.Lane, node lattice.NodeID, s network.Stream) {
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.HelloTime)) // fails on a closed stream: so does reading
	var b [forward.OpeningSize]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return
	}
	id, err := lane.ParseOpening(b[:])
	if err != nil {
		return
	}
	c := m.store(id)
	if c == nil || !c.admits(node) {
		return
	}
	begin := beginner(c.store, lane, node)
	if begin == nil {
		return
	}
	limits := forward.Limits{Bytes: leadBytes, Asks: leadAsks}
	if lane == forward.Groups {
		limits = forward.Limits{Bytes: homeBytes, Asks: homeAsks}
	}
	var once sync.Once
	l := &leadStream{
		mesh: m, lane: lane, begin: begin, peer: node, stream: s, over: make(chan struct{}), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		books: forward.NewLeader(lane, limits), calls: map[uint64]func(){},
	}
	defer l.cancelAll()
	stop := func() { once.Do(func() { close(l.over); _ = s.Reset() }) }
	defer stop()
	unhook := context.AfterFunc(ctx, stop)
	defer unhook()
	leave := m.leading[lane].enter(pipeKey{id, node, lane}, stop)
	defer leave()
	if !m.spawn(func(context.Context) { l.answer(c.over); stop() }) {
		return
	}
	if err := l.read(c); err != nil && !over(err) && ctx.Err() == nil {
		c.current.refuse(reasonOf(err))
		c.log.Info("what a peer forwards is not taken any more", "peer", node.Short(), "err", err)
	}
}

// read begins what is asked, in order, until the stream ends.
func (l *leadStream) read(c *carrier) error {
	m := l.mesh
	in := bufio.NewReaderSize(l.stream, smallRead)
	var head [forward.LengthSize]byte
	for {
		if !l.room() {
			return nil
		}
		l.patience()
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		n, err := l.lane.AskLength(head)
		if err != nil {
			return err
		}
		give := m.leading[l.lane].give
		b, held, err := l.body(in, n)
		if err != nil {
			give(held)
			return err
		}
		l.mu.Lock()
		a, err := l.books.Asked(b)
		l.mu.Unlock()
		switch {
		case err != nil:
			give(held)
			return err
		case a.Op == forward.Cancel:
			give(held)
			l.cancel(a.ID)
			continue
		case !c.admits(l.peer):
			give(held)
			return lattice.E(lattice.Denied, fmt.Errorf("%s is no member any more", l.peer.Short()))
		}
		if end := l.begin(a, func(x forward.Answer) { l.done(a.ID, held, x) }); end != nil {
			l.keep(a.ID, end)
		}
	}
}

// patience has the reader wait. The asker closes an idle stream first; one on which
// members wait for each other may be silent.
func (l *leadStream) patience() {
	until := time.Now().Add(l.mesh.c.Limits.IdleTime + l.mesh.c.Limits.HelloTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lane == forward.Groups && l.books.Under() > 0 {
		until = time.Time{}
	}
	_ = l.stream.SetReadDeadline(until) // fails on a closed stream: so does reading
}

// keep keeps what ends an ask, unless it has ended.
func (l *leadStream) keep(id uint64, end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.books.Has(id) {
		l.calls[id] = end
	}
}

// cancel ends an ask for whose answer nobody waits.
func (l *leadStream) cancel(id uint64) {
	l.mu.Lock()
	end := l.calls[id]
	l.mu.Unlock()
	if end != nil {
		end()
	}
}

// cancelAll ends what is under way when the stream is over.
func (l *leadStream) cancelAll() {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.calls))
	l.mu.Unlock()
	for _, end := range all {
		end()
	}
}

// room waits until another ask may be read; false: the stream is over.
func (l *leadStream) room() bool {
	for {
		l.mu.Lock()
		ok := l.books.Room() && len(l.out) < unsentBytes
		l.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-l.moved:
		case <-l.over:
			return false
		}
	}
}

// body reads n bytes into memory that grows as they come. held is what was taken of
// the room for asks, also with an error.
func (l *leadStream) body(in io.Reader, n int) (b []byte, held int, err error) {
	m := l.mesh
	_ = l.stream.SetReadDeadline(time.Now().Add(m.c.Limits.allowance(n)))
	for len(b) < n {
		grown := min(n, max(firstPiece, 2*len(b)))
		if !m.leading[l.lane].take(grown-held, m.c.Limits.Leading, m.c.Limits.HelloTime, l.over) {
			return nil, held, lattice.E(lattice.Unavailable, fmt.Errorf("an ask of %d bytes: others take all the memory for such", n))
		}
		held = grown
		more := make([]byte, grown)
		copy(more, b)
		if _, err := io.ReadFull(in, more[len(b):]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, held, err
		}
		b = more
	}
	return b, held, nil
}

// done takes an answer.
func (l *leadStream) done(id uint64, held int, a forward.Answer) {
	a.ID = id
	l.mu.Lock()
	first := l.books.Done(id) > 0
	delete(l.calls, id)
	if first {
		l.out = a.AppendTo(l.out)
	}
	l.mu.Unlock()
	if !first {
		return
	}
	l.mesh.leading[l.lane].give(held)
	if l.lane == forward.Groups {
		l.patience()
	}
	poke(l.wake)
	poke(l.moved)
}

// answer sends answers until the stream, or the store's part in the mesh, is over.
func (l *leadStream) answer(gone <-chan struct{}) {
	for {
		select {
		case <-l.wake:
		case <-l.over:
			return
		case <-gone:
			return
		}
		l.mu.Lock()
		b := l.out
		l.out = nil
		l.mu.Unlock()
		poke(l.moved)
		if len(b) > 0 && write(l.stream, b, &l.mesh.c.Limits) != nil {
			return
		}
	}
}
