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

// This file is what replicas of the store on other nodes need of its logs: how far
// each is, durably; entries out of them; and entries of others into them. Which
// entries go where, and whether they are authentic, is decided elsewhere
// (mesh/reconcile).

// ErrDamaged refuses entries for a log that needs repair. Kind Conflict: there is no
// use in trying again before the log is put right, and nothing else is held up.
var ErrDamaged = lattice.E(lattice.Conflict, errors.New("the log of its author is damaged here and takes no entries: lattice fsck shows what is wrong"))

// LogState is how far one author log is here.
type LogState struct {
	Writer state.Writer
	Tip    sigchain.Link // the last entry that is acknowledged at the store's level; never zero
	Time   uint64        // of it
	First  uint64        // the first entry that is still here; above Tip.Seq: none
}

// LogStates returns each log of which something is here, or was and is in the base,
// ascending by writer. What was appended and is not acknowledged at the store's level
// is not in it. A log whose end cannot be read is left out, and logged. Who needs to
// hear of what changes from then on calls Follow first.
func (db *DB) LogStates() []LogState {
	out := map[state.Writer]LogState{}
	var ws []state.Writer
	db.mu.RLock()
	if db.base != nil {
		for c := range db.base.m.Chains {
			if !c.Tip.IsZero() {
				out[c.Writer] = LogState{c.Writer, c.Tip, c.Time, c.Tip.Seq + 1}
			}
		}
	}
	db.mu.RUnlock()
	for _, l := range db.logs.all() {
		tip, time, err := l.DurableTip()
		if err != nil {
			db.o.Logger.Error("what is here of a log is not offered to others", "store", db.store.Short(), "log", authorlog.Name(l.Writer()), "err", err)
			continue
		}
		if first, _ := l.Bounds(); !tip.IsZero() && tip.Seq >= out[l.Writer()].Tip.Seq {
			out[l.Writer()] = LogState{l.Writer(), tip, time, first}
		}
	}
	for w := range out {
		ws = append(ws, w)
	}
	return inOrderOf(ws, out)
}

// Span is entries of one log, in order, as they are stored.
type Span struct {
	Entries [][]byte // do not change them
	// Note is the newest checkpoint that the log's author signed and that covers all of
	// Entries; nil: none is here. With it, Left is the compact range of the tree before
	// them, and Proof says that the tree with them is a prefix of Note's. Without it,
	// each entry's signature is to be checked.
	Note        []byte
	Left, Proof []lattice.Hash
	// First is the first entry of the log that is here, set with errors of Kind OutOfRange, too.
	First uint64
}

// ReadSpan returns the entries of a log behind sequence number after, up to upto:
// about limit bytes, and at least one. It takes no lock that a write holds for long,
// and may be called from anywhere, also before Run and while the state is made again.
// Errors by Kind: OutOfRange (pruned: Span.First says what is here), NotYet, NotFound
// (no such log), Corrupt, Storage.
func (db *DB) ReadSpan(w state.Writer, after, upto uint64, limit int) (Span, error) {
	l := db.logs.get(w)
	if l == nil {
		if base := db.baseOf(w).Base; base.Seq > after {
			return Span{First: base.Seq + 1}, lattice.E(lattice.OutOfRange, fmt.Errorf("entry %d of %s was pruned", after+1, authorlog.Name(w)))
		}
		return Span{}, lattice.E(lattice.NotFound, fmt.Errorf("there is no log of %s", authorlog.Name(w)))
	}
	first, _ := l.Bounds()
	s := Span{First: first}
	entries, err := l.ReadSpan(after, upto, limit)
	if err != nil {
		return s, err
	}
	s.Entries = entries
	c, last, ok := l.Seal(after, after+uint64(len(entries)))
	if !ok {
		return s, nil
	}
	left, proof, err := l.Extend(after, last, c)
	if err != nil {
		return s, nil // a proof saves work, and no more
	}
	// What the checkpoint does not cover is for the next span.
	s.Entries, s.Note, s.Left, s.Proof = entries[:last-after], c.Note, left, proof
	return s, nil
}

// StoreSpan takes entries of one writer's log, in order, whose signatures, or whose
// author's checkpoint over them, the caller has verified. Calls for different logs
// may run at the same time, and then share the time of their syncs. It returns once they are
// acknowledged at the store's level and folded, with how many of them are here
// durably; the next one was refused with the error. What is here already counts as
// kept. note is the author's checkpoint, verified, nil for none. The steps, and what
// a crash leaves:
//
//  1. The chain, the author's membership and the writer are checked. Nothing happened yet.
//  2. Those that come next are written to the log at once. A crash leaves some of
//     them, in order, whole, which the next start folds.
//  3. At level Fsync the log is synced. A crash before leaves what was written, or
//     not; from here on they are there.
//  4. They are folded in memory, some hundreds at a time between which writes of
//     this node go on; what that changes goes on from there like every change.
//  5. The checkpoint is kept beside the log, not synced. Without it others check
//     each signature until the next one comes.
//
// If the sync fails, nobody knows what became of the entries: none of them counts as
// kept or is folded before a later call finds them there and syncs them.
//
// Errors: ErrStranger, ErrOwn, ErrWriters, ErrDamaged, fold.ErrForeign; those of
// sigchain.Chain.Check, of which ErrForked keeps the proof if there is one; Kind
// Unavailable and Storage: not now.
func (db *DB) StoreSpan(entries []sigchain.Signed, note []byte) (kept int, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	db.receiving.RLock()
	lane := &db.lanes[(uint64(entries[0].Author[0])^entries[0].Incarnation)%uint64(len(db.lanes))]
	lane.Lock()
	kept, err = db.storeSpan(entries, note)
	lane.Unlock()
	db.receiving.RUnlock()
	if k := lattice.KindOf(err); err != nil && k != lattice.Storage && k != lattice.Unavailable {
		db.refused.Add(1)
	}
	db.tellFollowers()
	return kept, err
}

func (db *DB) storeSpan(entries []sigchain.Signed, note []byte) (int, error) {
	e := entries[0]
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	if e.Home() != db.store {
		return 0, fold.ErrForeign
	}
	if err := db.Admits(e.Author); err != nil {
		return 0, err
	}
	known := 0
	if base := db.baseOf(w).Base.Seq; base >= e.Seq { // at or below the base: known
		if known = int(min(base-e.Seq+1, uint64(len(entries)))); known == len(entries) {
			return known, nil
		}
	}
	l, here, err := db.logFor(entries[known], w)
	if err != nil {
		return known, err
	}
	if here { // a base came in between
		return known, lattice.E(lattice.Unavailable, errors.New("the store begins anew from a snapshot: try again"))
	}
	n, err := db.alreadyIn(l, entries[known:])
	if known += n; err != nil {
		return db.durably(l, e.Seq, known), err
	}
	fresh := entries[known:]
	var refused error
	if len(fresh) > 0 && w == db.own {
		fresh, refused = nil, ErrOwn
	}
	if len(fresh) > 0 {
		n := 0
		n, refused = l.Next(fresh)
		fresh = fresh[:n]
	}
	if err := db.appendSpan(l, fresh, e.Seq+uint64(known+len(fresh))-1); err != nil {
		return db.durably(l, e.Seq, known), err
	}
	if err := db.foldSpan(fresh); err != nil {
		return known + len(fresh), err
	}
	if note != nil && refused == nil {
		if err := l.KeepNote(note); err != nil { // the entries are there without it
			db.o.Logger.Warn("others will check each signature", "store", db.store.Short(), "err", err)
		}
	}
	return known + len(fresh), refused
}

// alreadyIn returns how many of the entries are in the log, and an error if the one
// behind them is not what it has in that place.
func (db *DB) alreadyIn(l *authorlog.Log, entries []sigchain.Signed) (int, error) {
	for i, e := range entries {
		err := l.Check(e)
		switch {
		case errors.Is(err, sigchain.ErrKnown):
			continue
		case !errors.Is(err, sigchain.ErrOld) && !errors.Is(err, sigchain.ErrForked):
			return i, nil // it comes next, or is refused as it is appended
		}
		same, err := db.compare(l, e, err)
		if err == nil && !same {
			err = db.foldFork(e)
		}
		if err != nil {
			return i, err
		}
	}
	return len(entries), nil
}

// appendSpan writes entries that come next, and makes durable at the store's level
// what the log has up to last: also what an earlier sync failed on.
func (db *DB) appendSpan(l *authorlog.Log, fresh []sigchain.Signed, last uint64) error {
	if err := l.Append(fresh...); err != nil {
		if errors.Is(err, signedlog.ErrNeedsRepair) {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err
	}
	if db.o.Durability != signedlog.Fsync {
		if len(fresh) > 0 {
			l.Notify(last, func(error) {}) // has the log sync them in time
		}
		return nil
	}
	if l.Durable() >= last {
		return nil
	}
	if err := l.Flush(); err != nil {
		db.unfold()
		return err
	}
	if l.Durable() < last { // it was closed
		return ErrClosed
	}
	l.Prepare()
	return nil
}

// durably returns how many of the entries from sequence number first on, of which the
// first known ones are in the log, are acknowledged.
func (db *DB) durably(l *authorlog.Log, first uint64, known int) int {
	return int(min(uint64(known), max(l.Durable()+1, first)-first))
}

// unfold notes that there are entries in logs that were not offered to the fold.
func (db *DB) unfold() {
	db.mu.Lock()
	db.backlog = true
	db.mu.Unlock()
}

// foldSpan folds entries of one log that were made durable, and what had no room
// before.
func (db *DB) foldSpan(entries []sigchain.Signed) error {
	for {
		n, size := 0, 0
		for ; n < len(entries) && n < batchEntries && size < batchBytes; n++ {
			size += len(entries[n].Bytes())
		}
		if err := db.foldSome(entries[:n]); err != nil {
			return err
		}
		if entries = entries[n:]; len(entries) == 0 {
			return nil
		}
	}
}

func (db *DB) foldSome(entries []sigchain.Signed) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(entries) == 0 && !db.backlog {
		return nil
	}
	if err := db.pause(); err != nil {
		return err
	}
	entered := false
	for _, e := range entries {
		if !db.inTurn(e) { // what stands before it comes out of the log
			db.backlog = db.backlog || !db.crowded
			break
		}
		eff, err := db.offer(e)
		if errors.Is(err, fold.ErrFull) {
			db.crowded = true // in its log, until there is room
			break
		}
		if err != nil {
			return db.breaks(err)
		}
		entered = entered || len(eff.Fold) > 0
	}
	if db.backlog || db.crowded && entered {
		if err := db.foldLogs(); err != nil {
			return db.breaks(err)
		}
	}
	return db.folded()
}

// inTurn reports whether all that stands before an entry in its log was offered to
// the fold. db.mu is held.
func (db *DB) inTurn(e sigchain.Signed) bool {
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	return e.Seq <= max(db.machine.Tip(w).Seq, db.offered[w])+1
}

// foldFork has the fold learn of an entry that is another than the log has in its
// place, of which the proof is kept. It returns why the entry was refused.
func (db *DB) foldFork(e sigchain.Signed) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	err := db.pause()
	if err == nil {
		if _, err = db.offer(e); err != nil && !errors.Is(err, fold.ErrFull) {
			return db.breaks(err)
		}
		db.met = true // its author is shown as one that forked
		err = db.folded()
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("entry %d of %s: %w", e.Seq, e.Author.Short(), sigchain.ErrForked)
}
