package share

import (
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
)

// write is a partition's state that waits for Run, which writes what the state is by
// then. done is told how it ended, exactly once.
type write struct {
	e    *entry
	tp   lattice.TopicPartition
	done func(error)
}

// save hands a partition's state to Run; e.mu is held. When Run has ended done is
// called with the effects.
func (m *Manager) save(e *entry, tp lattice.TopicPartition, fx *effects, done func(error)) {
	m.queueMu.Lock()
	defer m.queueMu.Unlock()
	if m.queueEnd {
		fx.add(func() { done(ErrClosed) })
		return
	}
	e.queued++
	m.queue = append(m.queue, write{e, tp, done})
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// nobody waits for a write.
func nobody(error) {}

// Run writes states, as many as wait in one durable step, until ctx ends. It then
// answers everything that still waits with ErrClosed, as it does everything that
// comes later, and returns nil.
func (m *Manager) Run(ctx context.Context) error {
	defer m.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
			for m.flush() && ctx.Err() == nil {
			}
		}
	}
}

// key names a partition of a group.
type key struct {
	e  *entry
	tp lattice.TopicPartition
}

// flush writes what waits, and reports whether there was anything. Run alone calls
// it, and tests that do without Run.
func (m *Manager) flush() bool {
	m.queueMu.Lock()
	waiting := m.queue
	m.queue = nil
	m.queueMu.Unlock()
	if len(waiting) == 0 {
		return false
	}
	wrote := map[key]*delivery{}
	var changes []Change
	for _, w := range waiting {
		k := key{w.e, w.tp}
		if _, ok := wrote[k]; ok {
			continue
		}
		change := Change{Key: group.Key{Group: w.e.name, TopicPartition: w.tp}}
		w.e.mu.Lock()
		d := w.e.parts[w.tp]
		if d != nil {
			s := d.w.state(m.termOf(w.tp, d), w.e.settings.limits())
			change.State = &s
		}
		w.e.mu.Unlock()
		wrote[k] = d
		changes = append(changes, change)
	}
	// A crash before PutShares returns leaves some of the states, or none: whoever
	// waits for them was told nothing.
	err := m.store.PutShares(changes)
	if err != nil {
		m.cfg.Logger.Error("states of share groups were not stored", "partitions", len(changes), "err", err)
		err = fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	for k, d := range wrote {
		k.e.mu.Lock()
		switch {
		case err != nil:
			k.e.queued++ // until it is tried again
		case d != nil:
			d.durable = true
		}
		k.e.mu.Unlock()
	}
	if err != nil {
		m.cfg.Clock.AfterFunc(m.cfg.Retry, func() { m.again(wrote) })
	}
	for _, w := range waiting {
		w.e.mu.Lock()
		w.e.queued--
		m.leave(w.e, &effects{})
		w.done(err)
	}
	return true
}

// termOf returns the log's term, to be stored with a state. A state that was not
// compared with the log yet keeps its own.
func (m *Manager) termOf(tp lattice.TopicPartition, d *delivery) int32 {
	if !d.fresh {
		return d.term
	}
	_, term, ok := m.logs.Committed(tp)
	if !ok {
		return -1
	}
	return term
}

// again tries states once more that could not be written.
func (m *Manager) again(states map[key]*delivery) {
	for k := range states {
		fx := &effects{}
		k.e.mu.Lock()
		k.e.queued--
		m.save(k.e, k.tp, fx, nobody)
		m.leave(k.e, fx)
	}
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
		e.stir(fx)
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
