package soak

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// trims deletes records by offset.
type trims struct {
	done atomic.Int64
}

func (d *trims) run(s *soak, rng *rand.Rand) {
	c := s.dial()
	defer c.Close()
	a := kadm.NewClient(c)
	for s.sleep(time.Duration(500+rng.IntN(2000)) * time.Millisecond) {
		p := int32(rng.IntN(len(s.trimmed.ledgers)))
		l := s.trimmed.ledgers[p]
		l.mu.Lock()
		to := max(int64(len(l.sums))-int64(rng.IntN(2000)), 0)
		if to > 0 && l.sums[to-1] == 0 { // the end may lie below
			to = 0
		}
		l.asked = max(l.asked, to)
		l.mu.Unlock()
		if to == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		var o kadm.Offsets
		o.AddOffset(s.trimmed.name, p, to, -1)
		got, err := a.DeleteRecords(ctx, o)
		cancel()
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // nobody answered: it may have been done, or not
		}
		r, ok := got.Lookup(s.trimmed.name, p)
		if !ok || r.Err != nil {
			s.wrong("delete records of %s/%d below %d: found %t, %v", s.trimmed.name, p, to, ok, r.Err)
			return
		}
		if r.LowWatermark < to {
			s.wrong("delete records of %s/%d below %d: the start is %d", s.trimmed.name, p, to, r.LowWatermark)
		}
		l.mu.Lock()
		l.trimmed = max(l.trimmed, to)
		l.mu.Unlock()
		d.done.Add(1)
	}
}

// floor is where a partition's start cannot be below.
type floor struct{ seen, trimmed int64 }

func (l *ledger) floor() floor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return floor{l.seen, l.trimmed}
}

// checkStart holds the start of a partition, asked for when before was true and
// read at the time now, to what may have gone, and keeps it.
func (s *soak) checkStart(t *topic, p int, start int64, before floor, now time.Time) {
	l := t.ledgers[p]
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case start < before.seen:
		s.wrong("%s/%d: the start was %d and is %d", t.name, p, before.seen, start)
	case t.retention > 0:
		if young, ms := l.dropped(start, now.Add(-t.retention).UnixMilli()); young {
			s.wrong("%s/%d: the start is %d, though a record below was written only %s before; retention is %s",
				t.name, p, start, now.Sub(time.UnixMilli(ms)), t.retention)
		}
	case start < before.trimmed || start > l.asked:
		s.wrong("%s/%d: the start is %d; deletion below %d was acknowledged, and none beyond %d asked for", t.name, p, start, before.trimmed, l.asked)
	}
	l.seen = max(l.seen, start)
}

// dropped reports whether a record below start is younger than oldest, and its time.
func (l *ledger) dropped(start, oldest int64) (bool, int64) {
	for i := len(l.stamps) - 1; i >= 0; i-- {
		if x := l.stamps[i]; x.offset < start {
			return x.ms > oldest, x.ms
		}
	}
	return false, 0
}
