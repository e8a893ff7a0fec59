package partition

import (
	"math"
	"sync"
)

// waiters are the long polls of a partition: each is woken once, when enough
// bytes were committed, or when something else happened that a reader must see.
type waiters struct {
	mu     sync.Mutex
	closed bool
	bytes  int64 // committed since open; only grows
	moves  int64 // how often the limit of what is committed has moved; only grows
	set    map[*waiter]struct{}
}

type waiter struct {
	at   int64 // wake when bytes reaches this,
	seen int64 // and the last stable offset is beyond this; -1: whatever that is
	// What it waits for: where acknowledgements say what is committed, bytes do not.
	from   int64
	min    int
	stable bool
	wake   func()
}

// committed is called when readers can see n more bytes.
func (p *Partition) committed(n int64) {
	if p.several() {
		p.waiters.add(n)
		p.waiters.moved(p) // what was committed already may have come
		return
	}
	p.waiters.committed(n, p.Bounds().Stable)
}

// add counts bytes that are here, and not committed yet.
func (w *waiters) add(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += n
}

// moved wakes those who can read what they wait for, after more was committed.
func (w *waiters) moved(p *Partition) {
	w.mu.Lock()
	w.moves++
	all := make([]*waiter, 0, len(w.set))
	for x := range w.set {
		all = append(all, x)
	}
	w.mu.Unlock()
	for _, x := range all {
		if have, err := p.Readable(x.from, x.min, x.stable); err == nil && have < x.min && (!x.stable || have == 0) {
			continue
		}
		w.mu.Lock()
		_, ok := w.set[x]
		delete(w.set, x)
		w.mu.Unlock()
		if ok {
			x.wake()
		}
	}
}

// committed adds n bytes and wakes who waited for them.
func (w *waiters) committed(n, stable int64) {
	w.mu.Lock()
	w.bytes += n
	var due []func()
	for x := range w.set {
		if x.at <= w.bytes && x.seen < stable {
			delete(w.set, x)
			due = append(due, x.wake)
		}
	}
	w.mu.Unlock()
	for _, wake := range due {
		wake()
	}
}

// all wakes everyone; with close, later waiters are woken at once.
func (w *waiters) all(closing bool) {
	w.mu.Lock()
	w.closed = w.closed || closing
	due := w.set
	w.set = nil
	w.mu.Unlock()
	for x := range due {
		x.wake()
	}
}

func (w *waiters) now() (bytes, moves int64, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes, w.moves, w.closed
}

func (w *waiters) total() (bytes int64, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes, w.closed
}

// Wait calls wake once, in some goroutine, possibly before Wait returns: when at
// least min bytes can be read at offset from, when from cannot be read for
// another reason, or when the partition closes. cancel withdraws. wake must not
// block and must not call back into the partition.
func (p *Partition) Wait(from int64, min int, wake func()) (cancel func()) {
	return p.wait(from, min, false, wake)
}

// WaitStable is Wait for what ReadStable reads. It may wake with less than min.
func (p *Partition) WaitStable(from int64, min int, wake func()) (cancel func()) {
	return p.wait(from, min, true, wake)
}

func (p *Partition) wait(from int64, min int, stable bool, wake func()) (cancel func()) {
	w := &p.waiters
	for {
		before, moves, closed := w.now()
		b := p.Bounds()
		have, err := p.Readable(from, min, stable)
		if closed || err != nil || have >= min {
			wake()
			return func() {}
		}
		w.mu.Lock()
		if w.bytes != before || w.moves != moves || w.closed {
			w.mu.Unlock()
			continue // something was committed while we looked: look again
		}
		x := &waiter{at: before + int64(min-have), seen: -1, wake: wake, from: from, min: min, stable: stable}
		if stable {
			x.seen = b.Stable
			if b.Stable < b.Committed {
				x.at = before + 1 // the bytes are there; it is the end of a transaction that is missing
			}
		}
		if w.set == nil {
			w.set = map[*waiter]struct{}{}
		}
		w.set[x] = struct{}{}
		w.mu.Unlock()
		return func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.set, x)
		}
	}
}

// Readable returns how many bytes can be read at offset from: all of them if they are
// less than min, else min or more. With stable, those that ReadStable reads.
func (p *Partition) Readable(from int64, min int, stable bool) (int, error) {
	// A read ends with a whole batch before its limit, so that one of min bytes
	// may bring less although more is there: then look without a limit.
	n, err := p.length(from, max(min, 1), stable)
	if err != nil || n == 0 || n >= min {
		return n, err
	}
	return p.length(from, math.MaxInt32, stable)
}

func (p *Partition) length(from int64, limit int, stable bool) (int, error) {
	s, err := p.read(from, limit, stable)
	if err != nil {
		return 0, err
	}
	defer s.Release()
	return s.Len(), nil
}
