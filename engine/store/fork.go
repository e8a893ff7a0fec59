package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/forkpoint"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// A fork is a copy of this node's replica of a store, which the node leads alone and shows
// to nobody, under an id and a name of its own (core/forkpoint, docs/adr/0045-a-fork-is-a-copy-of-a-replica.md):
//
//	<store>/forkpoint    what makes the directory a fork: of what, and from where
//
// Its entries are the store's, in incarnations that only the fork has written so far; so
// they merge as what any member wrote apart does. Its records are appended again where
// they belong (forksync.go). What belongs to the node or to the place where a store is
// stays apart: committed offsets are local records, of the fork's own offsets; members,
// leaders and what is pruned cannot be changed there; nothing is dropped by retention or
// rewritten by compaction before it could be brought back.

// ErrFork refuses what a fork cannot do. Kind Denied.
var ErrFork = lattice.E(lattice.Denied, errors.New("the store is a fork"))

// ErrNoFork: the store is none. Kind Invalid.
var ErrNoFork = lattice.E(lattice.Invalid, errors.New("the store is no fork"))

// ErrNothingOwn: this node has written nothing in the store that a fork could follow. Kind NotYet.
var ErrNothingOwn = lattice.E(lattice.NotYet, errors.New("this node has written nothing in the store yet, which what is written in the fork would follow"))

// Origin says what a fork is of.
type Origin struct {
	Store lattice.StoreID // the store or fork that it was made from, on this node
	Home  lattice.StoreID // the store whose entries it continues
	Taken time.Time
}

// Fork returns what the store is a fork of; false: it is none.
func (s *Store) Fork() (Origin, bool) {
	if s.fork == nil {
		return Origin{}, false
	}
	return Origin{s.fork.Origin, s.fork.Store, time.UnixMilli(int64(s.fork.Time)).UTC()}, true
}

// Home returns the store whose entries and logs these are: Info's, but of a fork.
func (s *Store) Home() lattice.StoreID { return s.home }

// forked says why something cannot be done in a fork, nil in another store.
func (s *Store) forked(what string) error {
	if s.fork == nil {
		return nil
	}
	return fmt.Errorf("%s: %w of %s: do it there", what, ErrFork, s.fork.Origin.Short())
}

func forkPath(fs disk.FS, dir string) string { return fs.PathJoin(dir, "forkpoint") }

// loadFork finds out whether the directory is a fork's. The genesis is known.
func (s *Store) loadFork() error {
	s.home = s.info.ID
	b, err := disk.ReadFile(s.cfg.FS, forkPath(s.cfg.FS, s.cfg.Dir))
	if disk.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return lattice.E(lattice.Storage, err)
	}
	f, err := forkpoint.Parse(b)
	switch {
	case err != nil:
		return err
	case f.Store != s.home:
		return lattice.E(lattice.Corrupt, fmt.Errorf("the fork point is of store %s, the genesis entry of %s", f.Store.Short(), s.home.Short()))
	case f.Node != s.info.Node:
		return lattice.E(lattice.Denied, fmt.Errorf("the fork was made by %s, this node is %s", f.Node.Short(), s.info.Node.Short()))
	}
	s.fork = &f
	s.info.ID, s.info.Name, s.info.Created = f.ID, f.Name, time.UnixMilli(int64(f.Time)).UTC()
	s.cfg.State.Upkeep, s.cfg.State.DormantAfter = Upkeep{}, 0
	return nil
}

// MakeFork makes a fork of the store as it is now, beside it, and returns its id. Writes go
// on meanwhile; topics can neither be made nor change. Progress, if not nil, is told of
// each partition. Errors: ErrNothingOwn, keyval.ErrNotBegun; Kinds Invalid (the name),
// Storage. The steps, and what a crash leaves:
//
//  1. All is put into a directory that Open does not take for a store: the snapshot of the
//     state that the fork begins from, records, logs by CopyTo. A crash leaves that, which
//     the next start of the node removes. The logs here keep no dropped file any more.
//  2. The fork point is signed and put there, durably. A crash: as before.
//  3. The directory gets its name. A crash leaves no fork, or a whole one.
func (s *Store) MakeFork(ctx context.Context, name string, progress func(done, of int)) (lattice.StoreID, error) {
	point := forkpoint.Point{Store: s.home, Origin: s.info.ID, Name: name, Time: uint64(s.cfg.Clock.Now().UnixMilli())}
	if _, err := io.ReadFull(s.cfg.Rand, point.Random[:]); err != nil {
		return lattice.StoreID{}, err
	}
	fs, beside := s.cfg.FS, s.cfg.FS.PathDir(s.cfg.Dir)
	making := fs.PathJoin(beside, hex.EncodeToString(point.Random[:])+".new")
	signed, err := s.fillFork(ctx, making, point, progress)
	if err == nil {
		err = disk.WriteFile(fs, forkPath(fs, making), signed.Bytes())
	}
	if err == nil {
		err = fs.Rename(making, fs.PathJoin(beside, signed.ID.String()))
	}
	if err == nil {
		err = disk.SyncDir(fs, beside)
	}
	if err != nil {
		return lattice.StoreID{}, errors.Join(fmt.Errorf("fork store %s: %w", s.info.ID.Short(), err), fs.RemoveAll(making))
	}
	return signed.ID, nil
}

// fillFork is step 1.
func (s *Store) fillFork(ctx context.Context, dir string, point forkpoint.Point, progress func(done, of int)) (forkpoint.Signed, error) {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	if len(s.state.AuthorChains(s.info.Node)) == 0 {
		return forkpoint.Signed{}, ErrNothingOwn
	}
	fs := s.cfg.FS
	base := keyval.BasePath(fs, dir)
	if err := disk.MkdirAll(fs, fs.PathDir(base)); err != nil {
		return forkpoint.Signed{}, err
	}
	k, err := s.state.SnapshotTo(ctx, base)
	if err != nil {
		return forkpoint.Signed{}, err
	}
	point.Snapshot, point.Root = k.ID, k.Root
	records, err := openLocal(fs, fs.PathJoin(dir, "kv"), kv.Options{Logger: s.cfg.Logger})
	if err != nil {
		return forkpoint.Signed{}, err
	}
	err = s.copyRecords(records)
	if err == nil {
		point.Ends, err = s.copyLogs(ctx, dir, records, progress)
	}
	if err = errors.Join(err, records.Close()); err != nil {
		return forkpoint.Signed{}, err
	}
	return forkpoint.Sign(s.cfg.Key, point)
}

// forkedRecords are the kinds of local records that a fork gets as they are. What belongs to
// partitions is copied with them. Transactions, and offsets that wait for them, stay with
// whoever has them under way: in the fork they are aborted.
var forkedRecords = []byte{keyJoined, keyShare, keyGroup, keyScram, keyCounter, keyClock}

// copyRecords puts into a fork's records what it begins with.
func (s *Store) copyRecords(into *local) error {
	if err := errors.Join(into.putGenesis(s.genesis), into.forgetMoved()); err != nil {
		return err
	}
	own, ok := s.cat.(*folded)
	if !ok {
		return lattice.E(lattice.Unsupported, errors.New("the catalogue cannot be copied"))
	}
	b := into.db.Batch()
	for _, kind := range forkedRecords {
		err := own.local.db.Iterate([]byte{kind}, func(k, v []byte) error {
			b.Set(slices.Clone(k), slices.Clone(v))
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := into.db.Commit(b, true); err != nil {
		return err
	}
	var offsets []group.Change
	err := own.Load(func(k group.Key, v group.Value, _ bool) error {
		offsets = append(offsets, group.Change{Key: k, Value: &v})
		return nil
	})
	for part := range slices.Chunk(offsets, 1000) {
		if err == nil {
			err = into.Apply(part)
		}
	}
	return err
}

// copyLogs copies every partition that is here, and returns where each ends.
func (s *Store) copyLogs(ctx context.Context, dir string, into *local, progress func(done, of int)) ([]forkpoint.End, error) {
	s.mu.RLock()
	var parts []*partition.Partition
	for _, t := range s.byID {
		parts = append(parts, t.parts...)
	}
	s.mu.RUnlock()
	fs := s.cfg.FS
	copied := Store{cfg: Config{FS: fs, Dir: dir}} // knows where they go
	var ends []forkpoint.End
	for i, p := range parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tp := p.ID()
		end, err := p.CopyTo(copied.partitionDir(tp.Topic, tp.Partition), into.Meta(tp))
		if err != nil {
			return nil, err
		}
		ends = append(ends, forkpoint.End{Partition: tp, Offset: end})
		if progress != nil {
			progress(i+1, len(parts))
		}
	}
	return ends, nil
}
