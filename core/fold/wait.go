package fold

import (
	"cmp"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/sigchain"
)

// waiting is the entries that are here and may not enter yet.
type waiting struct {
	at    map[sigchain.Place]*waiter   // all of them
	on    map[sigchain.Place][]*waiter // those that wait for something in a place
	held  []*waiter                    // those that the clock holds, ascending by time
	queue []*waiter                    // those to look at again
	bytes int
}

// waiter is an entry on its way in.
type waiter struct {
	entry sigchain.Signed
	at    sigchain.Place
	ops   operations // once it is parsed
	step  int        // what it depends on, up to here, has entered
	why   cause
	on    sigchain.Place // for what it waits, if why is missing
	gone  bool
}

// cause says what keeps a waiter.
type cause uint8

const (
	missing cause = iota
	byClock
	byVersion
)

func (w *waiting) clear() {
	*w = waiting{at: map[sigchain.Place]*waiter{}, on: map[sigchain.Place][]*waiter{}}
}

// need returns the i-th place in which something must have entered: first what
// stands before it, then its parents. A zero place needs nothing.
func (w *waiter) need(i int) sigchain.Place {
	s := w.entry
	switch {
	case i > 0:
		return s.Parents[i-1].Place()
	case s.Prev.IsZero():
		return sigchain.Place{}
	}
	return sigchain.Ref{Author: s.Author, Link: s.Prev}.Place()
}

// ready reports whether w may enter, and notes what keeps it if not. What was
// there once stays, so each need is looked at until then only.
func (m *Machine) ready(w *waiter) bool {
	for ; w.step <= len(w.entry.Parents); w.step++ {
		if p := m.before(w.need(w.step)); p.Seq != 0 && !m.entered(p) {
			w.why, w.on = missing, p
			return false
		}
	}
	if clock.Held(clock.Timestamp(w.entry.Time), m.nowMs, m.config.MaxDriftMs) {
		w.why = byClock
		return false
	}
	if w.ops.state == nil {
		w.ops = parse(w.entry)
	}
	w.why = byVersion
	return !w.ops.unknown
}

// entered reports whether something has entered in a place.
func (m *Machine) entered(p sigchain.Place) bool {
	c := m.chains[writerOf(p)]
	return c != nil && p.Seq <= c.tip.Seq
}

// Awaited reports whether entries that are here wait for one of an author, which is not.
func (m *Machine) Awaited(author lattice.AuthorID) bool {
	for p, all := range m.waiting.on {
		if p.Author == author && len(all) > 0 && m.waiting.at[p] == nil {
			return true
		}
	}
	return false
}

// before returns p, or, when that is frozen, the last place of its chain before
// the fork; zero when there is none.
func (m *Machine) before(p sigchain.Place) sigchain.Place {
	a := m.authors[p.Author]
	if a == nil || !a.frozen(p) {
		return p
	}
	if p.Seq = a.lastBefore(p.Incarnation); p.Seq == 0 {
		return sigchain.Place{}
	}
	return p
}

// wait takes w into the waiting set. Wraps ErrFull.
func (m *Machine) wait(w *waiter) error {
	a, size, l := m.author(w.at.Author), len(w.entry.Bytes()), m.config.Limits
	switch {
	case len(m.waiting.at) >= l.Entries || m.waiting.bytes+size > l.Bytes:
		return fmt.Errorf("entry %s: %w: %d, %d bytes", w.at, ErrFull, len(m.waiting.at), m.waiting.bytes)
	case a.entries >= l.AuthorEntries || a.bytes+size > l.AuthorBytes:
		return fmt.Errorf("entry %s: %w: %d of its author, %d bytes", w.at, ErrFull, a.entries, a.bytes)
	}
	w.entry, w.ops = w.entry.Clone(), operations{} // or a small entry keeps the whole message that brought it
	m.waiting.at[w.at] = w
	m.waiting.bytes += size
	a.entries++
	a.bytes += size
	m.waiting.park(w)
	return nil
}

// drop takes w out of the waiting set.
func (m *Machine) drop(w *waiter) {
	a, size := m.author(w.at.Author), len(w.entry.Bytes())
	delete(m.waiting.at, w.at)
	m.waiting.bytes -= size
	a.entries--
	a.bytes -= size
	w.gone = true
	if w.why == missing {
		m.waiting.unpark(w)
	}
}

// resume has w looked at again.
func (m *Machine) resume(w *waiter) { m.waiting.queue = append(m.waiting.queue, w) }

// park puts w where what keeps it will find it.
func (w *waiting) park(x *waiter) {
	switch x.why {
	case missing:
		w.on[x.on] = append(w.on[x.on], x)
	case byClock:
		i, _ := slices.BinarySearchFunc(w.held, x.entry.Time, func(h *waiter, t uint64) int { return cmp.Compare(h.entry.Time, t) })
		w.held = slices.Insert(w.held, i, x)
	}
}

func (w *waiting) unpark(x *waiter) {
	all := slices.DeleteFunc(w.on[x.on], func(o *waiter) bool { return o == x })
	if w.on[x.on] = all; len(all) == 0 {
		delete(w.on, x.on)
	}
}

// wake has those looked at again that wait for a place.
func (w *waiting) wake(p sigchain.Place) {
	if all, ok := w.on[p]; ok {
		w.queue = append(w.queue, all...)
		delete(w.on, p)
	}
}

// wakeAll is wake for every place of which is reports true, in order.
func (w *waiting) wakeAll(is func(sigchain.Place) bool) {
	var all []sigchain.Place
	for p := range w.on {
		if is(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, sigchain.Place.Compare)
	for _, p := range all {
		w.wake(p)
	}
}

// due takes out what the clock no longer holds.
func (w *waiting) due(nowMs, maxDriftMs int64) []*waiter {
	n := 0
	for n < len(w.held) && !clock.Held(clock.Timestamp(w.held[n].entry.Time), nowMs, maxDriftMs) {
		n++
	}
	all := slices.Clone(w.held[:n])
	w.held = slices.Delete(w.held, 0, n)
	return all
}

// next returns the next entry to look at, nil when there is none.
func (w *waiting) next() *waiter {
	for len(w.queue) > 0 {
		x := w.queue[0]
		w.queue = w.queue[1:]
		if !x.gone {
			return x
		}
	}
	w.queue = nil
	return nil
}

// status says what keeps w, in the end.
func (m *Machine) status(w *waiter) Status {
	for range len(m.waiting.at) { // hostile entries may wait for each other
		if w.why != missing {
			return Held
		}
		next := m.waiting.at[w.on]
		if next == nil {
			return Waits
		}
		w = next
	}
	return Waits
}

// Wait is an entry that has not entered, and why.
type Wait struct {
	Entry  sigchain.Signed
	Status Status // Waits or Held
	// For is the place that it waits for; zero when it is itself held.
	For sigchain.Place
	// Unknown means that it is itself held, for a newer program.
	Unknown bool
}

// Waiting yields what waits, in no order.
func (m *Machine) Waiting(yield func(Wait) bool) {
	for _, w := range m.waiting.at {
		x := Wait{Entry: w.entry, Status: m.status(w), Unknown: w.why == byVersion}
		if w.why == missing {
			x.For = w.on
		}
		if !yield(x) {
			return
		}
	}
}

// Count returns how many entries wait for others, and how many are held or wait for
// what is. It looks at each once, however long the chains of what waits for what.
func (m *Machine) Count() (waits, held int) {
	known := make(map[*waiter]Status, len(m.waiting.at))
	var path []*waiter
	for _, w := range m.waiting.at {
		path = path[:0]
		s := known[w]
		for x := w; s == 0; {
			path = append(path, x)
			known[x] = Waits // hostile entries may wait for each other
			next := m.waiting.at[x.on]
			switch {
			case x.why != missing:
				s = Held
			case next == nil:
				s = Waits
			default:
				x, s = next, known[next]
			}
		}
		for _, x := range path {
			known[x] = s
		}
		if s == Held {
			held++
		} else {
			waits++
		}
	}
	return waits, held
}

// HeldByClock reports whether the clock holds something: then Advance is to be
// called now and then. Unlike Waiting it looks at nothing that waits.
func (m *Machine) HeldByClock() bool { return len(m.waiting.held) > 0 }

// Missing yields the places that are waited for and are not here, to ask others
// for them, in no order.
func (m *Machine) Missing(yield func(sigchain.Place) bool) {
	for p := range m.waiting.on {
		if m.waiting.at[p] == nil && !yield(p) {
			return
		}
	}
}
