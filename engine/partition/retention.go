package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// producerExpiry is how long an idle producer's sequence is remembered:
// Kafka's producer.id.expiration.ms.
const producerExpiry = 24 * time.Hour

// Truncate moves the start to before (DeleteRecords; -1 stands for the committed
// offset), durably, and returns the new start. At or below the start it does
// nothing. Beyond the committed offset: Kind OutOfRange. Errors: ErrReadOnly,
// ErrNotLeader.
func (p *Partition) Truncate(ctx context.Context, before int64) (int64, error) {
	switch {
	case p.o.ReadOnly:
		return -1, ErrReadOnly
	case !p.Leads():
		return -1, ErrNotLeader
	}
	p.houseMu.Lock()
	defer p.houseMu.Unlock()
	return p.truncate(ctx, before)
}

func (p *Partition) truncate(ctx context.Context, before int64) (int64, error) {
	start, committed, _ := p.visible()
	if before == -1 {
		before = committed
	}
	switch {
	case before < 0 || before > committed:
		return start, lattice.E(lattice.OutOfRange, fmt.Errorf("truncate %s at %d: the log is committed up to %d", p.id, before, committed))
	case before <= start:
		return start, nil
	case ctx.Err() != nil:
		return start, ctx.Err()
	}
	// What the dropped batches say of their producers is in the snapshot from here on.
	if err := p.saveProducers(); err != nil {
		return start, err
	}
	if err := p.log.Truncate(before); err != nil {
		return start, fmt.Errorf("truncate %s at %d: %w", p.id, before, err)
	}
	p.forgetAborted(before)
	p.waiters.all(false)
	if err := p.dropStatements(); err != nil {
		return before, fmt.Errorf("truncate %s at %d: %w", p.id, before, err)
	}
	return before, nil
}

// forgetAborted forgets the aborted transactions that end below an offset, below which
// there is no batch of theirs.
func (p *Partition) forgetAborted(before int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.producers.txns.drop(before) {
		p.forgets.Add(1)
	}
}

// dropStatements forgets what was signed about files that are gone.
func (p *Partition) dropStatements() error {
	_, _, first := p.log.Bounds()
	if segs := p.log.State().Segments; len(segs) > 0 {
		first = segs[0].Base
	}
	return p.o.Meta.DropStatements(first)
}

// Tidy does what is due: saves the producer state when much was appended since, and
// what is committed when that has come on.
// Cheap when nothing is due; call it every second or so.
func (p *Partition) Tidy() error {
	if err := p.saveMark(); err != nil {
		return err
	}
	if p.log.Written()-p.snapSize.Load() < snapshotBytes {
		return nil
	}
	return p.saveProducers()
}

// Retain applies retention by time and size, rolls a segment that is old enough,
// forgets idle producers, and compacts. Call it every retention interval.
func (p *Partition) Retain(ctx context.Context) error {
	if p.log.Failed() != "" {
		return nil
	}
	p.houseMu.Lock()
	defer p.houseMu.Unlock()
	cfg, now := p.cfg.Load(), p.o.Clock.Now()
	p.mu.Lock()
	p.producers.expire(now.Add(-producerExpiry).UnixMilli())
	p.mu.Unlock()
	err := p.roll(cfg, now)
	if !p.Leads() {
		return err // its leader says where it begins, and rewrites nothing here
	}
	if cfg.Delete {
		if to := p.expired(cfg, now); to > 0 {
			_, terr := p.truncate(ctx, to)
			err = errors.Join(err, terr)
		}
	}
	if cfg.Compact {
		err = errors.Join(err, p.compact(ctx, cfg, now))
	}
	return err
}

// Compact rolls a segment that is old enough and compacts, where the topic wants
// that; elsewhere it does nothing. It costs little when nothing is due: call it more
// often than Retain, which does the same and more.
func (p *Partition) Compact(ctx context.Context) error {
	if !p.cfg.Load().Compact || p.log.Failed() != "" || !p.Leads() {
		return nil
	}
	p.houseMu.Lock()
	defer p.houseMu.Unlock()
	cfg, now := p.cfg.Load(), p.o.Clock.Now()
	return errors.Join(p.roll(cfg, now), p.compact(ctx, cfg, now))
}

// roll seals the active segment when its first record is older than segment.ms,
// or when all of it has expired, so that retention can drop it.
func (p *Partition) roll(cfg *Config, now time.Time) error {
	segs := p.log.State().Segments
	if len(segs) == 0 {
		return nil
	}
	s := segs[len(segs)-1]
	if s.Sealed || s.Bytes == 0 {
		return nil
	}
	old := s.FirstTime >= 0 && s.FirstTime < now.Add(-cfg.SegmentAge).UnixMilli()
	gone := cfg.Delete && cfg.RetentionTime >= 0 && s.MaxTime >= 0 && s.MaxTime < now.Add(-cfg.RetentionTime).UnixMilli()
	if !old && !gone {
		return nil
	}
	// A file is sealed by the sync after the roll, and no append may ever bring one.
	if err := errors.Join(p.log.Roll(), p.log.Flush()); err != nil {
		return fmt.Errorf("roll %s: %w", p.id, err)
	}
	return nil
}

// expired returns the offset up to which whole segments are beyond retention.
func (p *Partition) expired(cfg *Config, now time.Time) int64 {
	st := p.log.State()
	_, committed, _ := p.visible()
	limit := now.Add(-cfg.RetentionTime).UnixMilli()
	total, to := st.Bytes, int64(0)
	for _, s := range st.Segments {
		byTime := cfg.RetentionTime >= 0 && s.MaxTime >= 0 && s.MaxTime < limit
		bySize := cfg.RetentionBytes >= 0 && total-s.Bytes >= cfg.RetentionBytes
		if !s.Sealed || s.Next > committed || !byTime && !bySize {
			break
		}
		to = s.Next
		total -= s.Bytes
	}
	return to
}
