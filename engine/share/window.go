package share

import (
	"fmt"
	"time"
)

// state is where a record is. The numbers are stored.
type state uint8

const (
	available    state = 1
	acquired     state = 2 // in memory only
	acknowledged state = 3
	archived     state = 4
	absent       state = 5 // nothing for a member is here
)

// settled reports whether a record of that state is never delivered again.
func (s state) settled() bool { return s >= acknowledged }

// span is a run of offsets that share a fate.
type span struct {
	first, last int64
	state       state
	deliveries  int16     // of available and acquired records; 0 once settled
	member      string    // that has acquired them
	until       time.Time // its lock is over then
}

func (s *span) len() int64 { return s.last - s.first + 1 }

// like reports whether two spans that touch are one.
func (s *span) like(o *span) bool {
	return s.state == o.state && s.deliveries == o.deliveries && s.member == o.member && s.until.Equal(o.until)
}

// window is the delivery of one partition to one group. Spans cover the offsets
// from start to end, each once, in order; the first, if any, is not settled.
type window struct {
	start int64 // everything below is settled (the share-partition start offset)
	end   int64 // nothing at or above was looked at
	spans []span
	until time.Time // no lock is over before; zero: there is none
}

// limits bound what a window hands out.
type limits struct {
	lock       time.Duration
	deliveries int16 // of one record
	locks      int   // records between start and end
}

// appendSpan adds a span behind the last one, and makes one of both if they are
// alike.
func appendSpan(spans []span, s span) []span {
	if s.first > s.last {
		return spans
	}
	if s.state.settled() {
		s.deliveries, s.member, s.until = 0, "", time.Time{}
	}
	if n := len(spans); n > 0 && spans[n-1].like(&s) {
		spans[n-1].last = s.last
		return spans
	}
	return append(spans, s)
}

// settle moves start over what is settled, and finds the next lock to end.
func (w *window) settle(spans []span) {
	n := 0
	for n < len(spans) && spans[n].state.settled() {
		n++
	}
	w.spans = append(w.spans[:0], spans[n:]...)
	w.start = w.end
	if len(w.spans) > 0 {
		w.start = w.spans[0].first
	}
	w.until = time.Time{}
	for i := range w.spans {
		if u := w.spans[i].until; w.spans[i].state == acquired && (w.until.IsZero() || u.Before(w.until)) {
			w.until = u
		}
	}
}

// held returns how many records lie between start and end.
func (w *window) held() int {
	n := int64(0)
	for i := range w.spans {
		if w.spans[i].state != absent {
			n += w.spans[i].len()
		}
	}
	return int(n)
}

// done returns how many offsets from start on need no delivery any more.
func (w *window) done() int64 {
	n := int64(0)
	for i := range w.spans {
		if w.spans[i].state.settled() {
			n += w.spans[i].len()
		}
	}
	return n
}

// next returns the offset to read at for the next records to deliver. ok is false
// when there are too many undecided records to take on more.
func (w *window) next(l limits) (from int64, ok bool) {
	for i := range w.spans {
		if w.spans[i].state == available {
			return w.spans[i].first, true
		}
	}
	return w.end, w.held() < l.locks
}

// release returns what becomes of an acquired span that its member lets go of.
func (s span) release(l limits) span {
	s.state, s.member, s.until = available, "", time.Time{}
	if s.deliveries >= l.deliveries {
		s.state = archived
	}
	return s
}

// releaseIf lets go of the acquired spans that which picks, and reports whether
// there were any.
func (w *window) releaseIf(l limits, which func(*span) bool) bool {
	var spans []span
	changed := false
	for _, s := range w.spans {
		if s.state == acquired && which(&s) {
			s, changed = s.release(l), true
		}
		spans = appendSpan(spans, s)
	}
	if changed {
		w.settle(spans)
	}
	return changed
}

// expire ends the locks whose time is over.
func (w *window) expire(now time.Time, l limits) bool {
	if w.until.IsZero() || w.until.After(now) {
		return false
	}
	return w.releaseIf(l, func(s *span) bool { return !s.until.After(now) })
}

// leave lets go of what a member has.
func (w *window) leave(member string, l limits) bool {
	return w.releaseIf(l, func(s *span) bool { return s.member == member })
}

// giveBack lets go of one run of offsets that a member has, of which it was never
// told: this delivery does not count.
func (w *window) giveBack(member string, first, last int64) bool {
	var spans []span
	changed := false
	for _, s := range w.spans {
		if s.state != acquired || s.member != member || s.last < first || s.first > last {
			spans = appendSpan(spans, s)
			continue
		}
		changed = true
		before, mid, after := s, s, s
		before.last, mid.first, mid.last, after.first = first-1, max(s.first, first), min(s.last, last), last+1
		mid.state, mid.member, mid.until = available, "", time.Time{}
		mid.deliveries--
		spans = appendSpan(appendSpan(appendSpan(spans, before), mid), after)
	}
	if changed {
		w.settle(spans)
	}
	return changed
}

// moveStart notes that the log begins at start now: what lay before is settled.
func (w *window) moveStart(start int64) bool {
	if start <= w.start {
		return false
	}
	var spans []span
	for _, s := range w.spans {
		s.first = max(s.first, start)
		spans = appendSpan(spans, s)
	}
	w.end = max(w.end, start)
	w.settle(spans)
	return true
}

// cut notes that the log has lost everything from end on. Other records will get
// those offsets.
func (w *window) cut(end int64) bool {
	if end >= w.end {
		return false
	}
	var spans []span
	for _, s := range w.spans {
		s.last = min(s.last, end-1)
		spans = appendSpan(spans, s)
	}
	w.end = end
	w.settle(spans)
	return true
}

// verify returns what is wrong with the window itself; tests call it after every
// step.
func (w *window) verify() error {
	at := w.start
	for i := range w.spans {
		s := &w.spans[i]
		switch {
		case s.first != at || s.last < s.first:
			return fmt.Errorf("span %d is %d..%d, want it to begin at %d", i, s.first, s.last, at)
		case i == 0 && s.state.settled():
			return fmt.Errorf("settled at the start %d", w.start)
		case s.state < available || s.state > absent:
			return fmt.Errorf("span %d: state %d", i, s.state)
		case (s.state == acquired) != (s.member != "") || (s.state == acquired) == s.until.IsZero():
			return fmt.Errorf("span %d: state %d, member %q, locked until %v", i, s.state, s.member, s.until)
		case s.state.settled() && s.deliveries != 0 || s.deliveries < 0 || s.state == acquired && s.deliveries < 1:
			return fmt.Errorf("span %d: state %d, %d deliveries", i, s.state, s.deliveries)
		case i > 0 && w.spans[i-1].like(s):
			return fmt.Errorf("spans %d and %d are alike", i-1, i)
		case s.state == acquired && (w.until.IsZero() || s.until.Before(w.until)):
			return fmt.Errorf("span %d is locked until %v, the window says %v", i, s.until, w.until)
		}
		at = s.last + 1
	}
	if at != w.end {
		return fmt.Errorf("spans end at %d, the window at %d", at, w.end)
	}
	return nil
}
