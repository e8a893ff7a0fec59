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
}

// Peers are the other nodes of a store.
type Peers struct {
	All     []Peer
	Refused map[string]int64 // what they sent and was refused, by reason
	Wrong   int64            // of that, what was wrong with what came, whoever was to blame
	Problem string           // why the store takes no part now
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
	Equal             bool  // neither lacks anything, as it said last
	Addresses         []string
	Problem           string // why it is not reached, or why the last session ended
}

// errNoMesh is why a node without a mesh joins nothing.
var errNoMesh = lattice.E(lattice.Unavailable, errors.New("this node does not talk to others: its mesh listener is off"))

const noMeshHint = "start it with lattice up --mesh ADDRESS"
