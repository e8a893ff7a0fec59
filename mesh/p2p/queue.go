package p2p

import (
	"slices"
	"sync"

	"github.com/lattice-log/lattice/mesh/reconcile"
)

// queue is the messages that wait to be sent in one session, in order. It
// is bounded by bytes: whoever is too slow for it loses the session, and comes back.
type queue struct {
	limit int
	wake  chan struct{} // one place: there is something to do

	mu    sync.Mutex
	items []outgoing
	bytes int
	ended bool
}

// outgoing is a message that is still to be encoded, if it is large, or is so already.
type outgoing struct {
	append func([]byte) []byte
	bytes  []byte
	size   int
}

// aboutEntries makes a message of mesh/reconcile ready to go.
func aboutEntries(m reconcile.Message) outgoing {
	if b, ok := m.(reconcile.Blocks); ok { // its entries are copied once only, by the writer
		return outgoing{append: func(to []byte) []byte { return reconcile.Append(to, b) }, size: reconcile.Size(b)}
	}
	b := reconcile.Encode(m)
	return outgoing{bytes: b, size: len(b)}
}

func newQueue(limit int) *queue { return &queue{limit: limit, wake: make(chan struct{}, 1)} }

// put adds a message. It returns false, and adds nothing, if the queue is full; one
// message fits always.
func (q *queue) put(o outgoing) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.ended:
		return true
	case len(q.items) > 0 && q.bytes+o.size > q.limit:
		return false
	}
	q.items = append(q.items, o)
	q.bytes += o.size
	poke(q.wake)
	return true
}

// end says that nothing more comes: what is there is still sent if flush, and
// otherwise dropped.
func (q *queue) end(flush bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	if !flush {
		q.items, q.bytes = nil, 0
	}
	poke(q.wake)
}

// waiting is how many bytes are not on the wire yet.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// poke has whoever waits at wake, which has one place, look once.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// take appends encoded messages to b, up to about most bytes but at least one, if any
// waits. over: none will come. What is taken counts as waiting until sent.
func (q *queue) take(b []byte, most int) (out []byte, over bool) {
	q.mu.Lock()
	n, size := 0, 0
	for n < len(q.items) && (n == 0 || size+q.items[n].size <= most) {
		size += q.items[n].size
		n++
	}
	batch := q.items[:n:n]
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	over = q.ended && n == 0
	q.mu.Unlock()
	b = slices.Grow(b, size)
	for _, o := range batch {
		if o.bytes != nil {
			b = append(b, o.bytes...)
			continue
		}
		b = o.append(b)
	}
	return b, over
}

// sent says that taken bytes are on the wire.
func (q *queue) sent(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= n
}
