package keyval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/disk"
)

// Pruned says what a pruning freed.
type Pruned struct {
	Base    Kept   // what the state begins from now
	Entries uint64 // that were dropped
	Logs    int    // that went as a whole: those of closed incarnations
	Bytes   int64  // freed in logs
}

// Prune drops the entries that a kept snapshot covers; the zero id means the newest
// one. The state and its root stay what they are. What is known to be there stays
// known: nothing that was deleted comes back. The steps, and what a crash leaves:
//
//  1. The snapshot is read from end to end, and must be what this state came from.
//  2. It becomes the base, durably, in the place of the one before. A crash leaves
//     logs that hold more than they need; the next start drops it.
//  3. The fold database notes that it goes with this base. A crash before that
//     makes it again, from the base and what the logs hold beyond. When that was is
//     noted beside the base; a crash before leaves it unknown.
//  4. An entry of this node says what is dropped, and the state root. A crash
//     before that leaves it unsaid.
//  5. Logs drop what is at and below the base. A crash: as at 2.
//
// It waits for the watermark: what is pruned must be with all active members, but for
// entries that do no more than report or prune, which others answer with their own. Of
// those logs keep what is beyond the watermark, below the base, so that a member which
// lacks one gets it as an entry and not as a snapshot. PruneAnyway waits for nobody.
//
// A log frees whole files. Those that are written to are closed when a snapshot is
// taken, and here, so that what lies below goes now, or with the next pruning.
//
// Kinds NotFound, NotYet (ErrBehind), Conflict (fold.ErrBase: take another snapshot),
// Corrupt, Storage.
func (db *DB) Prune(ctx context.Context, id lattice.Hash) (Pruned, error) {
	return db.prune(ctx, id, false)
}

// PruneAnyway is Prune without regard to other members. Nothing is lost by it: who lacks
// what was pruned joins its state with the snapshot.
func (db *DB) PruneAnyway(ctx context.Context, id lattice.Hash) (Pruned, error) {
	return db.prune(ctx, id, true)
}

func (db *DB) prune(ctx context.Context, id lattice.Hash, anyway bool) (Pruned, error) {
	defer db.tellRebased()
	db.snapshots.Lock()
	defer db.snapshots.Unlock()
	k, err := db.kept(id)
	if err != nil {
		return Pruned{}, err
	}
	if k.Base {
		freed, err := db.free(anyway)
		freed.Base = k
		return freed, err
	}
	m, err := db.readThrough(k)
	if err == nil && !anyway {
		err = db.mayPrune(m.Base())
	}
	if err != nil {
		return Pruned{}, err
	}
	if err := db.settleOn(k, m); err != nil {
		return Pruned{}, err
	}
	if err := errors.Join(db.noteBase(k.ID), db.noteSince(k.ID)); err != nil {
		return Pruned{}, err
	}
	k.Base = true
	if err := db.roll(); err != nil {
		return Pruned{}, err
	}
	if err := db.sayPruned(ctx, k, m.Base()); err != nil {
		return Pruned{}, err
	}
	freed, err := db.free(anyway)
	freed.Base = k
	return freed, errors.Join(err, db.dropOlder(k))
}

// free drops what logs hold below the base, and below the watermark unless anyway, and counts it.
func (db *DB) free(anyway bool) (Pruned, error) {
	freed, err := db.dropBelow(anyway)
	db.freedEntries.Add(freed.Entries)
	db.freedBytes.Add(uint64(max(freed.Bytes, 0)))
	return freed, err
}

// dropOlder removes kept snapshots to which nothing can be pruned any more.
func (db *DB) dropOlder(base Kept) error {
	all, err := db.Snapshots()
	for _, k := range all {
		if !k.Base && !k.Taken.After(base.Taken) {
			err = errors.Join(err, db.o.FS.Remove(db.keptPath(k)))
		}
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remove older snapshots: %w", err))
	}
	return nil
}

// readThrough reads a kept snapshot from end to end.
func (db *DB) readThrough(k Kept) (*fold.Machine, error) {
	s, err := openSource(db.o.FS, db.keptPath(k), db.foldConfig())
	if err != nil {
		return nil, err
	}
	seal, err := s.rows(func(state.Address, state.Row) error { return nil })
	if err = errors.Join(err, s.close()); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", k.ID.Short(), err)
	}
	if seal.Sum != k.ID || s.r.Head().Store() != db.store {
		return nil, fmt.Errorf("%w: it is not the one that its name says", snapshot.ErrDamaged)
	}
	return s.m, nil
}

// settleOn makes a kept snapshot the base.
func (db *DB) settleOn(k Kept, m *fold.Machine) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := errors.Join(db.readable(), db.broken); err != nil {
		return err
	}
	if db.base != nil {
		if err := m.Agrees(db.base.m); err != nil {
			return lattice.E(lattice.Conflict, errors.New("the snapshot is older than what was pruned: take a new one"))
		}
	}
	if db.changing || db.machine.Stale() {
		return errMoving
	}
	if err := db.machine.Agrees(m); err != nil {
		return err
	}
	if err := db.o.FS.Rename(db.keptPath(k), db.basePath()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("make the snapshot the base: %w", err))
	}
	if err := db.machine.Fix(m); err != nil {
		return err
	}
	db.base = &base{k.ID, m}
	if err := disk.SyncDir(db.o.FS, snapshotsDir(db.o.FS, db.o.Dir)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("make the snapshot the base: %w", err))
	}
	return nil
}

// sayPruned writes the entry that says what is dropped, if this node may write.
func (db *DB) sayPruned(ctx context.Context, k Kept, f state.Frontier) error {
	db.mu.RLock()
	mute := db.machine.Roster().Member(db.own.Author) < roster.Writer || db.machine.ForkOf(db.own.Author).Seq > 0
	db.mu.RUnlock()
	if mute {
		return nil
	}
	p := sigchain.Prune{Root: k.Root, Snapshot: k.ID}
	for w, seq := range f {
		p.Frontier = append(p.Frontier, sigchain.Place{Author: w.Author, Incarnation: w.Incarnation, Seq: seq})
	}
	slices.SortFunc(p.Frontier, sigchain.Place.Compare)
	op, err := p.Op()
	if err != nil {
		return err
	}
	_, err = db.Enter(ctx, op)
	return err
}

// Told is what a snapshot says, as far as it can be read.
type Told struct {
	Head   snapshot.Head
	Seal   snapshot.Seal
	Chains []fold.Chain
}

// ReadThrough reads a snapshot from end to end and yields its rows. It checks all
// that Verify does, but for whether the rows come to the root, and writes nothing.
func ReadThrough(fs disk.FS, path string, yield func(state.Address, state.Row) error) (Told, error) {
	s, err := openSource(fs, path, fold.Config{Entry: func(sigchain.Place) (sigchain.Signed, bool, error) {
		return sigchain.Signed{}, false, nil
	}})
	if err != nil {
		return Told{}, err
	}
	t := Told{Head: s.r.Head()}
	for c := range s.m.Chains {
		t.Chains = append(t.Chains, c)
	}
	t.Seal, err = s.rows(func(a state.Address, r state.Row) error {
		if err := r.Check(a); err != nil {
			return fmt.Errorf("%w: key %.64q: %w", snapshot.ErrDamaged, a.Key, err)
		}
		return yield(a, r)
	})
	return t, errors.Join(err, s.close())
}
