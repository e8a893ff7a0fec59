// Package kv is the ordered store beside the logs: small things that are looked
// up by key and change together. It is pebble with the choices made: a small
// cache, little logging, atomic batches, and a version of what is stored.
//
// Keys are the callers', and must not begin with the byte 0, which marks our own:
//
//	00 "version"   the version of the store's layout: one byte, 1
//
// A Batch is applied wholly or not at all. It is durable when Commit with sync
// returns, with all batches before it.
//
// When the disk is nearly full, Commit refuses with Kind Storage before anything
// is written, and reads go on. When a write to the disk fails all the same, what
// is on the disk is not known: every later Commit fails, reads go on, and the
// store has to be opened again.
package kv

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// Version is the version of the layout that this package reads and writes.
const Version = 1

// format is pebble's own version: what this release can read for ever.
const format = pebble.FormatTableFormatV6

// Options say how a store is kept. Zero values mean the defaults.
type Options struct {
	CacheBytes   int64        // default 8 MiB
	ReserveBytes int64        // Commit refuses when less is free; default 32 MiB, negative: never
	Logger       *slog.Logger // default: none

	// NoJournal keeps batches in memory until a table of them is full, or Flush or
	// Close. A crash then takes the newest batches, each wholly, and leaves the
	// store as it was before them. For what can be made again. Commit takes no sync.
	NoJournal bool
	// MemoryBytes is how much is gathered before it is written to a table; default 2 MiB.
	MemoryBytes int64
	// Loading is for a store that is being filled. Many tables gather before they are
	// merged with what is below them, which is then done seldom; until they are, a
	// read may have to look at all of them. Open the store again, without it, to use it.
	Loading bool
	// Filters keeps 10 bits for each key, so that looking for one that is not
	// there seldom reads a table.
	Filters bool
}

const (
	defaultMemory  = 2 << 20
	defaultCache   = 8 << 20
	defaultReserve = 32 << 20

	// loadingTables is how many tables above one another are merged at a time into
	// those below, while a store is loaded. Pebble begins at half of its threshold.
	loadingTables = 12
)

// DB is an open store. It is safe for concurrent use.
type DB struct {
	fs      disk.FS
	dir     string
	db      *pebble.DB
	reserve uint64
	reading bool // opened to read: there is nothing to write out

	memoryOnly bool // Options.NoJournal
	failed     atomic.Pointer[error]
	closed     atomic.Bool
}

var errClosed = lattice.E(lattice.Unavailable, errors.New("kv: closed"))

// Open opens the store in dir, or makes one. Kind Unsupported: it was written by
// a later version. Kind Unavailable: it is open already.
func Open(fs disk.FS, dir string, opt Options) (*DB, error) {
	if opt.CacheBytes <= 0 {
		opt.CacheBytes = defaultCache
	}
	if opt.ReserveBytes == 0 {
		opt.ReserveBytes = defaultReserve
	}
	if opt.MemoryBytes <= 0 {
		opt.MemoryBytes = defaultMemory
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if err := disk.MkdirAll(fs, dir); err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("open kv %s: %w", dir, err))
	}
	db, err := openPebble(fs, dir, opt)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) { // what a lock held elsewhere gives
		return nil, lattice.E(lattice.Unavailable, fmt.Errorf("open kv %s: %w", dir, err))
	}
	if err != nil {
		return nil, lattice.E(kindOf(err), fmt.Errorf("open kv %s: %w", dir, err))
	}
	d := &DB{fs: fs, dir: dir, db: db, reserve: uint64(max(opt.ReserveBytes, 0)), memoryOnly: opt.NoJournal}
	if err := d.checkVersion(); err != nil {
		return nil, errors.Join(fmt.Errorf("open kv %s: %w", dir, err), db.Close())
	}
	return d, nil
}

func openPebble(fs disk.FS, dir string, opt Options) (*pebble.DB, error) {
	cache := pebble.NewCache(opt.CacheBytes)
	defer cache.Unref()
	o := &pebble.Options{
		FS:         fs,
		Cache:      cache,
		Logger:     logger{opt.Logger},
		DisableWAL: opt.NoJournal,
		EventListener: &pebble.EventListener{DataCorruption: func(info pebble.DataCorruptionInfo) {
			opt.Logger.Error("kv: damaged", "dir", dir, "info", info.String()) // the read that met it returns the error
		}},
		FormatMajorVersion: format,
		MemTableSize:       uint64(opt.MemoryBytes),
		MaxOpenFiles:       128,
	}
	if opt.Loading {
		o.L0CompactionThreshold, o.L0StopWritesThreshold = 2*loadingTables, 4*loadingTables
	}
	if opt.Filters {
		for i := range o.Levels {
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
	}
	return pebble.Open(dir, o)
}

// kindOf tells damage from a disk that fails.
func kindOf(err error) lattice.Kind {
	if pebble.IsCorruptionError(err) {
		return lattice.Corrupt
	}
	return lattice.Storage
}

func versionKey() []byte { return []byte("\x00version") }

// checkVersion refuses a layout that is not ours, and marks a new store.
func (d *DB) checkVersion() error {
	v, ok, err := d.get(versionKey())
	switch {
	case err != nil:
		return err
	case !ok:
		b := d.db.NewBatch()
		if err := b.Set(versionKey(), []byte{Version}, nil); err != nil {
			return lattice.E(lattice.Storage, err)
		}
		return d.commit(b, !d.memoryOnly)
	case len(v) != 1 || v[0] != Version:
		return lattice.E(lattice.Unsupported, fmt.Errorf("layout version %x, this program reads %d", v, Version))
	}
	return nil
}

func checkKey(key []byte) error {
	if len(key) == 0 || key[0] == 0 {
		return lattice.E(lattice.Invalid, fmt.Errorf("kv: key %x", key))
	}
	return nil
}

// Get returns a copy of the value at key; ok is false when there is none.
func (d *DB) Get(key []byte) (value []byte, ok bool, err error) {
	if err := checkKey(key); err != nil {
		return nil, false, err
	}
	if d.closed.Load() {
		return nil, false, errClosed
	}
	return d.get(key)
}

func (d *DB) get(key []byte) ([]byte, bool, error) { return getFrom(d.db, key) }

func getFrom(r pebble.Reader, key []byte) ([]byte, bool, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, lattice.E(kindOf(err), fmt.Errorf("get %x: %w", key, err))
	}
	v = append([]byte{}, v...)
	return v, true, closer.Close()
}

// Iterate calls f with each key that begins with prefix, in order, and its value,
// as of now. The bytes are valid until f returns. f's error ends it and is
// returned; ErrStop ends it without an error.
func (d *DB) Iterate(prefix []byte, f func(key, value []byte) error) error {
	return d.IterateFrom(prefix, nil, f)
}

// IterateFrom is Iterate from the first key that is not before start.
func (d *DB) IterateFrom(prefix, start []byte, f func(key, value []byte) error) error {
	if d.closed.Load() {
		return errClosed
	}
	return iterate(d.db, prefix, start, f)
}

// ErrStop is what a function given to Iterate returns to end it.
var ErrStop = errors.New("kv: stop")

func iterate(r pebble.Reader, prefix, start []byte, f func(key, value []byte) error) (err error) {
	lower := append([]byte{}, prefix...)
	if string(start) > string(lower) {
		lower = append([]byte{}, start...)
	}
	if len(lower) == 0 || lower[0] == 0 {
		lower = []byte{1} // ours come before
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(prefix)})
	if err != nil {
		return lattice.E(kindOf(err), fmt.Errorf("iterate over %x: %w", prefix, err))
	}
	defer func() {
		if closeErr := it.Close(); err == nil && closeErr != nil {
			err = lattice.E(kindOf(closeErr), fmt.Errorf("iterate over %x: %w", prefix, closeErr))
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return lattice.E(kindOf(err), fmt.Errorf("value of %x: %w", it.Key(), err))
		}
		if err := f(it.Key(), v); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// after returns the first key behind all that begin with prefix, nil when there
// is none.
func after(prefix []byte) []byte {
	end := append([]byte{}, prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// Snapshot is the store at one moment. Close it soon: it keeps old data alive.
type Snapshot struct{ s *pebble.Snapshot }

// Snapshot returns the store as it is now.
func (d *DB) Snapshot() (*Snapshot, error) {
	if d.closed.Load() {
		return nil, errClosed
	}
	return &Snapshot{d.db.NewSnapshot()}, nil
}

// Get is DB.Get at the snapshot's moment.
func (s *Snapshot) Get(key []byte) ([]byte, bool, error) {
	if err := checkKey(key); err != nil {
		return nil, false, err
	}
	return getFrom(s.s, key)
}

// Iterate is DB.Iterate at the snapshot's moment.
func (s *Snapshot) Iterate(prefix []byte, f func(key, value []byte) error) error {
	return iterate(s.s, prefix, nil, f)
}

// Close lets go of the snapshot. It must be called once, before DB.Close.
func (s *Snapshot) Close() error { return s.s.Close() }

// Checkpoint writes a copy of the store as of now into a new directory, durably,
// sharing files with the store where it can.
func (d *DB) Checkpoint(dir string) error {
	if d.closed.Load() {
		return errClosed
	}
	if err := d.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return lattice.E(kindOf(err), fmt.Errorf("checkpoint kv into %s: %w", dir, err))
	}
	return nil
}

// Flush writes everything committed to tables, durably. It is for stores without a
// journal.
func (d *DB) Flush() error {
	if d.closed.Load() {
		return errClosed
	}
	if err := d.Failed(); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("flush: the store failed before: %w", err))
	}
	if err := guard(d.db.Flush); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("flush kv %s: %w", d.dir, err))
	}
	return nil
}

// FlushSoon begins to do what Flush does, for Batches committed before, and does not
// wait for it.
func (d *DB) FlushSoon() error {
	if d.closed.Load() {
		return errClosed
	}
	if err := d.Failed(); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("flush: the store failed before: %w", err))
	}
	err := guard(func() error {
		_, err := d.db.AsyncFlush()
		return err
	})
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("flush kv %s: %w", d.dir, err))
	}
	return nil
}

// Close closes the store. Batches committed without sync are written out, and
// what is only in the journal goes into checksummed tables: pebble takes a damaged
// journal for a torn one and says nothing of what it held. No method may be
// running.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	flush := func() error {
		if d.reading || d.Failed() != nil {
			return nil // there is nothing to save that was acknowledged
		}
		return d.db.Flush()
	}
	if err := errors.Join(guard(flush), guard(d.db.Close)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("close kv %s: %w", d.dir, err))
	}
	return nil
}

// logger passes pebble's messages on: its routine ones at debug level.
type logger struct{ l *slog.Logger }

func (l logger) Infof(format string, args ...any) {
	l.l.Debug("pebble: " + fmt.Sprintf(format, args...))
}
func (l logger) Errorf(format string, args ...any) {
	l.l.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf must not return, because pebble has no way on. Where one of our calls
// is below, guard turns it into an error; elsewhere it ends the process, as it
// must: better no node than one that forgets.
func (l logger) Fatalf(format string, args ...any) {
	err := fatal{fmt.Errorf(format, args...)}
	l.l.Error("pebble: " + err.Error())
	panic(err)
}

type fatal struct{ error }

// guard runs f and returns what was fatal in it as an error.
func guard(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatal:
			err = p.error
		default:
			panic(p)
		}
	}()
	return f()
}
