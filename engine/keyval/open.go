package keyval

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
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
		o: o, own: state.Writer{Author: o.Key.Author(), Incarnation: o.Incarnation},
		work: make(chan struct{}, 1), rounds: make(chan *round, 1),
	}
	db.room.L = &db.mu
	db.logs = &logs{o: &db.o, list: map[state.Writer]*authorlog.Log{}}
	err := db.openLogs()
	if err == nil {
		err = db.openState()
	}
	if err != nil {
		err = errors.Join(err, db.logs.close())
		if db.kv != nil {
			err = errors.Join(err, db.kv.Close())
		}
		return nil, fmt.Errorf("open the state of store %s: %w", o.Store.Short(), err)
	}
	return db, nil
}

// openLogs opens what is there of author logs.
func (db *DB) openLogs() error {
	ws, err := authorlog.List(db.o.FS, db.logs.dir())
	if err != nil {
		return err
	}
	for _, w := range ws {
		if w.Author == db.own.Author && w.Incarnation >= db.own.Incarnation {
			return lattice.E(lattice.Invalid, fmt.Errorf("incarnation %d is not greater than %d, which has written entries", db.own.Incarnation, w.Incarnation))
		}
		l, err := db.logs.open(w)
		if err != nil {
			return err
		}
		if tip, _ := l.Tip(); w.Author == db.own.Author && tip.Incarnation > db.before.Incarnation {
			db.before = tip
		}
	}
	return nil
}

func (db *DB) stateDir() string { return db.o.FS.PathJoin(db.o.Dir, "state") }

// openState opens the fold database and brings it up to the logs.
func (db *DB) openState() error {
	fits, err := db.openKV()
	if err == nil && fits {
		if err = db.load(); err == nil {
			fits = !db.ahead()
		}
	}
	if err != nil && lattice.KindOf(err) != lattice.Corrupt && lattice.KindOf(err) != lattice.Unsupported {
		return err
	}
	if err != nil || !fits {
		db.o.Logger.Warn("making the state again from the logs", "store", db.o.Store.Short(), "err", err)
		if db.kv != nil {
			_ = db.kv.Close() // it goes
			db.kv = nil
		}
		if err := db.o.FS.RemoveAll(db.stateDir()); err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("remove the fold database: %w", err))
		}
		if _, err := db.openKV(); err != nil {
			return err
		}
		if err := db.load(); err != nil {
			return err
		}
	}
	return db.catchUp()
}

// openKV opens the fold database. It does not fit if it is of another version of
// the layout, or of another store.
func (db *DB) openKV() (fits bool, err error) {
	db.kv, err = kv.Open(db.o.FS, db.stateDir(), kv.Options{
		Logger: db.o.Logger, CacheBytes: db.o.BlockCache, NoJournal: true, MemoryBytes: 32 << 20, Filters: true,
	})
	if err != nil {
		return false, err
	}
	want := append([]byte{layoutVersion}, db.o.Store[:]...)
	v, ok, err := db.kv.Get([]byte{tagVersion})
	if err != nil || ok {
		return slices.Equal(v, want), err
	}
	b := db.kv.Batch()
	b.Set([]byte{tagVersion}, want)
	return true, db.kv.Commit(b, false)
}

// load reads what is needed of the fold database before anything else, into an
// empty table.
func (db *DB) load() error {
	if db.writers == nil {
		db.writers = newWriters()
	}
	db.tips, db.moved = map[state.Writer]*tip{}, map[state.Writer]bool{}
	err := db.kv.Iterate([]byte{tagWriter}, func(k, v []byte) error {
		w, err := parseWriter(k, v)
		if err != nil {
			return err
		}
		if n := db.writers.number(w.writer); n != w.id {
			return corrupt("writer %d has number %d", w.id, n)
		}
		db.writers.saved = max(db.writers.saved, int(w.id)+1)
		db.tips[w.writer] = &tip{writerInfo: w}
		return nil
	})
	if err != nil {
		return err
	}
	t := newTable(db.kv, db.writers, db.o.CacheBytes)
	if old := db.t; old != nil { // what was seen of it must not be taken for what is now
		t.version.Store(old.version.Add(1))
		for i := range t.shards {
			for j := range t.shards[i].versions {
				t.shards[i].versions[j] = t.version.Load()
			}
		}
	}
	db.t = t
	return t.loadMaps()
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
	for w, t := range db.tips {
		if t.tip.IsZero() {
			continue
		}
		l := db.logs.get(w)
		if l == nil {
			return true
		}
		if _, last := l.Bounds(); t.tip.Seq > last {
			return true
		}
		if e, err := l.Read(t.tip.Seq); err == nil && e.ID != t.tip.ID {
			return true
		}
	}
	return false
}

// reset makes the table again from the fold database and the logs. db.mu is held,
// nothing is undecided and no round under way.
func (db *DB) reset() error {
	if err := db.load(); err != nil {
		return err
	}
	return db.catchUp()
}

// catchUp folds what the logs hold, acknowledged, beyond what is folded. db.mu is
// held, or nobody else is there yet; nothing is undecided and no round under way.
func (db *DB) catchUp() error {
	var feeds []*feed
	total := uint64(0)
	for _, l := range db.logs.all() {
		from, to := db.tip(l.Writer()).tip.Seq+1, l.Durable()
		if from <= to {
			feeds = append(feeds, &feed{log: l, next: from, last: to})
			total += to - from + 1
		}
	}
	done, said := uint64(0), db.o.Clock.Now()
	err := mergeLogs(feeds, func(e sigchain.Signed) error {
		if err := db.fold(e); err != nil {
			return fmt.Errorf("fold entry %d of %s: %w", e.Seq, e.Author.Short(), err)
		}
		done++
		if now := db.o.Clock.Now(); now.Sub(said) >= sayEvery {
			said = now
			db.o.Logger.Info("folding the logs", "store", db.o.Store.Short(), "entries", done, "of", total)
		}
		if len(db.t.dirty) < roundItems && db.t.bytes < db.o.DirtyBytes/roundParts {
			return nil
		}
		r := db.takeRound(nil)
		if err := db.writeRound(r); err != nil {
			return err
		}
		db.t.written(r)
		return nil
	})
	if err != nil {
		return err
	}
	if l := db.logs.get(db.own); l != nil {
		_, db.nextSeq = l.Bounds()
	} else {
		db.nextSeq = 0
	}
	for w, t := range db.tips {
		db.lastTime = max(db.lastTime, t.time)
		if w != db.own && t.tip.Seq > 0 {
			db.moved[w] = true // the first entry from here on names all there is
		}
	}
	db.o.Observe(db.lastTime)
	return nil
}

// fold applies the operations of an entry that comes next, all or none.
func (db *DB) fold(e sigchain.Signed) error {
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	ops := make([]state.Op, len(e.Ops))
	for i, op := range e.Ops {
		if !state.IsOp(op.Kind) {
			continue
		}
		var err error
		if ops[i], err = state.ParseOp(op, w); err != nil {
			ops = nil // malformed: without effect, everywhere
			break
		}
	}
	for i, op := range ops {
		if op == nil {
			continue
		}
		if err := db.t.apply(op, state.Dot{Writer: w, Seq: e.Seq, Index: uint32(i)}, e.Time, 0); err != nil {
			return err
		}
	}
	db.tip(w).advance(e.Link(), e.Time)
	db.lastTime = max(db.lastTime, e.Time)
	return nil
}

// takeParents returns the tips of the other writers that have moved since they
// were last named. db.mu is held.
func (db *DB) takeParents() []sigchain.Ref {
	out := make([]sigchain.Ref, 0, len(db.moved))
	for w := range db.moved {
		out = append(out, sigchain.Ref{Author: w.Author, Link: db.tip(w).tip})
	}
	clear(db.moved)
	return out
}
