package group

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Manager coordinates the groups of one store. It is safe for concurrent use.
// Replies are called exactly once each, with no lock held, possibly before the
// call returns, and must not block.
//
// Locks are taken in this order: mu, entry.mu, queueMu. The Topics are asked
// with entry.mu held, never with mu or queueMu, and TopicsChanged and
// TopicDeleted take queueMu alone: the store may call them from inside its own
// lock.
type Manager struct {
	cfg    Config
	store  Offsets
	topics Topics

	// version is how often the topics changed; it begins at 1.
	version atomic.Uint64

	times timesTable

	randMu sync.Mutex

	mu     sync.Mutex
	groups map[string]*entry
	shares map[string]struct{} // names that share groups have
	closed bool

	// queue holds the writes that Run has not taken up yet, in order. wake has
	// room for one signal that it is not empty.
	queueMu  sync.Mutex
	queue    []write
	queueEnd bool // nothing is queued any more
	wake     chan struct{}
}

// entry is one group: its members, of either protocol, and its offsets.
type entry struct {
	name string

	mu sync.Mutex
	// gone: the entry is out of the map, look again. closed: the manager is.
	gone, closed bool

	// Exactly one of classic and consumer is not nil.
	classic  *classic
	consumer *consumer

	// offsets are durable. Run alone changes them. others are those that another node
	// committed.
	offsets map[lattice.TopicPartition]Value
	others  map[lattice.TopicPartition]bool
	pending map[pendingOffset]Value // likewise, of transactions that are under way
	queued  int                     // writes of this group that Run has not finished

	// stop ends the timer that fires at the time at; zero: no timer.
	stop func() bool
	at   time.Time
}

// New loads the stored offsets. Nothing is written before Run runs, but every
// request that needs no disk is answered from now on.
func New(cfg Config, offsets Offsets, topics Topics) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, store: offsets, topics: topics,
		groups: map[string]*entry{}, shares: map[string]struct{}{}, wake: make(chan struct{}, 1),
	}
	m.version.Store(1)
	now := cfg.Clock.Now()
	err := offsets.Load(func(k Key, v Value, own bool) error {
		e := m.groups[k.Group]
		if e == nil {
			e = m.newEntry(k.Group, now)
			m.groups[k.Group] = e
		}
		if old, ok := e.offsets[k.TopicPartition]; ok {
			v = Join(old, v)
		}
		e.note(k.TopicPartition, v, own)
		return nil
	})
	if err == nil {
		err = offsets.LoadPending(func(k PendingKey, v Value) error {
			e := m.groups[k.Group]
			if e == nil {
				e = m.newEntry(k.Group, now)
				m.groups[k.Group] = e
			}
			e.pending[pendingOffset{k.Producer, k.TopicPartition}] = v
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("load committed offsets: %w", err)
	}
	return m, nil
}

func (m *Manager) newEntry(name string, now time.Time) *entry {
	return &entry{
		name: name, classic: newClassic(&m.cfg, now, 0),
		offsets: map[lattice.TopicPartition]Value{}, others: map[lattice.TopicPartition]bool{}, pending: map[pendingOffset]Value{},
	}
}

// with runs f on a group under its lock, then sets the group's timer, lets go,
// and sends the replies that f decided on. ErrGroupNotFound unless create is
// set; ErrClosed; ErrMaxSize when there are too many groups.
func (m *Manager) with(name string, create bool, f func(e *entry, now time.Time, fx *effects)) error {
	for {
		e, created, err := m.find(name, create)
		if err != nil {
			return err
		}
		e.mu.Lock()
		if e.gone {
			e.mu.Unlock()
			m.drop(e)
			continue
		}
		if e.closed {
			e.mu.Unlock()
			return ErrClosed
		}
		now := m.cfg.Clock.Now()
		fx := &effects{}
		f(e, now, fx)
		m.rearm(e, now)
		if created && e.vacant() && e.epoch() == 0 {
			e.gone = true // the request was refused: leave no trace of it
		}
		gone := e.gone
		e.mu.Unlock()
		if gone {
			m.drop(e)
		}
		fx.run()
		return nil
	}
}

func (m *Manager) find(name string, create bool) (e *entry, created bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e = m.groups[name]; {
	case m.closed:
		return nil, false, ErrClosed
	case e != nil:
		return e, false, nil
	case !create:
		return nil, false, ErrGroupNotFound
	case m.isShare(name):
		return nil, false, ErrShareGroup
	case len(name) > maxGroupBytes:
		return nil, false, ErrInvalidGroupID
	case len(m.groups) >= m.cfg.MaxGroups:
		return nil, false, fmt.Errorf("%w: this node knows %d groups already", ErrMaxSize, len(m.groups))
	}
	e = m.newEntry(name, m.cfg.Clock.Now())
	m.groups[name] = e
	return e, true, nil
}

// isShare reports whether a share group has the name; mu is held.
func (m *Manager) isShare(name string) bool {
	_, ok := m.shares[name]
	return ok
}

// drop takes a gone entry out of the map. The caller holds no lock.
func (m *Manager) drop(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[e.name] == e {
		delete(m.groups, e.name)
	}
}

// entries returns all groups of the moment.
func (m *Manager) entries() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*entry, 0, len(m.groups))
	for _, e := range m.groups {
		all = append(all, e)
	}
	return all
}

// rearm makes sure that a timer fires no later than the group's next deadline.
// One that fires too early is left alone: heartbeats push deadlines back all
// the time.
func (m *Manager) rearm(e *entry, now time.Time) {
	next := e.deadline()
	if next.IsZero() || !e.at.IsZero() && !next.Before(e.at) {
		return
	}
	if e.stop != nil {
		e.stop()
	}
	e.at = next
	e.stop = m.cfg.Clock.AfterFunc(max(next.Sub(now), 0), func() { m.fire(e, next) })
}

// fire is the timer's callback. at tells a timer that was replaced in the last
// moment from the one that counts.
func (m *Manager) fire(e *entry, at time.Time) {
	e.mu.Lock()
	if e.gone || e.closed || !e.at.Equal(at) {
		e.mu.Unlock()
		return
	}
	e.at, e.stop = never, nil
	now := m.cfg.Clock.Now()
	fx := &effects{}
	if e.classic != nil {
		e.classic.tick(now, fx)
	} else {
		e.consumer.tick(now)
	}
	m.rearm(e, now)
	e.mu.Unlock()
	fx.run()
}

func (e *entry) deadline() time.Time {
	if e.classic != nil {
		return e.classic.deadline()
	}
	return e.consumer.deadline()
}

func (e *entry) state() State {
	if e.classic != nil {
		return e.classic.state
	}
	return e.consumer.state()
}

// epoch is the generation or group epoch.
func (e *entry) epoch() int32 {
	if e.classic != nil {
		return e.classic.generation
	}
	return e.consumer.epoch
}

func (e *entry) emptySince() time.Time {
	if e.classic != nil {
		return e.classic.emptySince
	}
	return e.consumer.emptySince
}

// vacant reports whether nothing would be lost with the entry.
func (e *entry) vacant() bool {
	return e.state() == Empty && len(e.offsets) == 0 && len(e.pending) == 0 && e.queued == 0 &&
		(e.classic == nil || len(e.classic.pending) == 0)
}

// view is the topics as of now.
func (m *Manager) view() topicView {
	version := m.version.Load() // first, so that what is read is at least as new
	return topicView{Topics: m.topics, version: version}
}

// random fills an id.
func (m *Manager) random() (id [16]byte, err error) {
	m.randMu.Lock()
	defer m.randMu.Unlock()
	if _, err := io.ReadFull(m.cfg.Rand, id[:]); err != nil {
		return id, fmt.Errorf("draw a random id: %w", err)
	}
	return id, nil
}

// memberID makes a member id from what people will recognise and a UUID.
func (m *Manager) memberID(name string) (string, error) {
	b, err := m.random()
	if err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	if name == "" {
		return id, nil
	}
	const longest = 255
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "")
	}
	return name + "-" + id, nil
}

// close answers everything that waits; nothing is taken on afterwards.
func (m *Manager) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for _, e := range m.entries() {
		fx := &effects{}
		e.mu.Lock()
		e.closed = true
		if e.stop != nil {
			e.stop()
		}
		if e.classic != nil {
			e.classic.close(ErrClosed, fx)
		}
		e.mu.Unlock()
		fx.run()
	}
	m.queueMu.Lock()
	left := m.queue
	m.queue, m.queueEnd = nil, true
	m.queueMu.Unlock()
	for _, w := range left {
		w.done(ErrClosed)
	}
}

// TopicsChanged says that topics were created, deleted or given partitions.
// Consumer groups act on it at their members' next heartbeats.
func (m *Manager) TopicsChanged() { m.version.Add(1) }
