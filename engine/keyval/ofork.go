package keyval

import (
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/disk"
)

// A fork of a store (docs/adr/0045-a-fork-is-a-copy-of-a-replica.md) is another replica of
// this node: its state begins from a snapshot of this one, and what is written there are
// entries of this author in incarnations of their own, which follow an entry that is here.
// So they fold here as what somebody wrote who had not seen what came since.

// SnapshotTo takes a snapshot of the state as it is now and puts it under another name, in
// a directory that is there, durably but for that name. It is kept here if it was before.
// Errors: ErrNotBegun, Kind Storage.
func (db *DB) SnapshotTo(ctx context.Context, path string) (Kept, error) {
	before, err := db.Snapshots()
	if err != nil {
		return Kept{}, err
	}
	k, err := db.Snapshot(ctx)
	if err != nil {
		return k, err
	}
	db.snapshots.Lock()
	err = db.o.FS.Link(db.keptPath(k), path)
	db.snapshots.Unlock()
	if err == nil {
		err = disk.SyncDir(db.o.FS, db.o.FS.PathDir(path))
	}
	if err != nil {
		return k, lattice.E(lattice.Storage, fmt.Errorf("copy snapshot %s: %w", k.ID.Short(), err))
	}
	for _, b := range before {
		if b.ID == k.ID {
			return k, nil
		}
	}
	if err := db.DropSnapshot(k.ID); err != nil && lattice.KindOf(err) != lattice.NotFound && lattice.KindOf(err) != lattice.Conflict {
		return k, err
	}
	return k, nil
}

// TakeFork is StoreSpan for entries that this node wrote in a fork of the store: their
// incarnation may be greater than this one's. The caller has verified their signatures.
// Errors besides: ErrOwn, which is also for entries of another author.
func (db *DB) TakeFork(entries []sigchain.Signed) (kept int, err error) {
	for _, e := range entries {
		w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
		if e.Author != db.own.Author || w == db.own {
			return 0, fmt.Errorf("%w: nothing of a fork does", ErrOwn)
		}
		db.forks.Store(w, true)
	}
	kept, err = db.StoreSpan(entries, nil)
	if kept > 0 {
		db.tellRebased() // these logs came by another way than this start's own, or from a peer
	}
	return kept, err
}

// ofFork reports whether a writer is this node in a fork of the store, as was said.
func (db *DB) ofFork(w state.Writer) bool {
	_, ok := db.forks.Load(w)
	return ok
}
