package keyval

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/storage/kv"
)

// round is what goes into the fold database in one batch: everything that changed
// since the round before, as it was when group had been built, and what the fold machine keeps. The
// machine had not seen the group yet: after a crash it is folded once more, on
// top of itself, which changes nothing.
type round struct {
	n      uint64
	group  *group // must be durable first; nil: everything is
	keys   []takenKey
	subs   []takenSub
	packed *packed // in a replay: what is dirty of it belongs to the round, too
	maps   []takenMap
	fold   []fold.Record

	// Who waits for the fold database as this round leaves it, and what that is.
	wanted   []*request
	names    []string
	frontier state.Frontier
}

type takenKey struct {
	e     *entry
	k     keyState
	wiped [state.Kinds]bool
}

type takenSub struct {
	s   *sub
	row state.Row
}

type takenMap struct {
	m   *mapInfo
	len int64
}

// before reports whether everything in r was decided before g.
func (r *round) before(g *group) bool { return r.group == nil || r.group.id < g.id }

const (
	// roundItems is how many changed keys and rows make a round. What is changed again
	// meanwhile is written once; who scans has to put as many in order.
	roundItems = 65_536
	// roundParts of DirtyBytes likewise.
	roundParts = 2
	// writtenItems is how many of them are noted as written at a time, while others wait.
	writtenItems = 2048
)

// gather hands a round to the goroutine that writes them, if there is one to be
// written and none under way. What the table holds must be the effects of g and
// what was decided before, nil for just that. db.mu is held.
func (db *DB) gather(g *group) {
	if db.flying != nil || db.broken != nil || db.changing {
		return
	}
	// Who wants the state gets what is known of the logs with it: that changes without rows, too.
	if len(db.t.dirty) == 0 && g == nil && (len(db.wanted) == 0 || !db.machine.Changed()) {
		db.answer(db.wanted, db.t.mapNames(), db.machine.Frontier(), nil)
		db.wanted = nil
		return
	}
	if len(db.wanted) == 0 && len(db.t.dirty) < roundItems && db.t.bytes < db.o.DirtyBytes/roundParts && !db.due {
		if !db.timer {
			db.timer = true
			db.o.Clock.AfterFunc(db.o.RoundEvery, func() {
				db.mu.Lock()
				db.due, db.timer = true, false
				db.mu.Unlock()
				db.kick()
			})
		}
		return
	}
	db.due = false
	db.flying = db.takeRound(g)
	db.rounds <- db.flying // has room: there is one at a time
}

// takeRound collects what changed, and begins the next round.
func (db *DB) takeRound(g *group) *round {
	t := db.t
	r := &round{n: t.round, group: g}
	r.keys, r.subs = db.replayed.keys[:0], db.replayed.subs[:0]
	db.replayed = round{}
	if t.bulk {
		r.packed = t.packed
	}
	for _, it := range t.dirty {
		if s := it.s; s != nil {
			if s.dirty == r.n && s.taken != r.n && s.attached() {
				s.taken = r.n
				r.subs = append(r.subs, takenSub{s, s.row})
			}
			continue
		}
		e := it.e
		if e.dirty != r.n || e.taken == r.n {
			continue
		}
		e.taken = r.n
		k := takenKey{e: e, k: e.keyState}
		for _, kind := range subKinds {
			k.wiped[kind] = e.subs[kind] != nil && e.subs[kind].wiped == r.n
		}
		r.keys = append(r.keys, k)
	}
	for _, m := range t.byID {
		if m.dirty == r.n {
			r.maps = append(r.maps, takenMap{m, m.len})
		}
	}
	r.fold = db.machine.Changes()
	if db.replaying {
		// Who waits for the state as it is, waits on: it is not that state yet.
	} else if r.wanted, db.wanted = db.wanted, nil; len(r.wanted) > 0 {
		if r.names, r.frontier = t.mapNames(), db.machine.Frontier(); g != nil {
			r.frontier[db.own] = g.seq
		}
	}
	t.round++
	t.bytes = 0
	clear(t.dirty)
	t.dirty = t.dirty[:0]
	return r
}

// flushRounds is how long rounds stay in the fold database's memory. They would until
// that is full, which takes hours when little is written: memory that grows all that
// time, and entries that a restart after a crash folds again.
const flushRounds = time.Minute

// writeRounds writes rounds until there will be no more.
func (db *DB) writeRounds() {
	flushed := db.o.Clock.Now()
	for r := range db.rounds {
		if r.group != nil {
			<-r.group.done
			if r.group.err != nil {
				db.answer(r.wanted, nil, nil, r.group.err)
				continue // its effects were dropped
			}
		}
		err := db.writeRound(r)
		if now := db.o.Clock.Now(); err == nil && now.Sub(flushed) >= flushRounds {
			flushed = now
			if err := db.kv.FlushSoon(); err != nil {
				db.o.Logger.Warn("the fold database was not flushed", "store", db.store.Short(), "err", err)
			}
		}
		db.answer(r.wanted, r.names, r.frontier, err)
		db.mu.Lock()
		db.endRound(r, err)
		db.mu.Unlock()
		clear(r.keys) // the table may forget what they name
		clear(r.subs)
		db.mu.Lock()
		db.reuse(r)
		db.mu.Unlock()
	}
}

// reuse has a later round use the memory of one that is written, and was cleared.
// db.mu is held.
func (db *DB) reuse(r *round) {
	if cap(r.keys)+cap(r.subs) > cap(db.replayed.keys)+cap(db.replayed.subs) {
		db.replayed.keys, db.replayed.subs = r.keys[:0], r.subs[:0]
	}
}

// endRound notes that r is in the fold database, or that nothing can be. db.mu is
// held, but for moments, in which others go on: what is not noted yet is still
// looked for in the table.
func (db *DB) endRound(r *round, err error) {
	if err != nil {
		db.broken = lattice.E(lattice.Storage, fmt.Errorf("write to the fold database: %w", err))
		db.o.Logger.Error("the store takes no writes until it is opened again", "store", db.store.Short(), "err", db.broken)
	} else {
		db.t.written(r, func() {
			db.mu.Unlock()
			db.mu.Lock()
		})
	}
	db.flying = nil
	db.kick()
	db.room.Broadcast()
}

// writeRound writes one batch: effects and positions, all or nothing. What it
// holds is in the logs, and is made durable there first: a fold database is never
// ahead of them.
func (db *DB) writeRound(r *round) error {
	if db.o.Durability != signedlog.Fsync {
		if err := db.logs.flush(); err != nil {
			return err
		}
	}
	b := db.kv.Batch()
	w := rowWriter{db: db, b: b}
	for k := range r.keysInOrder {
		if err := w.writeKey(k); err != nil {
			return err
		}
	}
	if r.packed != nil {
		r.packed.write(w.writePacked)
	}
	for s := range r.subsInOrder {
		w.writeSub(s)
	}
	for s := range r.scoresInOrder {
		w.writeScore(s)
	}
	for _, m := range r.maps {
		x := mapInfo{id: m.m.id, len: m.len}
		b.Set(append([]byte{tagMap}, m.m.name...), x.appendTo(nil))
	}
	for _, x := range r.fold {
		k := append([]byte{tagFold}, x.Key...)
		if len(x.Value) == 0 {
			b.Delete(k)
		} else {
			b.Set(k, x.Value)
		}
	}
	return db.commitRows(b)
}

// commitRows commits a batch, together with the numbers of writers that it may be
// the first to use. Call it when the batch is complete.
func (db *DB) commitRows(b *kv.Batch) error {
	list := *db.writers.list.Load()
	for n := int(db.writers.saved.Load()); n < len(list); n++ {
		b.Set(writerKey(uint32(n)), appendWriter(nil, list[n]))
	}
	if err := db.kv.Commit(b, false); err != nil {
		return err
	}
	db.writers.know(len(list))
	return nil
}

// rowWriter puts keys and rows into a batch. Keys and values that it makes are
// good until the next.
type rowWriter struct {
	db         *DB
	b          *kv.Batch
	key, value []byte // scratch
}

func (w *rowWriter) writeKey(x *takenKey) error {
	e, b, t := x.e, w.b, w.db.t
	for _, k := range subKinds {
		if !x.wiped[k] {
			continue
		}
		if err := w.db.kv.DeleteAll(b, rowPrefix(nil, e.inner, k)); err != nil {
			return err
		}
		if k == state.Scored {
			if err := w.db.kv.DeleteAll(b, scorePrefix(nil, e.inner)); err != nil {
				return err
			}
		}
	}
	at, expires := x.k.expiresAt()
	if e.expires && (!expires || at != e.expireAt) {
		b.Delete(expiryKey(nil, e.expireAt, e.inner))
	}
	if expires && (!e.expires || at != e.expireAt) {
		b.Set(expiryKey(nil, at, e.inner), nil)
	}
	apart := len(x.k.register) > 0 && x.k.apart()
	if e.apart && !apart {
		b.Delete(rowPrefix(nil, e.inner, state.Register))
	}
	if apart {
		w.value = t.codec.appendRow(w.value[:0], x.k.register)
		b.Set(rowPrefix(nil, e.inner, state.Register), w.value)
	}
	w.key = recordKey(w.key[:0], e.inner)
	switch {
	case !x.k.absent():
		w.value = t.codec.appendKey(w.value[:0], &x.k)
		b.Set(w.key, w.value)
		w.known(w.key)
	case e.stored:
		b.Delete(w.key)
	}
	return nil
}

// known notes that the fold database will hold something of that name. When others
// may be reading, written does.
func (w *rowWriter) known(name []byte) {
	if t := w.db.t; t.bulk && t.absent != nil {
		t.absent.add(t.hash(name))
	}
}

func (w *rowWriter) writePacked(x *packedKey) {
	t := w.db.t
	w.value = t.codec.appendPacked(w.value[:0], t.packed, x)
	w.b.Set(t.packed.nameOf(x), w.value)
	t.absent.add(x.hash)
}

func (w *rowWriter) writeSub(x *takenSub) {
	s, t := x.s, w.db.t
	w.key = rowKey(w.key[:0], s)
	switch {
	case len(x.row) > 0:
		w.value = t.codec.appendRow(w.value[:0], x.row)
		w.b.Set(w.key, w.value)
		w.known(w.key)
	case s.stored:
		w.b.Delete(w.key)
	}
}

// writeScore keeps a sorted set's members by score in step with its rows.
func (w *rowWriter) writeScore(x *takenSub) {
	s := x.s
	at := func(score state.Score) []byte {
		w.key = binary.BigEndian.AppendUint64(scorePrefix(w.key[:0], s.e.inner), uint64(score))
		w.key = append(w.key, s.name...)
		return w.key
	}
	score, scored := scoreOf(s.kind, x.row)
	if s.scored && (!scored || score != s.score) {
		w.b.Delete(at(s.score))
	}
	if scored && (!s.scored || score != s.score) {
		w.b.Set(at(score), nil)
	}
}

// know notes that the fold database holds something of a name. Until here it was
// dirty, so nobody has looked for it there. DB.mu is held.
func (t *table) know(name func([]byte) []byte) {
	if t.absent == nil || t.bulk {
		return
	}
	var room [96]byte
	t.absent.add(t.hash(name(room[:0])))
}

// written notes that a round is in the fold database. DB.mu is held; pause may let
// others have it.
func (t *table) written(r *round, pause func()) {
	// Keys first: who looks for a row that the table forgot has to know that its key is stored.
	var gone []*entry
	for i := range r.keys {
		x := &r.keys[i]
		if t.keyWritten(x, r.n); x.e.absent() {
			gone = append(gone, x.e)
		}
		if i%writtenItems == writtenItems-1 {
			pause()
		}
	}
	var kinds []*subRows
	for i, x := range r.subs {
		if rows := t.rowWritten(x, r.n); rows != nil && rows.swept != r.n {
			rows.swept = r.n
			kinds = append(kinds, rows)
		}
		if i%writtenItems == writtenItems-1 {
			pause()
		}
	}
	for _, rows := range kinds {
		rows.forgetWritten()
	}
	for _, e := range gone { // and their rows with them
		if e.dirty == 0 && e.absent() && !e.gone && !slices.ContainsFunc(e.subs[:], func(x *subRows) bool { return x != nil && (x.wiped != 0 || len(x.rows) > 0) }) {
			t.drop(e.shard, item{e: e})
		}
	}
	for _, x := range r.maps {
		x.m.forgetWritten()
	}
	for _, rows := range t.wiped {
		for _, s := range rows {
			if !s.gone && !s.attached() { // else the wiping was undone
				t.drop(s.e.shard, item{s.e, s})
			}
		}
	}
	t.wiped = nil
}

// keyWritten notes that round n has written a key.
func (t *table) keyWritten(x *takenKey, n uint64) {
	e := x.e
	if is := !x.k.absent(); is != e.stored {
		if is {
			t.know(func(b []byte) []byte { return recordKey(b, e.inner) })
		}
		e.stored = is
	}
	e.apart = len(x.k.register) > 0 && x.k.apart()
	e.expireAt, e.expires = x.k.expiresAt()
	if e.dirty == n {
		e.dirty = 0
	}
	for _, k := range subKinds {
		if rows := e.subs[k]; rows != nil && rows.wiped == n {
			rows.wiped = 0
		}
	}
	if e.dirty == 0 {
		t.relistKey(e)
	}
}

// rowWritten is keyWritten for a row, which leaves the table if it was found gone and
// nobody has made it again since: rather look for it in vain than be full of what was.
// It returns the rows of its kind.
func (t *table) rowWritten(x takenSub, n uint64) *subRows {
	s := x.s
	if is := len(x.row) > 0; is != s.stored {
		if is {
			t.know(func(b []byte) []byte { return rowKey(b, s) })
		}
		s.stored = is
	}
	s.score, s.scored = scoreOf(s.kind, x.row)
	if s.dirty == n {
		s.dirty = 0
	}
	t.relist(s)
	rows := s.e.subs[s.kind]
	if s.dirty == 0 && len(s.row) == 0 && !s.gone && s.attached() {
		t.drop(s.e.shard, item{s.e, s})
	}
	return rows
}
