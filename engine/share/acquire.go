package share

import "time"

// Batch is what a window must know of a stored record batch.
type Batch struct {
	First, Last int64
	Size        int  // bytes
	Skip        bool // nothing for a member is in it: a marker, or an aborted transaction
}

// take says how much a member wants.
type take struct {
	member string
	most   int  // records
	strict bool // no more than most; else the batch in which the last one lies comes whole
}

// acquisition works through the batches that were read at from, in order, and
// decides for each offset that nobody has.
type acquisition struct {
	take
	l        limits
	until    time.Time
	from     int64
	batches  []Batch
	room     int // records that may be added to the window
	i        int // batch at hand
	taken    int
	lastOf   int // batch of the last record taken
	full     bool
	spans    []span
	acquired []Acquired
}

// acquire gives the member what is available in the batches, which are those that
// the log has from offset from on. Offsets between them have no records any more.
// It returns the runs in order, and whether anything changed: a window may have
// found that there is nothing at some offsets.
func (w *window) acquire(now time.Time, l limits, t take, from int64, batches []Batch) ([]Acquired, bool) {
	from = max(from, w.start)
	if len(batches) == 0 || from > w.end || t.most <= 0 {
		return nil, false
	}
	a := &acquisition{take: t, l: l, until: now.Add(l.lock), from: from, batches: batches, room: l.locks - w.held(), lastOf: -1}
	last := batches[len(batches)-1].Last
	changed := false
	for _, s := range w.spans {
		if s.state != available || s.last < from || s.first > last || a.full {
			a.spans = appendSpan(a.spans, s)
			continue
		}
		before := s
		before.last = from - 1
		a.spans = appendSpan(a.spans, before)
		s.first = max(s.first, from)
		at := a.walk(s.first, min(s.last, last), s.deliveries, false)
		changed = changed || at > s.first
		s.first = at
		a.spans = appendSpan(a.spans, s)
	}
	if !a.full {
		at := a.walk(w.end, last, 0, true)
		changed = changed || at > w.end
		w.end = max(at, w.end)
	}
	if changed {
		w.settle(a.spans)
	}
	return a.acquired, changed
}

// walk decides on the offsets from at to last, which share a past, and returns where
// it stopped. fresh: they are not in the window yet.
func (a *acquisition) walk(at, last int64, deliveries int16, fresh bool) int64 {
	for at <= last && !a.full {
		for a.i < len(a.batches) && a.batches[a.i].Last < at {
			a.i++
		}
		if a.i == len(a.batches) {
			return at
		}
		b := &a.batches[a.i]
		s := span{first: at, state: absent}
		switch {
		case at < b.First:
			s.last = min(last, b.First-1)
		case b.Skip:
			s.last = min(last, b.Last)
		case deliveries >= a.l.deliveries: // the limit was lowered since
			s.last, s.state = min(last, b.Last), archived
		default:
			s.last = min(last, b.Last)
			if !a.fit(&s, fresh) {
				return at
			}
			s.state, s.deliveries, s.member, s.until = acquired, deliveries+1, a.member, a.until
			a.note(s)
		}
		a.spans = appendSpan(a.spans, s)
		at = s.last + 1
	}
	return at
}

// fit shortens s to what may be taken; false: nothing.
func (a *acquisition) fit(s *span, fresh bool) bool {
	n := s.len()
	if a.strict {
		n = min(n, int64(a.most-a.taken))
	} else if a.taken >= a.most && a.i != a.lastOf {
		n = 0
	}
	if fresh {
		n = min(n, int64(a.room))
	}
	if n <= 0 {
		a.full = true
		return false
	}
	if fresh {
		a.room -= int(n)
	}
	s.last = s.first + n - 1
	return true
}

// note adds to the runs that the member is told of.
func (a *acquisition) note(s span) {
	a.taken, a.lastOf = a.taken+int(s.len()), a.i
	if n := len(a.acquired); n > 0 && a.acquired[n-1].Last+1 == s.first && a.acquired[n-1].Deliveries == s.deliveries {
		a.acquired[n-1].Last = s.last
		return
	}
	a.acquired = append(a.acquired, Acquired{s.first, s.last, s.deliveries})
}

// split cuts runs at the ends of batches where they hold size records or more, so
// that a member tracks and acknowledges runs of about that size. 0: not at all.
func split(runs []Acquired, batches []Batch, size int) []Acquired {
	if size <= 0 {
		return runs
	}
	var out []Acquired
	i := 0
	for _, r := range runs {
		for r.First <= r.Last {
			for i < len(batches) && (batches[i].Last < r.First || batches[i].Last-r.First+1 < int64(size)) {
				i++
			}
			part := r
			if i < len(batches) {
				part.Last = min(r.Last, batches[i].Last)
			}
			out = append(out, part)
			r.First = part.Last + 1
		}
	}
	return out
}
