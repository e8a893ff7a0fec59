package publisher

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lattice-log/lattice/pipeline/event"
)

// recent keeps the events between their commit and their publication, so that
// they need not be read again. It is bounded; what does not fit is dropped, and
// the ledger has it.
type recent struct {
	maxEvents, maxBytes int
	gaps                bool          // positions may be missing: nobody reads the ledger for them
	wake                chan struct{} // holds one signal: look again

	mu     sync.Mutex
	events []event.Event // in order of positions
	bytes  int
}

func newRecent(maxEvents, maxBytes int, gaps bool) *recent {
	return &recent{maxEvents: maxEvents, maxBytes: maxBytes, gaps: gaps, wake: make(chan struct{}, 1)}
}

func (r *recent) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add takes events and returns how many were dropped, these or older ones.
func (r *recent) add(events []event.Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.signal()
	dropped := 0
	for i := range events {
		e := &events[i]
		n := len(r.events)
		if !r.gaps && n > 0 && r.events[n-1].Position+1 != e.Position || n >= r.maxEvents || r.bytes+size(e) > r.maxBytes {
			// What is behind a gap, or behind what must go, is of no use: the reader
			// takes them in order and would go to the ledger anyway.
			dropped += n
			r.events, r.bytes = nil, 0
		}
		r.events = append(r.events, *e)
		r.bytes += size(e)
	}
	return dropped
}

// take removes and returns up to limit events from a position on, and drops what
// is below; nil if it does not have that position.
func (r *recent) take(position int64, limit int) []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 || position < r.events[0].Position {
		return nil
	}
	from := int(min(position-r.events[0].Position, int64(len(r.events))))
	to := min(from+limit, len(r.events))
	taken := r.events[from:to:to]
	for i := range r.events[:to] {
		r.bytes -= size(&r.events[i])
	}
	r.events = r.events[to:]
	if len(r.events) == 0 {
		r.events = nil // lets the array go
	}
	return taken
}

// drain removes and returns all.
func (r *recent) drain() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.events
	r.events, r.bytes = nil, 0
	return all
}

// size is about what an event takes in memory.
func size(e *event.Event) int { return len(e.Payload) + 512 }

// backoff is exponential, with jitter, so that many do not come back at once.
type backoff struct{ now, most time.Duration }

const firstPause = 50 * time.Millisecond

func newBackoff(most time.Duration) *backoff { return &backoff{firstPause, most} }

func (b *backoff) reset() { b.now = firstPause }

func (b *backoff) next() time.Duration {
	d := min(b.now, b.most)
	b.now = min(2*b.now, b.most)
	return d/2 + rand.N(d/2+1)
}
