package p2p

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// session is one stream with a peer about one store. Its reader and its writer are a
// goroutine each; the carrier decides when it begins and ends.
type session struct {
	peer   lattice.NodeID
	stream network.Stream
	opened bool // by this node
	frames *frames
	first  frame // of the peer, when it opened the stream: its hello
	queue  *queue
	limits *Limits
	begun  time.Time

	accepted chan bool // one place: the carrier's answer

	in, out atomic.Uint64 // bytes of messages

	// heard is owned by the carrier: the peer has said something.
	heard bool

	ended chan struct{} // closed by the reader
	stop  sync.Once
}

func newSession(peer lattice.NodeID, stream network.Stream, opened bool, f *frames, first frame, l *Limits) *session {
	return &session{
		peer: peer, stream: stream, opened: opened, frames: f, first: first, queue: newQueue(l.Queue), limits: l,
		begun: time.Now(), accepted: make(chan bool, 1), ended: make(chan struct{}),
	}
}

// abort ends both directions at once.
func (s *session) abort() {
	s.stop.Do(func() {
		s.queue.end(false)
		_ = s.stream.Reset()
	})
}

// inbound is a message of a session, or that the session is over.
type inbound struct {
	session *session
	frame   frame
	ready   reconcile.Ready
	err     error // with no frame
}

// read hands each message to deliver, which may wait, until the stream ends or
// deliver returns false. It returns why.
func (s *session) read(deliver func(inbound) bool) error {
	defer close(s.ended)
	wait := s.limits.HelloTime
	for {
		f, err := s.first, error(nil)
		if s.first = (frame{}); f.bytes == nil {
			f, err = s.frames.next(wait)
		}
		switch {
		case errors.Is(err, reconcile.ErrMessage): // the Replica counts it, and says why
			deliver(inbound{session: s, frame: f, ready: reconcile.Take(f.bytes)})
			return err
		case err != nil:
			return err
		}
		s.in.Add(uint64(len(f.bytes)))
		// Hashing its entries is done here, for each peer by itself.
		if !deliver(inbound{session: s, frame: f, ready: reconcile.Take(f.bytes)}) {
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
func (s *session) write(p *buffers) {
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
			err := write(s.stream, b, s.limits)
			p.put(b)
			if err != nil {
				return
			}
			s.queue.sent(n)
			s.out.Add(uint64(n))
		}
	}
}

// hangUp lets the peer read the last words, and end the stream, before it is reset.
func (s *session) hangUp() {
	_ = s.stream.CloseWrite()
	select {
	case <-s.ended:
	case <-time.After(time.Second):
	}
}

// over reports whether an error is how sessions end, rather than a failure.
func over(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, errClosing) || errors.Is(err, network.ErrReset)
}
