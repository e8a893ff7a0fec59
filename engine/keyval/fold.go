package keyval

import (
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// This file brings entries from logs into the state. Whoever calls it holds DB.mu
// alone, or nobody else is there yet.

func (db *DB) foldConfig() fold.Config {
	most := int(db.o.MaxWaiting)
	return fold.Config{
		Genesis:    db.o.Genesis,
		Limits:     fold.Limits{Entries: most / 512, Bytes: most, AuthorEntries: most / 2048, AuthorBytes: max(most/4, sigchain.MaxSize)},
		MaxDriftMs: db.o.MaxDrift.Milliseconds(),
		Entry:      db.entryAt,
	}
}

// entryAt returns the entry in a place of a log; false when it is not there any more.
func (db *DB) entryAt(p sigchain.Place) (sigchain.Signed, bool, error) {
	l := db.logs.get(state.Writer{Author: p.Author, Incarnation: p.Incarnation})
	if l == nil {
		return sigchain.Signed{}, false, nil
	}
	e, err := l.Read(p.Seq)
	if k := lattice.KindOf(err); err != nil && (k == lattice.OutOfRange || k == lattice.NotYet) {
		return sigchain.Signed{}, false, nil
	}
	return e, err == nil, err
}

func (db *DB) nowMs() int64 { return db.o.Clock.Now().UnixMilli() }

// reset makes the table again from the fold database and the logs. Nothing is
// undecided and no round under way.
func (db *DB) reset() error {
	defer db.lag()
	if err := db.load(); err != nil {
		return err
	}
	if err := db.catchUp(); err != nil {
		return err
	}
	return db.find()
}

// catchUp folds what the logs hold, acknowledged, beyond what is folded, and what
// is kept of forks. If it turns out that something below was not what it should
// have been, everything is folded again. Nothing is undecided and no round under
// way.
func (db *DB) catchUp() error {
	if db.machine.Stale() {
		return db.rebuild()
	}
	if err := db.foldAll(); err != nil {
		return err
	}
	if db.machine.Stale() {
		return db.rebuild()
	}
	return nil
}

// rebuild folds everything again, keeping what was learned. A crash leaves an
// empty fold database, with which the next start does the same.
func (db *DB) rebuild() error {
	defer db.upset()
	m := db.machine
	if m.Stale() {
		db.o.Logger.Warn("what was folded does not count as it was: folding everything again", "store", db.store.Short())
	}
	if err := db.checkBase(); err != nil {
		return err
	}
	for again := true; again; again = m.Stale() {
		db.void.Store(0)
		if err := db.dropKV(); err != nil {
			return err
		}
		if err := db.begin(m); err != nil {
			return err
		}
		if err := db.foldAll(); err != nil {
			return err
		}
	}
	return nil
}

// foldLogs offers what the logs hold and was not offered yet, earlier times first.
func (db *DB) foldLogs() error {
	p := progress{db: db, said: db.o.Clock.Now()}
	for {
		db.backlog, db.crowded = false, false
		var feeds []*feed
		for _, l := range db.logs.all() {
			w := l.Writer()
			if w == db.own && !db.replaying {
				continue // the committer offers its entries
			}
			from, to := max(db.machine.Tip(w).Seq, db.offered[w])+1, l.Durable()
			first, _ := l.Bounds()
			from = max(from, first)
			if from <= to {
				feeds = append(feeds, &feed{log: l, next: from, last: to})
				p.total += to - from + 1
			}
		}
		if len(feeds) == 0 {
			return nil
		}
		before := p.done
		err := mergeLogs(feeds, func(e sigchain.Signed) (bool, error) {
			_, err := db.offer(e)
			if errors.Is(err, fold.ErrFull) {
				db.crowded = true
				return false, nil // the rest of its log has to wait outside
			}
			p.step()
			return true, err
		})
		if err != nil || p.done == before {
			return err
		}
	}
}

// progress says now and then how far a long fold is.
type progress struct {
	db          *DB
	said        time.Time
	done, total uint64
}

func (p *progress) step() {
	if p.done++; p.done%clockEvery != 0 {
		return
	}
	now := p.db.o.Clock.Now()
	p.db.foldMs = now.UnixMilli()
	if now.Sub(p.said) >= sayEvery {
		p.said = now
		p.db.o.Logger.Info("folding the logs", "store", p.db.store.Short(), "entries", p.done, "of", p.total)
	}
}

// offer offers an entry of a log to the machine, applies what enters, and writes
// a round when much has changed.
func (db *DB) offer(e sigchain.Signed) (fold.Effects, error) {
	eff, err := db.machine.Offer(e, db.foldNow())
	if err != nil {
		return eff, err
	}
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	db.offered[w] = max(db.offered[w], e.Seq)
	return eff, db.applyAll(eff, lattice.Hash{})
}

// applyAll applies what has entered, but for the entry with id own, whose effects
// are there.
func (db *DB) applyAll(eff fold.Effects, own lattice.Hash) error {
	db.met = db.met || enrols(eff.Fold)
	if eff.Rebuild {
		return nil // it will all be done again
	}
	for _, f := range eff.Fold {
		if f.Entry.ID == own {
			continue
		}
		if f.Void != nil {
			db.void.Add(1)
			db.o.Logger.Warn("an entry has no effect", "store", db.store.Short(), "author", f.Entry.Author.Short(), "seq", f.Entry.Seq, "err", f.Void)
		}
		if err := db.apply(f); err != nil {
			return fmt.Errorf("fold entry %d of %s: %w", f.Entry.Seq, f.Entry.Author.Short(), err)
		}
		db.tell(f)
	}
	db.publish(eff.Fold)
	return db.replayRound() // not before all of it is applied: the machine keeps it as folded
}

// apply applies one entry that has entered.
func (db *DB) apply(f fold.Folded) error {
	e := f.Entry
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	for i, op := range f.Ops {
		d := state.Dot{Writer: w, Seq: e.Seq, Index: uint32(i)}
		switch op := op.(type) {
		case nil:
			continue
		case *state.Put:
			if db.t.packed != nil {
				if done, err := db.t.pack(op, d, e.Time); err != nil {
					return err
				} else if done {
					continue
				}
			}
		}
		if err := db.t.apply(op, d, e.Time, 0); err != nil {
			return err
		}
	}
	if !clock.Held(clock.Timestamp(e.Time), db.foldNow(), db.o.MaxDrift.Milliseconds()) {
		db.lastTime = max(db.lastTime, e.Time)
	}
	db.unnamed = true
	return nil
}
