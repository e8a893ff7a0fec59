package keyval

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// The base is the snapshot that the state begins from; logs are pruned below it.
//
//	<store>/snapshots/base    the base; without one the state begins from nothing
//
// The fold database may be deleted all the same: it is made again from the base and
// what the logs hold beyond. What it was made from is noted in it:
//
//	"B"    sum of the base's content, 32
const tagBase = 'B'

func snapshotsDir(fs disk.FS, dir string) string { return fs.PathJoin(dir, "snapshots") }

// BasePath returns where the base of a store in dir is, if it has one.
func BasePath(fs disk.FS, dir string) string { return fs.PathJoin(snapshotsDir(fs, dir), "base") }

func (db *DB) basePath() string { return BasePath(db.o.FS, db.o.Dir) }

// base is the open store's base.
type base struct {
	sum lattice.Hash
	m   *fold.Machine // that has folded it, as fold.Found has it
}

// source reads a snapshot: first what comes before its rows, then those.
type source struct {
	f     io.Closer
	r     *snapshot.Reader
	m     *fold.Machine
	forks []sigchain.Signed
	size  int64
	it    snapshot.Item // the next one: a row, or the seal
}

// openSource opens a snapshot and reads up to its first row. What it says of itself
// must fit; its rows, and whether it is whole, are not looked at yet. Kind NotFound,
// Corrupt, NotYet (it is cut), Unsupported, Storage.
func openSource(fs disk.FS, path string, c fold.Config) (*source, error) {
	f, err := fs.Open(path)
	if disk.IsNotExist(err) {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("no snapshot %s", fs.PathBase(path)))
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("open snapshot: %w", err))
	}
	s := &source{f: f}
	info, err := f.Stat()
	if err == nil {
		s.size = info.Size()
		err = s.begin(f, c)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot %s: %w", fs.PathBase(path), err), f.Close())
	}
	return s, nil
}

func (s *source) begin(f io.Reader, c fold.Config) error {
	var err error
	if s.r, err = snapshot.NewReader(bufio.NewReaderSize(f, 1<<20)); err != nil {
		return err
	}
	var places []sigchain.Place
	var records []fold.Record
	for s.it, err = s.r.Next(); err == nil && s.it.Kind < snapshot.KindRows; s.it, err = s.r.Next() {
		switch s.it.Kind {
		case snapshot.KindFrontier:
			places = append(places, s.it.Place)
		case snapshot.KindRecords:
			records = append(records, s.it.Record)
		case snapshot.KindForks:
			s.forks = append(s.forks, s.it.Fork)
		}
	}
	if err != nil {
		return err
	}
	c.Genesis = s.r.Head().Genesis
	if s.m, err = fold.Found(c, slices.Values(records)); err != nil {
		return fmt.Errorf("%w: %w", snapshot.ErrDamaged, err)
	}
	return s.fits(places)
}

// fits reports whether the frontier is what the records have folded.
func (s *source) fits(places []sigchain.Place) error {
	folded := s.m.Base()
	for _, p := range places {
		w := state.Writer{Author: p.Author, Incarnation: p.Incarnation}
		if folded[w] != p.Seq {
			return fmt.Errorf("%w: it says that it reaches to %s, and has folded %d", snapshot.ErrDamaged, p, folded[w])
		}
		delete(folded, w)
	}
	if len(folded) > 0 {
		return fmt.Errorf("%w: it has folded writers that it does not name", snapshot.ErrDamaged)
	}
	return nil
}

// rows yields the rows, and returns the seal. What is in a row must be within what
// was folded.
func (s *source) rows(yield func(state.Address, state.Row) error) (snapshot.Seal, error) {
	folded := s.m.Base()
	for {
		if s.it.Kind == snapshot.KindSignature {
			return s.it.Seal, nil
		}
		for _, h := range s.it.Row {
			if !folded.Covers(h.Dot) || h.Dot.Seq == 0 {
				return snapshot.Seal{}, fmt.Errorf("%w: key %.64q holds a write that it has not folded", snapshot.ErrDamaged, s.it.Address.Key)
			}
		}
		if err := yield(s.it.Address, s.it.Row); err != nil {
			return snapshot.Seal{}, err
		}
		var err error
		if s.it, err = s.r.Next(); err != nil {
			return snapshot.Seal{}, err
		}
	}
}

func (s *source) close() error { return s.f.Close() }

// sumOf reads what stands for the content of a snapshot, from its end.
func sumOf(fs disk.FS, path string) (sum lattice.Hash, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return sum, lattice.E(lattice.Storage, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return sum, lattice.E(lattice.Storage, err)
	}
	return snapshot.SumAt(f, info.Size())
}

// openBase reads the base, if there is one.
func (db *DB) openBase() error {
	s, err := openSource(db.o.FS, db.basePath(), db.foldConfig())
	if lattice.KindOf(err) == lattice.NotFound {
		db.base = nil
		return nil
	}
	if err == nil {
		err = s.close()
	}
	if err == nil && s.r.Head().Store() != db.store {
		err = lattice.E(lattice.Conflict, errors.New("it is of another store"))
	}
	var sum lattice.Hash
	if err == nil {
		sum, err = sumOf(db.o.FS, db.basePath())
	}
	if err != nil {
		return badBase(db.basePath(), err)
	}
	db.base = &base{sum, s.m}
	return nil
}

// badBase says that a base cannot be read.
func badBase(path string, err error) error {
	return lattice.E(lattice.Storage, fmt.Errorf("the snapshot %s, below which entries were pruned, cannot be read: put it back from a backup: %w", path, err))
}

// checkBase reads the base from end to end, before what was made of it is dropped.
func (db *DB) checkBase() error {
	if db.base == nil {
		return nil
	}
	f, err := db.o.FS.Open(db.basePath())
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("open the snapshot below which entries were pruned: %w", err))
	}
	good, all, err := snapshot.Whole(bufio.NewReaderSize(f, 1<<20))
	_ = f.Close()
	if err == nil && !all {
		err = snapshot.ErrCut
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("the snapshot %s, below which entries were pruned, is damaged behind byte %d: put it back from a backup: %w", db.basePath(), good, err))
	}
	return nil
}

// onBase reports whether the fold database was made from the base that is there.
func (db *DB) onBase() (bool, error) {
	v, ok, err := db.kv.Get([]byte{tagBase})
	switch {
	case err != nil:
		return false, err
	case db.base == nil && ok:
		return false, lattice.E(lattice.Storage, fmt.Errorf("the snapshot %s, below which entries were pruned, is missing: put it back from a backup", db.basePath()))
	case db.base == nil:
		return true, nil
	}
	return ok && string(v) == string(db.base.sum[:]) && db.machine.Fix(db.base.m) == nil, nil
}

// begin fills the fold database, which is empty, from the base, and has m, or a new
// machine, begin there. A crash on the way leaves no note of the base in it, so that
// the next start does it again.
func (db *DB) begin(m *fold.Machine) error {
	if db.base == nil {
		if err := db.load(); err != nil || m == nil {
			return err
		}
		m.Reset()
		db.machine = m
		return nil
	}
	if m == nil {
		var err error
		if m, err = fold.New(db.foldConfig()); err != nil {
			return err
		}
	}
	db.writers = newWriters()
	s, err := openSource(db.o.FS, db.basePath(), db.foldConfig())
	if err != nil {
		return lattice.E(lattice.Storage, err)
	}
	l := loader{db: db, b: db.kv.Batch()}
	_, err = s.rows(l.row)
	if err = errors.Join(err, s.close()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("read the base: %w", err))
	}
	m.Rebase(s.m)
	if err := l.finish(m.Changes()); err != nil {
		return err
	}
	if err := db.load(); err != nil {
		return err
	}
	db.machine = m
	return nil
}

// loader writes rows, ascending by address, into an empty fold database.
type loader struct {
	db    *DB
	b     *kv.Batch
	n     int // rows in the batch
	bytes int
	m     *mapInfo
	maps  uint32
	key   []byte
	inner string
	k     keyState
	any   bool // there is a key
}

const loadRows, loadBytes = 10_000, 4 << 20

func (l *loader) row(a state.Address, r state.Row) error {
	if !l.any || l.m.name != a.Map || string(l.key) != string(a.Key) {
		if err := l.endKey(); err != nil {
			return err
		}
		if l.m == nil || l.m.name != a.Map {
			l.endMap()
			l.m = &mapInfo{id: l.maps, name: a.Map}
			l.maps++
		}
		l.key, l.k, l.any = a.Key, keyState{}, true
		l.inner = string(appendInner(nil, l.m, a.Key))
	}
	l.k.take(a.Kind, r)
	if a.Kind != state.Register && a.Kind != state.Expiry {
		v := l.codec().appendRow(nil, r)
		l.b.Set(append(rowPrefix(nil, l.inner, a.Kind), a.Sub...), v)
		if score, ok := scoreOf(a.Kind, r); ok {
			l.b.Set(append(scorePrefix(nil, l.inner), scoreKey(score, string(a.Sub))...), nil)
		}
		l.n, l.bytes = l.n+1, l.bytes+len(v)
	}
	if l.n >= loadRows || l.bytes >= loadBytes {
		return l.commit()
	}
	return nil
}

func (l *loader) codec() codec { return codec{l.db.writers} }

func (l *loader) commit() error {
	err := l.db.commitRows(l.b)
	l.b, l.n, l.bytes = l.db.kv.Batch(), 0, 0
	return err
}

func (l *loader) endKey() error {
	if !l.any {
		return nil
	}
	l.m.len++
	k := &l.k
	k.settle(state.Dot{})
	v := l.codec().appendKey(nil, k)
	l.b.Set(recordKey(nil, l.inner), v)
	if len(k.register) > 0 && k.apart() {
		row := l.codec().appendRow(nil, k.register)
		l.b.Set(rowPrefix(nil, l.inner, state.Register), row)
		l.bytes += len(row)
	}
	if at, expires := k.expiresAt(); expires {
		l.b.Set(expiryKey(nil, at, l.inner), nil)
	}
	l.n, l.bytes = l.n+1, l.bytes+len(v)
	return nil
}

func (l *loader) endMap() {
	if l.m != nil {
		l.b.Set(append([]byte{tagMap}, l.m.name...), l.m.appendTo(nil))
	}
}

// finish writes what goes with the last rows in one batch: that they are all.
func (l *loader) finish(records []fold.Record) error {
	if err := l.endKey(); err != nil {
		return err
	}
	l.endMap()
	for _, r := range records {
		l.b.Set(append([]byte{tagFold}, r.Key...), r.Value)
	}
	l.b.Set([]byte{tagBase}, l.db.base.sum[:])
	return l.commit()
}

// keptBelow reports whether a log may have been pruned as it is: the base has all
// that it lacks.
func (db *DB) keptBelow() error {
	below := state.Frontier{}
	if db.base != nil {
		below = db.base.m.Base()
	}
	for _, l := range db.logs.all() {
		if first, _ := l.Bounds(); first > below[l.Writer()]+1 {
			return lattice.E(lattice.Storage, fmt.Errorf(
				"entries %d to %d of %s were pruned, and %s does not hold them: put it back from a backup", below[l.Writer()]+1, first-1, authorlog.Name(l.Writer()), db.basePath()))
		}
	}
	return nil
}

// dropBelow drops what logs hold at and below the base, and the watermark unless anyway.
// A log that holds nothing else goes, but for this incarnation's; so does one that
// ends before the base and cannot go on. A crash leaves more than needed: the next start or
// pruning goes on.
//
// Nobody puts entries into logs meanwhile: one that came behind the last of a log
// that goes would go with it.
func (db *DB) dropBelow(anyway bool) (freed Pruned, err error) {
	db.receiving.Lock()
	defer db.receiving.Unlock()
	db.mu.RLock()
	b := db.base
	db.mu.RUnlock()
	if b == nil {
		return freed, nil
	}
	base := b.m.Base()
	below := base
	if !anyway {
		below = watermark.Least(base, db.Watermark().Frontier)
	}
	for _, l := range db.logs.all() {
		w := l.Writer()
		first, last := l.Bounds()
		whole := w != db.own && base[w] > 0 && (last <= below[w] || last < base[w])
		if below[w] < first && !whole {
			continue
		}
		before := l.State().Bytes
		if whole {
			if err := db.logs.remove(l); err != nil {
				return freed, err
			}
			freed.Logs++
			freed.Entries += last + 1 - first
			freed.Bytes += before
			continue
		}
		if err := l.Prune(below[w] + 1); err != nil {
			return freed, err
		}
		now, _ := l.Bounds()
		freed.Entries += now - first
		freed.Bytes += before - l.State().Bytes
	}
	return freed, nil
}

// Incarnation returns the greatest incarnation of an author that the base of the
// store in dir knows of, 0 when there is none: what was pruned left no log.
func Incarnation(fs disk.FS, dir string, author lattice.AuthorID) (uint64, error) {
	f, err := fs.Open(BasePath(fs, dir))
	if disk.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, badBase(BasePath(fs, dir), err)
	}
	defer func() { _ = f.Close() }()
	r, err := snapshot.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return 0, badBase(BasePath(fs, dir), err)
	}
	var most uint64
	for {
		it, err := r.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, badBase(BasePath(fs, dir), err)
		}
		if it.Kind != snapshot.KindFrontier {
			return most, nil
		}
		if it.Place.Author == author {
			most = max(most, it.Place.Incarnation)
		}
	}
}
