package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Manager coordinates the transactions of one store. It is safe for concurrent
// use. Replies are called exactly once each, with no lock held, possibly before the
// call returns, and must not block.
//
// A transactional id has one change at a time: while it is being written, or a
// decision is on its way to the logs, further requests wait in line. Logs and
// groups are called with no lock held, and may ask Ongoing with theirs.
type Manager struct {
	cfg    Config
	store  Records
	logs   Logs
	groups Groups
	newID  func() (int64, error) // draws a producer id that was never used

	mu         sync.Mutex
	ids        map[string]*entry
	byProducer map[int64]*entry
	closed     bool

	// queue holds the writes that Run has not taken up yet, in order. wake has room
	// for one signal that it is not empty.
	queueMu  sync.Mutex
	queue    []write
	queueEnd bool // nothing is queued any more
	wake     chan struct{}
}

// entry is one transactional id. Locks are taken one at a time.
type entry struct {
	id string

	mu     sync.Mutex
	t      Transaction  // durable
	next   *Transaction // being made durable; nil: nothing is
	busy   bool         // next is being written, or t is a decision on its way
	stuck  bool         // it could not be taken everywhere: the timer tries again
	gone   bool         // out of the map: look again
	parked []func()     // requests that wait until it is not busy

	stop func() bool // ends the timer of an ongoing transaction
}

// maxParked is how many requests of one transactional id wait in line.
const maxParked = 64

// New loads the transactions. Nothing is written and no decision goes anywhere
// before Run runs; what needs neither is answered from now on.
func New(cfg Config, store Records, logs Logs, groups Groups, newID func() (int64, error)) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, store: store, logs: logs, groups: groups, newID: newID,
		ids: map[string]*entry{}, byProducer: map[int64]*entry{}, wake: make(chan struct{}, 1),
	}
	err := store.LoadTransactions(func(t Transaction) error {
		e := &entry{id: t.ID, t: t, busy: t.State.deciding()}
		m.ids[t.ID], m.byProducer[t.Producer] = e, e
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load transactions: %w", err)
	}
	return m, nil
}

// Producer is the answer to InitRequest.
type Producer struct {
	ID    int64
	Epoch int16
}

// InitRequest asks for a producer id and epoch (InitProducerId with a
// transactional id).
type InitRequest struct {
	ID      string
	Timeout time.Duration // of its transactions
	// Producer and Epoch are what the producer had, to go on after an error; -1, -1
	// for a new instance, which takes over from any other.
	Producer int64
	Epoch    int16
}

// Init aborts what another instance left under way, and gives this one an epoch
// of its own.
func (m *Manager) Init(r InitRequest, reply func(Producer, error)) {
	timeout := r.Timeout.Truncate(time.Millisecond)
	switch {
	case r.ID == "" || len(r.ID) > maxID || (r.Producer < 0) != (r.Epoch < 0):
		reply(Producer{-1, -1}, fmt.Errorf("%w: id of %d bytes, producer %d epoch %d", ErrInvalidRequest, len(r.ID), r.Producer, r.Epoch))
		return
	case timeout <= 0 || timeout > m.cfg.MaxTimeout:
		reply(Producer{-1, -1}, fmt.Errorf("%w: %v, the most is %v", ErrTimeout, r.Timeout, m.cfg.MaxTimeout))
		return
	}
	id := int64(-1)
	ask := func(t Transaction, now time.Time) verdict {
		return t.initialise(now, timeout, producerName{max(r.Producer, -1), max(r.Epoch, -1)}, id)
	}
	m.do(r.ID, ask, func() (err error) { id, err = m.newID(); return err }, func(t Transaction, err error) {
		if err != nil {
			reply(Producer{-1, -1}, err)
			return
		}
		reply(Producer{t.Producer, t.Epoch}, nil)
	})
}

// Request is what every request of an initialised producer says.
type Request struct {
	ID       string
	Producer int64
	Epoch    int16
}

func (r Request) name() producerName { return producerName{r.Producer, r.Epoch} }

// Add brings partitions and groups into the producer's transaction, durably before
// it replies, and begins one if there is none. Whoever adds a partition makes sure
// that it exists.
func (m *Manager) Add(r Request, partitions []lattice.TopicPartition, groups []string, reply func(error)) {
	partitions, groups = slices.Clone(partitions), slices.Clone(groups)
	for _, g := range groups {
		if len(g) > maxID {
			reply(fmt.Errorf("%w: a group's name of %d bytes", ErrInvalidRequest, len(g)))
			return
		}
	}
	m.do(r.ID, func(t Transaction, now time.Time) verdict {
		return t.add(now, r.name(), partitions, groups)
	}, nil, func(_ Transaction, err error) { reply(err) })
}

// End commits or aborts the producer's transaction.
func (m *Manager) End(r Request, commit bool, reply func(error)) {
	m.do(r.ID, func(t Transaction, now time.Time) verdict {
		return t.end(now, r.name(), commit)
	}, nil, func(_ Transaction, err error) { reply(err) })
}

// Ongoing returns nil if the producer's transaction takes batches in the
// partition: ErrProducer, ErrEpoch, ErrState. It is quick, and may be called with
// the locks of logs held.
func (m *Manager) Ongoing(tp lattice.TopicPartition, producer int64, epoch int16) error {
	return m.ongoing(Request{Producer: producer, Epoch: epoch}, func(t *Transaction) bool { return t.has(tp) })
}

// OngoingFor returns nil if the transaction takes offsets of the group, likewise.
func (m *Manager) OngoingFor(group string, r Request) error {
	return m.ongoing(r, func(t *Transaction) bool { return t.ID == r.ID && t.hasGroup(group) })
}

// Holds reports whether a transaction of the producer, in whatever epoch, takes
// batches in the partition or is yet to be ended there: then its end is the
// coordinator's to write. It is quick, and may be called with the locks of logs
// held.
func (m *Manager) Holds(tp lattice.TopicPartition, producer int64) bool {
	m.mu.Lock()
	e := m.byProducer[producer]
	m.mu.Unlock()
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.gone && (e.t.Producer == producer && e.t.has(tp) || e.next != nil && e.next.has(tp))
}

func (m *Manager) ongoing(r Request, has func(*Transaction) bool) error {
	m.mu.Lock()
	e := m.byProducer[r.Producer]
	m.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%w: producer %d has none", ErrProducer, r.Producer)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	newest, ending := e.t.Epoch, false
	if e.next != nil {
		newest, ending = e.next.Epoch, e.next.State.deciding()
	}
	switch {
	case e.gone || e.t.Producer != r.Producer:
		return fmt.Errorf("%w: producer %d has none", ErrProducer, r.Producer)
	case r.Epoch != newest && r.Epoch != e.t.Epoch || ending && r.Epoch != newest:
		return fmt.Errorf("%w: epoch %d of producer %d, newest is %d", ErrEpoch, r.Epoch, r.Producer, newest)
	case r.Epoch != e.t.Epoch || e.t.State != Ongoing || ending || !has(&e.t):
		return fmt.Errorf("%w: producer %d has no such transaction under way", ErrState, r.Producer)
	}
	return nil
}

// do finds the transactional id, asks what the request comes to, and sees to it.
// draw, when set, makes an id that is not known, and is called when ask wants
// another producer id; then ask is asked again.
func (m *Manager) do(id string, ask func(Transaction, time.Time) verdict, draw func() error, reply func(Transaction, error)) {
	for {
		e, err := m.find(id, draw != nil)
		if err != nil {
			reply(Transaction{}, err)
			return
		}
		e.mu.Lock()
		switch {
		case e.gone:
			e.mu.Unlock()
			continue
		case e.busy && !e.stuck && len(e.parked) < maxParked:
			e.parked = append(e.parked, func() { m.do(id, ask, draw, reply) })
			e.mu.Unlock()
			return
		case e.busy:
			e.mu.Unlock()
			reply(Transaction{}, ErrConcurrent)
			return
		}
		v := ask(e.t, m.cfg.Clock.Now().Truncate(time.Millisecond).UTC())
		if v.write {
			m.begin(e, v, func() { m.do(id, ask, draw, reply) }, reply)
			return
		}
		vacant := e.t.State == 0
		e.gone = vacant && !v.newID // a request that was refused leaves no trace
		e.mu.Unlock()
		if vacant && !v.newID {
			m.drop(e)
		}
		if v.newID {
			if err := draw(); err != nil {
				m.dropVacant(e)
				reply(Transaction{}, fmt.Errorf("draw a producer id: %w", err))
				return
			}
			continue
		}
		reply(v.next, v.err)
		return
	}
}

// begin makes a verdict's next state durable; e.mu is held, and let go of.
func (m *Manager) begin(e *entry, v verdict, again func(), reply func(Transaction, error)) {
	e.busy, e.next = true, &v.next
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
	w := write{e: e, next: v.next, sync: true, done: reply}
	if v.again {
		w.done = func(_ Transaction, err error) {
			if err != nil {
				reply(Transaction{}, err)
				return
			}
			again()
		}
	}
	e.mu.Unlock()
	if !m.enqueue(w) {
		m.wrote(w, ErrClosed)
	}
}

func (m *Manager) find(id string, create bool) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.ids[id]
	switch {
	case m.closed:
		return nil, ErrClosed
	case e != nil:
		return e, nil
	case !create:
		return nil, fmt.Errorf("%w: nothing is known of %.100q", ErrProducer, id)
	case len(m.ids) >= m.cfg.MaxIDs:
		return nil, fmt.Errorf("%w: %d", ErrTooMany, len(m.ids))
	}
	e = &entry{id: id, t: Transaction{ID: id}}
	m.ids[id] = e
	return e, nil
}

// drop takes a gone entry out of the maps. The caller holds no lock.
func (m *Manager) drop(e *entry) {
	e.mu.Lock()
	producer := e.t.Producer
	e.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids[e.id] == e {
		delete(m.ids, e.id)
	}
	if m.byProducer[producer] == e {
		delete(m.byProducer, producer)
	}
}

func (m *Manager) dropVacant(e *entry) {
	e.mu.Lock()
	vacant := e.t.State == 0 && !e.busy
	e.gone = e.gone || vacant
	e.mu.Unlock()
	if vacant {
		m.drop(e)
	}
}

// Describe returns one transactional id's state. ErrNotFound.
func (m *Manager) Describe(id string) (Transaction, error) {
	m.mu.Lock()
	e := m.ids[id]
	m.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.t.State != 0 {
			return e.t, nil
		}
	}
	return Transaction{}, fmt.Errorf("%w: %.100q", ErrNotFound, id)
}

// List returns every transactional id's state, sorted by id.
func (m *Manager) List() []Transaction {
	var all []Transaction
	for _, e := range m.entries() {
		e.mu.Lock()
		if e.t.State != 0 && !e.gone {
			all = append(all, e.t)
		}
		e.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Transaction) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func (m *Manager) entries() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*entry, 0, len(m.ids))
	for _, e := range m.ids {
		all = append(all, e)
	}
	return all
}

// rearm sets the timer of an ongoing transaction. e.mu is held.
func (m *Manager) rearm(e *entry, now time.Time) {
	if e.t.State != Ongoing || e.busy {
		return
	}
	if e.stop != nil {
		e.stop()
	}
	e.stop = m.cfg.Clock.AfterFunc(max(e.t.deadline().Sub(now), 0), func() { m.fire(e.id) })
}

// fire aborts a transaction whose time is over.
func (m *Manager) fire(id string) {
	m.do(id, func(t Transaction, now time.Time) verdict {
		v := t.expire(now)
		if v.write {
			m.cfg.Logger.Warn("transaction timed out", "id", id, "producer", t.Producer, "epoch", t.Epoch, "started", t.Started)
		}
		return v
	}, nil, func(t Transaction, err error) {
		early := err == nil && t.State == Ongoing // the clock was put back
		if early || errors.Is(err, ErrNotStored) || errors.Is(err, ErrConcurrent) {
			m.cfg.Clock.AfterFunc(m.cfg.Retry, func() { m.fire(id) })
		}
	})
}
