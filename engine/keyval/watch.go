package keyval

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Change says that a key has changed, and what it is now: when the change is
// read, not when it happened. So a key that is gone is never shown as live, and
// changes of a key that nobody has read yet come as one.
type Change struct {
	Map     string
	Key     []byte
	Deleted bool // nothing is left of it, or what is left has expired
	// Kind is that of the greatest head: what a plain read takes the key for.
	Kind state.Kind
	// Value is what a plain read of a register returns; nil for other kinds.
	Value      []byte
	Conflicted bool // a register has several candidates
	// Order and Entry are of the head that a plain read of a register returns. Of a
	// key of another kind, or that is gone, they are of the operation that was last
	// seen to change it.
	Order state.Order
	Entry lattice.Hash // of the entry; zero when that was pruned
}

var (
	// ErrLagged means that a watcher fell behind further than memory goes. Nothing
	// that it returned is missing: a new one from its Frontier goes on. Kind Conflict.
	ErrLagged = lattice.E(lattice.Conflict, errors.New("the watcher fell behind: go on from its frontier"))
	// ErrPruned means that entries were pruned that a watcher needs: read the state
	// as it is, and watch from now. Kind OutOfRange.
	ErrPruned = lattice.E(lattice.OutOfRange, errors.New("what happened since then was pruned in part: read the keys as they are and watch from now"))
	// ErrUpset means that what a watcher returned may not hold any more, because
	// entries that had counted turned out not to: of a writer that signed two
	// histories, or lost its right. Read the state as it is, and watch from now.
	// Kind Diverged.
	ErrUpset = lattice.E(lattice.Diverged, errors.New("entries that had counted do not count any more: read the keys as they are and watch from now"))
)

const (
	// watchMax bounds the keys that have changed and that a watcher has not read,
	watchMax = 8192
	// and watchBytes what their names take.
	watchBytes = 8 << 20
)

// Watcher streams the changes of keys. Next and Poll: one goroutine at a time.
type Watcher struct {
	db     *DB
	m      string
	prefix string
	ready  chan struct{} // capacity 1: there is something in queue, or an end

	mu       sync.Mutex
	frontier state.Frontier   // what was returned, or need not be
	owing    bool             // Next has something that it has not returned, or the logs may
	queue    []event          // oldest first
	bytes    int              // of the keys in it
	newest   map[string]int64 // number of the newest event in queue, by key
	first    int64            // number of queue[0]
	lagged   bool
	upset    bool // lagged, and the frontier says nothing
	closed   bool

	// Owned by Next.
	back   []*feed // what the logs hold before queue begins
	behind []event // read from there
	taken  *event  // taken, and not returned yet
	trail  *trail  // as far as Token has followed the frontier; nil: not yet

	moved map[state.Writer]uint64 // mu: the frontier, where it moved since; once there is a trail
}

// event is an operation on a key that is watched.
type event struct {
	key   string
	order state.Order
	entry lattice.Hash
	last  bool // the last one of its entry
}

// Watch streams the changes of the keys of a map that begin with prefix: after
// from, which was a watcher's Frontier or the state's; from now, if it is nil.
// Changes before now come out of the logs, which costs what those hold. Close the
// watcher. Errors: ErrPruned, ErrClosed; ErrUpset, also when the entries that do not
// count any more had been found out while nobody watched.
func (db *DB) Watch(m string, prefix []byte, from state.Frontier) (*Watcher, error) {
	w := &Watcher{db: db, m: m, prefix: string(prefix), ready: make(chan struct{}, 1), newest: map[string]int64{}}
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.readable(); err != nil {
		return nil, err
	}
	if db.stopped {
		return nil, ErrClosed
	}
	now := db.machine.Frontier()
	if from == nil {
		w.frontier = now
	} else {
		if db.machine.Upset(from) {
			return nil, ErrUpset
		}
		w.frontier = maps.Clone(from)
		for _, x := range now.Writers() {
			at, end := from[x], now[x]
			if at >= end {
				continue
			}
			l := db.logs.get(x)
			if l == nil {
				return nil, ErrPruned
			}
			if first, _ := l.Bounds(); at+1 < first {
				return nil, ErrPruned
			}
			w.back = append(w.back, &feed{log: l, next: at + 1, last: end})
		}
	}
	w.owing = len(w.back) > 0
	if db.watchers == nil {
		db.watchers = map[*Watcher]struct{}{}
	}
	db.watchers[w] = struct{}{}
	return w, nil
}

// Close ends the watcher. Next fails from then on.
func (w *Watcher) Close() {
	w.db.mu.Lock()
	delete(w.db.watchers, w)
	w.db.mu.Unlock()
	w.end()
}

func (w *Watcher) end() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wake()
}

func (w *Watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Frontier returns from where another watcher goes on after what Next has returned.
// It moves on with entries that change nothing that is watched, too.
func (w *Watcher) Frontier() state.Frontier {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.frontier)
}

// Token returns the frontier as a token. It costs what has moved since the last one and
// how long the token is, not how many writers there are. As Next: one goroutine at a time.
func (w *Watcher) Token() []byte {
	w.mu.Lock()
	var all state.Frontier
	if w.moved == nil {
		all, w.moved = maps.Clone(w.frontier), map[state.Writer]uint64{}
	}
	var moved map[state.Writer]uint64
	if len(w.moved) > 0 {
		moved, w.moved = w.moved, map[state.Writer]uint64{}
	}
	w.mu.Unlock()
	if all != nil { // what comes next may read logs, so nobody waits for it
		w.trail = w.db.trailOf(all)
	}
	for x, seq := range moved {
		w.trail.move(w.db, x, seq)
	}
	return w.trail.token(w.db)
}

// reach moves the frontier on. mu is held.
func (w *Watcher) reach(x state.Writer, seq uint64) {
	if seq <= w.frontier[x] {
		return
	}
	w.frontier[x] = seq
	if w.moved != nil {
		w.moved[x] = seq
	}
}

// Next returns the next change. Errors: ErrLagged, ErrUpset, ErrPruned, ErrClosed
// (also: the state's Run has ended), ctx's, and those of reading.
func (w *Watcher) Next(ctx context.Context) (Change, error) {
	for {
		c, ok, err := w.Poll(ctx)
		if err != nil || ok {
			return c, err
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return Change{}, ctx.Err()
		}
	}
}

// Ready has a token when Poll may find something after it had found nothing.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Poll is Next that does not wait for changes to come: ok is false when all that
// has changed was returned.
func (w *Watcher) Poll(ctx context.Context) (c Change, ok bool, err error) {
	e, ok, err := w.take(ctx)
	if err != nil || !ok {
		return Change{}, false, err
	}
	if c, err = w.db.changeOf(ctx, w.m, e); err != nil {
		return Change{}, false, err
	}
	w.pass(e)
	return c, true, nil
}

// take takes the oldest event that was not returned; ok is false when there is none.
func (w *Watcher) take(ctx context.Context) (e event, ok bool, err error) {
	if w.taken != nil {
		return *w.taken, true, nil
	}
	for len(w.behind) == 0 && len(w.back) > 0 {
		if err := ctx.Err(); err != nil {
			return e, false, err
		}
		if err := w.readBack(); err != nil {
			return e, false, err
		}
	}
	if len(w.behind) > 0 {
		e, w.behind = w.behind[0], w.behind[1:]
		w.taken = &e
		return e, true, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owing = false
	for len(w.queue) > 0 {
		e, at := w.queue[0], w.first
		w.queue, w.first = w.queue[1:], w.first+1
		w.bytes -= len(e.key)
		if w.newest[e.key] == at { // else a newer one says it all
			delete(w.newest, e.key)
			w.taken, w.owing = &e, true
			return e, true, nil
		}
	}
	switch {
	case w.closed:
		return e, false, ErrClosed
	case w.upset:
		return e, false, ErrUpset
	case w.lagged:
		return e, false, ErrLagged
	}
	return e, false, nil
}

// pass notes that an event was returned.
func (w *Watcher) pass(e event) {
	w.taken = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	at := e.order.Dot.Seq
	if !e.last {
		at--
	}
	w.reach(e.order.Dot.Writer, at)
	w.owing = len(w.behind)+len(w.back) > 0
}

// readBack reads the next piece of the logs, earlier times first.
func (w *Watcher) readBack() error {
	var last sigchain.Signed
	errEnough := errors.New("enough")
	n := 0
	err := mergeLogs(w.back, func(s sigchain.Signed) (bool, error) {
		w.behind = append(w.behind, w.events(s)...)
		last = s
		if n++; n == 256 || len(w.behind) > 0 {
			return true, errEnough
		}
		return true, nil
	})
	if lattice.KindOf(err) == lattice.OutOfRange {
		return ErrPruned // while we read
	}
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if err == nil {
		w.back = nil
	}
	if last.Seq > 0 && len(w.behind) == 0 {
		w.mu.Lock()
		w.reach(state.Writer{Author: last.Author, Incarnation: last.Incarnation}, last.Seq)
		w.mu.Unlock()
	}
	return nil
}

// events returns what an entry of a log does to keys that are watched.
func (w *Watcher) events(s sigchain.Signed) []event {
	own := state.Writer{Author: s.Author, Incarnation: s.Incarnation}
	ops := make([]state.Op, len(s.Ops))
	for i, op := range s.Ops {
		if !state.IsOp(op.Kind) {
			continue
		}
		var err error
		if ops[i], err = state.ParseOp(op, own); err != nil {
			return nil // the entry has no effect
		}
	}
	return w.match(s, ops)
}

// match returns what an entry with these operations does to keys that are watched.
func (w *Watcher) match(s sigchain.Signed, ops []state.Op) []event {
	var out []event
	own := state.Writer{Author: s.Author, Incarnation: s.Incarnation}
	for i, op := range ops {
		if op == nil {
			continue
		}
		m, key := op.Target()
		if m != w.m || !strings.HasPrefix(string(key), w.prefix) {
			continue
		}
		e := event{key: string(key), order: state.Order{Time: s.Time, Dot: state.Dot{Writer: own, Seq: s.Seq, Index: uint32(i)}}, entry: s.ID}
		if n := len(out); n > 0 && out[n-1].key == e.key {
			out[n-1] = e
		} else {
			out = append(out, e)
		}
	}
	if n := len(out); n > 0 {
		out[n-1].last = true
	}
	return out
}

// publish tells the watchers of entries that were folded, or decided. db.mu is held.
func (db *DB) publish(all []fold.Folded) {
	if len(db.watchers) == 0 || db.replaying {
		return
	}
	for _, f := range all {
		for w := range db.watchers {
			w.offer(f.Entry, w.match(f.Entry, f.Ops))
		}
	}
}

// offer takes what an entry does to keys that are watched.
func (w *Watcher) offer(s sigchain.Signed, events []event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 0
	for _, e := range events {
		size += len(e.key)
	}
	switch {
	case w.lagged || w.closed:
		return
	case len(events) == 0:
		if !w.owing && len(w.queue) == 0 { // who goes on from here need not read it again
			w.reach(state.Writer{Author: s.Author, Incarnation: s.Incarnation}, s.Seq)
		}
		return
	case !w.fits(len(events), size) && !w.shrink(len(events), size):
		w.lagged = true // what is in the queue is still returned
		w.wake()
		return
	}
	for _, e := range events {
		w.newest[e.key] = w.first + int64(len(w.queue))
		w.queue = append(w.queue, e)
	}
	w.bytes += size
	w.wake()
}

// fits reports whether n more events, with so many bytes of keys, may be queued.
func (w *Watcher) fits(n, size int) bool {
	return len(w.queue)+n <= watchMax && w.bytes+size <= watchBytes
}

// shrink throws out events that newer ones of the same key make needless, and
// reports whether there is room for n more, with so many bytes of keys.
func (w *Watcher) shrink(n, size int) bool {
	keep := make([]event, 0, len(w.newest))
	bytes := 0
	for i, e := range w.queue {
		if w.newest[e.key] == w.first+int64(i) {
			keep = append(keep, e)
			bytes += len(e.key)
		}
	}
	w.queue, w.first, w.bytes = keep, 0, bytes
	for i, e := range keep {
		w.newest[e.key] = int64(i)
	}
	return w.fits(n, size)
}
