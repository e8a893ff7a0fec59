package share

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Acknowledgement is what a member says of records of one partition.
type Acknowledgement struct {
	lattice.TopicPartition
	Acks []Ack
}

// Acknowledge takes acknowledgements, with renew those of type Renew too, and replies
// when they are durable or refused, with one error for each. A partition's
// acknowledgements are taken all or none. Nobody but the member that has a record can
// acknowledge it, so no session is asked for.
func (m *Manager) Acknowledge(group, member string, all []Acknowledgement, renew bool, reply func([]error)) {
	errs := make([]error, len(all))
	var left atomic.Int32
	left.Store(1)
	done := func() {
		if left.Add(-1) == 0 {
			reply(errs)
		}
	}
	err := m.with(group, false, func(e *entry, now time.Time, fx *effects) {
		for i, a := range all {
			if errs[i] = m.acknowledge(e, now, member, a, renew, fx); errs[i] != nil {
				continue
			}
			left.Add(1)
			m.save(e, a.TopicPartition, fx, func(err error) {
				errs[i] = err
				done()
			})
		}
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	done()
}

func (m *Manager) acknowledge(e *entry, now time.Time, member string, a Acknowledgement, renew bool, fx *effects) error {
	if _, ok := m.logs.Log(a.TopicPartition); !ok {
		return m.missing(a.TopicPartition)
	}
	runs, err := runsOf(a.Acks, renew && e.settings.Renew)
	if err != nil {
		return err
	}
	d := e.parts[a.TopicPartition]
	if d == nil {
		return fmt.Errorf("%w: the group was given no records of it", ErrInvalidRequest)
	}
	m.refresh(a.TopicPartition, d)
	l := e.settings.limits()
	_, had := d.w.next(l)
	if err := d.w.acknowledge(now, l, member, runs); err != nil {
		return err
	}
	m.arm(e, now, d.w.until)
	if from, has := d.w.next(l); has && (!had || from < d.w.end) {
		e.stir(fx)
	}
	return nil
}

// missing says what is not there: the topic, or its partition.
func (m *Manager) missing(tp lattice.TopicPartition) error {
	if _, ok := m.logs.TopicByID(tp.Topic); !ok {
		return ErrUnknownTopicID
	}
	return ErrUnknownTopicOrPartition
}

// refresh brings a window in line with its log: the log's start moves, and what a
// crash took from the log's end, at a durability below fsync, will be other records.
func (m *Manager) refresh(tp lattice.TopicPartition, d *delivery) {
	log, ok := m.logs.Log(tp)
	if !ok {
		return
	}
	b := log.Bounds()
	if !d.fresh {
		d.fresh = true
		if end, ok := m.logs.TermEnd(tp, d.term); ok && d.term >= 0 {
			d.w.cut(end)
		}
		d.w.cut(b.Committed)
	}
	d.w.moveStart(b.Start)
}

// Prepare decides, for partitions of which the group has had nothing, where it
// begins, and calls done when that is durable for all of the session's partitions, or
// could not be made so: Acquire says. It may read the log, for a start by time.
func (m *Manager) Prepare(ctx context.Context, s *Session, done func()) {
	var left atomic.Int32
	left.Store(1)
	end := func(error) {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for _, tp := range s.Partitions() {
		log, ok := m.logs.Log(tp)
		if !ok {
			continue // Acquire says so
		}
		s.e.mu.Lock()
		d, reset := s.e.parts[tp], s.e.settings.Reset
		ready := d != nil && d.durable
		s.e.mu.Unlock()
		if ready {
			continue
		}
		start := int64(0)
		if d == nil {
			start, ok = m.begin(ctx, log, reset)
		}
		if !ok {
			continue
		}
		fx := &effects{}
		s.e.mu.Lock()
		if s.e.parts[tp] == nil && !s.closed && !s.e.gone && m.parts.Load() < int64(m.cfg.MaxParts) {
			s.e.parts[tp] = &delivery{w: &window{start: start, end: start}, fresh: true, term: -1}
			m.parts.Add(1)
		}
		if d := s.e.parts[tp]; d != nil && !d.durable {
			left.Add(1)
			m.save(s.e, tp, fx, end)
		}
		s.e.mu.Unlock()
		fx.run()
	}
	end(nil)
}

// begin returns where a group begins in a log.
func (m *Manager) begin(ctx context.Context, log Log, r Reset) (int64, bool) {
	b := log.Bounds()
	switch {
	case r.Earliest:
		return b.Start, true
	case r.Ago == 0:
		return b.Committed, true
	}
	at, err := log.OffsetAt(ctx, m.cfg.Clock.Now().Add(-r.Ago).UnixMilli())
	if err != nil {
		m.cfg.Logger.Error("where a share group begins could not be read", "err", err)
		return 0, false
	}
	return at, true
}

// Want is what a fetch asks of one partition.
type Want struct {
	MaxBytes   int  // of batches
	One        bool // one batch, even if it is larger than MaxBytes
	MaxRecords int
	Strict     bool // no more than MaxRecords; else the last batch comes whole
	BatchSize  int  // cut the answer's runs at about that many records; 0: not
}

// Acquisition is what a member got from a partition. Found holds the bytes of the
// batches in which the acquired records lie; the caller releases it.
type Acquisition struct {
	Found
	Acquired []Acquired
}

// Records returns how many records were acquired.
func (a *Acquisition) Records() int {
	n := int64(0)
	for _, r := range a.Acquired {
		n += r.Last - r.First + 1
	}
	return int(n)
}

// maxTries is how often one fetch looks at a partition: again when others were
// quicker, or when it found batches without anything for a member.
const maxTries = 16

// Acquire gives the session's member records of a partition, none if there are none.
// ErrSessionNotFound once the session has ended.
func (m *Manager) Acquire(s *Session, tp lattice.TopicPartition, want Want) (Acquisition, error) {
	log, ok := m.logs.Log(tp)
	if !ok {
		return Acquisition{}, m.missing(tp)
	}
	if want.MaxRecords <= 0 || want.MaxBytes <= 0 && !want.One {
		return Acquisition{}, nil
	}
	last := int64(-1)
	for range maxTries {
		d, from, stable, err := m.where(s, tp)
		if err != nil || from < 0 {
			return Acquisition{}, err
		}
		found, err := log.Find(from, max(want.MaxBytes, 1), stable)
		switch {
		case err != nil && lattice.KindOf(err) == lattice.OutOfRange:
			continue // the log's start has moved
		case err != nil && lattice.KindOf(err) == lattice.NotYet:
			return Acquisition{}, nil
		case err != nil:
			return Acquisition{}, err
		}
		found.fit(want)
		got, changed := m.take(s, tp, d, from, want, found.Batches)
		if len(got) > 0 {
			found.narrow(got[0].First, got[len(got)-1].Last)
			return Acquisition{found, split(got, found.Batches, want.BatchSize)}, nil
		}
		found.Release()
		if len(found.Batches) == 0 || !changed && from == last {
			return Acquisition{}, nil
		}
		last = from
	}
	return Acquisition{}, nil
}

// Available returns how many bytes of batches there are to look at for the session's
// next records: all of them if they are less than min, else min or more.
func (m *Manager) Available(s *Session, tp lattice.TopicPartition, min int) (int, error) {
	log, ok := m.logs.Log(tp)
	if !ok {
		return 0, m.missing(tp)
	}
	_, from, stable, err := m.where(s, tp)
	if err != nil || from < 0 {
		return 0, err
	}
	n, err := log.Readable(from, min, stable)
	if err != nil {
		return 0, nil //nolint:nilerr // Acquire meets it again, and knows what to make of it
	}
	return n, nil
}

// Lock returns for how long members of a group have a record.
func (m *Manager) Lock(group string) time.Duration {
	m.mu.Lock()
	e, set := m.groups[group], m.configs[group]
	m.mu.Unlock()
	if e == nil {
		s, err := ParseSettings(m.cfg.Defaults, set)
		if err != nil {
			return m.cfg.Defaults.Lock
		}
		return s.Lock
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settings.Lock
}

// where returns the offset to look at for the session's next records; -1: none, since
// too many are undecided.
func (m *Manager) where(s *Session, tp lattice.TopicPartition) (d *delivery, from int64, stable bool, err error) {
	fx := &effects{}
	s.e.mu.Lock()
	defer fx.run()
	defer s.e.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, -1, false, err
	}
	now := m.cfg.Clock.Now()
	m.expire(s.e, now, fx)
	if d = s.e.parts[tp]; d == nil || !d.durable {
		return nil, -1, false, fmt.Errorf("%w: where the group begins in %s", ErrNotStored, tp)
	}
	m.refresh(tp, d)
	from, ok := d.w.next(s.e.settings.limits())
	if !ok {
		from = -1
	}
	return d, from, s.e.settings.Stable, nil
}

// open reports why a session cannot be used any more. The group's lock is held.
func (s *Session) open() error {
	switch {
	case s.e.closed:
		return ErrClosed
	case s.closed:
		return ErrSessionNotFound
	}
	return nil
}

// take acquires what is available in batches that were read at from.
func (m *Manager) take(s *Session, tp lattice.TopicPartition, d *delivery, from int64, want Want, batches []Batch) ([]Acquired, bool) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.open() != nil || s.e.parts[tp] != d {
		return nil, false
	}
	now := m.cfg.Clock.Now()
	t := take{member: s.member, most: want.MaxRecords, strict: want.Strict}
	got, changed := d.w.acquire(now, s.e.settings.limits(), t, from, batches)
	m.arm(s.e, now, d.w.until)
	return got, changed
}

// fit drops the batches that are more than the fetch asks for.
func (f *Found) fit(want Want) {
	size, n := 0, 0
	for n < len(f.Batches) && (size+f.Batches[n].Size <= want.MaxBytes || n == 0 && want.One) {
		size += f.Batches[n].Size
		n++
	}
	f.Batches = f.Batches[:n]
}

// narrow leaves the batches in which the offsets lie.
func (f *Found) narrow(first, last int64) {
	skip, keep, i := 0, 0, 0
	for ; i < len(f.Batches) && f.Batches[i].Last < first; i++ {
		skip += f.Batches[i].Size
	}
	j := i
	for ; j < len(f.Batches) && f.Batches[j].First <= last; j++ {
		keep += f.Batches[j].Size
	}
	f.Batches = f.Batches[i:j]
	if f.Slice != nil {
		f.Slice.Cut(skip, keep)
	}
}

// GiveBack makes available again what a member has acquired and was not told of.
func (m *Manager) GiveBack(s *Session, tp lattice.TopicPartition, got []Acquired) {
	fx := &effects{}
	s.e.mu.Lock()
	if d := s.e.parts[tp]; d != nil {
		for _, r := range got {
			d.w.giveBack(s.member, r.First, r.Last)
		}
		s.e.stir(fx)
	}
	m.leave(s.e, fx)
}

// Changes counts what made records available in a session's group. Taken before
// Acquire found nothing, it tells Wait what the session has seen.
func (s *Session) Changes() uint64 {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.e.changes
}

// Wait calls wake once or more, in some goroutine, possibly before it returns, when
// there may be records for the session, or when it ended: in a partition, min bytes of
// batches to look at; nil stands for one. wake must not block and must not call back.
func (m *Manager) Wait(s *Session, seen uint64, min func(lattice.TopicPartition) int, wake func()) (cancel func()) {
	w := &waiter{wake}
	s.e.mu.Lock()
	if s.open() != nil || s.e.changes != seen {
		s.e.mu.Unlock()
		wake()
		return func() {}
	}
	s.e.waiters[w] = struct{}{}
	var logs []func() func()
	for _, tp := range s.parts {
		d, log := s.e.parts[tp], Log(nil)
		if l, ok := m.logs.Log(tp); ok {
			log = l
		}
		if d == nil || log == nil {
			continue
		}
		if from, ok := d.w.next(s.e.settings.limits()); ok {
			stable, bytes := s.e.settings.Stable, 1
			if min != nil {
				bytes = min(tp)
			}
			logs = append(logs, func() func() { return log.Wait(from, bytes, stable, wake) })
		}
	}
	s.e.mu.Unlock()
	cancels := make([]func(), len(logs))
	for i, register := range logs {
		cancels[i] = register()
	}
	return func() {
		for _, c := range cancels {
			c()
		}
		s.e.mu.Lock()
		delete(s.e.waiters, w)
		m.leave(s.e, &effects{})
	}
}
