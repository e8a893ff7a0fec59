package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/p2p"
	"github.com/lattice-log/lattice/mesh/reconcile"
	"github.com/lattice-log/lattice/storage/disk"
)

// replica is one store of this node as the mesh needs it: engine/keyval, and
// engine/partition (replica_batches.go), behind the interfaces of mesh/p2p. It decides
// nothing.
type replica struct {
	id      lattice.StoreID
	self    lattice.NodeID
	db      *keyval.DB
	st      *store.Store
	staging keyval.Staging // where snapshots of peers are gathered
	redeem  func(context.Context, roster.Claim) ([]byte, error)
}

var (
	_ p2p.Acknowledged = (*replica)(nil)
	_ p2p.Farewells    = (*replica)(nil)
)

// Notice implements p2p.Farewells.
func (r *replica) Notice(of lattice.NodeID) ([]byte, error) { return r.db.Notice(of) }

// Dismiss implements p2p.Farewells.
func (r *replica) Dismiss(notice []byte) error { return r.db.Dismiss(notice) }

// newReplica has a store of this node take part in a mesh. Snapshots of peers are
// gathered in a directory of their own, which several stores may share.
func newReplica(st *store.Store, gathered keyval.Staging) *replica {
	i := st.Info()
	return &replica{
		id: i.ID, self: i.Node, db: st.State(), st: st, staging: gathered,
		redeem: func(ctx context.Context, c roster.Claim) ([]byte, error) {
			if err := st.Redeem(ctx, c); err != nil {
				return nil, err
			}
			return st.Genesis().Bytes(), nil
		},
	}
}

// errPartitions refuses what peers say about partitions: this version carries none.
var errPartitions = lattice.E(lattice.Unsupported, errors.New("this node keeps no statements about partitions"))

// ID implements p2p.Store.
func (r *replica) ID() lattice.StoreID { return r.id }

// Inventory implements p2p.Store.
func (r *replica) Inventory() (reconcile.Inventory, error) {
	var inv reconcile.Inventory
	for _, s := range r.db.LogStates() {
		inv.Logs = append(inv.Logs, reconcile.Have{Log: s.Writer, Tip: s.Tip, Time: s.Time, First: s.First})
	}
	var err error
	if inv.Forks, err = r.db.FirstForks(); err != nil {
		return inv, err
	}
	inv.Snapshot, err = r.newest()
	return inv, err
}

// newest names the snapshot that is offered instead of what was pruned.
func (r *replica) newest() (reconcile.Snapshot, error) {
	k, ok, err := r.db.NewestSnapshot()
	if err != nil || !ok {
		return reconcile.Snapshot{}, err
	}
	return reconcile.Snapshot{Root: k.Root, Sum: k.ID, Bytes: uint64(k.Bytes)}, nil
}

// Read implements p2p.Store.
func (r *replica) Read(_ context.Context, q reconcile.Read) reconcile.Loaded {
	out := reconcile.Loaded{ID: q.ID}
	if q.Fork {
		a, b, err := r.db.ReadFork(q.Log.Author)
		if out.Err = err; err == nil {
			out.Entries = [][]byte{a.Bytes(), b.Bytes()}
		}
		return out
	}
	s, err := r.db.ReadSpan(q.Log, q.After, q.Upto, q.Max)
	out.Entries, out.Note, out.Left, out.Proof, out.Err = s.Entries, s.Note, s.Left, s.Proof, err
	if err != nil && lattice.KindOf(err) == lattice.OutOfRange {
		out.First = s.First
		if out.Snapshot, err = r.newest(); err != nil {
			out.Snapshot = reconcile.Snapshot{} // none can be offered; what was pruned still was
		}
	}
	return out
}

// Keep implements p2p.Store.
func (r *replica) Keep(_ context.Context, s reconcile.Store) (int, error) {
	switch {
	case s.Fork != nil:
		return 0, r.db.StoreFork(s.Fork.A, s.Fork.B)
	case s.Statements != nil:
		return 0, errPartitions
	}
	return r.db.StoreSpan(s.Entries, s.Note)
}

// Admit implements p2p.Store.
func (r *replica) Admit(author lattice.AuthorID) error { return r.db.Admits(author) }

// Member implements p2p.Store.
func (r *replica) Member(node lattice.NodeID) error {
	m, ok := r.db.Member(node)
	switch {
	case !ok:
		return lattice.E(lattice.NotFound, fmt.Errorf("%s is no member of store %s, as far as is known here", node.Short(), r.id.Short()))
	case m.Role == roster.None:
		return lattice.E(lattice.Denied, fmt.Errorf("%s was removed from store %s", node.Short(), r.id.Short()))
	}
	return nil
}

// Members implements p2p.Store.
func (r *replica) Members() []lattice.NodeID {
	var out []lattice.NodeID
	for _, m := range r.db.Members() {
		if m.Role > roster.None && m.Author != r.self {
			out = append(out, m.Author)
		}
	}
	return out
}

// Watch implements p2p.Store.
func (r *replica) Watch(e p2p.Events) (stop func()) {
	return r.db.Follow(keyval.Follower{Appended: e.Appended, Roster: e.Members, Rebased: e.Replaced})
}

// Redeem implements p2p.Store.
func (r *replica) Redeem(ctx context.Context, claim roster.Claim) ([]byte, error) {
	return r.redeem(ctx, claim)
}

// opened is what is left of a snapshot, and its file.
type opened struct {
	io.Reader
	io.Closer
}

// OpenSnapshot implements p2p.Store.
func (r *replica) OpenSnapshot(s reconcile.Snapshot, offset int64) (io.ReadCloser, error) {
	f, err := r.db.OpenSnapshot(s.Sum)
	if err != nil {
		return nil, err
	}
	if f.Root != s.Root || offset < 0 || offset > f.Bytes {
		return nil, errors.Join(lattice.E(lattice.NotFound, fmt.Errorf("snapshot %s has no byte %d, or another root", s.Sum.Short(), offset)), f.Close())
	}
	return opened{io.NewSectionReader(f, offset, f.Bytes-offset), f}, nil
}

// ReceiveSnapshot implements p2p.Store.
func (r *replica) ReceiveSnapshot(s reconcile.Snapshot) (p2p.Incoming, error) {
	kept, err := r.db.Snapshots()
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		if k.ID == s.Sum && k.Base {
			return nil, lattice.E(lattice.Exists, fmt.Errorf("the state begins from snapshot %s already", s.Sum.Short()))
		}
	}
	have, err := r.staging.Received(s.Sum)
	if err != nil {
		return nil, err
	}
	in := &incoming{replica: r, of: s, here: have}
	in.buf = bufio.NewWriterSize(staged{in}, 1<<20)
	return in, nil
}

// incoming is a snapshot that is being received. What came and was written is still
// there after a crash, as far as it is whole: the next attempt goes on behind it.
type incoming struct {
	*replica
	of   reconcile.Snapshot
	here int64 // bytes in the file
	buf  *bufio.Writer
	done bool
}

// staged writes to the file.
type staged struct{ in *incoming }

func (s staged) Write(b []byte) (int, error) {
	in := s.in
	if err := in.staging.Append(in.of.Sum, in.here, b, in.here+int64(len(b)) == int64(in.of.Bytes)); err != nil {
		return 0, err
	}
	in.here += int64(len(b))
	return len(b), nil
}

// Size implements p2p.Incoming.
func (in *incoming) Size() int64 { return in.here + int64(in.buf.Buffered()) }

// Write implements io.Writer. Kind TooLarge: more comes than the snapshot's name says.
func (in *incoming) Write(b []byte) (int, error) {
	if uint64(in.Size())+uint64(len(b)) > in.of.Bytes {
		return 0, lattice.E(lattice.TooLarge, fmt.Errorf("snapshot %s: more than its %d bytes come", in.of.Sum.Short(), in.of.Bytes))
	}
	return in.buf.Write(b)
}

// Import implements p2p.Incoming.
func (in *incoming) Import(ctx context.Context) error {
	if err := in.buf.Flush(); err != nil {
		return err
	}
	path := in.staging.Path(in.of.Sum)
	err := in.named(path)
	if err == nil {
		_, err = in.db.Import(ctx, path)
	}
	switch k := lattice.KindOf(err); {
	case err == nil:
		in.done = true
	case k == lattice.Corrupt || k == lattice.NotYet || k == lattice.Unsupported || k == lattice.Invalid || k == lattice.Denied:
		in.done = true // whatever is wrong with it, another attempt brings the same
		return errors.Join(lattice.E(lattice.Corrupt, fmt.Errorf("snapshot %s of a peer: %w", in.of.Sum.Short(), err)), in.staging.Drop(in.of.Sum))
	}
	return err
}

// named reports whether the file is the snapshot that was asked for.
func (in *incoming) named(path string) error {
	f, err := disk.OS().Open(path)
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("open the snapshot: %w", err))
	}
	defer func() { _ = f.Close() }()
	sum, err := snapshot.SumAt(f, int64(in.of.Bytes))
	if err == nil && (sum != in.of.Sum || uint64(in.here) != in.of.Bytes) {
		err = lattice.E(lattice.Corrupt, errors.New("it is another one than its name says"))
	}
	return err
}

// Close implements p2p.Incoming.
func (in *incoming) Close() error {
	if in.done {
		return nil
	}
	return in.buf.Flush()
}
