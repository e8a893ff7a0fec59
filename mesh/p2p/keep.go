package p2p

import (
	"context"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// keeping makes what a Replica hands out durable, off the carrier's loop: in order
// for each log, several logs at a time, and what has gathered of one log at once, so
// that a disk which syncs slowly gets larger pieces and not more of them. The loop
// owns it; workers see one batch each. What waits is bounded by the credit of peers.
type keeping struct {
	work    chan batch // one place for each worker
	free    int
	waiting map[state.Writer][]reconcile.Store
	turn    []state.Writer // logs that wait and are not being kept, first come first
	busy    map[state.Writer]bool
	held    bool
}

// batch is what one worker keeps: neighbours in one log, or one other thing.
type batch struct {
	log   state.Writer
	parts []reconcile.Store
}

// keptBatch is what became of it.
type keptBatch struct {
	batch
	kept int
	err  error
}

const keepSize = 4 << 20 // bytes of entries in a batch, about

func newKeeping(workers int) *keeping {
	return &keeping{work: make(chan batch, workers), free: workers, waiting: map[state.Writer][]reconcile.Store{}, busy: map[state.Writer]bool{}}
}

// lane is what is kept in order: the entries of a log, the forks of an author, all
// statements.
func lane(s reconcile.Store) state.Writer {
	if s.Fork != nil {
		return state.Writer{Author: s.Fork.A.Author}
	}
	return s.Log // of statements: none
}

// add queues something, and starts it if a worker is free.
func (k *keeping) add(s reconcile.Store) {
	l := lane(s)
	if len(k.waiting[l]) == 0 && !k.busy[l] {
		k.turn = append(k.turn, l)
	}
	k.waiting[l] = append(k.waiting[l], s)
	k.start()
}

// done takes a worker back.
func (k *keeping) done(b batch) {
	k.free++
	delete(k.busy, b.log)
	if len(k.waiting[b.log]) > 0 {
		k.turn = append(k.turn, b.log)
	}
	k.start()
}

// hold starts nothing more until drop.
func (k *keeping) hold() { k.held = true }

// idle reports whether nothing is under way.
func (k *keeping) idle() bool { return len(k.busy) == 0 }

// drop forgets what waits, and goes on with what comes.
func (k *keeping) drop() {
	clear(k.waiting)
	k.turn, k.held = nil, false
}

func (k *keeping) start() {
	for !k.held && k.free > 0 && len(k.turn) > 0 {
		l := k.turn[0]
		k.turn = k.turn[1:]
		all := k.waiting[l]
		n := together(all)
		if n == len(all) {
			delete(k.waiting, l)
		} else {
			k.waiting[l] = all[n:]
		}
		k.busy[l] = true
		k.free--
		k.work <- batch{l, all[:n:n]}
	}
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

// run is a worker.
func (k *keeping) run(ctx context.Context, to Store, done func(keptBatch) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-k.work:
			n, err := to.Keep(ctx, join(b.parts))
			if !done(keptBatch{b, n, err}) {
				return
			}
		}
	}
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

// loading does a Replica's reads off the carrier's loop, first come first.
type loading struct {
	work    chan reconcile.Read
	free    int
	waiting []reconcile.Read
}

func newLoading(workers int) *loading {
	return &loading{work: make(chan reconcile.Read, workers), free: workers}
}

func (l *loading) add(r reconcile.Read) {
	l.waiting = append(l.waiting, r)
	l.start()
}

func (l *loading) done() {
	l.free++
	l.start()
}

func (l *loading) start() {
	for l.free > 0 && len(l.waiting) > 0 {
		l.free--
		l.work <- l.waiting[0]
		if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
			l.waiting = nil
		}
	}
}

// run is a worker.
func (l *loading) run(ctx context.Context, from Store, done func(reconcile.Loaded) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-l.work:
			got := from.Read(ctx, r)
			got.ID = r.ID
			if !done(got) {
				return
			}
		}
	}
}
