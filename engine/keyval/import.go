package keyval

import (
	"context"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// ErrRoot means that the rows of a snapshot do not come to the root that was signed
// with them. Kind Corrupt.
var ErrRoot = lattice.E(lattice.Corrupt, errors.New("the snapshot's rows do not come to the state root that it is signed with"))

// ErrSigner refuses a snapshot that nobody vouches for who may write in the store.
// Kind Denied.
var ErrSigner = lattice.E(lattice.Denied, errors.New("the snapshot is signed by nobody who may write in the store"))

// Imported says what an import brought.
type Imported struct {
	Head    snapshot.Head
	Seal    snapshot.Seal
	Entries uint64 // that were not here
	New     bool   // something was not here
}

// Verified is a snapshot that was read from end to end.
type Verified struct {
	Head  snapshot.Head
	Seal  snapshot.Seal
	Forks []sigchain.Signed
	m     *fold.Machine
	// Member is the signer's role in the store, as the snapshot itself has it.
	Member roster.Role
}

// Verify reads a snapshot from end to end and checks all that can be checked
// without the store: form, sums, signatures, that rows are of what is folded, and that
// they come to the root. scratch is a directory for the meantime. Kinds Corrupt,
// NotYet (it is cut), Unsupported, Storage.
func Verify(ctx context.Context, fs disk.FS, path, scratch string) (Verified, error) {
	return verify(ctx, fs, path, scratch, fold.Config{Entry: func(sigchain.Place) (sigchain.Signed, bool, error) {
		return sigchain.Signed{}, false, nil
	}})
}

func verify(ctx context.Context, fs disk.FS, path, scratch string, c fold.Config) (Verified, error) {
	s, err := openSource(fs, path, c)
	if err != nil {
		return Verified{}, err
	}
	v := Verified{Head: s.r.Head(), Forks: s.forks, m: s.m}
	root, err := rootOfRows(ctx, fs, scratch, func(yield func(state.Address, state.Row) error) error {
		var err error
		v.Seal, err = s.rows(func(a state.Address, r state.Row) error {
			if err := r.Check(a); err != nil {
				return fmt.Errorf("%w: key %.64q: %w", snapshot.ErrDamaged, a.Key, err)
			}
			return yield(a, r)
		})
		return err
	})
	if err = errors.Join(err, s.close()); err != nil {
		return v, fmt.Errorf("snapshot %s: %w", fs.PathBase(path), err)
	}
	if root != v.Head.Root {
		return v, fmt.Errorf("snapshot %s: %w", fs.PathBase(path), ErrRoot)
	}
	v.Member = s.m.Roster().Member(v.Seal.Signer)
	return v, nil
}

// scratchStore keeps the nodes of a tree in a database that is thrown away.
type scratchStore struct{ db *kv.DB }

func (s scratchStore) Get(p trie.Place) ([]byte, error) {
	v, ok, err := s.db.Get(p.AppendTo([]byte{tagNode}))
	if err != nil || !ok {
		return nil, err
	}
	return v, nil
}

// rootOfRows returns the root of rows, with memory for a part of them.
func rootOfRows(ctx context.Context, fs disk.FS, scratch string, rows func(func(state.Address, state.Row) error) error) (lattice.Hash, error) {
	if err := fs.RemoveAll(scratch); err != nil {
		return lattice.Hash{}, lattice.E(lattice.Storage, err)
	}
	db, err := kv.Open(fs, scratch, kv.Options{NoJournal: true, MemoryBytes: 16 << 20})
	if err != nil {
		return lattice.Hash{}, err
	}
	root := trie.EmptyRoot()
	var leaves []trie.Leaf
	put := func() error {
		if len(leaves) == 0 {
			return nil
		}
		var puts []trie.Put
		var err error
		if root, puts, err = trie.Update(scratchStore{db}, leaves); err != nil {
			return err
		}
		b := db.Batch()
		for _, p := range puts {
			if k := p.Place.AppendTo([]byte{tagNode}); p.Data == nil {
				b.Delete(k)
			} else {
				b.Set(k, p.Data)
			}
		}
		leaves = leaves[:0]
		return db.Commit(b, false)
	}
	err = rows(func(a state.Address, r state.Row) error {
		if leaves = append(leaves, trie.LeafOf(a, r)); len(leaves) < treeStep {
			return nil
		}
		return errors.Join(ctx.Err(), put())
	})
	if err == nil {
		err = put()
	}
	return root, errors.Join(err, db.Close(), fs.RemoveAll(scratch))
}

// Import joins the state with that of a snapshot, a file of this file system, which
// goes when it is done. Nothing of it counts before it is checked in full. The steps,
// and what a crash leaves:
//
//  1. The file is read from end to end: sums, signatures, root. Nothing happened yet.
//  2. If there is a base, the two are joined into a new file, which this node signs.
//     A crash leaves a file that nobody uses.
//  3. Proofs of forks are kept. A crash leaves proofs, which count by themselves.
//  4. The file becomes the base, durably. A crash before leaves the state as it was;
//     from here on the next start begins from the new base.
//  5. The state is made again from the base, and what the logs hold beyond is folded
//     onto it. Logs that end below the base go. Writes wait meanwhile.
//
// Kinds Invalid (another store), Denied (ErrSigner), Conflict (it speaks for this
// start of this node), Corrupt, NotYet (the file is cut), Unsupported, Storage.
func (db *DB) Import(ctx context.Context, path string) (Imported, error) {
	db.snapshots.Lock()
	defer db.snapshots.Unlock()
	dir := snapshotsDir(db.o.FS, db.o.Dir)
	if err := disk.MkdirAll(db.o.FS, dir); err != nil {
		return Imported{}, lattice.E(lattice.Storage, err)
	}
	scratch := db.o.FS.PathJoin(dir, "scratch")
	v, err := verify(ctx, db.o.FS, path, scratch, db.foldConfig())
	if err != nil {
		return Imported{}, err
	}
	out := Imported{Head: v.Head, Seal: v.Seal}
	covered, err := db.mayJoin(&v, &out)
	if err != nil {
		return out, err
	}
	if covered {
		return out, disk.RemoveIfExists(db.o.FS, path)
	}
	next, b := path, &base{v.Seal.Sum, v.m}
	if db.base != nil {
		next = db.o.FS.PathJoin(dir, "joined.tmp")
		if b, err = db.joinBases(ctx, path, next, scratch); err != nil {
			return out, errors.Join(err, disk.RemoveIfExists(db.o.FS, next))
		}
	}
	for i, s := range v.Forks {
		if i > 0 && sigchain.Equivocation(v.Forks[i-1], s) {
			if err := db.keepFork(v.Forks[i-1], s); err != nil {
				return out, err
			}
		}
	}
	if err := db.install(ctx, next, b); err != nil {
		return out, err
	}
	out.New = true
	if err := db.noteSince(b.sum); err != nil {
		return out, err
	}
	_, err = db.free(false)
	db.tellRebased()
	return out, errors.Join(err, disk.RemoveIfExists(db.o.FS, path))
}

// mayJoin reports whether a snapshot may be joined, and whether all that it has
// folded is here, folded in the same way.
func (db *DB) mayJoin(v *Verified, out *Imported) (covered bool, err error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if err := errors.Join(db.readable(), db.broken); err != nil {
		return false, err
	}
	if v.Head.Store() != db.store {
		return false, lattice.E(lattice.Invalid, fmt.Errorf("the snapshot is of store %s, this is %s", v.Head.Store().Short(), db.store.Short()))
	}
	if max(v.Member, roster.None) < roster.Writer && db.machine.Roster().Member(v.Seal.Signer) < roster.Writer || db.machine.ForkOf(v.Seal.Signer).Seq > 0 {
		return false, fmt.Errorf("%w: %s", ErrSigner, v.Seal.Signer.Short())
	}
	for c := range v.m.Chains {
		here := db.machine.Tip(c.Writer).Seq
		if c.Tip.Seq > here {
			out.Entries += c.Tip.Seq - here
		}
		if w := c.Writer; w.Author == db.own.Author && w.Incarnation >= db.own.Incarnation && c.Tip.Seq > here {
			return false, fmt.Errorf("%w: the snapshot holds entry %d of incarnation %d; restart the node, which begins another", ErrOwn, c.Tip.Seq, w.Incarnation)
		}
	}
	return db.machine.Agrees(v.m) == nil, nil
}

// joinBases writes the join of the base and another snapshot.
func (db *DB) joinBases(ctx context.Context, path, next, scratch string) (*base, error) {
	join := func(yield func(state.Address, state.Row) error) (*fold.Machine, error) {
		a, err := openSource(db.o.FS, db.basePath(), db.foldConfig())
		if err != nil {
			return nil, err
		}
		b, err := openSource(db.o.FS, path, db.foldConfig())
		if err != nil {
			return nil, errors.Join(err, a.close())
		}
		err = joinRows(a, b, yield)
		return a.m, errors.Join(err, a.close(), b.close())
	}
	root, err := rootOfRows(ctx, db.o.FS, scratch, func(yield func(state.Address, state.Row) error) error {
		_, err := join(yield)
		return err
	})
	if err != nil {
		return nil, err
	}
	a, err := openSource(db.o.FS, db.basePath(), db.foldConfig())
	if err != nil {
		return nil, err
	}
	b, err := openSource(db.o.FS, path, db.foldConfig())
	if err == nil {
		err = errors.Join(a.m.Join(b.m), b.close())
	}
	if err = errors.Join(err, a.close()); err != nil {
		return nil, err
	}
	seal, _, err := db.writeSnapshot(next, snapshot.Head{Genesis: db.o.Genesis, Root: root}, a.m, func(w *snapshot.Writer) error {
		_, err := join(func(at state.Address, r state.Row) error { return errors.Join(ctx.Err(), w.Row(at, r)) })
		return err
	})
	return &base{seal.Sum, a.m}, err
}

// joinRows yields the join of the rows of two snapshots, by address.
func joinRows(a, b *source, yield func(state.Address, state.Row) error) error {
	inA, inB := a.m.Beside(b.m), b.m.Beside(a.m)
	emit := func(at state.Address, x, y state.Row) error {
		if r := state.Join(at.Kind, x, inA, y, inB); len(r) > 0 {
			return yield(at, r)
		}
		return nil
	}
	next := func(s *source) error {
		var err error
		s.it, err = s.r.Next()
		return err
	}
	for {
		hasA, hasB := a.it.Kind == snapshot.KindRows, b.it.Kind == snapshot.KindRows
		var err error
		switch {
		case !hasA && !hasB:
			return nil
		case hasA && hasB && a.it.Address.Compare(b.it.Address) == 0:
			err = emit(a.it.Address, a.it.Row, b.it.Row)
			if err == nil {
				err = errors.Join(next(a), next(b))
			}
		case hasA && (!hasB || a.it.Address.Compare(b.it.Address) < 0):
			if err = emit(a.it.Address, a.it.Row, nil); err == nil {
				err = next(a)
			}
		default:
			if err = emit(b.it.Address, nil, b.it.Row); err == nil {
				err = next(b)
			}
		}
		if err != nil {
			return err
		}
	}
}

// incoming is a base that the committer is to put in the place of the one before.
type incoming struct {
	path string
	base *base
	done chan error
}

// install has the committer make a file the base, and the state again from it.
func (db *DB) install(ctx context.Context, path string, b *base) error {
	in := &incoming{path, b, make(chan error, 1)}
	db.mu.Lock()
	if err := errors.Join(db.writable(), ctx.Err()); err != nil {
		db.mu.Unlock()
		return err
	}
	if db.building != nil {
		db.queue = append(db.queue, db.building)
		db.building = nil
	}
	db.incoming, db.changing = in, true
	db.mu.Unlock()
	db.kick()
	return <-in.done
}

// takeBase puts an incoming base in its place. An error says that the one before
// counts, or that after a crash it may. db.mu is held.
func (db *DB) takeBase() error {
	in := db.incoming
	if in == nil {
		return nil
	}
	if err := db.o.FS.Rename(in.path, db.basePath()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("make the snapshot the base: %w", err))
	}
	db.base = in.base
	if err := disk.SyncDir(db.o.FS, snapshotsDir(db.o.FS, db.o.Dir)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("make the snapshot the base: %w", err))
	}
	return nil
}

// turnAway tells who waits for an incoming base what became of it. db.mu is held.
func (db *DB) turnAway(err error) {
	if db.incoming != nil {
		db.incoming.done <- err
		db.incoming = nil
	}
}
