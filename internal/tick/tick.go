// Package tick is time as the engine's callers supply it: a clock to read and
// timers to set. Nothing in core, storage, engine or mesh/reconcile reads the
// machine's clock, so that a simulation can drive the real code.
//
// Real is the machine's clock. Manual moves only when a test says so.
package tick

import (
	"sort"
	"sync"
	"time"
)

// Clock tells the time and calls back later. Implementations are safe for
// concurrent use.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// AfterFunc calls f in its own goroutine once d has passed. The returned
	// stop reports whether it prevented the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Real is the machine's clock.
type Real struct{}

// Now returns time.Now().
func (Real) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (Real) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Manual is a clock that stands still until Advance moves it. Callbacks run in
// the goroutine that calls Advance, in order of their due time, so a test that
// uses it is deterministic.
type Manual struct {
	mu     sync.Mutex
	now    time.Time
	seq    int
	timers map[int]timer
	after  func()
}

type timer struct {
	due time.Time
	f   func()
}

// NewManual returns a clock that stands at start.
func NewManual(start time.Time) *Manual {
	return &Manual{now: start, timers: map[int]timer{}}
}

// Now returns the time that the clock stands at.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// AfterFunc registers f to run in the Advance that reaches now+d.
func (m *Manual) AfterFunc(d time.Duration, f func()) func() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	id := m.seq
	m.timers[id] = timer{m.now.Add(d), f}
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		_, pending := m.timers[id]
		delete(m.timers, id)
		return pending
	}
}

// AfterEach has f be called after each callback, with the clock standing at that
// callback's time: so that what the callback began can end before time goes on.
func (m *Manual) AfterEach(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = f
}

// Advance moves the clock by d and runs each callback that falls due, with the
// clock standing at that callback's time.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.now.Add(d)
	for {
		ids := make([]int, 0, len(m.timers))
		for id, t := range m.timers {
			if !t.due.After(end) {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			break
		}
		sort.Slice(ids, func(i, j int) bool {
			a, b := m.timers[ids[i]], m.timers[ids[j]]
			if a.due.Equal(b.due) {
				return ids[i] < ids[j]
			}
			return a.due.Before(b.due)
		})
		next := m.timers[ids[0]]
		delete(m.timers, ids[0])
		if next.due.After(m.now) {
			m.now = next.due
		}
		after := m.after
		m.mu.Unlock()
		next.f()
		if after != nil {
			after()
		}
		m.mu.Lock()
	}
	m.now = end
	m.mu.Unlock()
}
