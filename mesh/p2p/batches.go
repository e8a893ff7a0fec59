package p2p

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	multistream "github.com/multiformats/go-multistream"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/batches"
)

const protocolBatches = "/lattice/batches/1"

// Partitions is a Store whose topics have records on this node. They travel in sessions
// of their own, beside those about entries, so that history of the one does not wait
// for that of the other. What holds for the methods of Store holds for these.
type Partitions interface {
	Store

	// Partitions returns where each partition is, durably. The mesh calls it after
	// WatchPartitions, so that nothing falls between the two.
	Partitions() []batches.Have

	// Partition returns where one is, from memory; false: there is none, and never will
	// be again, as far as is known.
	Partition(p lattice.TopicPartition) (batches.Have, bool)

	// ReadSpan returns durable batches from a leaf on, about max bytes but at least one,
	// with what proves them to whoever has the log up to there; none, and no error, if
	// nothing that can be proven is there so far. With max 0 the checkpoint alone, if
	// from is how many batches it is of. Kind OutOfRange: the log begins
	// later here, at leaf first. The batches' memory is only read, and for a short while.
	ReadSpan(ctx context.Context, p lattice.TopicPartition, from uint64, max int) (s span.Span, first uint64, err error)

	// ReceiveSpan verifies a span, makes its batches durable behind what the log has,
	// and returns where the log is then, also with an error, which is about the next
	// batch. It may be several spans in one. A span that begins beyond the log's end is
	// taken only if the leader's signed checkpoint says that its log begins there.
	//
	// The mesh calls it once at a time for each partition, and at the same time for
	// different ones. Kind Storage and Unavailable: it comes again after a while. Any
	// other: that partition is not followed at the peer for longer.
	ReceiveSpan(ctx context.Context, s span.Span) (batches.Where, error)

	// WatchPartitions has the mesh told of partitions that came, grew durably by what
	// this node appended, have another leader, or are gone, until stop returns. changed
	// returns at once and may be called from anywhere, also while the store holds locks.
	WatchPartitions(changed func(lattice.TopicPartition)) (stop func())
}

// courier carries one store's batches. run owns the Replica, and does what the package
// comment of mesh/batches asks of its caller. It waits for nobody.
type courier struct {
	carrier *carrier
	mesh    *Mesh
	store   Partitions
	log     *slog.Logger
	mail    *mail[partLetters]
	station[batches.Ready]

	kept    chan keptSpans
	loaded  chan batches.Loaded
	acked   chan ackTaken
	drained chan struct{} // one place: some of a session's queue has gone
	queries chan query
	current shown
	lags    lags

	// What follows is owned by run.
	replica  *batches.Replica
	sessions map[lattice.NodeID]*session[batches.Ready]
	keeping  *spanLanes
	loading  *loading[batches.Read]
	acking   *loading[batches.Heard] // nil: the store acknowledges nothing
	came     progress
	told     map[told]time.Time
}

// partLetters are what the store has told of its partitions.
type partLetters struct {
	changed map[lattice.TopicPartition]bool
	members bool
}

// maxLags is how many partitions are shown that are behind.
const maxLags = 64

// lags are the partitions that were furthest behind when last looked at.
type lags struct {
	mu  sync.Mutex
	all []batches.Lag
}

func newCourier(c *carrier, s Partitions) *courier {
	return &courier{
		carrier: c, mesh: c.mesh, store: s, log: c.log.With("about", "batches"), mail: newMail[partLetters](), station: newStation[batches.Ready](),
		kept: make(chan keptSpans), loaded: make(chan batches.Loaded), acked: make(chan ackTaken), drained: make(chan struct{}, 1), queries: make(chan query),
	}
}

// run takes part with one Replica. It returns nil when ctx has ended and everything
// that it started has, too.
func (c *courier) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	// Watching begins before it is asked where partitions are: what happens in between
	// is told twice rather than never.
	c.mail.clear()
	defer c.store.WatchPartitions(func(p lattice.TopicPartition) {
		c.mail.post(func(l *partLetters) {
			if l.changed == nil {
				l.changed = map[lattice.TopicPartition]bool{}
			}
			l.changed[p] = true
		})
	})()
	config := c.mesh.c.Batches
	config.Store, config.Node, config.Session = c.carrier.id, c.mesh.node, rand.Uint64()
	or(&config.Unsent, unsentSize)
	c.replica = batches.New(config, c.store.Partitions(), c.mesh.now())
	l := c.mesh.c.Limits
	c.sessions, c.told = map[lattice.NodeID]*session[batches.Ready]{}, map[told]time.Time{}
	c.keeping, c.loading = newSpanLanes(l.Keepers), newLoading[batches.Read](l.Readers)
	for range l.Keepers {
		work.Go(func() {
			c.keeping.run(ctx, func(b spanPile) bool { return give(ctx, c.kept, keepSpans(ctx, c.store, b)) })
		})
	}
	for range l.Readers {
		work.Go(func() {
			c.loading.run(ctx, func(q batches.Read) bool {
				got := batches.Loaded{ID: q.ID}
				got.Span, got.First, got.Err = c.store.ReadSpan(ctx, q.Partition, q.From, q.Max)
				return give(ctx, c.loaded, got)
			})
		})
	}
	c.takeAcks(ctx, work.Go)
	defer c.current.stopped()
	defer func() {
		for _, s := range c.sessions {
			s.abort()
		}
	}()
	c.loop(ctx)
	return nil
}

func (c *courier) loop(ctx context.Context) {
	tick, show := time.NewTicker(tickTime), time.NewTicker(showTime)
	defer tick.Stop()
	defer show.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-c.in:
			c.heard(x)
		case s := <-c.arrive:
			s.accepted <- c.attach(s)
			c.show()
		case b := <-c.kept:
			for i, x := range b.parts {
				c.do(c.replica.Received(x.ID, b.at, b.errs[i], c.mesh.now()))
			}
			c.keeping.done(b.spanPile)
		case x := <-c.loaded:
			c.do(c.replica.Loaded(x, c.mesh.now()))
			c.loading.done()
		case x := <-c.acked:
			c.do(c.replica.AckTaken(x.Peer, x.Partition, x.err, c.mesh.now()))
			c.acking.done()
		case <-c.drained:
			c.wait()
		case q := <-c.queries:
			q()
		case <-c.mail.wake:
			c.open(c.mail.take())
		case <-tick.C:
			c.do(c.replica.Tick(c.mesh.now()))
		case <-show.C:
			c.show()
		}
	}
}

// open does what the store has told of its partitions.
func (c *courier) open(l partLetters) {
	now := c.mesh.now()
	for p := range l.changed {
		if h, ok := c.store.Partition(p); ok {
			c.do(c.replica.Changed(h, now))
			c.tellAcks(p)
		} else {
			c.do(c.replica.Gone(p, now))
		}
	}
	if !l.members {
		return
	}
	for id := range c.sessions {
		if !c.carrier.admits(id) {
			c.end(id, true)
		}
	}
}

// unsentSize is about how many bytes of history may wait to go to a peer before what is
// appended meanwhile: a quarter of a second of a fast link, and seconds of a slow one.
const unsentSize = 1 << 20

// wait tells the Replica how much waits to go to each peer.
func (c *courier) wait() {
	c.do(c.replica.Waiting(func(id lattice.NodeID) int {
		if s := c.sessions[id]; s != nil {
			return s.queue.waiting()
		}
		return 0
	}, c.mesh.now()))
}

// attach begins a session, and reports false if another one is kept instead.
func (c *courier) attach(s *session[batches.Ready]) bool {
	old := c.sessions[s.peer]
	if !c.carrier.admits(s.peer) || !s.replaces(old, c.mesh.node) {
		return false
	}
	if old != nil {
		old.abort()
		c.current.gone(s.peer, old.in.Load(), old.out.Load())
	}
	c.sessions[s.peer] = s
	c.do(c.replica.Connect(s.peer, c.mesh.now()))
	return c.sessions[s.peer] == s
}

// heard takes a message, or the end, of a session.
func (c *courier) heard(x inbound[batches.Ready]) {
	s := x.session
	current := c.sessions[s.peer] == s
	if x.err != nil {
		if current {
			if !over(x.err) {
				c.log.Info("a session fails", "peer", s.peer.Short(), "err", x.err)
				c.current.ended(s.peer, x.err.Error())
			}
			c.end(s.peer, false)
		}
		return
	}
	defer x.frame.done()
	if !current {
		return
	}
	s.heard = true
	e, err := c.replica.StepReady(s.peer, x.ready, c.mesh.now())
	c.do(e)
	if err != nil && c.sessions[s.peer] == s {
		c.end(s.peer, true)
	}
}

// end ends a session, after what is queued is sent if flush.
func (c *courier) end(peer lattice.NodeID, flush bool) {
	s := c.sessions[peer]
	if s == nil {
		return
	}
	delete(c.sessions, peer)
	if flush {
		s.queue.end(true)
	} else {
		s.abort()
	}
	c.do(c.replica.Disconnect(peer, c.mesh.now()))
	c.current.gone(peer, s.in.Load(), s.out.Load())
}

// do takes effects, and those that follow from peers being too slow for them.
func (c *courier) do(e batches.Effects) {
	for _, s := range e.Receive {
		c.keeping.add(s)
	}
	for _, r := range e.Read {
		c.loading.add(r)
	}
	for _, h := range e.Heard {
		if c.acking != nil {
			c.acking.add(h)
		}
	}
	var slow []lattice.NodeID
	for _, x := range e.Send {
		if s := c.sessions[x.To]; s != nil && !s.queue.put(aboutBatches(x.Message)) {
			slow = append(slow, x.To)
		}
	}
	for _, r := range e.Refused {
		tell(c.log, c.told, told{r.Peer, r.Reason}, "partition", r.Partition, "leaf", r.Leaf, "err", r.Err)
	}
	for _, d := range e.Drop {
		c.log.Info("a session ends", "peer", d.Peer.Short(), "reason", d.Reason)
		c.current.ended(d.Peer, d.Reason.String())
		c.end(d.Peer, true)
	}
	for _, peer := range slow {
		if c.sessions[peer] != nil {
			c.log.Warn("a peer takes its messages too slowly; the session ends", "peer", peer.Short(), "waiting", c.mesh.c.Limits.Queue)
			c.current.slow(peer)
			c.end(peer, false)
		}
	}
}

// show takes the state of the Replica and its sessions.
func (c *courier) show() {
	var all []PeerStatus
	for _, p := range c.replica.Peers() {
		if s := c.sessions[p.Node]; s != nil {
			all = append(all, PeerStatus{
				Node: p.Node, Session: p.Greeted, Equal: p.Equal, Logs: p.Partitions, Behind: p.Behind, Ahead: p.Ahead, In: s.in.Load(), Out: s.out.Load(),
			})
		}
	}
	about := StoreStatus{Refused: c.replica.Refusals()}
	about.Coming.Logs, about.Coming.Blocks, c.came.taken = c.replica.Lacking()
	c.current.show(about, all, &c.came, c.carrier.store.Members(), c.replica.Lacks)
	c.lags.mu.Lock()
	defer c.lags.mu.Unlock()
	c.lags.all = c.replica.Lags(maxLags)
}

// status returns what is shown of the store's batches. Safe for concurrent use.
func (c *courier) status() *BatchStatus {
	s := c.current.get(c.carrier.id)
	c.lags.mu.Lock()
	defer c.lags.mu.Unlock()
	return &BatchStatus{Peers: s.Peers, Refused: s.Refused, Failed: s.Failed, Behind: c.lags.all, Coming: s.Coming}
}

// aboutBatches makes a message of mesh/batches ready to go.
func aboutBatches(m batches.Message) outgoing {
	if b, ok := m.(batches.Spans); ok { // its batches are copied once only, by the writer
		return outgoing{append: func(to []byte) []byte { return batches.Append(to, b) }, size: batches.Size(b)}
	}
	b := batches.Encode(m)
	return outgoing{bytes: b, size: len(b)}
}

// metForBatches begins a session that a peer has opened: its hello says about which store.
func (m *Mesh) metForBatches(ctx context.Context, node lattice.NodeID, stream network.Stream) {
	f := newFrames(batchForm, stream, &m.c.Limits, m.large)
	first, err := f.hello()
	if err != nil {
		return
	}
	hello, _ := batches.Parse(first.bytes)
	h, ok := hello.(batches.Hello)
	// A store that is not here, one without partitions and one that the peer may not
	// see: the same silence.
	c := m.store(h.Store)
	if !ok || c == nil || c.batches == nil || !c.admits(node) {
		first.done()
		return
	}
	s := newSession(batches.Take, node, stream, false, f, first, &m.c.Limits)
	s.drained = c.batches.drained
	_ = drive(ctx, m, c.batches.station, s)
}

// meetForBatches opens a session with a connected peer. One that is of an earlier
// version, and knows nothing of such, is asked again later.
func (m *Mesh) meetForBatches(ctx context.Context, c *courier, node lattice.NodeID, id peer.ID) error {
	stream, err := m.stream(ctx, id, protocolBatches)
	var says multistream.ErrNotSupported[protocol.ID]
	switch {
	case errors.As(err, &says):
		return nil
	case err != nil:
		return plain(err)
	}
	s := newSession(batches.Take, node, stream, true, newFrames(batchForm, stream, &m.c.Limits, m.large), frame{}, &m.c.Limits)
	s.drained = c.drained
	return drive(ctx, m, c.station, s)
}
