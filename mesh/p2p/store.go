package p2p

import (
	"context"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Store is a store of this node, as the mesh needs it. Every method may be called
// from any goroutine and at the same time as any other, unless it says so. The mesh
// calls none while it holds a lock of its own.
type Store interface {
	// ID never changes.
	ID() lattice.StoreID

	// Inventory returns all that is durable. The mesh calls it after Watch, so that
	// nothing falls between the two.
	Inventory() (reconcile.Inventory, error)

	// Read returns durable entries: see reconcile.Read and reconcile.Loaded. It must
	// set Loaded.ID to r.ID. What was pruned is an Err of Kind OutOfRange, with First
	// and Snapshot. The entries' memory is only read, and for a short while.
	Read(ctx context.Context, r reconcile.Read) reconcile.Loaded

	// Keep makes entries, the proof of a fork, or statements durable, and returns when
	// they are. kept is how many of the entries are durable; the one behind them was
	// refused with err. Entries were verified: they are of s.Log, follow each other,
	// and are signed. They may be more than one message brought, and more than s.Note,
	// the author's newest checkpoint, covers. The note is kept if all entries are.
	//
	// The mesh calls it once at a time for each log, in the order of the log, and at
	// the same time for different logs. The store must refuse entries that do not
	// follow what it has, so that whatever comes behind a refused one is refused too:
	//
	//	Kind Denied        the author is no member, as far as is known: they come
	//	                   again after Events.Members
	//	Kind Storage, Unavailable   they come again after a while
	//	sigchain.ErrForked, ...     what chain.Check returns: the peer is not asked again
	//
	// s.Peer and s.ID mean nothing here when entries of several messages were joined.
	Keep(ctx context.Context, s reconcile.Store) (kept int, err error)

	// Admit says whether entries of an author may be here now: nil, or an error of
	// Kind Denied. It answers from memory.
	Admit(author lattice.AuthorID) error

	// Member says whether a node may open this store's protocols: nil, or an error of
	// Kind Denied if it was removed, NotFound if nothing is known of it. It answers
	// from memory.
	Member(node lattice.NodeID) error

	// Members returns the nodes for which Member returns nil, without this one, so
	// that the mesh knows whom to look for. It answers from memory.
	Members() []lattice.NodeID

	// Watch has the mesh told of what happens here, until stop returns. The functions
	// return at once and may be called from anywhere, also while the store holds locks.
	Watch(Events) (stop func())

	// OpenSnapshot opens a snapshot that Inventory or Read named before, at an offset in
	// bytes. Kind NotFound: it is not here any more. The reader goes on to the end even
	// if the snapshot is dropped meanwhile.
	OpenSnapshot(s reconcile.Snapshot, offset int64) (io.ReadCloser, error)

	// ReceiveSnapshot begins to receive a snapshot, or goes on with what came of it
	// before. Kind Exists: this state is here already, or one beyond it.
	ReceiveSnapshot(s reconcile.Snapshot) (Incoming, error)

	// Redeem admits the holder of an invitation that this node made: one entry notes
	// the claim and admits (core/invite). It returns when that is durable, with the
	// bytes of the store's genesis entry. A claim by whom the invitation admitted
	// before is answered in the same way. An error that is one of roster.ErrInviteUsed,
	// ErrInviteRevoked and ErrInviteExpired is told to the claimant, whose claim must
	// have been verified before; of any other it hears nothing.
	Redeem(ctx context.Context, claim roster.Claim) (genesis []byte, err error)
}

// Farewells is a Store that tells members of their removal.
type Farewells interface {
	// Notice returns the proof that a node was removed, at most MaxNotice bytes: for who
	// was a member, and is none. Otherwise an error.
	Notice(of lattice.NodeID) ([]byte, error)
	// Dismiss takes such a proof about this node, from a peer that may be lying. An
	// error: it proves nothing.
	Dismiss(notice []byte) error
}

// Events are what a store tells the mesh. All are set.
type Events struct {
	// Appended says that this node wrote entries of its own, which are durable: the
	// log's tip is tip, of that time.
	Appended func(w state.Writer, tip sigchain.Link, time uint64)
	// Members says that whom Admit, Member or Members name may have changed.
	Members func()
	// Replaced says that what is here has changed in another way than by Keep and
	// Appended: a snapshot was imported, or entries were pruned. Inventory is read again.
	Replaced func()
}

// Incoming is a snapshot that is being received, in a file of the store's. One
// goroutine uses it.
type Incoming interface {
	io.Writer
	// Size is how many bytes are here, those of earlier attempts too.
	Size() int64
	// Import checks the whole of it against its name, makes it the state of the store,
	// and returns when that is durable; Events.Replaced follows. Kind Corrupt: it is
	// something else, and has been thrown away.
	Import(ctx context.Context) error
	// Close keeps what came for another attempt, unless it was imported.
	Close() error
}

// Book keeps the bytes of the address book between starts, whole or not at all: a
// crash leaves the old ones or the new ones. One goroutine uses it.
type Book interface {
	// Load returns what was saved last; nothing and no error if nothing was.
	Load() ([]byte, error)
	Save([]byte) error
}
