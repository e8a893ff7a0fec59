package share

import (
	"fmt"
	"time"
)

// run is consecutive offsets with one type.
type run struct {
	first, last int64
	kind        AckType
}

// runsOf checks the shape of acknowledgements (order, types) and makes runs of
// them. ErrInvalidRequest.
func runsOf(acks []Ack, renew bool) ([]run, error) {
	var runs []run
	next := int64(0)
	for _, a := range acks {
		size := a.Last - a.First + 1
		switch {
		case a.First < next || size <= 0:
			return nil, fmt.Errorf("%w: offsets %d to %d, after %d", ErrInvalidRequest, a.First, a.Last, next-1)
		case len(a.Types) == 0 || len(a.Types) > 1 && int64(len(a.Types)) != size:
			return nil, fmt.Errorf("%w: %d types for the offsets %d to %d", ErrInvalidRequest, len(a.Types), a.First, a.Last)
		}
		for i, kind := range a.Types {
			if kind < Gap || kind > Renew || kind == Renew && !renew {
				return nil, fmt.Errorf("%w: acknowledge type %d", ErrInvalidRequest, kind)
			}
			r := run{a.First + int64(i), a.First + int64(i), kind}
			if len(a.Types) == 1 {
				r.last = a.Last
			}
			if n := len(runs); n > 0 && runs[n-1].last+1 == r.first && runs[n-1].kind == kind {
				runs[n-1].last = r.last
				continue
			}
			runs = append(runs, r)
		}
		next = a.Last + 1
	}
	return runs, nil
}

// acknowledge takes what a member says of its records: all of it or, when one of
// them is not the member's, nothing. What lies below start is settled, and passed
// over. ErrInvalidRequest for records that nobody was given, ErrRecordState for
// those of others.
func (w *window) acknowledge(now time.Time, l limits, member string, runs []run) error {
	if err := w.mayAcknowledge(member, runs); err != nil {
		return err
	}
	var spans []span
	i := 0
	for _, s := range w.spans {
		for s.first <= s.last {
			for i < len(runs) && runs[i].last < s.first {
				i++
			}
			if i == len(runs) || runs[i].first > s.last {
				spans = appendSpan(spans, s)
				break
			}
			part := s
			if runs[i].first > s.first {
				part.last = runs[i].first - 1
			} else {
				part.last = min(s.last, runs[i].last)
				part = part.answer(runs[i].kind, now, l)
			}
			spans = appendSpan(spans, part)
			s.first = part.last + 1
		}
	}
	w.settle(spans)
	return nil
}

// mayAcknowledge checks that the member has every record of the runs.
func (w *window) mayAcknowledge(member string, runs []run) error {
	if len(runs) == 0 {
		return nil
	}
	if last := runs[len(runs)-1].last; last >= w.end && last >= w.start {
		return fmt.Errorf("%w: offset %d was given to nobody", ErrInvalidRequest, last)
	}
	i := 0
	for _, r := range runs {
		for i < len(w.spans) && w.spans[i].last < r.first {
			i++
		}
		for j := i; j < len(w.spans) && w.spans[j].first <= r.last; j++ {
			if s := &w.spans[j]; s.state != absent && (s.state != acquired || s.member != member) {
				return fmt.Errorf("%w: offset %d", ErrRecordState, max(s.first, r.first))
			}
		}
	}
	return nil
}

// answer returns what becomes of an acquired span that its member answers for.
func (s span) answer(kind AckType, now time.Time, l limits) span {
	if s.state != acquired {
		return s
	}
	switch kind {
	case Accept:
		s.state = acknowledged
	case Reject:
		s.state = archived
	case Release:
		return s.release(l)
	case Renew:
		s.until = now.Add(l.lock)
	default:
		s.state = absent
	}
	return s
}
