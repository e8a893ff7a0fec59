package keyval

// This file is about folding logs while nobody else is there: at the start, after
// a failed write, and when everything is folded again. Then rounds are written
// where the folding goes on, larger ones; what scans need to find changes in the
// table is not kept; keys that are one value are packed; and what the fold database
// cannot hold, because it was empty when the folding began, is not looked for. An
// empty one is opened for loading, if there is much to be folded. Memory is that of
// DirtyBytes, CacheBytes and known, however long the logs are.

const (
	// replayItems is how many changed keys and rows make a round of a replay, if
	// their bytes do not before. Packed keys do not count.
	replayItems = 128 << 10
	// replayBytes likewise.
	replayBytes = 32 << 20
	// replayCache is how much of CacheBytes is used: more than is written next only costs
	// the collector.
	replayCache = 64 << 20
	// clockEvery is how many entries are folded by one look at the clock.
	clockEvery = 64
	// loadLeast is the least size of logs for which a fold database is opened for
	// loading.
	loadLeast = 8 << 20
	// packedLeast and packedMost bound what packed keys take, whatever CacheBytes says.
	packedLeast, packedMost = 16 << 10, 1 << 30
)

// foldAll folds what the logs and the proofs of forks hold and was not offered
// yet, writing rounds on the way. Nothing is undecided and no round under way.
func (db *DB) foldAll() error {
	if db.t.absent.empty() && db.logs.size() >= loadLeast {
		if err := db.reopenKV(true); err != nil {
			return err
		}
	}
	err := db.replay()
	if db.loading && err == nil {
		err = db.reopenKV(false)
	}
	return err
}

func (db *DB) replay() error {
	db.foldMs = db.o.Clock.Now().UnixMilli()
	t := db.t
	db.replaying, t.bulk, t.packed = true, true, newPacked()
	limit := t.limit
	t.limit = min(limit, replayCache)
	defer func() {
		t.limit = limit
		db.replaying, db.replayed = false, round{}
		t.ordinary()
	}()
	if err := db.foldLogs(); err != nil {
		return err
	}
	if err := db.offerForks(); err != nil {
		return err
	}
	if len(t.packed.dirty) == 0 || db.machine.Stale() { // then all of it goes
		return nil
	}
	return db.replayRoundNow()
}

// foldNow returns the wall clock's ms for the entry that is folded.
func (db *DB) foldNow() int64 {
	if db.replaying {
		return db.foldMs
	}
	return db.nowMs()
}

// replayRound writes a round, in a replay, when enough has changed.
func (db *DB) replayRound() error {
	t := db.t
	if !db.replaying || len(t.dirty) < replayItems && t.bytes < min(db.o.DirtyBytes, replayBytes) && !t.packedFull() {
		return nil
	}
	return db.replayRoundNow()
}

// replayRoundNow writes a round. A crash leaves the fold database as it was after
// this round or one before; the next start goes on from there.
func (db *DB) replayRoundNow() error {
	t := db.t
	r := db.takeRound(nil)
	if err := db.writeRound(r); err != nil {
		return err
	}
	t.written(r, func() {})
	clear(r.keys) // the table may forget what they name
	clear(r.subs)
	db.reuse(r)
	if t.packedFull() {
		t.packed.reset()
	}
	return nil
}

// packedFull reports whether no more keys should be packed.
func (t *table) packedFull() bool {
	return t.packed.size() > min(max(t.limit/2, packedLeast), packedMost)
}

// ordinary ends bulk: what changed and is not written is put where scans look for
// it, and kept there from now on. Packed keys are forgotten.
func (t *table) ordinary() {
	if t.packed.n > 0 {
		// What was seen of such keys before must not be taken for what they are now.
		t.renew()
	}
	t.bulk, t.packed, t.packedMap, t.buf, t.payload = false, nil, nil, nil, nil
	for _, it := range t.dirty {
		if it.s != nil {
			t.relist(it.s)
		} else {
			t.relistKey(it.e)
		}
	}
}
