package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// TimeOffset is the answer to a lookup by time: Offset and Time are -1 when there
// is no such record.
type TimeOffset struct {
	Offset, Time int64
	Term         int32
}

var noTime = TimeOffset{-1, -1, -1}

// OffsetForTime returns the first readable record whose timestamp is ms or later.
func (p *Partition) OffsetForTime(ctx context.Context, ms int64) (TimeOffset, error) {
	start, committed, _ := p.visible()
	m, ok, err := p.log.FindTime(ms)
	if err != nil {
		return noTime, fmt.Errorf("%s: %w", p.id, err)
	}
	if !ok || m.Base >= committed {
		return noTime, nil
	}
	found := noTime
	var r record.Reader
	// The first block that reaches ms is nearly always the one; it is not when
	// its late records lie below the start.
	err = p.log.Scan(max(m.Base, start), committed, func(b signedlog.Block) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.MaxTime < ms {
			return nil
		}
		t, ok, err := firstAt(&r, p.o.Limits, b, start, func(rec record.Record) bool { return rec.Timestamp >= ms })
		if err != nil {
			return err
		}
		if ok {
			found = t
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return noTime, fmt.Errorf("%s: find time %d: %w", p.id, ms, err)
	}
	return found, nil
}

// MaxTime returns the first readable record with the greatest timestamp (KIP-734).
func (p *Partition) MaxTime(ctx context.Context) (TimeOffset, error) {
	start, committed, _ := p.visible()
	m, ok, err := p.log.FindMaxTime()
	if err != nil || !ok {
		return noTime, err
	}
	from := m.Base
	if m.Base < start || m.Last >= committed {
		from = start // the greatest of all is not readable: look at what is
	}
	best := noTime
	var r record.Reader
	err = p.log.Scan(from, committed, func(b signedlog.Block) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.MaxTime <= best.Time {
			return nil
		}
		if _, _, err := firstAt(&r, p.o.Limits, b, start, func(rec record.Record) bool {
			if rec.Timestamp > best.Time {
				best = TimeOffset{rec.Offset, rec.Timestamp, b.Term}
			}
			return false
		}); err != nil {
			return err
		}
		if from == m.Base {
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return noTime, fmt.Errorf("%s: find the greatest time: %w", p.id, err)
	}
	return best, nil
}

var errFound = errors.New("found")

// firstAt returns the first record of a block, at start or later, that want holds for.
func firstAt(r *record.Reader, l record.Limits, b signedlog.Block, start int64, want func(record.Record) bool) (TimeOffset, bool, error) {
	if err := r.Open(b.Data, l); err != nil {
		return noTime, false, err
	}
	if r.Header().Control() {
		return noTime, false, nil // nobody's record
	}
	var rec record.Record
	for {
		more, err := r.Next(&rec)
		if err != nil || !more {
			return noTime, false, err
		}
		if rec.Offset >= start && want(rec) {
			return TimeOffset{rec.Offset, rec.Timestamp, b.Term}, true, nil
		}
	}
}
