package keyval

import (
	"context"
	"errors"
	"fmt"
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
)

// watchMax bounds the keys that have changed and that a watcher has not read.
const watchMax = 8192

// Watcher streams the changes of keys. Next: one goroutine at a time.
type Watcher struct {
	db     *DB
	m      string
	prefix string
	ready  chan struct{} // capacity 1: there is something in queue, or an end

	mu       sync.Mutex
	frontier state.Frontier   // what was returned, or need not be
	queue    []event          // oldest first
	newest   map[string]int64 // number of the newest event in queue, by key
	first    int64            // number of queue[0]
	lagged   bool
	closed   bool

	// Owned by Next.
	back   []*feed // what the logs hold before queue begins
	behind []event // read from there
	taken  *event  // taken, and not returned yet
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
// watcher.
func (db *DB) Watch(m string, prefix []byte, from state.Frontier) (*Watcher, error) {
	w := &Watcher{db: db, m: m, prefix: string(prefix), ready: make(chan struct{}, 1), newest: map[string]int64{}}
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.readable(); err != nil {
		return nil, err
	}
	now := db.machine.Frontier()
	if from == nil {
		w.frontier = now
	} else {
		w.frontier = maps.Clone(from)
		for _, l := range db.logs.all() {
			at, end := from[l.Writer()], now[l.Writer()]
			if at >= end {
				continue
			}
			if first, _ := l.Bounds(); at+1 < first {
				return nil, ErrPruned
			}
			w.back = append(w.back, &feed{log: l, next: at + 1, last: end})
		}
	}
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
func (w *Watcher) Frontier() state.Frontier {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.frontier)
}

// Next returns the next change. Errors: ErrLagged, ErrClosed, ctx's, and those of
// reading.
func (w *Watcher) Next(ctx context.Context) (Change, error) {
	for {
		e, ok, err := w.take(ctx)
		if err != nil {
			return Change{}, err
		}
		if !ok {
			select {
			case <-w.ready:
				continue
			case <-ctx.Done():
				return Change{}, ctx.Err()
			}
		}
		c, err := w.db.changeOf(ctx, w.m, e)
		if err != nil {
			return Change{}, err
		}
		w.pass(e)
		return c, nil
	}
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
	for len(w.queue) > 0 {
		e, at := w.queue[0], w.first
		w.queue, w.first = w.queue[1:], w.first+1
		if w.newest[e.key] == at { // else a newer one says it all
			delete(w.newest, e.key)
			w.taken = &e
			return e, true, nil
		}
	}
	switch {
	case w.closed:
		return e, false, ErrClosed
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
	w.frontier[e.order.Dot.Writer] = max(w.frontier[e.order.Dot.Writer], at)
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
		x := state.Writer{Author: last.Author, Incarnation: last.Incarnation}
		w.frontier[x] = max(w.frontier[x], last.Seq)
		w.mu.Unlock()
	}
	return nil
}

// events returns what an entry does to keys that are watched.
func (w *Watcher) events(s sigchain.Signed) []event {
	var out []event
	own := state.Writer{Author: s.Author, Incarnation: s.Incarnation}
	for i, op := range s.Ops {
		if !state.IsOp(op.Kind) {
			continue
		}
		x, err := state.ParseOp(op, own)
		if err != nil {
			return nil // the entry has no effect
		}
		m, key := x.Target()
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
		if f.Void != nil {
			continue
		}
		for w := range db.watchers {
			if events := w.events(f.Entry); len(events) > 0 {
				w.push(events)
			}
		}
	}
}

func (w *Watcher) push(events []event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lagged || w.closed {
		return
	}
	if len(w.queue)+len(events) > watchMax && !w.shrink(len(events)) {
		w.lagged = true // what is in the queue is still returned
		w.wake()
		return
	}
	for _, e := range events {
		w.newest[e.key] = w.first + int64(len(w.queue))
		w.queue = append(w.queue, e)
	}
	w.wake()
}

// shrink throws out events that newer ones of the same key make needless, and
// reports whether there is room for n more.
func (w *Watcher) shrink(n int) bool {
	keep := make([]event, 0, len(w.newest))
	for i, e := range w.queue {
		if w.newest[e.key] == w.first+int64(i) {
			keep = append(keep, e)
		}
	}
	w.queue, w.first = keep, 0
	for i, e := range keep {
		w.newest[e.key] = int64(i)
	}
	return len(keep)+n <= watchMax
}

// lag has every watcher go on from its frontier: the state was made again, and what
// changed in it is not known one by one. db.mu is held.
func (db *DB) lag() {
	for w := range db.watchers {
		w.mu.Lock()
		w.lagged = true
		w.mu.Unlock()
		w.wake()
	}
}

// changeOf reads a key as it is now, decided.
func (db *DB) changeOf(ctx context.Context, m string, e event) (Change, error) {
	for {
		c := Change{Map: m, Key: []byte(e.key), Order: e.order, Entry: e.entry}
		tk, err := db.View(func(tx *Tx) error { return tx.fill(&c) })
		if err != nil {
			return c, err
		}
		if err := tk.Wait(ctx); err != nil {
			if ctx.Err() != nil {
				return c, err
			}
			continue // what it saw was dropped
		}
		if d := c.Order.Dot; d != e.order.Dot {
			if c.Entry, err = db.EntryID(d.Writer, d.Seq); err != nil && lattice.KindOf(err) != lattice.NotFound && lattice.KindOf(err) != lattice.OutOfRange {
				return c, fmt.Errorf("the entry of %s: %w", d, err)
			}
		}
		return c, nil
	}
}

// fill reads c's key.
func (tx *Tx) fill(c *Change) error {
	k, err := tx.Key(c.Map, c.Key)
	if err != nil {
		return err
	}
	gone, err := k.Expiry.Expired(tx.now)
	if err != nil {
		return err
	}
	var best state.Order
	for kind := state.Register; kind < state.Expiry; kind++ {
		if k.Counts[kind] == 0 {
			continue
		}
		err := tx.Scan(c.Map, c.Key, kind, nil, false, func(_ []byte, r state.Row) bool {
			r, _ = r.End(gone)
			if len(r) > 0 && r.Last().Order().Compare(best) > 0 {
				best, c.Kind = r.Last().Order(), kind
			}
			return !single(k.Counts) || len(r) == 0
		})
		if err != nil {
			return err
		}
	}
	if c.Deleted = c.Kind == 0; c.Kind != state.Register {
		return nil
	}
	row, err := tx.Row(state.Address{Map: c.Map, Key: c.Key, Kind: state.Register})
	if err != nil {
		return err
	}
	row, _ = row.End(gone)
	all := row.Resolve()
	c.Value, c.Conflicted, c.Order = all[0].Value, len(all) > 1, all[0].Order
	return nil
}

// single reports whether a key has rows of one kind, expiry aside.
func single(counts [state.Kinds]int64) bool {
	n := 0
	for k := state.Register; k < state.Expiry; k++ {
		if counts[k] > 0 {
			n++
		}
	}
	return n == 1
}
