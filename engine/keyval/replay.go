package keyval

// This file is about folding logs while nobody else is there: at the start, after
// a failed write, and when everything is folded again. Then rounds are written
// where the folding goes on, larger ones; what scans need to find changes in the
// table is not kept; and what the fold database cannot hold, because it was empty
// when the folding began, is not looked for. Memory is that of DirtyBytes,
// CacheBytes and known, however long the logs are.

const (
	// replayItems is how many changed keys and rows make a round of a replay, if
	// DirtyBytes do not before.
	replayItems = 128 << 10
	// clockEvery is how many entries are folded by one look at the clock.
	clockEvery = 64
)

// foldAll folds what the logs and the proofs of forks hold and was not offered
// yet, writing rounds on the way. Nothing is undecided and no round under way.
func (db *DB) foldAll() error {
	db.foldMs = db.o.Clock.Now().UnixMilli()
	db.replaying, db.t.bulk = true, true
	defer func() {
		db.replaying, db.replayed = false, round{}
		db.t.ordinary()
	}()
	if err := db.foldLogs(); err != nil {
		return err
	}
	return db.offerForks()
}

// foldNow returns the wall clock's ms for the entry that is folded.
func (db *DB) foldNow() int64 {
	if db.replaying {
		return db.foldMs
	}
	return db.nowMs()
}

// replayRound writes a round, in a replay, when enough has changed. A crash leaves
// the fold database as it was after this round or one before; the next start goes
// on from there.
func (db *DB) replayRound() error {
	t := db.t
	if !db.replaying || len(t.dirty) < replayItems && t.bytes < db.o.DirtyBytes {
		return nil
	}
	r := db.takeRound(nil)
	if err := db.writeRound(r); err != nil {
		return err
	}
	t.written(r)
	clear(r.keys) // the table may forget what they name
	clear(r.subs)
	db.replayed.keys, db.replayed.subs = r.keys, r.subs
	return nil
}

// ordinary ends bulk: what changed and is not written is put where scans look for
// it, and kept there from now on.
func (t *table) ordinary() {
	t.bulk, t.absent, t.buf = false, nil, nil
	for _, it := range t.dirty {
		if s := it.s; s != nil {
			t.relist(s, listing{})
		} else if e := it.e; e.dirty != 0 && !e.absent() {
			e.m.created.set(e.name, e)
		}
	}
}
