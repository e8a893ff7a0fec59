package p2p

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// carrier keeps one store in step with its peers. run owns the Replica, and does what
// the package comment of mesh/reconcile asks of its caller. It waits for nobody.
type carrier struct {
	mesh  *Mesh
	store Store
	id    lattice.StoreID
	log   *slog.Logger
	mail  *mail[letters]

	station[reconcile.Ready] // over is closed when the store takes no part any more

	kept    chan keptBatch
	loaded  chan reconcile.Loaded
	queries chan query
	current shown    // what Status shows
	batches *courier // carries its partitions; nil: it has none

	// What follows is owned by run.
	replica  *reconcile.Replica
	sessions map[lattice.NodeID]*session[reconcile.Ready]
	keeping  *keeping
	loading  *loading[reconcile.Read]
	fetching bool
	fetched  chan error
	came     progress
	wanted   reconcile.SnapshotOffer // that a log needs to go on
	replaced bool                    // the inventory is to be read again
	told     map[told]time.Time      // refusals that were logged
}

// told keeps a log line from being written for each message of a peer.
type told struct {
	peer   lattice.NodeID
	reason reconcile.Reason
}

const (
	tickTime = 200 * time.Millisecond
	showTime = time.Second
	tellTime = time.Minute
)

func newCarrier(m *Mesh, s Store) *carrier {
	c := &carrier{
		mesh: m, store: s, id: s.ID(), log: m.c.Logger.With("store", s.ID().Short()), mail: newMail[letters](), station: newStation[reconcile.Ready](),
		kept: make(chan keptBatch), loaded: make(chan reconcile.Loaded), fetched: make(chan error, 1), queries: make(chan query),
	}
	if p, ok := s.(Partitions); ok {
		c.batches = newCourier(c, p)
	}
	return c
}

// serve runs a store's part until ctx ends, and again after a while if it fails: other
// stores do not notice.
func serve(ctx context.Context, log *slog.Logger, current *shown, run func(context.Context) error) {
	for ctx.Err() == nil {
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		log.Error("a store does not take part in the mesh; it is tried again", "err", err)
		current.failed(err)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}

// run takes part with one Replica. It returns why it cannot, or nil when ctx has
// ended and everything that it started has, too.
func (c *carrier) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	// Watching begins before the inventory is taken: what happens in between is told
	// twice rather than never.
	c.mail.clear()
	defer c.store.Watch(events(c.mail))()
	have, err := c.store.Inventory()
	if err != nil {
		return fmt.Errorf("what store %s has: %w", c.id.Short(), err)
	}
	c.replica, err = reconcile.New(c.config(), have, c.mesh.now())
	if err != nil {
		return fmt.Errorf("store %s: %w", c.id.Short(), err)
	}
	l := c.mesh.c.Limits
	c.sessions, c.told = map[lattice.NodeID]*session[reconcile.Ready]{}, map[told]time.Time{}
	c.fetching, c.replaced, c.wanted = false, false, reconcile.SnapshotOffer{}
	c.keeping, c.loading = newKeeping(l.Keepers), newLoading[reconcile.Read](l.Readers)
	for range l.Keepers {
		work.Go(func() {
			c.keeping.run(ctx, func(b batch) bool {
				n, err := c.store.Keep(ctx, join(b.parts))
				return give(ctx, c.kept, keptBatch{b, n, err})
			})
		})
	}
	for range l.Readers {
		work.Go(func() {
			c.loading.run(ctx, func(q reconcile.Read) bool {
				got := c.store.Read(ctx, q)
				got.ID = q.ID
				return give(ctx, c.loaded, got)
			})
		})
	}
	defer c.current.stopped()
	defer func() {
		for _, s := range c.sessions {
			s.abort()
		}
	}()
	return c.loop(ctx, &work)
}

func give[T any](ctx context.Context, to chan<- T, x T) bool {
	select {
	case to <- x:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *carrier) config() reconcile.Config {
	out := c.mesh.replicas
	out.Store, out.Node, out.Session = c.id, c.mesh.node, rand.Uint64()
	out.Admit = c.store.Admit
	return out
}

func (c *carrier) loop(ctx context.Context, work *sync.WaitGroup) error {
	tick, show := time.NewTicker(tickTime), time.NewTicker(showTime)
	defer tick.Stop()
	defer show.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-c.in:
			c.heard(x)
		case s := <-c.arrive:
			s.accepted <- c.attach(s)
			c.show()
		case b := <-c.kept:
			now := c.mesh.now()
			b.each(func(id uint64, kept int, err error) { c.do(c.replica.Stored(id, kept, err, now)) })
			c.keeping.done(b.batch)
			if c.replaced {
				poke(c.mail.wake)
			}
		case x := <-c.loaded:
			c.do(c.replica.Loaded(x, c.mesh.now()))
			c.loading.done()
		case q := <-c.queries:
			q()
		case <-c.mail.wake:
			if err := c.open(c.mail.take()); err != nil {
				return err
			}
		case err := <-c.fetched:
			c.fetching = false
			if err != nil && ctx.Err() == nil {
				c.current.refuse(reasonOf(err))
				c.log.Warn("a snapshot could not be had", "err", err)
			}
		case <-tick.C:
			c.do(c.replica.Tick(c.mesh.now()))
		case <-show.C:
			c.show()
		}
		c.fetch(ctx, work)
	}
}

// open does what the store has told of itself.
func (c *carrier) open(l letters) error {
	now := c.mesh.now()
	if l.replaced {
		c.replaced = true
		c.keeping.hold() // what it has under way must be in the inventory
	}
	if c.replaced && c.keeping.idle() {
		c.replaced = false
		c.keeping.drop()
		have, err := c.store.Inventory()
		if err != nil {
			return fmt.Errorf("what store %s has: %w", c.id.Short(), err)
		}
		e, err := c.replica.Rebase(have, now)
		c.do(e)
		if err != nil {
			return fmt.Errorf("store %s: %w", c.id.Short(), err)
		}
	}
	for w, tip := range l.appended {
		c.do(c.replica.Appended(w, tip.link, tip.time, now))
	}
	if l.members {
		c.do(c.replica.Reconsider(now))
		for id := range c.sessions {
			if !c.admits(id) {
				c.end(id, true)
			}
		}
		if c.batches != nil {
			c.batches.mail.post(func(l *partLetters) { l.members = true })
		}
		c.mesh.look()
	}
	return nil
}

// admits reports whether a node may open this store's protocols: as a member, or as
// who invited this one, until its membership is known.
func (c *carrier) admits(n lattice.NodeID) bool {
	err := c.store.Member(n)
	return err == nil || lattice.KindOf(err) == lattice.NotFound && c.mesh.book.invited(n, c.id)
}

// attach begins a session, and reports false if another one is kept instead. Of two
// that were opened at once, that of the lower node id stays.
func (c *carrier) attach(s *session[reconcile.Ready]) bool {
	old := c.sessions[s.peer]
	if !c.admits(s.peer) || !s.replaces(old, c.mesh.node) {
		return false
	}
	if old != nil {
		old.abort()
	}
	c.sessions[s.peer] = s
	c.do(c.replica.Connect(s.peer, c.mesh.now()))
	return c.sessions[s.peer] == s
}

// heard takes a message, or the end, of a session.
func (c *carrier) heard(x inbound[reconcile.Ready]) {
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
func (c *carrier) end(peer lattice.NodeID, flush bool) {
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
func (c *carrier) do(e reconcile.Effects) {
	for _, s := range e.Store {
		c.keeping.add(s)
	}
	for _, r := range e.Read {
		c.loading.add(r)
	}
	var slow []lattice.NodeID
	for _, x := range e.Send {
		s := c.sessions[x.To]
		if s != nil && !s.queue.put(aboutEntries(x.Message)) {
			slow = append(slow, x.To)
		}
	}
	for _, r := range e.Refused {
		tell(c.log, c.told, told{r.Peer, r.Reason}, "author", r.Log.Author.Short(), "seq", r.Seq, "err", r.Err)
	}
	for _, d := range e.Drop {
		c.log.Info("a session ends", "peer", d.Peer.Short(), "reason", d.Reason)
		c.current.ended(d.Peer, d.Reason.String())
		c.end(d.Peer, true)
	}
	for _, s := range e.Snapshots {
		c.offered(s)
	}
	for _, peer := range slow {
		if c.sessions[peer] != nil {
			c.log.Warn("a peer takes its messages too slowly; the session ends", "peer", peer.Short(), "waiting", c.mesh.c.Limits.Queue)
			c.current.slow(peer)
			c.current.ended(peer, "it takes its messages too slowly")
			c.end(peer, false)
		}
	}
	// Effects.Prove asks for proofs from the trees of partitions, which are not
	// carried: what is not proven is asked for again.
}

// tell logs what a peer sent that did not enter, once a while for each reason; the
// Replica counts them all. all is when that was done last.
func tell(log *slog.Logger, all map[told]time.Time, what told, about ...any) {
	now := time.Now()
	if now.Sub(all[what]) < tellTime {
		return
	}
	if len(all) > 1024 {
		clear(all)
	}
	all[what] = now
	level := slog.LevelWarn
	if what.reason == reconcile.Closing || what.reason == reconcile.NotShown {
		level = slog.LevelDebug
	}
	log.Log(context.Background(), level, "refused", append([]any{"peer", what.peer.Short(), "reason", what.reason}, about...)...)
}

// lower reports whether a is before b.
func lower(a, b lattice.NodeID) bool { return string(a[:]) < string(b[:]) }

// mail is what a store has told of itself and a carrier has not opened: the newest
// of each, so it is small however busy the store is.
type mail[L any] struct {
	wake chan struct{} // one place

	mu      sync.Mutex
	letters L
}

type letters struct {
	appended          map[state.Writer]tip
	members, replaced bool
}

type tip struct {
	link sigchain.Link
	time uint64
}

func newMail[L any]() *mail[L] { return &mail[L]{wake: make(chan struct{}, 1)} }

func events(m *mail[letters]) Events {
	return Events{
		Appended: func(w state.Writer, link sigchain.Link, time uint64) {
			m.post(func(l *letters) {
				if l.appended == nil {
					l.appended = map[state.Writer]tip{}
				}
				if link.Seq > l.appended[w].link.Seq {
					l.appended[w] = tip{link, time}
				}
			})
		},
		Members:  func() { m.post(func(l *letters) { l.members = true }) },
		Replaced: func() { m.post(func(l *letters) { l.replaced = true }) },
	}
}

func (m *mail[L]) post(write func(*L)) {
	m.mu.Lock()
	write(&m.letters)
	m.mu.Unlock()
	poke(m.wake)
}

func (m *mail[L]) take() L {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.letters
	m.letters = *new(L)
	return l
}

func (m *mail[L]) clear() { m.take() }
