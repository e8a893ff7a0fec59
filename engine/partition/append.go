package partition

import (
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/internal/invariant"
	"github.com/lattice-log/lattice/storage/segment"
)

// Append is one request to append whole record batches.
type Append struct {
	// Batches is one or more whole magic-2 record batches, back to back. The
	// partition owns the bytes until Done is called and changes them in place
	// (base offset, leader epoch, and for LogAppendTime the timestamps). Batches
	// of an idempotent producer come alone.
	Batches []byte
	// Carried batches were taken by the topic before, in a fork: they may be older than it
	// takes from producers, and what was added to their records may make them larger.
	Carried bool
	// At refuses the batches with ErrMoved unless the first record gets this offset; nil:
	// it gets any.
	At *int64
	// All has Done wait until what is appended is committed, and for the members that are
	// in sync, if the partition has several; Wait is how long at most, 0 for 30 s.
	All  bool
	Wait time.Duration
	// Done is called exactly once, with no lock held, possibly before Append
	// returns: when the records are durable at the topic's level, or refused. It
	// must not block.
	Done func(Result, error)
}

// Result is what a producer is told.
type Result struct {
	Base       int64 // offset of the first record
	AppendTime int64 // ms since 1970 if the topic has LogAppendTime, else -1
	Start      int64 // log start offset
	Duplicate  bool  // the batch was here already: Base is where
}

// Errors of an append, with the Kafka code that each stands for.
var (
	// ErrTooLarge (10): a batch exceeds the topic's max.message.bytes.
	ErrTooLarge = lattice.E(lattice.TooLarge, errors.New("record batch exceeds max.message.bytes"))
	// ErrTimestamp (32): a timestamp lies outside what the topic allows.
	ErrTimestamp = lattice.E(lattice.Invalid, errors.New("timestamp out of the topic's range"))
	// ErrRecord (87): the batch breaks a rule of the topic or the protocol.
	ErrRecord = lattice.E(lattice.Invalid, errors.New("invalid record"))
	// ErrChanging (5): the partition's term changes at this moment. Clients retry it.
	ErrChanging = lattice.E(lattice.Unavailable, errors.New("who acknowledges the partition changes now; try again"))
	// ErrMoved: the log does not end where Append.At says.
	ErrMoved = lattice.E(lattice.Conflict, errors.New("the partition has gone on meanwhile"))
	// ErrReadOnly (17): the topic is internal.
	ErrReadOnly = lattice.E(lattice.Invalid, errors.New("the topic is internal: it can only be read"))
	// ErrNotLeader (6): another node leads the partition, and takes what clients write.
	ErrNotLeader = lattice.E(lattice.NotLeader, errors.New("another node leads the partition: write to that one"))
)

// maxCarried is how large a carried batch may be.
const maxCarried = 256 << 20

// batches is what Append knows of one request's batches. The slices are reused.
type batches struct {
	heads []record.Header
	metas []segment.Meta
	sizes []int
}

func (b *batches) reset() { b.heads, b.metas, b.sizes = b.heads[:0], b.metas[:0], b.sizes[:0] }

// Append checks, numbers and writes batches. See the package comment.
func (p *Partition) Append(a Append) {
	cfg := p.cfg.Load()
	now := p.o.Clock.Now()
	appendTime := int64(-1)
	if cfg.AppendTime {
		appendTime = now.UnixMilli()
	}
	if a.Carried {
		c := *cfg
		c.MaxBatchBytes, c.MaxPast, c.MaxFuture = maxCarried, MaxDuration, MaxDuration
		cfg = &c
	}
	if err := p.check(a.Batches, cfg, now); err != nil {
		a.Done(Result{Base: -1, AppendTime: -1, Start: -1}, err)
		return
	}
	b := a.Batches
	if cfg.Recompress {
		var err error
		if b, err = p.recompress(b, cfg); err != nil {
			a.Done(Result{Base: -1, AppendTime: -1, Start: -1}, err)
			return
		}
	}
	all := a.All && p.several()
	if all {
		if err := p.enough(); err != nil {
			a.Done(Result{Base: -1, AppendTime: -1, Start: -1}, err)
			return
		}
	}
	base, end, dup, err := p.write(b, appendTime, now.UnixMilli(), a.At)
	start, _, _ := p.log.Bounds()
	if err != nil {
		a.Done(Result{Base: -1, AppendTime: -1, Start: start}, err)
		return
	}
	r := Result{Base: base, AppendTime: appendTime, Start: start, Duplicate: dup}
	p.log.Notify(end, func(err error) {
		if err != nil {
			a.Done(Result{Base: -1, AppendTime: -1, Start: start}, err)
			return
		}
		if all {
			p.awaitAcks(end, a.Wait, func(err error) { a.finish(r, err) })
			return
		}
		a.Done(r, nil)
	})
}

// finish answers when acknowledgements have come, or not in time.
func (a Append) finish(r Result, err error) {
	if err != nil {
		r = Result{Base: -1, AppendTime: -1, Start: r.Start}
	}
	a.Done(r, err)
}

// check looks at everything that needs no lock.
func (p *Partition) check(b []byte, cfg *Config, now time.Time) error {
	switch {
	case p.o.ReadOnly:
		return ErrReadOnly
	case !p.Leads():
		return ErrNotLeader
	}
	if len(b) == 0 {
		return lattice.E(lattice.Invalid, errors.New("append: no record batch"))
	}
	n := 0
	for rest := b; len(rest) > 0; n++ {
		batch, tail, h, err := record.Next(rest)
		if err != nil {
			return err
		}
		rest = tail
		if len(batch) > cfg.MaxBatchBytes {
			return fmt.Errorf("batch of %d bytes, the limit is %d: %w", len(batch), cfg.MaxBatchBytes, ErrTooLarge)
		}
		if err := record.CheckCRC(batch); err != nil {
			return err
		}
		if err := h.CheckProduced(); err != nil {
			return err
		}
		if h.Idempotent() && (n > 0 || len(rest) > 0) {
			return fmt.Errorf("a batch of an idempotent producer comes alone: %w", ErrRecord)
		}
		if err := checkTimes(h, cfg, now); err != nil {
			return err
		}
		if cfg.Compact {
			if err := record.Validate(batch, p.o.Limits, record.Rules{RequireKeys: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// recompress puts batches that were checked into the topic's codec, in new memory;
// they come back as they are if all have it.
func (p *Partition) recompress(b []byte, cfg *Config) ([]byte, error) {
	c, _ := p.recompressors.Get().(*record.Recompressor)
	if c == nil {
		c = new(record.Recompressor)
	}
	defer p.recompressors.Put(c)
	var out []byte
	other := false
	for rest := b; len(rest) > 0; {
		batch, tail, h, err := record.Next(rest)
		if err != nil {
			return nil, err
		}
		rest, other = tail, other || h.Compression() != cfg.Codec
		at := len(out)
		if out, err = c.Recompress(out, batch, cfg.Codec, p.o.Limits); err != nil {
			return nil, err
		}
		if size := len(out) - at; size > cfg.MaxBatchBytes {
			return nil, fmt.Errorf("batch of %d bytes as %v, the limit is %d: %w", size, cfg.Codec, cfg.MaxBatchBytes, ErrTooLarge)
		}
	}
	if !other {
		return b, nil
	}
	return out, nil
}

// checkTimes holds a batch to message.timestamp.before.max.ms and .after.max.ms
// by its header: the base and the greatest timestamp.
func checkTimes(h record.Header, cfg *Config, now time.Time) error {
	if cfg.AppendTime {
		return nil
	}
	ms := now.UnixMilli()
	if cfg.MaxFuture != MaxDuration && h.MaxTimestamp > ms+cfg.MaxFuture.Milliseconds() {
		return fmt.Errorf("timestamp %d is more than %v ahead: %w", h.MaxTimestamp, cfg.MaxFuture, ErrTimestamp)
	}
	if cfg.MaxPast != MaxDuration && h.BaseTimestamp >= 0 && h.BaseTimestamp < ms-cfg.MaxPast.Milliseconds() {
		return fmt.Errorf("timestamp %d is more than %v ago: %w", h.BaseTimestamp, cfg.MaxPast, ErrTimestamp)
	}
	return nil
}

// write numbers and writes checked batches. It returns the first offset and the
// offset that must be durable before the producer is told.
func (p *Partition) write(b []byte, appendTime, now int64, at *int64) (base, end int64, dup bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, 0, false, ErrClosed
	case p.sealed:
		return 0, 0, false, ErrNotLeader
	case p.holdUp:
		return 0, 0, false, ErrChanging
	}
	_, _, next := p.log.Bounds()
	if base = next; at != nil && base != *at {
		return 0, 0, false, fmt.Errorf("%s ends at %d, not %d: %w", p.id, base, *at, ErrMoved)
	}
	s := &p.scratch
	s.reset()
	term := p.term.Load()
	for rest := b; len(rest) > 0; {
		batch, tail, h, err := record.Next(rest)
		if err != nil {
			return 0, 0, false, err
		}
		rest = tail
		if h.Idempotent() {
			was, err := p.producers.check(h)
			if err != nil {
				return 0, 0, false, fmt.Errorf("%s: %w", p.id, err)
			}
			if was != nil {
				return was.base, was.lastOffset + 1, true, nil
			}
		}
		if h.Transactional() {
			if err := p.joinsTransaction(h, next); err != nil {
				return 0, 0, false, fmt.Errorf("%s: %w", p.id, err)
			}
		}
		record.Place(batch, next, term)
		h.BaseOffset, h.LeaderEpoch = next, term
		if appendTime >= 0 {
			record.StampAppendTime(batch, appendTime)
			h.MaxTimestamp = appendTime
		}
		next = h.NextOffset()
		s.heads = append(s.heads, h)
		s.metas = append(s.metas, segment.Meta{Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Term: term})
		s.sizes = append(s.sizes, len(batch))
	}
	if err := p.grantTermLocked(); err != nil {
		return 0, 0, false, err
	}
	if err := p.log.Append(s.metas, s.sizes, b); err != nil {
		p.settle(0)
		return 0, 0, false, fmt.Errorf("append to %s at %d: %w", p.id, base, err)
	}
	p.terms = p.terms.add(term, base)
	invariant.Check(p.terms.at(base) == term, "%s: offset %d is in term %d, not %d", p.id, base, p.terms.at(base), term)
	if p.several() {
		p.acks.wrote(next, p.o.Clock.Now())
	}
	for _, h := range s.heads {
		p.producers.wrote(h)
		p.producers.touch(h.ProducerID, now)
	}
	return base, next, false, nil
}
