package keyval

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/storage/disk"
)

// Snapshots that are kept lie beside the base:
//
//	<store>/snapshots/<ms since 1970, 15 decimals>-<sum of the content, 64 hex>.snapshot
//
// They decide nothing: entries below them count as before. Pruning makes one of
// them the base.

const keptSuffix = ".snapshot"

// Kept is a snapshot that is kept on this node.
type Kept struct {
	ID    lattice.Hash // sum of its content: it stands for all of it
	Taken time.Time
	Bytes int64
	Root  lattice.Hash // of the state in it
	Base  bool         // entries below it were pruned, so it stays
}

func keptName(k Kept) string {
	return fmt.Sprintf("%015d-%s%s", k.Taken.UnixMilli(), k.ID, keptSuffix)
}

func parseKept(name string) (Kept, bool) {
	rest, ok := strings.CutSuffix(name, keptSuffix)
	ms, id, ok2 := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	h, herr := lattice.ParseHash(id)
	return Kept{ID: h, Taken: time.UnixMilli(n).UTC()}, ok && ok2 && err == nil && herr == nil && len(ms) == 15
}

func (db *DB) keptPath(k Kept) string {
	if k.Base {
		return db.basePath()
	}
	return db.o.FS.PathJoin(snapshotsDir(db.o.FS, db.o.Dir), keptName(k))
}

// Snapshots returns those that are kept, the oldest first; of the base the time is
// not known.
func (db *DB) Snapshots() ([]Kept, error) {
	dir := snapshotsDir(db.o.FS, db.o.Dir)
	names, err := db.o.FS.List(dir)
	if disk.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("list snapshots: %w", err))
	}
	var all []Kept
	for _, name := range names {
		k, ok := parseKept(name)
		path := db.o.FS.PathJoin(dir, name)
		if name == "base" {
			k = Kept{Base: true}
			if k.ID, err = sumOf(db.o.FS, path); err != nil {
				return nil, err
			}
			ok = true
		}
		if !ok {
			continue
		}
		if err := db.describe(&k, path); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Kept) int { return a.Taken.Compare(b.Taken) })
	return all, nil
}

func (db *DB) describe(k *Kept, path string) error {
	f, err := db.o.FS.Open(path)
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("open snapshot: %w", err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("open snapshot: %w", err))
	}
	r, err := snapshot.NewReader(f)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", k.ID.Short(), err)
	}
	k.Bytes, k.Root = info.Size(), r.Head().Root
	return nil
}

// kept finds a snapshot by its id; the zero id means the newest. Kind NotFound.
func (db *DB) kept(id lattice.Hash) (Kept, error) {
	all, err := db.Snapshots()
	if err != nil {
		return Kept{}, err
	}
	for _, k := range slices.Backward(all) {
		if k.ID == id || id.IsZero() && !k.Base {
			return k, nil
		}
	}
	return Kept{}, lattice.E(lattice.NotFound, fmt.Errorf("no snapshot %s is kept", id.Short()))
}

// ReadSnapshot reads bytes of a kept snapshot from an offset on, so that a copy can
// go on where it was broken off. io.EOF: there are no more. Kind NotFound.
func (db *DB) ReadSnapshot(id lattice.Hash, offset int64, b []byte) (int, error) {
	k, err := db.kept(id)
	if err != nil {
		return 0, err
	}
	f, err := db.o.FS.Open(db.keptPath(k))
	if err != nil {
		return 0, lattice.E(lattice.Storage, fmt.Errorf("open snapshot: %w", err))
	}
	n, err := f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		err = lattice.E(lattice.Storage, fmt.Errorf("read snapshot: %w", err))
	}
	_ = f.Close()
	return n, err
}

// NewestSnapshot returns the newest snapshot that is kept, the base if there is no
// other: what can be offered instead of entries that were pruned. ok is false when
// there is none.
func (db *DB) NewestSnapshot() (k Kept, ok bool, err error) {
	all, err := db.Snapshots()
	if err != nil || len(all) == 0 {
		return Kept{}, false, err
	}
	return all[len(all)-1], true, nil
}

// SnapshotFile is an open snapshot. What is read stays the same until Close, also
// when the snapshot is dropped or becomes the base meanwhile.
type SnapshotFile struct {
	Kept
	f interface {
		io.ReaderAt
		io.Closer
	}
}

// ReadAt implements io.ReaderAt.
func (s *SnapshotFile) ReadAt(b []byte, offset int64) (int, error) {
	n, err := s.f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		err = lattice.E(lattice.Storage, fmt.Errorf("read snapshot: %w", err))
	}
	return n, err
}

// Close lets go of it.
func (s *SnapshotFile) Close() error { return s.f.Close() }

// OpenSnapshot opens a kept snapshot to read it from anywhere in it. Kind NotFound, Storage.
func (db *DB) OpenSnapshot(id lattice.Hash) (*SnapshotFile, error) {
	k, err := db.kept(id)
	if err != nil {
		return nil, err
	}
	f, err := db.o.FS.Open(db.keptPath(k))
	if disk.IsNotExist(err) {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("snapshot %s is not kept any more", id.Short()))
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("open snapshot: %w", err))
	}
	return &SnapshotFile{k, f}, nil
}

// DropSnapshot removes a kept snapshot. Kind NotFound, Conflict (it is the base).
func (db *DB) DropSnapshot(id lattice.Hash) error {
	defer db.tellRebased() // it may have been offered
	db.snapshots.Lock()
	defer db.snapshots.Unlock()
	k, err := db.kept(id)
	switch {
	case err != nil:
		return err
	case k.Base:
		return lattice.E(lattice.Conflict, errors.New("entries below this snapshot were pruned: the state begins from it"))
	}
	if err := db.o.FS.Remove(db.keptPath(k)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remove snapshot: %w", err))
	}
	return nil
}

// Snapshot writes the state as it is now, decided, to a snapshot that is kept, and
// returns it. Writes go on meanwhile. If the newest that is kept holds the same, it
// is that. Errors: ErrNotBegun. The steps, and what a crash leaves:
//
//  1. The file is written beside the others and synced. A crash leaves a file that
//     the next snapshot writes over.
//  2. It gets its name, durably.
func (db *DB) Snapshot(ctx context.Context) (Kept, error) {
	db.snapshots.Lock()
	defer db.snapshots.Unlock()
	if err := db.roll(); err != nil {
		return Kept{}, err
	}
	var k Kept
	var err error
	for range 3 {
		k, err = db.snapshotOnce(ctx)
		if !errors.Is(err, errMoving) {
			break
		}
	}
	return k, err
}

// roll closes the files that are being written to, of this start's log and of the
// newest of every other author: what is written next begins another, and those can be
// freed as a whole.
func (db *DB) roll() error {
	newest := map[lattice.AuthorID]*authorlog.Log{}
	for _, l := range db.logs.all() {
		if w := l.Writer(); newest[w.Author] == nil || newest[w.Author].Writer().Incarnation < w.Incarnation {
			newest[w.Author] = l
		}
	}
	if l := db.logs.get(db.own); l != nil {
		newest[db.own.Author] = l
	}
	for _, l := range newest {
		if err := l.Roll(); err != nil {
			return err
		}
	}
	return nil
}

// errMoving means that a fork came to light meanwhile.
var errMoving = lattice.E(lattice.Unavailable, errors.New("the state is being made again: try again"))

// ErrNotBegun: the store's first entry is not here, so there is no state that could be
// written to a snapshot: this node has joined, and has heard nothing so far. Kind NotYet.
var ErrNotBegun = lattice.E(lattice.NotYet, errors.New("nothing of the store is here yet"))

// hasGenesis reports whether a fold has the store's first entry.
func (db *DB) hasGenesis(m *fold.Machine) bool {
	g := db.o.Genesis
	for c := range m.Chains {
		if c.Writer.Author == g.Author && c.Writer.Incarnation == g.Incarnation {
			return c.Tip.Seq > 0
		}
	}
	return false
}

func (db *DB) snapshotOnce(ctx context.Context) (Kept, error) {
	s, err := db.settledTree(ctx)
	if err != nil {
		return Kept{}, err
	}
	defer s.release()
	root, err := trie.Root(treeStore{db})
	db.treeMu.Unlock()
	if err != nil {
		return Kept{}, err
	}
	m, err := s.machine()
	if err != nil {
		return Kept{}, err
	}
	if !db.hasGenesis(m) {
		return Kept{}, ErrNotBegun
	}
	dir := snapshotsDir(db.o.FS, db.o.Dir)
	if err := disk.MkdirAll(db.o.FS, dir); err != nil {
		return Kept{}, lattice.E(lattice.Storage, err)
	}
	tmp := db.o.FS.PathJoin(dir, "taking.tmp")
	k := Kept{Taken: db.o.Clock.Now().UTC(), Root: root}
	seal, size, err := db.writeSnapshot(tmp, snapshot.Head{Genesis: db.o.Genesis, Root: root}, m, func(w *snapshot.Writer) error {
		return s.ascending(func(a state.Address, r state.Row) error { return errors.Join(ctx.Err(), w.Row(a, r)) })
	})
	if err != nil {
		return Kept{}, errors.Join(err, disk.RemoveIfExists(db.o.FS, tmp))
	}
	k.ID, k.Bytes = seal.Sum, size
	if same, err := db.kept(k.ID); err == nil {
		return same, disk.RemoveIfExists(db.o.FS, tmp)
	}
	if err := db.o.FS.Rename(tmp, db.keptPath(k)); err != nil {
		return Kept{}, lattice.E(lattice.Storage, fmt.Errorf("keep the snapshot: %w", err))
	}
	return k, disk.SyncDir(db.o.FS, dir)
}

// writeSnapshot writes a snapshot to a file, durably.
func (db *DB) writeSnapshot(path string, h snapshot.Head, m *fold.Machine, rows func(*snapshot.Writer) error) (snapshot.Seal, int64, error) {
	f, err := disk.CreatePrivate(db.o.FS, path)
	if err != nil {
		return snapshot.Seal{}, 0, lattice.E(lattice.Storage, fmt.Errorf("write a snapshot: %w", err))
	}
	b := bufio.NewWriterSize(f, 1<<20)
	w := snapshot.NewWriter(b, h)
	seal, err := db.fillSnapshot(w, m, rows)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil && lattice.KindOf(err) == lattice.Internal {
		err = lattice.E(lattice.Storage, fmt.Errorf("write a snapshot: %w", err))
	}
	return seal, w.Size(), err
}

func (db *DB) fillSnapshot(w *snapshot.Writer, m *fold.Machine, rows func(*snapshot.Writer) error) (seal snapshot.Seal, err error) {
	chains := slices.SortedFunc(m.Chains, func(a, b fold.Chain) int { return a.Writer.Compare(b.Writer) })
	for _, c := range chains {
		if err := w.Place(c.Writer, c.Tip.Seq); err != nil {
			return seal, err
		}
	}
	for _, r := range m.Snapshot() {
		if err := w.Record(r); err != nil {
			return seal, err
		}
	}
	var forks []sigchain.Signed
	if err := db.Forks(func(s sigchain.Signed) error { forks = append(forks, s); return nil }); err != nil {
		return seal, err
	}
	slices.SortFunc(forks, func(a, b sigchain.Signed) int {
		return cmp.Or(a.Ref().Place().Compare(b.Ref().Place()), strings.Compare(string(a.ID[:]), string(b.ID[:])))
	})
	for _, s := range forks {
		if err := w.Fork(s); err != nil {
			return seal, err
		}
	}
	if err := rows(w); err != nil {
		return seal, err
	}
	return w.Close(db.o.Key)
}

// machine returns what has folded exactly s: the records that its fold database
// holds, which may lag behind its rows, and what the logs hold from there on.
func (s *settled) machine() (*fold.Machine, error) {
	db := s.db
	var records []fold.Record
	err := s.snap.Iterate([]byte{tagFold}, func(k, v []byte) error {
		records = append(records, fold.Record{Key: slices.Clone(k[1:]), Value: slices.Clone(v)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	m, err := fold.Restore(db.foldConfig(), slices.Values(records))
	if err != nil {
		return nil, err
	}
	var feeds []*feed
	for w, to := range s.frontier {
		if from := m.Tip(w).Seq + 1; from <= to {
			l := db.logs.get(w)
			if l == nil {
				return nil, errMoving
			}
			feeds = append(feeds, &feed{log: l, next: from, last: to})
		}
	}
	err = mergeLogs(feeds, func(e sigchain.Signed) (bool, error) {
		_, err := m.Offer(e, db.nowMs())
		return true, err
	})
	if err == nil {
		err = db.proveForks(m)
	}
	if err != nil {
		return nil, err
	}
	for w, to := range s.frontier {
		if m.Stale() || m.Tip(w).Seq < to {
			return nil, errMoving
		}
	}
	return m, nil
}

// proveForks has a machine learn of the forks whose proofs are kept.
func (db *DB) proveForks(m *fold.Machine) error {
	alone := map[sigchain.Place]sigchain.Signed{}
	return db.Forks(func(s sigchain.Signed) error {
		at := s.Ref().Place()
		one, ok := alone[at]
		if !ok {
			alone[at] = s
			return nil
		}
		_, err := m.Forked(one, s)
		return err
	})
}

// ascending yields every row, by address.
func (s *settled) ascending(yield func(state.Address, state.Row) error) error {
	names := slices.Sorted(slices.Values(s.maps))
	for _, name := range names {
		prefix, _ := s.inner(name, nil)
		err := s.snap.Iterate(append([]byte{tagKey}, prefix...), func(k, v []byte) error {
			inner := string(k[1:])
			st, err := s.parse(inner, slices.Clone(v))
			if err != nil {
				return err
			}
			return s.rowsOf(name, []byte(inner[len(prefix):]), inner, st, yield)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noteBase notes in the fold database which base it goes with, durably.
func (db *DB) noteBase(sum lattice.Hash) error {
	db.using.RLock()
	defer db.using.RUnlock()
	b := db.kv.Batch()
	b.Set([]byte{tagBase}, sum[:])
	return errors.Join(db.kv.Commit(b, false), db.kv.Flush())
}
