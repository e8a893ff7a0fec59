package p2p

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	lattice "github.com/lattice-log/lattice"
)

// session is one stream with a peer about one store, of messages that are taken apart
// into R. Its reader and its writer are a goroutine each; the carrier decides when it
// begins and ends.
type session[R any] struct {
	take   func(message []byte) R
	peer   lattice.NodeID
	stream network.Stream
	opened bool // by this node
	frames *frames
	first  frame // of the peer, when it opened the stream: its hello
	queue  *queue
	limits *Limits
	begun  time.Time
	// drained is poked when some of the queue has gone, if it is not nil. See queue.waiting.
	drained chan<- struct{}

	accepted chan bool // one place: the carrier's answer

	in, out atomic.Uint64 // bytes of messages

	// heard is owned by the carrier: the peer has said something.
	heard bool

	ended chan struct{} // closed by the reader
	stop  sync.Once
}

func newSession[R any](take func([]byte) R, peer lattice.NodeID, stream network.Stream, opened bool, f *frames, first frame, l *Limits) *session[R] {
	return &session[R]{
		take: take, peer: peer, stream: stream, opened: opened, frames: f, first: first, queue: newQueue(l.Queue), limits: l,
		begun: time.Now(), accepted: make(chan bool, 1), ended: make(chan struct{}),
	}
}

// abort ends both directions at once.
func (s *session[R]) abort() {
	s.stop.Do(func() {
		s.queue.end(false)
		_ = s.stream.Reset()
	})
}

// inbound is a message of a session, or that the session is over.
type inbound[R any] struct {
	session *session[R]
	frame   frame
	ready   R
	err     error // with no frame
}

// read hands each message to deliver, which may wait, until the stream ends or
// deliver returns false. It returns why.
func (s *session[R]) read(deliver func(inbound[R]) bool) error {
	defer close(s.ended)
	wait := s.limits.HelloTime
	for {
		f, err := s.first, error(nil)
		if s.first = (frame{}); f.bytes == nil {
			f, err = s.frames.next(wait)
		}
		switch {
		case errors.Is(err, s.frames.bad): // the Replica counts it, and says why
			deliver(inbound[R]{session: s, frame: f, ready: s.take(f.bytes)})
			return err
		case err != nil:
			return err
		}
		s.in.Add(uint64(len(f.bytes)))
		// Hashing its entries is done here, for each peer by itself.
		if !deliver(inbound[R]{session: s, frame: f, ready: s.take(f.bytes)}) {
			f.done()
			return errClosing
		}
		wait = s.limits.IdleTime
	}
}

// errClosing means that this node ends the session.
var errClosing = lattice.E(lattice.Unavailable, errors.New("this node ends the session"))

// batchSize is about how much is written at a time: small messages share a write.
const batchSize = 128 << 10

// buffers are what messages are encoded into; of those that grew beyond, nothing is kept.
type buffers struct{ pool sync.Pool }

func (p *buffers) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 2*batchSize)
}

func (p *buffers) put(b []byte) {
	if cap(b) <= 4*batchSize {
		p.pool.Put(&b)
	}
}

// write sends what is queued until the queue has ended and is empty, or the stream
// fails; then it ends the stream.
func (s *session[R]) write(ctx context.Context, p *buffers, pace *pace) {
	defer s.abort()
	for range s.queue.wake {
		for {
			b, over := s.queue.take(p.get(), batchSize)
			n := len(b)
			if n == 0 {
				p.put(b)
				if over {
					s.hangUp()
					return
				}
				break
			}
			err := pace.wait(ctx, n)
			if err == nil {
				err = write(s.stream, b, s.limits)
			}
			p.put(b)
			if err != nil {
				return
			}
			s.queue.sent(n)
			poke(s.drained)
			s.out.Add(uint64(n))
		}
	}
}

// hangUp lets the peer read the last words, and end the stream, before it is reset.
func (s *session[R]) hangUp() {
	_ = s.stream.CloseWrite()
	select {
	case <-s.ended:
	case <-time.After(time.Second):
	}
}

// station is where the sessions of one store go, of those with one protocol: its
// carrier, until over is closed.
type station[R any] struct {
	arrive chan *session[R]
	in     chan inbound[R]
	over   chan struct{}
}

func newStation[R any]() station[R] {
	return station[R]{make(chan *session[R]), make(chan inbound[R]), make(chan struct{})}
}

// hand gives something to a station, unless that has ended.
func hand[T any](ctx context.Context, over <-chan struct{}, to chan<- T, x T) bool {
	select {
	case to <- x:
		return true
	case <-over:
		return false
	case <-ctx.Done():
		return false
	}
}

// drive runs a session until it ends.
func drive[R any](ctx context.Context, m *Mesh, at station[R], s *session[R]) error {
	defer s.abort()
	if !hand(ctx, at.over, at.arrive, s) {
		return errClosing
	}
	select {
	case ok := <-s.accepted:
		if !ok {
			return nil
		}
	case <-at.over:
		return errClosing
	case <-ctx.Done():
		return errClosing
	}
	if !m.spawn(func(ctx context.Context) { s.write(ctx, &m.buffers, m.pace) }) {
		return errClosing
	}
	err := s.read(func(x inbound[R]) bool { return hand(ctx, at.over, at.in, x) })
	hand(ctx, at.over, at.in, inbound[R]{session: s, err: err})
	return err
}

// replaces reports whether a session takes the place of another with the same peer,
// which may be nil. Of two that were opened at once that of the lower node id stays; a
// peer that opens another later has lost the old one.
func (s *session[R]) replaces(old *session[R], self lattice.NodeID) bool {
	switch {
	case old == nil:
		return true
	case s.opened:
		return false // nothing was said on it yet
	}
	return !old.opened || old.heard || !lower(self, s.peer)
}

// over reports whether an error is how sessions end, rather than a failure.
func over(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, errClosing) || errors.Is(err, network.ErrReset)
}
