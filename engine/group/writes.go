package group

import (
	"context"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// write is a change of offsets that waits for Run. plan decides, in the order
// of the queue and knowing what the writes before it decided, what to change;
// it takes the locks it needs. done is told how it ended, exactly once.
type write struct {
	plan func(*batch) error
	done func(error)
}

// batch is the writes that share one Apply.
type batch struct {
	changes []Change
	entries []*entry // parallel to changes
	// staged is what the changes come to, by group; nil: removed.
	staged        map[string]map[lattice.TopicPartition]*Value
	stagedPending map[string]map[pendingOffset]*Value
}

func newBatch() *batch {
	return &batch{staged: map[string]map[lattice.TopicPartition]*Value{}, stagedPending: map[string]map[pendingOffset]*Value{}}
}

// maxBatch is how many changes one Apply takes before the next write has to
// wait for the next one.
const maxBatch = 10_000

func (b *batch) get(e *entry, tp lattice.TopicPartition) (Value, bool) {
	if v, ok := b.staged[e.name][tp]; ok {
		if v == nil {
			return Value{}, false
		}
		return *v, true
	}
	v, ok := e.offsets[tp]
	return v, ok
}

func (b *batch) set(e *entry, tp lattice.TopicPartition, v *Value) {
	b.changes = append(b.changes, Change{Key: Key{e.name, tp}, Value: v})
	b.entries = append(b.entries, e)
	if b.staged[e.name] == nil {
		b.staged[e.name] = map[lattice.TopicPartition]*Value{}
	}
	b.staged[e.name][tp] = v
}

// commit sets an offset over what was committed before.
func (b *batch) commit(e *entry, tp lattice.TopicPartition, v Value, resetID [16]byte) {
	if old, ok := b.get(e, tp); ok {
		v = v.after(old, resetID)
	}
	b.set(e, tp, &v)
}

// all returns the partitions with an offset, stored or staged.
func (b *batch) all(e *entry) []lattice.TopicPartition {
	tps := partitionSet{}
	for tp := range e.offsets {
		tps.add(tp)
	}
	for tp, v := range b.staged[e.name] {
		if v == nil {
			delete(tps, tp)
		} else {
			tps.add(tp)
		}
	}
	return tps.sorted()
}

// enqueue hands a write to Run. It may be called with an entry's lock held,
// which is what keeps one group's writes in the order of its requests.
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

// Run writes commits, as many as wait in one durable step, and expires offsets,
// until ctx ends. It then answers everything that still waits with ErrClosed,
// as it does everything that comes later, and returns nil.
func (m *Manager) Run(ctx context.Context) error {
	defer m.close()
	check := make(chan struct{}, 1)
	arm := func() func() bool {
		return m.cfg.Clock.AfterFunc(m.cfg.RetentionCheck, func() { check <- struct{}{} })
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
			m.expire()
			stop = arm()
		}
	}
}

// flush applies waiting writes, up to one batch, and reports whether it took
// any. Run alone calls it, and tests that do without Run.
func (m *Manager) flush() bool {
	m.queueMu.Lock()
	waiting := m.queue
	m.queue = nil
	m.queueMu.Unlock()
	if len(waiting) == 0 {
		return false
	}
	b := newBatch()
	results := make([]error, 0, len(waiting))
	for _, w := range waiting {
		if len(b.changes) >= maxBatch {
			break
		}
		results = append(results, w.plan(b))
	}
	if rest := waiting[len(results):]; len(rest) > 0 {
		m.queueMu.Lock()
		m.queue = append(rest, m.queue...)
		m.queueMu.Unlock()
	}

	// A crash before Apply returns loses commits that nobody was told of. An
	// error may leave them on the disk all the same: then a restart shows an
	// offset that its committer, told that it failed, is about to commit again or
	// to read again from before: at least once either way.
	var stored error
	if len(b.changes) > 0 {
		stored = m.store.Apply(b.changes)
	}
	if stored == nil {
		for i, ch := range b.changes {
			e := b.entries[i]
			e.mu.Lock()
			e.changed(ch)
			e.mu.Unlock()
		}
	} else {
		m.cfg.Logger.Error("committed offsets were not stored", "changes", len(b.changes), "err", stored)
		why := ErrNotStored
		if lattice.KindOf(stored) == lattice.Denied {
			why = ErrDenied
		}
		stored = fmt.Errorf("%w: %w", why, stored)
	}
	for i, err := range results {
		if err == nil {
			err = stored
		}
		waiting[i].done(err)
	}
	return true
}

// changed notes a change that is durable.
func (e *entry) changed(ch Change) {
	tp := ch.Key.TopicPartition
	switch po := (pendingOffset{ch.Producer, tp}); {
	case ch.Pending && ch.Value != nil:
		e.pending[po] = *ch.Value
	case ch.Pending:
		delete(e.pending, po)
	case ch.Value != nil:
		v := *ch.Value
		if old, ok := e.offsets[tp]; ok {
			v = Join(old, v) // greater only if another node's came meanwhile
		}
		e.note(tp, v, true)
	default:
		e.forget(tp)
	}
}

// note notes a stored offset.
func (e *entry) note(tp lattice.TopicPartition, v Value, own bool) {
	e.offsets[tp] = v
	if own {
		delete(e.others, tp)
	} else {
		e.others[tp] = true
	}
}

func (e *entry) forget(tp lattice.TopicPartition) {
	delete(e.offsets, tp)
	delete(e.others, tp)
}

// enqueueFor queues a write of one group; the caller holds e.mu. plan runs with
// e.mu held. done runs with no lock held, after the group has been let go of if
// nothing is left of it and drop is set.
func (m *Manager) enqueueFor(e *entry, plan func(*batch) error, drop bool, done func(error)) (ok bool) {
	ok = m.enqueue(write{
		plan: func(b *batch) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			return plan(b)
		},
		done: func(err error) {
			e.mu.Lock()
			e.queued--
			if drop && err == nil && e.state() == Empty && len(e.offsets) == 0 && len(e.pending) == 0 && e.queued == 0 {
				e.gone = true
				if e.stop != nil {
					e.stop()
				}
			}
			gone := e.gone
			e.mu.Unlock()
			if gone {
				m.drop(e)
			}
			done(err)
		},
	})
	if ok {
		e.queued++
	}
	return ok
}

// TopicDeleted drops the offsets of a topic incarnation, before any commit that
// arrives later is stored. The topic must be gone from the Topics already.
// Calling it again is harmless, and right after a crash.
func (m *Manager) TopicDeleted(id lattice.TopicID) {
	m.TopicsChanged()
	m.enqueue(write{
		plan: func(b *batch) error {
			for _, e := range m.entries() {
				e.mu.Lock()
				for _, tp := range b.all(e) {
					if tp.Topic == id {
						b.set(e, tp, nil)
					}
				}
				for _, po := range b.allPending(e) {
					if po.Topic == id {
						b.setPending(e, po, nil)
					}
				}
				e.mu.Unlock()
			}
			return nil
		},
		done: func(error) {}, // flush has logged it; the offsets of a topic that is gone are not shown
	})
}

// expire removes the offsets that this node has to expire (Config.Homes) of groups that
// have had no members for the retention time, counted from when the last member left (or from
// our start: before that we do not know), or from the commit if that was later; and the
// groups that nothing is left of.
func (m *Manager) expire() {
	for _, e := range m.entries() {
		e.mu.Lock()
		now := m.cfg.Clock.Now()
		switch {
		case e.gone || e.closed || e.state() != Empty:
		case e.vacant():
			e.gone = true
		case len(m.expired(e, now)) > 0:
			m.enqueueFor(e, func(b *batch) error {
				if e.state() != Empty {
					return nil
				}
				for _, tp := range m.expired(e, now) {
					if v, ok := b.get(e, tp); ok && v.Time.Equal(e.offsets[tp].Time) {
						b.set(e, tp, nil)
					}
				}
				return nil
			}, true, func(error) {})
		}
		gone := e.gone
		e.mu.Unlock()
		if gone {
			m.drop(e)
		}
	}
}

func (m *Manager) expired(e *entry, now time.Time) []lattice.TopicPartition {
	here, known := false, false
	if m.cfg.Homes != nil {
		here, known = m.cfg.Homes.Home(e.name)
	}
	old := partitionSet{}
	for tp, v := range e.offsets {
		if known && !here || !known && e.others[tp] {
			continue
		}
		since := e.emptySince()
		if v.Time.After(since) {
			since = v.Time
		}
		if !now.Before(since.Add(m.cfg.OffsetsRetention)) {
			old.add(tp)
		}
	}
	return old.sorted()
}
