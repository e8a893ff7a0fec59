package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/ballot"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Mesh is one node's part in keeping stores the same on many nodes. All methods may
// be called from anywhere.
type Mesh struct {
	c         Config
	node      lattice.NodeID
	host      host.Host
	gate      *gate
	book      *book
	replicas  reconcile.Config // Config.Replicas
	began     time.Time
	buffers   buffers
	large     chan struct{} // Limits.Large
	pace      *pace
	joins     *joins
	sending   chan struct{}          // Limits.Snapshots
	farewells chan struct{}          // who is shown its removal now
	ballots   chan struct{}          // questions about terms that are worked on
	asking    pipes                  // where this node has others do what its clients want
	leading   [forward.Lanes]leading // and where it does that for others
	wake      chan struct{}          // one place: the finder has something to look at
	begun     chan struct{}          // closed by Run or Close

	mu       sync.Mutex
	state    phase
	ctx      context.Context // of Run
	stores   map[lattice.StoreID]*carried
	contacts map[lattice.NodeID]*contact
	work     sync.WaitGroup // goroutines that Run waits for; added to while running
}

type phase uint8

const (
	fresh phase = iota
	running
	ended
)

// carried is a store that takes part.
type carried struct {
	*carrier
	stop context.CancelFunc // nil: not begun
}

// ErrClosed means that the mesh has ended, or has not begun. Kind Unavailable.
var ErrClosed = lattice.E(lattice.Unavailable, errors.New("the mesh does not run"))

// New takes the configured addresses, so that one which is taken is known before
// anything else begins. Nothing is served before Run; without Run, Close must be
// called. Kind Invalid: the configuration contradicts itself; Unavailable: an address
// is taken; Unsupported: the address book is of a later version.
func New(c Config) (*Mesh, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	b, err := openBook(c.Book, c.Logger)
	if err != nil {
		return nil, err
	}
	m := &Mesh{
		c: c, node: c.Key.Author(), book: b, replicas: c.Replicas, began: time.Now(),
		large: make(chan struct{}, c.Limits.Large), joins: newJoins(c.Limits.Joins), sending: make(chan struct{}, c.Limits.Snapshots), farewells: make(chan struct{}, farewellsAtOnce), ballots: make(chan struct{}, ballotsAtOnce),
		pace: newPace(c.SendRate),
		wake: make(chan struct{}, 1), begun: make(chan struct{}), stores: map[lattice.StoreID]*carried{}, contacts: map[lattice.NodeID]*contact{},
	}
	m.gate = newGate(c.Limits, m.known)
	if m.host, err = newHost(c, m.gate); err != nil {
		return nil, err
	}
	m.host.Network().Notify(&network.NotifyBundle{
		ConnectedF: func(_ network.Network, c network.Conn) {
			if !m.gate.connected(c, time.Now()) {
				m.spawn(func(context.Context) { _ = c.Close() }) // not here: libp2p holds a lock
			}
			m.look()
		},
		DisconnectedF: func(_ network.Network, c network.Conn) {
			m.gate.disconnected(c)
			m.look()
		},
	})
	return m, nil
}

// now is milliseconds that only go forward.
func (m *Mesh) now() int64 { return m.began.UnixMilli() + time.Since(m.began).Milliseconds() }

// Run serves peers and keeps up connections until ctx ends. It returns when all that
// it began has ended and the address book is saved. It runs once.
func (m *Mesh) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.state != fresh {
		m.mu.Unlock()
		return fmt.Errorf("run the mesh again: %w", ErrClosed)
	}
	m.state, m.ctx = running, ctx
	for _, s := range m.stores {
		m.begin(s)
	}
	m.mu.Unlock()
	m.handle()
	m.gate.open(true)
	close(m.begun)
	stopLocal, err := m.findLocally()
	if err == nil {
		m.find(ctx)
		stopLocal()
	}
	cancel()
	return errors.Join(err, m.shut())
}

// Close ends a mesh that was never run.
func (m *Mesh) Close() error {
	m.mu.Lock()
	unused := m.state == fresh
	if unused {
		m.state = ended
		close(m.begun)
	}
	m.mu.Unlock()
	if !unused {
		return nil // Run does it
	}
	return m.shut()
}

func (m *Mesh) shut() error {
	m.gate.open(false)
	m.mu.Lock()
	m.state = ended
	m.mu.Unlock()
	err := m.host.Close()
	m.work.Wait()
	return errors.Join(err, m.book.save())
}

// spawn runs f, which must end soon after its context does, unless the mesh has ended.
func (m *Mesh) spawn(f func(ctx context.Context)) bool {
	ctx, ok := m.enter()
	if ok {
		go func() {
			defer m.work.Done()
			f(ctx)
		}()
	}
	return ok
}

// enter has Run wait for the caller, which calls work.Done, unless the mesh has ended.
func (m *Mesh) enter() (context.Context, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != running {
		return nil, false
	}
	m.work.Add(1)
	return m.ctx, true
}

// Add has a store take part. Kind Exists: it does already.
func (m *Mesh) Add(s Store) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := s.ID()
	switch {
	case m.state == ended:
		return fmt.Errorf("add store %s to the mesh: %w", id.Short(), ErrClosed)
	case m.stores[id] != nil:
		return lattice.E(lattice.Exists, fmt.Errorf("store %s takes part in the mesh already", id.Short()))
	}
	x := &carried{carrier: newCarrier(m, s)}
	m.stores[id] = x
	if m.state == running {
		m.begin(x)
	}
	return nil
}

func (m *Mesh) begin(x *carried) {
	ctx, stop := context.WithCancel(m.ctx)
	x.stop = stop
	m.work.Go(func() {
		defer close(x.over)
		serve(ctx, x.log, &x.current, x.run)
	})
	if b := x.batches; b != nil {
		m.work.Go(func() {
			defer close(b.over)
			serve(ctx, b.log, &b.current, b.run)
		})
	}
	m.look()
}

// Remove ends a store's part, and returns when nothing calls it any more.
func (m *Mesh) Remove(id lattice.StoreID) {
	m.mu.Lock()
	x := m.stores[id]
	delete(m.stores, id)
	m.mu.Unlock()
	if x != nil && x.stop != nil {
		x.stop()
		<-x.over
		if x.batches != nil {
			<-x.batches.over
		}
	}
	m.look()
}

// store returns the carrier of a store.
func (m *Mesh) store(id lattice.StoreID) *carrier {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.stores[id]; x != nil {
		return x.carrier
	}
	return nil
}

// carriers returns all, ascending by store.
func (m *Mesh) carriers() []*carrier {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*carrier, 0, len(m.stores))
	for _, x := range m.stores {
		out = append(out, x.carrier)
	}
	slices.SortFunc(out, func(a, b *carrier) int { return slices.Compare(a.id[:], b.id[:]) })
	return out
}

// known reports whether a node is a member of any store here.
func (m *Mesh) known(n lattice.NodeID) bool {
	return n != m.node && slices.ContainsFunc(m.carriers(), func(c *carrier) bool { return c.admits(n) })
}

// handle names the protocols that this node speaks: the same on all nodes.
func (m *Mesh) handle() {
	m.host.SetStreamHandler(protocolReconcile, m.handler(true, m.met))
	m.host.SetStreamHandler(protocolBatches, m.handler(true, m.metForBatches))
	m.host.SetStreamHandler(protocolSnapshot, m.handler(true, m.askedSnapshot))
	m.host.SetStreamHandler(protocolHearsay, m.handler(true, m.askedWhere))
	for lane := range forward.Lane(forward.Lanes) {
		m.host.SetStreamHandler(protocol.ID(lane.Protocol()), m.handler(true, func(ctx context.Context, node lattice.NodeID, s network.Stream) {
			m.askedForward(ctx, lane, node, s)
		}))
	}
	m.host.SetStreamHandler(ballot.Protocol, m.handler(true, m.askedBallot))
	m.host.SetStreamHandler(protocolPing, m.handler(true, m.pinged))
	m.host.SetStreamHandler(protocolFarewell, m.handler(false, m.askedFarewell))
	m.host.SetStreamHandler(protocolJoin, m.handler(false, m.askedJoin))
}

// handler makes a stream handler that Run waits for, and that strangers do not reach
// if members. What f leaves open is reset.
func (m *Mesh) handler(members bool, f func(context.Context, lattice.NodeID, network.Stream)) network.StreamHandler {
	return func(s network.Stream) {
		defer s.Reset()
		ctx, ok := m.enter()
		if !ok {
			return
		}
		defer m.work.Done()
		node, err := nodeOf(s.Conn().RemotePeer())
		if err != nil || members && !m.known(node) {
			return
		}
		f(ctx, node, s)
	}
}

// met begins a session that a peer has opened: its hello says about which store.
func (m *Mesh) met(ctx context.Context, node lattice.NodeID, stream network.Stream) {
	f := newFrames(entryForm, stream, &m.c.Limits, m.large)
	first, err := f.hello()
	if err != nil {
		return
	}
	hello, _ := reconcile.Parse(first.bytes)
	h, ok := hello.(reconcile.Hello)
	// A store that is not here and one that the peer may not see: the same silence.
	c := m.store(h.Store)
	if !ok || c == nil || !c.admits(node) {
		first.done()
		return
	}
	_ = drive(ctx, m, c.station, newSession(reconcile.Take, node, stream, false, f, first, &m.c.Limits))
}

// meet opens a session with a connected peer.
func (m *Mesh) meet(ctx context.Context, c *carrier, node lattice.NodeID, id peer.ID) error {
	stream, err := m.stream(ctx, id, protocolReconcile)
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	return drive(ctx, m, c.station, newSession(reconcile.Take, node, stream, true, newFrames(entryForm, stream, &m.c.Limits, m.large), frame{}, &m.c.Limits))
}

// stream opens a stream to a connected peer.
func (m *Mesh) stream(ctx context.Context, id peer.ID, p protocol.ID) (network.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, m.c.Limits.HelloTime)
	defer cancel()
	return m.host.NewStream(network.WithNoDial(ctx, "it is connected"), id, p)
}

// ask opens a stream for one question. It is reset when ctx ends, and by done.
func (m *Mesh) ask(ctx context.Context, id peer.ID, p protocol.ID) (s network.Stream, done func(), err error) {
	if s, err = m.stream(ctx, id, p); err != nil {
		return nil, nil, plain(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	return s, func() { stop(); _ = s.Reset() }, nil
}
