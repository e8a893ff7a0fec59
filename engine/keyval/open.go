package keyval

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// Open opens a store's state, or makes it. It folds what the logs hold beyond the
// fold database; when that is missing, of another version, or ahead of the logs,
// it is made again from the first entry. Progress goes to the logger.
func Open(o Options) (*DB, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	db := &DB{
		o: o, store: o.Genesis.Home(), own: state.Writer{Author: o.Key.Author(), Incarnation: o.Incarnation},
		work: make(chan struct{}, 1), rounds: make(chan *round, 1), jobs: make(chan *rootJob, 1),
	}
	db.room.L = &db.mu
	db.logs = &logs{o: &db.o, store: db.store, list: map[state.Writer]*authorlog.Log{}}
	err := errors.Join(db.logs.clean(), db.openBase())
	if err == nil {
		err = db.openLogs()
	}
	if err == nil {
		err = db.keptBelow()
	}
	if err == nil {
		err = db.openState()
	}
	if err == nil {
		_, err = db.dropBelow(false) // what a crash left
	}
	if err != nil {
		err = errors.Join(err, db.logs.close())
		if db.kv != nil {
			err = errors.Join(err, db.kv.Close())
		}
		return nil, fmt.Errorf("open the state of store %s: %w", db.store.Short(), err)
	}
	return db, nil
}

// openLogs opens what is there of author logs, and puts the genesis entry into
// its author's if it is not there.
func (db *DB) openLogs() error {
	ws, err := authorlog.List(db.o.FS, db.logs.dir())
	if err != nil {
		return err
	}
	below := map[state.Writer]fold.Chain{}
	if db.base != nil {
		for c := range db.base.m.Chains {
			below[c.Writer] = c
			ws = append(ws, authorlog.Start{Writer: c.Writer})
		}
	}
	for _, w := range ws {
		if w.Author == db.own.Author && w.Incarnation >= db.own.Incarnation {
			return lattice.E(lattice.Invalid, fmt.Errorf("incarnation %d is not greater than %d, which has written entries", db.own.Incarnation, w.Incarnation))
		}
	}
	for _, w := range ws[:len(ws)-len(below)] {
		if old := db.logs.get(w.Writer); old != nil { // it ended below the base, where this one begins
			if err := db.logs.remove(old); err != nil {
				return err
			}
		}
		after := sigchain.Link{}
		if w.After > 0 {
			if after = below[w.Writer].Tip; after.Seq != w.After { // an empty log of it goes
				after = sigchain.Link{Incarnation: w.Incarnation, Seq: w.After}
			}
		}
		if _, err := db.logs.openBehind(w.Writer, after, below[w.Writer].Time); err != nil {
			return err
		}
	}
	g := db.o.Genesis
	if below[state.Writer{Author: g.Author, Incarnation: g.Incarnation}].Tip.Seq > 0 {
		return nil
	}
	l, err := db.logs.open(state.Writer{Author: g.Author, Incarnation: g.Incarnation})
	if err != nil {
		return err
	}
	if tip, _ := l.Tip(); !tip.IsZero() {
		return nil
	}
	if err := g.Verify(); err != nil {
		return err
	}
	return errors.Join(l.Append(g), l.Flush())
}

func (db *DB) stateDir() string { return db.o.FS.PathJoin(db.o.Dir, "state") }

// openState opens the fold database and brings it up to the logs.
func (db *DB) openState() error {
	fits, err := db.openKV()
	if err == nil && fits {
		if err = db.load(); err == nil {
			fits, err = db.onBase()
		}
		fits = fits && err == nil && !db.ahead()
	}
	// A missing file is damage, too: what pebble renames in a power cut may lose.
	if k := lattice.KindOf(err); err != nil && k != lattice.Corrupt && k != lattice.Unsupported && !disk.IsNotExist(err) {
		return err
	}
	if err != nil || !fits {
		db.o.Logger.Warn("making the state again from the logs and the snapshot below them", "store", db.store.Short(), "err", err)
		if err := db.checkBase(); err != nil {
			return err
		}
		if err := db.dropKV(); err != nil {
			return err
		}
		if err := db.begin(nil); err != nil {
			return err
		}
	}
	if err := db.catchUp(); err != nil {
		return err
	}
	db.watchClock()
	if err := db.openNotice(); err != nil {
		return err
	}
	db.meet()
	return db.find()
}

// dropKV makes the fold database empty.
func (db *DB) dropKV() error {
	db.using.Lock()
	defer db.using.Unlock()
	if db.kv != nil {
		if err := db.kv.Close(); err != nil {
			db.o.Logger.Debug("the fold database that goes did not close", "err", err)
		}
		db.kv = nil
	}
	db.loading = false
	if err := db.o.FS.RemoveAll(db.stateDir()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remove the fold database: %w", err))
	}
	db.writers = nil
	_, err := db.openKV()
	return err
}

// openKV opens the fold database. It does not fit if it is of another version of
// the layout, or of another store.
func (db *DB) openKV() (fits bool, err error) {
	db.kv, err = kv.Open(db.o.FS, db.stateDir(), kv.Options{
		Logger: db.o.Logger, CacheBytes: db.o.BlockCache, NoJournal: true, MemoryBytes: 32 << 20, Filters: true, Loading: db.loading,
	})
	if err != nil {
		return false, err
	}
	want := append([]byte{layoutVersion}, db.store[:]...)
	v, ok, err := db.kv.Get([]byte{tagVersion})
	if err != nil {
		return false, err
	}
	// What version 1 wrote is read as it is. The new number goes in before anything that
	// version 1 would not read, and reaches the disk with it or before it.
	before := append([]byte{1}, db.store[:]...)
	if ok && !slices.Equal(v, before) {
		return slices.Equal(v, want), nil
	}
	b := db.kv.Batch()
	b.Set([]byte{tagVersion}, want)
	return true, db.kv.Commit(b, false)
}

// reopenKV opens the fold database again, to be loaded or not: what was committed is
// durable then. Only who folds is there.
func (db *DB) reopenKV(loading bool) error {
	db.using.Lock()
	defer db.using.Unlock()
	if err := db.kv.Close(); err != nil {
		return err
	}
	db.loading = loading
	closed := db.kv
	if _, err := db.openKV(); err != nil {
		if db.kv == nil {
			db.kv = closed // which says so
		}
		return err
	}
	db.t.db = db.kv
	return nil
}

// load reads what is needed of the fold database before anything else, and makes
// an empty table.
func (db *DB) load() error {
	if db.writers == nil {
		db.writers = newWriters()
	}
	err := db.kv.Iterate([]byte{tagWriter}, func(k, v []byte) error {
		id, w, err := parseWriter(k, v)
		if err != nil {
			return err
		}
		if n := db.writers.number(w); n != id {
			return corrupt("writer %d has number %d", id, n)
		}
		db.writers.know(int(id) + 1)
		return nil
	})
	if err != nil {
		return err
	}
	if err := db.restoreFold(); err != nil {
		return err
	}
	t := newTable(db.kv, db.writers, db.o.CacheBytes)
	if old := db.t; old != nil { // what was seen of it must not be taken for what is now
		t.version.Store(old.version.Load())
		t.renew()
	}
	db.t = t
	empty := true
	for _, tag := range []byte{tagKey, tagRow} {
		err := db.kv.Iterate([]byte{tag}, func([]byte, []byte) error {
			empty = false
			return kv.ErrStop
		})
		if err != nil {
			return err
		}
	}
	if empty {
		t.absent = newKnown(db.logs.size())
	}
	return t.loadMaps()
}

// renew gives all keys that are not in the table another version.
func (t *table) renew() {
	v := t.version.Add(1)
	for i := range t.shards {
		for j := range t.shards[i].versions {
			t.shards[i].versions[j] = v
		}
	}
}

func (t *table) loadMaps() error {
	var maps []*mapInfo
	err := t.db.Iterate([]byte{tagMap}, func(k, v []byte) error {
		id, n := binary.Uvarint(v)
		size, n2 := binary.Uvarint(v[max(n, 0):])
		if n <= 0 || n2 <= 0 || n+n2 != len(v) || id > 1<<31 {
			return corrupt("map %q", k[1:])
		}
		maps = append(maps, &mapInfo{id: uint32(id), name: string(k[1:]), len: int64(size)})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(maps, func(a, b *mapInfo) int { return int(a.id) - int(b.id) })
	for i, m := range maps {
		if int(m.id) != i {
			return corrupt("map %q has number %d, want %d", m.name, m.id, i)
		}
		t.maps[m.name] = m
	}
	t.byID = maps
	return nil
}

// ahead reports whether the fold database has folded what no log holds: logs were
// lost, or put back from a backup.
func (db *DB) ahead() bool {
	below := db.machine.Base()
	for _, w := range *db.writers.list.Load() {
		tip := db.machine.Tip(w)
		if tip.Seq <= below[w] {
			continue
		}
		l := db.logs.get(w)
		if l == nil {
			return true
		}
		if _, last := l.Bounds(); tip.Seq > last {
			return true
		}
		if e, err := l.Read(tip.Seq); err == nil && e.ID != tip.ID {
			return true
		}
	}
	return false
}

// find finds where this incarnation goes on from. db.mu is held, or nobody else
// is there yet.
func (db *DB) find() error {
	db.nextSeq, db.unnamed, db.before = 0, true, sigchain.Link{}
	now, drift := db.nowMs(), db.o.MaxDrift.Milliseconds()
	if l := db.logs.get(db.own); l != nil {
		_, db.nextSeq = l.Bounds()
	}
	db.findBefore()
	for c := range db.machine.Chains {
		if !clock.Held(clock.Timestamp(c.Time), now, drift) {
			db.lastTime = max(db.lastTime, c.Time)
		}
	}
	db.o.Observe(db.lastTime)
	return nil
}

// findBefore finds what this incarnation's first entry follows: the last of the newest
// start that can count. db.mu is held, or nobody else is there yet.
func (db *DB) findBefore() {
	for c := range db.machine.Chains {
		if w := c.Writer; w.Author == db.own.Author && w.Incarnation < db.own.Incarnation && w.Incarnation > db.before.Incarnation && db.machine.Valid(sigchain.Place{Author: w.Author, Incarnation: w.Incarnation, Seq: c.Tip.Seq}) {
			db.before = c.Tip
		}
	}
}

// restoreFold makes the machine that decides what is folded, as the fold database
// has it.
func (db *DB) restoreFold() error {
	var records []fold.Record
	err := db.kv.Iterate([]byte{tagFold}, func(k, v []byte) error {
		records = append(records, fold.Record{Key: slices.Clone(k[1:]), Value: slices.Clone(v)})
		return nil
	})
	if err != nil {
		return err
	}
	db.machine, err = fold.Restore(db.foldConfig(), slices.Values(records))
	db.offered = map[state.Writer]uint64{}
	return err
}
