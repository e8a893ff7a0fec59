package txn

import (
	"context"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
)

// write is a state that waits for Run. done is told how it ended, exactly once:
// when next is durable, and, if it is a decision, everywhere.
type write struct {
	e    *entry
	next Transaction
	gone bool // next is that the id is forgotten
	sync bool
	done func(Transaction, error)
}

// enqueue hands a write to Run.
func (m *Manager) enqueue(w write) (ok bool) {
	m.queueMu.Lock()
	defer m.queueMu.Unlock()
	if m.queueEnd {
		return false
	}
	m.queue = append(m.queue, w)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// Run writes states, as many as wait in one durable step, takes decisions to the
// logs, and forgets ids that nobody uses, until ctx ends. It first goes on with the
// decisions that were on their way when the last run ended. In the end it answers
// everything that still waits with ErrClosed, as it does everything that comes
// later, and returns nil.
func (m *Manager) Run(ctx context.Context) error {
	defer m.close()
	m.resume()
	check := make(chan struct{}, 1)
	arm := func() func() bool {
		return m.cfg.Clock.AfterFunc(m.cfg.Check, func() { check <- struct{}{} })
	}
	stop := arm()
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
			for m.flush() && ctx.Err() == nil {
			}
		case <-check:
			m.forget()
			stop = arm()
		}
	}
}

// resume takes up what was under way when the manager was made.
func (m *Manager) resume() {
	for _, e := range m.entries() {
		e.mu.Lock()
		deciding := e.t.State.deciding()
		m.rearm(e, m.cfg.Clock.Now())
		e.mu.Unlock()
		if deciding {
			m.cfg.Logger.Info("finishing a transaction", "id", e.id, "state", e.t.State)
			m.finish(e, func(Transaction, error) {})
		}
	}
}

// flush writes what waits, in one step, and reports whether there was anything.
// Run alone calls it, and tests that do without Run.
func (m *Manager) flush() bool {
	m.queueMu.Lock()
	waiting := m.queue
	m.queue = nil
	m.queueMu.Unlock()
	if len(waiting) == 0 {
		return false
	}
	var put []Transaction
	var gone []string
	sync := false
	for _, w := range waiting {
		sync = sync || w.sync
		if w.gone {
			gone = append(gone, w.e.id)
		} else {
			put = append(put, w.next)
		}
	}
	err := m.store.PutTransactions(put, gone, sync)
	if err != nil {
		m.cfg.Logger.Error("transactions were not stored", "states", len(waiting), "err", err)
		err = fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	for _, w := range waiting {
		m.wrote(w, err)
	}
	return true
}

// wrote goes on once a state is durable, or was refused.
func (m *Manager) wrote(w write, err error) {
	e := w.e
	e.mu.Lock()
	before, was := e.t.Producer, e.t.State
	e.next = nil
	completing := was.deciding()
	switch {
	case err != nil && completing:
		e.mu.Unlock()
		m.stall(e, err)
		w.done(w.next, nil) // the decision stands
		return
	case err == nil && w.gone:
		e.gone = true
	case err == nil:
		e.t = w.next
	}
	deciding := err == nil && e.t.State.deciding()
	vacant := e.t.State == 0
	e.gone = e.gone || vacant
	gone, after := e.gone, e.t.Producer
	e.mu.Unlock()
	if gone {
		m.drop(e)
	} else if err == nil && (before != after || was == 0) {
		m.moved(e, was, before, after)
	}
	if deciding {
		m.finish(e, w.done)
		return
	}
	e.mu.Lock()
	parked := e.release(m)
	e.mu.Unlock()
	w.done(w.next, err)
	for _, ask := range parked {
		ask()
	}
}

// release makes e ready for the next request. e.mu is held.
func (e *entry) release(m *Manager) (parked []func()) {
	parked, e.parked = e.parked, nil
	e.busy, e.stuck = false, false
	if !e.gone {
		m.rearm(e, m.cfg.Clock.Now())
	}
	return parked
}

// moved files e under its new producer id.
func (m *Manager) moved(e *entry, was State, before, after int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was != 0 && m.byProducer[before] == e {
		delete(m.byProducer, before)
	}
	m.byProducer[after] = e
}

// finish takes a decision to its partitions and groups, all at once, and then
// completes it. done is called when that is so, or when something failed: then the
// decision stands, and all of it is tried again later; what was done is not done
// twice.
func (m *Manager) finish(e *entry, done func(Transaction, error)) {
	e.mu.Lock()
	t := e.t
	e.mu.Unlock()
	r := &round{left: 1 + len(t.Partitions) + len(t.Groups)}
	r.end = func(err error) {
		if err != nil {
			m.stall(e, err)
			done(t, nil)
			return
		}
		w := write{e: e, next: t.complete(m.cfg.Clock.Now().Truncate(time.Millisecond).UTC()), done: done}
		if !m.enqueue(w) {
			m.wrote(w, ErrClosed)
		}
	}
	commit := t.State == PrepareCommit
	for _, tp := range t.Partitions {
		m.logs.End(tp, record.Marker{ProducerID: t.Producer, Epoch: t.Epoch, Commit: commit, Time: t.Updated.UnixMilli()}, func(err error) {
			if lattice.KindOf(err) == lattice.NotFound && err != nil {
				err = nil // the topic is gone, and with it what was to be decided
			}
			r.done(err)
		})
	}
	for _, g := range t.Groups {
		m.groups.EndTransaction(g, t.Producer, commit, r.done)
	}
	r.done(nil)
}

// stall gives up on a decision for a while. Requests of its producer are refused
// meanwhile with an error that makes them try again.
func (m *Manager) stall(e *entry, why error) {
	e.mu.Lock()
	e.stuck = true
	parked := e.parked
	e.parked = nil
	e.mu.Unlock()
	for _, ask := range parked {
		ask()
	}
	if m.isClosed() {
		return // the next start takes it up
	}
	m.cfg.Logger.Error("a transaction's end could not be written everywhere; trying again", "id", e.id, "err", why)
	m.cfg.Clock.AfterFunc(m.cfg.Retry, func() {
		if !m.isClosed() {
			m.finish(e, func(Transaction, error) {})
		}
	})
}

func (m *Manager) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// forget removes the ids that nobody has used for long.
func (m *Manager) forget() {
	now := m.cfg.Clock.Now()
	for _, e := range m.entries() {
		e.mu.Lock()
		if e.busy || e.gone || e.t.State == 0 || !e.t.idle(now, m.cfg.Expiry) {
			e.mu.Unlock()
			continue
		}
		e.busy = true
		w := write{e: e, gone: true, sync: true, done: func(Transaction, error) {}}
		e.mu.Unlock()
		if !m.enqueue(w) {
			m.wrote(w, ErrClosed)
		}
	}
}

// close answers everything that waits; nothing is taken on afterwards.
func (m *Manager) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.queueMu.Lock()
	left := m.queue
	m.queue, m.queueEnd = nil, true
	m.queueMu.Unlock()
	for _, w := range left {
		m.wrote(w, ErrClosed)
	}
	for _, e := range m.entries() {
		e.mu.Lock()
		if e.stop != nil {
			e.stop()
		}
		parked := e.parked
		e.parked = nil
		e.mu.Unlock()
		for _, ask := range parked {
			ask()
		}
	}
}
