package p2p

import (
	"context"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// lanes has workers do what waits, off a carrier's loop: in order for each lane,
// several lanes at a time, and what has gathered of one lane at once, so that a disk
// which syncs slowly gets larger pieces and not more of them. The loop owns it;
// workers see one pile each. What waits is bounded by the credit of peers.
type lanes[K comparable, T any] struct {
	lane     func(T) K         // what is done in order
	together func(all []T) int // how many of all can be done in one go, at least one

	work    chan pile[K, T] // one place for each worker
	free    int
	waiting map[K][]T
	turn    []K // lanes that wait and are not being done, first come first
	busy    map[K]bool
	held    bool
}

// pile is what one worker does at once, of one lane.
type pile[K comparable, T any] struct {
	log   K
	parts []T
}

func newLanes[K comparable, T any](workers int, lane func(T) K, together func([]T) int) *lanes[K, T] {
	return &lanes[K, T]{lane: lane, together: together, work: make(chan pile[K, T], workers), free: workers, waiting: map[K][]T{}, busy: map[K]bool{}}
}

// add queues something, and starts it if a worker is free.
func (k *lanes[K, T]) add(s T) {
	l := k.lane(s)
	if len(k.waiting[l]) == 0 && !k.busy[l] {
		k.turn = append(k.turn, l)
	}
	k.waiting[l] = append(k.waiting[l], s)
	k.start()
}

// done takes a worker back.
func (k *lanes[K, T]) done(b pile[K, T]) {
	k.free++
	delete(k.busy, b.log)
	if len(k.waiting[b.log]) > 0 {
		k.turn = append(k.turn, b.log)
	}
	k.start()
}

// hold starts nothing more until drop.
func (k *lanes[K, T]) hold() { k.held = true }

// idle reports whether nothing is under way.
func (k *lanes[K, T]) idle() bool { return len(k.busy) == 0 }

// drop forgets what waits, and goes on with what comes.
func (k *lanes[K, T]) drop() {
	clear(k.waiting)
	k.turn, k.held = nil, false
}

func (k *lanes[K, T]) start() {
	for !k.held && k.free > 0 && len(k.turn) > 0 {
		l := k.turn[0]
		k.turn = k.turn[1:]
		all := k.waiting[l]
		n := k.together(all)
		if n == len(all) {
			delete(k.waiting, l)
		} else {
			k.waiting[l] = all[n:]
		}
		k.busy[l] = true
		k.free--
		k.work <- pile[K, T]{l, all[:n:n]}
	}
}

// run is a worker, until do returns false.
func (k *lanes[K, T]) run(ctx context.Context, do func(pile[K, T]) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-k.work:
			if !do(b) {
				return
			}
		}
	}
}

// keeping makes what a reconcile.Replica hands out durable.
type keeping = lanes[state.Writer, reconcile.Store]

// batch is what one worker keeps: neighbours in one log, or one other thing.
type batch = pile[state.Writer, reconcile.Store]

// keptBatch is what became of it.
type keptBatch struct {
	batch
	kept int
	err  error
}

const keepSize = 4 << 20 // bytes of entries, or of batches, in a pile, about

func newKeeping(workers int) *keeping { return newLanes(workers, laneOf, together) }

// laneOf is what is kept in order: the entries of a log, the forks of an author, all
// statements.
func laneOf(s reconcile.Store) state.Writer {
	if s.Fork != nil {
		return state.Writer{Author: s.Fork.A.Author}
	}
	return s.Log // of statements: none
}

// together returns how many of all can be kept in one go.
func together(all []reconcile.Store) int {
	size := 0
	for i, s := range all {
		if s.Fork != nil || s.Statements != nil {
			return max(i, 1)
		}
		for _, e := range s.Entries {
			size += len(e.Bytes())
		}
		if i > 0 && size > keepSize {
			return i
		}
	}
	return len(all)
}

// join makes one thing to keep of neighbours in a log.
func join(parts []reconcile.Store) reconcile.Store {
	if len(parts) == 1 {
		return parts[0]
	}
	n := 0
	for _, s := range parts {
		n += len(s.Entries)
	}
	out := parts[0]
	out.Entries = make([]sigchain.Signed, 0, n)
	for _, s := range parts {
		out.Entries = append(out.Entries, s.Entries...)
		if s.Note != nil {
			out.Note = s.Note
		}
	}
	return out
}

// each says what became of each part: as many of its entries as are kept, and the
// error at the first that are not all, and behind it.
func (b keptBatch) each(tell func(id uint64, kept int, err error)) {
	left := b.kept
	for i, s := range b.parts {
		n := min(left, len(s.Entries))
		left -= n
		whole := n == len(s.Entries) && (i < len(b.parts)-1 || b.err == nil)
		if b.err == nil || whole {
			tell(s.ID, len(s.Entries), nil)
			continue
		}
		tell(s.ID, n, b.err)
	}
}

// loading does a Replica's reads off its carrier's loop, first come first.
type loading[Q any] struct {
	work    chan Q
	free    int
	waiting []Q
}

func newLoading[Q any](workers int) *loading[Q] {
	return &loading[Q]{work: make(chan Q, workers), free: workers}
}

func (l *loading[Q]) add(r Q) {
	l.waiting = append(l.waiting, r)
	l.start()
}

func (l *loading[Q]) done() {
	l.free++
	l.start()
}

func (l *loading[Q]) start() {
	for l.free > 0 && len(l.waiting) > 0 {
		l.free--
		l.work <- l.waiting[0]
		if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
			l.waiting = nil
		}
	}
}

// run is a worker, until do returns false.
func (l *loading[Q]) run(ctx context.Context, do func(Q) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-l.work:
			if !do(r) {
				return
			}
		}
	}
}
