package projector

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
)

const (
	// inboxRecords and inboxBytes are what a partition keeps before it is not fetched any
	// more; laneBytes is what its lane holds, and so a transaction.
	inboxRecords = 8192
	inboxBytes   = 8 << 20
	laneBytes    = 8 << 20
	// applyWithin bounds a transaction: a server that says nothing is an outage.
	applyWithin = time.Minute
	// graceWithin bounds the transaction that a partition is in when it is taken away.
	graceWithin = 5 * time.Second
	// maxSeen bounds the entities whose last sequence number a partition remembers.
	maxSeen = 1 << 16
)

// worker is one partition's work on one projection.
type worker struct {
	c         *consumer
	partition int32
	position  atomic.Int64 // all below it is durable; -1: nothing was read yet
	paused    atomic.Pointer[string]
	ended     chan struct{}
	endOnce   sync.Once
	done      chan struct{} // closed when run has ended
	wake      chan struct{} // holds one signal: the inbox has something
	resume    chan struct{} // holds one signal: somebody says that the lane is to go on

	mu      sync.Mutex
	inbox   []*kgo.Record
	bytes   int  // of inbox
	stopped bool // it is not fetched

	// The rest is run's.
	lane  *Lane
	held  map[int64]projection.Event // what the lane has, by offset
	size  int                        // bytes of held
	next  int64                      // offset behind the last record that was taken from the inbox
	seen  map[ledger.Address]int64   // sequence numbers that were on the partition
	cause error                      // why the head failed last by its own fault
}

func newWorker(c *consumer, partition int32) *worker {
	w := &worker{
		c: c, partition: partition, ended: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1), resume: make(chan struct{}, 1),
		lane: NewLane(c.o.Lane, 0), held: map[int64]projection.Event{}, seen: map[ledger.Address]int64{},
	}
	w.position.Store(-1)
	w.paused.Store(new(string))
	return w
}

// end tells run to finish what it is in.
func (w *worker) end() { w.endOnce.Do(func() { close(w.ended) }) }

// deliver adds records to the inbox. When that is full the partition is fetched no more.
func (w *worker) deliver(records []*kgo.Record) {
	w.mu.Lock()
	w.inbox = append(w.inbox, records...)
	for _, r := range records {
		w.bytes += len(r.Value) + len(r.Key)
	}
	if full := len(w.inbox) > inboxRecords || w.bytes > inboxBytes; full && !w.stopped {
		w.stopped = true
		w.c.client.PauseFetchPartitions(map[string][]int32{w.c.o.Topic.Name: {w.partition}})
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// waiting returns how many records are in the inbox.
func (w *worker) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inbox)
}

// take moves one record out of the inbox.
func (w *worker) take() *kgo.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.inbox) == 0 {
		return nil
	}
	r := w.inbox[0]
	w.inbox[0] = nil
	w.inbox = w.inbox[1:]
	w.bytes -= len(r.Value) + len(r.Key)
	if w.stopped && len(w.inbox) < inboxRecords/2 && w.bytes < inboxBytes/2 {
		w.stopped = false
		w.c.client.ResumeFetchPartitions(map[string][]int32{w.c.o.Topic.Name: {w.partition}})
	}
	return r
}

// run does what the lane says until it is told to end.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	for {
		select {
		case <-w.ended:
			return
		case <-ctx.Done():
			return
		default:
		}
		w.fill()
		switch a := w.lane.Next(time.Now()); a.Kind {
		case Stop:
			return
		case Idle:
			w.sleep(ctx, nil)
		case Wait:
			t := time.NewTimer(time.Until(a.Until))
			w.sleep(ctx, t.C)
			t.Stop()
		default:
			w.do(ctx, a)
		}
		w.advance()
	}
}

// sleep waits for records, or until a time if there is one, or for the end.
func (w *worker) sleep(ctx context.Context, until <-chan time.Time) {
	wake := w.wake
	if until != nil {
		wake = nil // more of the same does not shorten a wait
	}
	select {
	case <-wake:
	case <-until:
	case <-w.resume:
		w.lane.Release()
	case <-w.ended:
	case <-ctx.Done():
	}
}

// advance says what may be committed: while nothing waits, also what was passed over.
func (w *worker) advance() {
	switch {
	case w.next == 0 && len(w.held) == 0:
	case len(w.held) == 0:
		w.position.Store(w.next)
	default:
		w.position.Store(w.lane.Position())
	}
	if why := w.lane.Paused(); why != *w.paused.Load() {
		w.paused.Store(&why)
	}
}

// fill moves records from the inbox to the lane.
func (w *worker) fill() {
	for w.lane.Room() > 0 && (w.size < laneBytes || len(w.held) == 0) {
		r := w.take()
		if r == nil {
			return
		}
		if w.next == 0 || r.Offset < w.next {
			// The first, or a topic that was made anew. What was here comes again.
			w.lane, w.size = NewLane(w.c.o.Lane, r.Offset), 0
			clear(w.held)
		}
		w.next = r.Offset + 1
		e, undecodable, ok := w.decode(r)
		if !ok {
			continue
		}
		if err := w.lane.Offer(Record{r.Offset, undecodable}); err != nil {
			w.c.o.Logger.Error("a record was passed over", "projection", w.c.p.Name, "partition", w.partition, "error", err)
			continue // there is room, and it is behind the last
		}
		w.held[r.Offset] = e
		w.size += len(r.Value) + len(r.Key)
	}
}

// decode reads a record. It reports false for what is not this projection's.
func (w *worker) decode(r *kgo.Record) (e projection.Event, undecodable, ok bool) {
	c := w.c
	e.Source = projection.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
	m, err := event.ParseProjection(r.Value)
	known := c.o.Store.App().Events[m.EventType]
	taken := known != nil && slices.Contains(c.p.Sources, m.EventType)
	switch {
	case m.EventType != "" && known == nil:
		c.counts.unknown.Add(1)
		if err == nil { // it has a number all the same
			w.follows(ledger.Address{TenantSchema: m.TenantSchema, ForkID: m.ForkID, Stream: streamOf(r), EntityID: m.EntityID}, m.SequenceNumber)
		}
		return e, false, false
	case err == nil && !c.o.Store.Serves(m.TenantSchema):
		c.counts.foreign.Add(1)
		return e, false, false
	case err != nil && known != nil && !taken:
		return e, false, false // those that take it say so
	case err != nil:
		if taken {
			e.EventType = m.EventType
		}
		return e, true, true
	}
	e.Projection = m
	e.Follows = w.follows(ledger.Address{TenantSchema: m.TenantSchema, ForkID: m.ForkID, Stream: known.Stream, EntityID: m.EntityID}, m.SequenceNumber)
	return e, false, taken
}

// follows notes an entity's sequence number and reports whether the one before it was here.
func (w *worker) follows(a ledger.Address, sequence int64) bool {
	last, known := w.seen[a]
	if known && sequence > last+1 {
		w.c.counts.gaps.Add(1)
	}
	if len(w.seen) >= maxSeen {
		clear(w.seen)
	}
	w.seen[a] = max(last, sequence)
	return known && sequence <= last+1
}

func streamOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == event.HeaderStream {
			return string(h.Value)
		}
	}
	return ""
}

// do carries out one action. A transaction that runs when the partition is taken away has
// graceWithin to end.
func (w *worker) do(ctx context.Context, a Action) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyWithin)
	defer cancel()
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-w.ended:
		case <-ctx.Done():
		case <-finished:
			return
		}
		t := time.NewTimer(graceWithin)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-finished:
		}
	}()
	records := slices.Clone(a.Records)
	var err error
	if a.Kind == Bury {
		err = w.bury(work, a)
	} else {
		err = w.apply(work, records)
	}
	class := Classify(err)
	if err != nil {
		w.c.counts.retries.Add(1)
		if class == Data {
			w.cause = err
		}
	}
	if notice := w.lane.Done(time.Now(), class, rand.Float64()); notice != "" {
		log := w.c.o.Logger.Info
		if err != nil || a.Kind == Bury {
			log = w.c.o.Logger.Warn
		}
		log(string(notice), "projection", w.c.p.Name, "partition", w.partition, "error", err)
	}
	if err != nil {
		return
	}
	for _, r := range records {
		w.size -= len(w.held[r.Offset].Source.Value) + len(w.held[r.Offset].Source.Key)
		delete(w.held, r.Offset)
	}
}

func (w *worker) apply(ctx context.Context, records []Record) error {
	events := make([]projection.Event, len(records))
	for i, r := range records {
		events[i] = w.held[r.Offset]
	}
	out, err := w.c.o.Store.Apply(ctx, w.c.p, events)
	if err != nil {
		return err
	}
	n := &w.c.counts
	n.applied.Add(int64(out.Fresh))
	n.duplicates.Add(int64(out.Duplicates))
	n.healed.Add(int64(out.Healed))
	n.parked.Add(int64(out.Parked))
	n.patches.Add(int64(out.Patches))
	if out.Patches+out.Parked > 0 {
		w.c.o.Changed()
	}
	return nil
}

func (w *worker) bury(ctx context.Context, a Action) error {
	e := w.held[a.Records[0].Offset]
	why := projection.Failure{Class: event.ClassDecode, Err: w.cause, Retries: a.Retries, FirstFailed: a.FirstFailed, Failed: time.Now()}
	var err error
	if a.Class == Decode {
		name := ""
		if e.EventType != "" {
			name = w.c.p.Name
		}
		if _, why.Err = event.ParseProjection(e.Source.Value); why.Err == nil {
			why.Err = errors.New("the bytes are no event")
		}
		err = w.c.o.Store.BuryBytes(ctx, name, e.Source, why)
	} else {
		why.Class = projection.ClassOf(w.cause)
		err = w.c.o.Store.Bury(ctx, w.c.p, e, why)
	}
	if err == nil {
		w.c.counts.buried.Add(1)
		w.c.o.Changed()
	}
	return err
}

// commitAnswer keeps the first error of a commit.
func commitAnswer(failed *error) func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {
	return func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if *failed = err; err != nil || answer == nil {
			return
		}
		for _, t := range answer.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && *failed == nil {
					*failed = err
				}
			}
		}
	}
}
