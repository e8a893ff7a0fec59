package keyval

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// Received says what became of one entry that was received.
type Received struct {
	// Status is what it came to. Known: it was here, or was pruned. Waits and Held:
	// it is in its log, and counts later. Dropped: it is kept as proof of a fork, or
	// stands beyond one. Zero: it was refused.
	Status fold.Status
	// Err says why it was refused. Kind NotYet: offer it again when what comes
	// before it is here. Kind Denied: when a grant to its author is. Others: never.
	Err error
}

var (
	// ErrStranger refuses the entry of an author that, as far as is folded here,
	// nobody made a member. Kind Denied.
	ErrStranger = lattice.E(lattice.Denied, errors.New("its author is no member of the store, as far as is known here"))
	// ErrOwn refuses an entry that speaks for this incarnation of this node and is
	// none of its own: another process uses the key and the number. Kind Conflict.
	ErrOwn = lattice.E(lattice.Conflict, errors.New("it speaks for this incarnation of this node, which did not write it"))
	// ErrWriters refuses the first entry of a writer when Options.MaxWriters logs
	// are there. Kind TooLarge.
	ErrWriters = lattice.E(lattice.TooLarge, errors.New("the store has as many writers as it may"))
)

// Receive takes entries that others wrote, or this node in earlier incarnations.
// Each goes into its author's log, if it is the next there, and from there into the
// state, once all that it depends on has. The steps, and what a crash leaves:
//
//  1. Store, chain and signature are checked. Nothing happened yet.
//  2. Entries are appended to their logs, which are synced at level Fsync; the
//     proof of a fork is made durable. A crash leaves entries in logs, which the
//     next start folds.
//  3. They are folded in memory, and go on from there like every change.
//
// It returns one Received for each entry. An error says that nothing can be taken
// now; entries before may have been.
func (db *DB) Receive(entries []sigchain.Signed) ([]Received, error) {
	defer db.tellFollowers()
	db.receiving.Lock()
	defer db.receiving.Unlock()
	out := make([]Received, len(entries))
	var b batch
	for i, e := range entries {
		if len(b.entries) >= batchEntries || b.bytes >= batchBytes || db.Admits(e.Author) != nil {
			// What came before may make its author a member.
			if err := db.settle(&b, out); err != nil {
				return out, err
			}
		}
		known, err := db.keep(e, &b)
		switch {
		case lattice.KindOf(err) == lattice.Storage:
			return out, errors.Join(db.settle(&b, out), err)
		case err != nil:
			db.refused.Add(1)
			out[i].Err = fmt.Errorf("entry %d of %s: %w", e.Seq, e.Author.Short(), err)
		case known:
			out[i].Status = fold.Known
		default:
			b.entries, b.at = append(b.entries, e), append(b.at, i)
			b.bytes += len(e.Bytes())
		}
	}
	return out, db.settle(&b, out)
}

const (
	batchEntries = 256
	batchBytes   = 1 << 20
)

// batch is entries that were received and are not folded.
type batch struct {
	entries []sigchain.Signed
	at      []int // which of the received ones they are
	bytes   int
	logs    map[*authorlog.Log]uint64 // that were appended to, with the last sequence number
}

// keep puts an entry into its log, or among the proofs of forks. known says that
// it is there, or was.
func (db *DB) keep(e sigchain.Signed, b *batch) (known bool, err error) {
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	if e.Home() != db.store {
		return false, fold.ErrForeign
	}
	if err := db.Admits(e.Author); err != nil {
		return false, err
	}
	l, known, err := db.logFor(e, w)
	if err != nil || known {
		return known, err
	}
	err = l.Check(e)
	switch {
	case errors.Is(err, sigchain.ErrKnown):
		return true, nil
	case errors.Is(err, sigchain.ErrOld), errors.Is(err, sigchain.ErrForked):
		return db.compare(l, e, err)
	case err != nil:
		return false, err
	case w == db.own:
		return false, ErrOwn
	}
	if err := e.Verify(); err != nil {
		return false, err
	}
	if err := l.Append(e); err != nil {
		return false, err
	}
	if b.logs == nil {
		b.logs = map[*authorlog.Log]uint64{}
	}
	b.logs[l] = e.Seq
	return false, nil
}

// logFor returns the log that an entry belongs to. It is made by a writer's first
// entry only.
//
// It begins behind the base. known says that the entry is at or below that.
func (db *DB) logFor(e sigchain.Signed, w state.Writer) (_ *authorlog.Log, known bool, _ error) {
	base := db.baseOf(w)
	if e.Seq <= base.Base.Seq {
		return nil, true, nil
	}
	if l := db.logs.get(w); l != nil {
		return l, false, nil
	}
	switch {
	case w == db.own:
		return nil, false, ErrOwn
	case w.Author == db.own.Author && w.Incarnation > db.own.Incarnation && !db.ofFork(w):
		return nil, false, fmt.Errorf("%w: %d is greater than this one's %d", ErrOwn, w.Incarnation, db.own.Incarnation)
	case e.Seq != base.Base.Seq+1:
		return nil, false, sigchain.ErrGap
	case base.Base.Seq > 0 && e.Prev != base.Base:
		return nil, false, sigchain.ErrForked
	case db.logs.len() >= db.o.MaxWriters:
		return nil, false, ErrWriters
	}
	if err := e.Verify(); err != nil {
		return nil, false, err
	}
	l, err := db.logs.openBehind(w, base.Base, base.Time)
	return l, false, err
}

// baseOf returns what is folded for good of a writer's chain.
func (db *DB) baseOf(w state.Writer) fold.Chain {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.base == nil {
		return fold.Chain{}
	}
	return db.base.m.Chain(w)
}

// compare looks at an entry in whose place the log has one. If it is another, that
// is proof of a fork, which is kept.
func (db *DB) compare(l *authorlog.Log, e sigchain.Signed, why error) (known bool, err error) {
	have, err := l.Read(e.Seq)
	switch k := lattice.KindOf(err); {
	case err == nil && have.ID == e.ID:
		return true, nil
	case err != nil && k == lattice.OutOfRange:
		return true, nil // pruned: it is known, whatever it was
	case err != nil && k == lattice.NotYet:
		return false, why // it follows an entry that is not here
	case err != nil:
		return false, lattice.E(lattice.Storage, err)
	}
	if err := e.Verify(); err != nil {
		return false, err
	}
	if err := db.keepFork(have, e); err != nil {
		return false, err
	}
	db.o.Logger.Error("an author signed two entries for one place; nothing that it wrote from there on counts",
		"store", db.store.Short(), "author", e.Author, "incarnation", e.Incarnation, "entry", e.Seq)
	return false, nil
}

// settle makes the entries of a batch durable, folds them, and empties it.
func (db *DB) settle(b *batch, out []Received) error {
	defer func() { *b = batch{} }()
	for l, seq := range b.logs {
		if db.o.Durability == signedlog.Fsync {
			if err := l.Flush(); err != nil {
				db.unfold() // they are folded when a later sync says that they are there
				return err
			}
			continue
		}
		l.Notify(seq, func(error) {}) // has the log sync them in time
	}
	if len(b.entries) == 0 {
		return nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.pause(); err != nil {
		return err
	}
	var later []int
	for i, e := range b.entries {
		if !db.inTurn(e) { // what stands before it comes out of the log, and then it
			later = append(later, i)
			continue
		}
		eff, err := db.offer(e)
		switch {
		case errors.Is(err, fold.ErrFull):
			out[b.at[i]].Status = fold.Waits // in its log, until there is room
		case err != nil:
			return db.breaks(err)
		default:
			out[b.at[i]].Status = eff.Status
		}
	}
	if err := db.foldLogs(); err != nil { // what had no room may have some now
		return db.breaks(err)
	}
	for _, i := range later {
		out[b.at[i]].Status = fold.Waits
		if e := b.entries[i]; e.Seq <= db.machine.Tip(state.Writer{Author: e.Author, Incarnation: e.Incarnation}).Seq {
			out[b.at[i]].Status = fold.Entered
		}
	}
	return db.folded()
}

// pause waits until received entries may be folded: there is room for their
// effects, and no update's group is half built. db.mu is held.
func (db *DB) pause() error {
	for {
		if err := db.readable(); err != nil || db.broken != nil {
			return errors.Join(err, db.broken)
		}
		if !db.changing && db.stalled == nil && db.t.bytes < db.o.DirtyBytes {
			break
		}
		if db.stopped {
			return ErrClosed
		}
		db.kick()
		db.room.Wait()
	}
	if db.building != nil {
		db.queue = append(db.queue, db.building)
		db.building = nil
		db.kick()
	}
	return nil
}

// folded ends a change of the state by entries of others. If something below
// what was folded turned out to be another, it waits until the committer has made
// the state again. db.mu is held.
func (db *DB) folded() error {
	db.o.Observe(db.lastTime)
	db.watchClock()
	db.greet()
	if db.machine.Stale() {
		db.changing = true
	}
	db.kick()
	for db.changing && !db.stopped && db.broken == nil {
		db.room.Wait()
	}
	return db.broken
}

// breaks notes that the state in memory cannot be trusted any more.
func (db *DB) breaks(err error) error {
	db.broken = lattice.E(lattice.Storage, fmt.Errorf("the store needs to be opened again: %w", err))
	db.o.Logger.Error("folding failed", "store", db.store.Short(), "err", err)
	db.room.Broadcast()
	return db.broken
}

// watchClock has the machine look again in a while, if it holds entries by the
// clock. db.mu is held.
func (db *DB) watchClock() {
	if db.held || db.closed || !db.machine.HeldByClock() {
		return
	}
	db.held = true
	db.o.Clock.AfterFunc(heldEvery, func() {
		db.mu.Lock()
		db.held, db.release = false, true
		db.mu.Unlock()
		db.kick()
	})
}

// releaseHeld folds what the clock held and does not any more. db.mu is held.
func (db *DB) releaseHeld() {
	if !db.release || db.broken != nil {
		return
	}
	db.release = false
	if db.building != nil {
		db.queue = append(db.queue, db.building)
		db.building = nil
	}
	eff, err := db.machine.Advance(db.nowMs())
	if err == nil {
		err = db.applyAll(eff, lattice.Hash{})
	}
	if err == nil {
		err = db.foldLogs()
	}
	if err != nil {
		_ = db.breaks(err)
		return
	}
	db.o.Observe(db.lastTime)
	db.changing = db.changing || db.machine.Stale()
	db.greet()
	db.watchClock()
}
