package api

import (
	"context"
	"errors"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/engine/store"
)

// Mesh is how a node reaches others. Safe for concurrent use.
type Mesh interface {
	// Addresses returns where others reach this node, as multiaddrs that go into
	// invitations; none: it cannot be reached.
	Addresses() []string
	// Join uses an invitation at the node that made it, and serves its store from
	// then on; with makeDefault it becomes the default. It may be called again for
	// one invitation. Kinds Unavailable (the inviter is not reached), Denied,
	// Exists (this node is a member of the store).
	Join(ctx context.Context, t invite.Token, makeDefault bool) (Joined, error)
	// Peers returns the other nodes that are known in a store, and how they are reached.
	Peers(id lattice.StoreID) Peers
	// Lags returns the logs of which a node lacks most: at most n of writers and n partitions, the worst
	// first, and whether there are more. Kind Unavailable: it cannot be told now.
	Lags(ctx context.Context, id lattice.StoreID, node lattice.NodeID, n int) (all []LogLag, more bool, err error)
	// Alone returns logs of which none of these nodes has all that is here, likewise; known is false if nothing
	// is known of any of them.
	Alone(ctx context.Context, id lattice.StoreID, of []lattice.NodeID, n int) (all []LogLag, more, known bool, err error)
	// Connect calls a member now, or whichever answers if node is zero, and returns who did. Unless
	// once, the addresses are noted. Kinds Invalid, NotFound, Unavailable, Conflict.
	Connect(ctx context.Context, node lattice.NodeID, addresses []string, once bool) (lattice.NodeID, error)
	// Forget forgets where a node is, ends the connection with it, and returns the addresses.
	Forget(node lattice.NodeID) ([]string, error)
}

// LogLag is a log of which a node lacks something.
type LogLag struct {
	Writer      lattice.AuthorID // zero: it is a partition
	Incarnation uint64           // of the writer
	Partition   lattice.TopicPartition
	Has, Here   uint64 // entries, or batches
	Since       time.Time
}

// Coming is what this node lacks of a store, and how fast it comes.
type Coming struct {
	Entries, Batches                int64
	BlocksPerSecond, BytesPerSecond float64
	Fetching                        *Fetching // the snapshot that is being fetched; nil: none
}

// Fetching is a snapshot that is being fetched.
type Fetching struct {
	Node        lattice.NodeID
	Bytes, Here int64
	PerSecond   float64 // bytes
	Since       time.Time
}

// Peers are the other nodes of a store.
type Peers struct {
	All     []Peer
	Refused map[string]int64 // what they sent and was refused, by reason
	Wrong   int64            // of that, what was wrong with what came, whoever was to blame
	Problem string           // why the store takes no part now
	Coming  Coming
}

// Joined is what joining came to.
type Joined struct {
	Store *store.Store
	Again bool // it was here already
}

// Peer is another node of a store.
type Peer struct {
	Node              lattice.NodeID
	Reachable         bool
	Since             time.Time     // when it became so; zero: not known
	RoundTrip         time.Duration // 0: not measured
	BytesIn, BytesOut int64
	Behind, Ahead     int64 // entries and batches that this node lacks, and that it lacks
	Known             bool  // Ahead is known, with AheadLogs and AheadSince
	AheadLogs         int   // logs of which it lacks something
	AheadSince        time.Time
	Equal             bool // neither lacks anything, as it said last
	Addresses         []string
	Problem           string // why it is not reached, or why the last session ended
	Dormant           bool   // set by this package
}

// errNoMesh is why a node without a mesh joins nothing.
var errNoMesh = lattice.E(lattice.Unavailable, errors.New("this node does not talk to others: its mesh listener is off"))

const noMeshHint = "start it with lattice up --mesh ADDRESS"
