package group

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Offsets that other nodes commit. Refresh and Reload read them in Run's turn, between
// the commits of this node: so what is read is never older than what this node has
// stored, and a commit that is under way is joined with it when it is.

// Refresh takes over offsets that others may have changed in the store, and returns
// when that is done. ErrClosed, or that of Offsets.
func (m *Manager) Refresh(keys []Key) error {
	return m.await(func() error {
		for _, k := range keys {
			v, own, ok, err := m.store.Read(k)
			if err != nil {
				return fmt.Errorf("read an offset of group %q: %w", k.Group, err)
			}
			m.refresh(k, v, own, ok)
		}
		return nil
	})
}

// Reload is Refresh for all there are, when it is not known which have changed.
func (m *Manager) Reload() error {
	return m.await(func() error {
		there := map[Key]bool{}
		err := m.store.Load(func(k Key, v Value, own bool) error {
			there[k] = true
			m.refresh(k, v, own, true)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the offsets of all groups: %w", err)
		}
		for _, e := range m.entries() {
			for _, tp := range e.partitions() {
				if k := (Key{e.name, tp}); !there[k] {
					m.refresh(k, Value{}, false, false)
				}
			}
		}
		return nil
	})
}

// await runs f in Run's turn.
func (m *Manager) await(f func() error) error {
	done := make(chan error, 1)
	if !m.enqueue(write{plan: func(*batch) error { return f() }, done: func(err error) { done <- err }}) {
		return ErrClosed
	}
	return <-done
}

// refresh brings one offset in memory to what is stored.
func (m *Manager) refresh(k Key, v Value, own, ok bool) {
	e, _, err := m.find(k.Group, ok)
	if err != nil {
		if ok && !errors.Is(err, ErrClosed) {
			m.cfg.Logger.Warn("passed over an offset that another node committed", "group", k.Group, "err", err)
		}
		return
	}
	e.mu.Lock()
	switch {
	case e.gone || e.closed:
	case ok:
		e.note(k.TopicPartition, v, own)
	default:
		e.forget(k.TopicPartition)
	}
	if !e.gone && e.vacant() && e.epoch() == 0 {
		e.gone = true // the last of its offsets went, and nobody is in it
	}
	gone := e.gone
	e.mu.Unlock()
	if gone {
		m.drop(e)
	}
}

// partitions returns those with an offset.
func (e *entry) partitions() []lattice.TopicPartition {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]lattice.TopicPartition, 0, len(e.offsets))
	for tp := range e.offsets {
		all = append(all, tp)
	}
	return all
}
