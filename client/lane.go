package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// lane is the way to one partition. One batch is under way at a time: that keeps
// the order whatever fails, and while it travels the next one fills. The fields
// belong to the producer's lock, but for those of the sender.
type lane struct {
	p         *Producer
	partition int32
	open      *batch   // takes records
	queue     []*batch // full
	flying    *batch
	busy      bool // a sender runs

	// The sender's own.
	producerID int64 // -1: none yet
	epoch      int16
	sequence   int32
}

// batch is records on their way.
type batch struct {
	builder *record.Builder
	size    int // of its records, as recordSize counts
	records int
	urgent  bool
	timer   *time.Timer
	calls   []call
	done    chan struct{}
	bytes   []byte
}

// call is a callback that waits for the record at index.
type call struct {
	index int
	done  func(Ack, error)
}

// add puts a record into the open batch. Called with the lock held.
func (l *lane) add(r *Record, ms int64, size int, done func(Ack, error)) {
	if l.open != nil && l.open.builder.Size()+size > l.p.o.BatchBytes {
		l.seal()
	}
	if l.open == nil {
		l.open = l.p.newBatch()
		if l.p.o.Linger > 0 {
			b := l.open
			b.timer = time.AfterFunc(l.p.o.Linger, func() { l.due(b) })
		}
	}
	b := l.open
	if done != nil {
		b.calls = append(b.calls, call{b.records, done})
	}
	var headers []record.RecordHeader
	if len(r.Headers) > 0 {
		headers = make([]record.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			headers[i] = record.RecordHeader{Key: h.Key, Value: h.Value}
		}
	}
	b.builder.Add(ms, r.Key, r.Value, headers)
	b.records++
	b.size += size
}

// seal moves the open batch to the queue. Records without a key go elsewhere
// from here on. Called with the lock held.
func (l *lane) seal() {
	if l.open.timer != nil {
		l.open.timer.Stop()
	}
	l.queue = append(l.queue, l.open)
	l.open = nil
	if l.p.sticky == int(l.partition) {
		l.p.sticky = (l.p.sticky + 1) % len(l.p.lanes)
	}
}

// due marks a batch that waited long enough.
func (l *lane) due(b *batch) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.open == b {
		b.urgent = true
		l.p.dispatch(l)
	}
}

// unfinished appends the done channels of all that is not finished. It makes the
// open batch urgent. Called with the lock held.
func (l *lane) unfinished(waits []chan struct{}) []chan struct{} {
	if l.flying != nil {
		waits = append(waits, l.flying.done)
	}
	for _, b := range l.queue {
		waits = append(waits, b.done)
	}
	if l.open != nil {
		l.open.urgent = true
		waits = append(waits, l.open.done)
	}
	return waits
}

// dispatch starts the lane's sender if there is work for it. Called with the
// lock held.
func (p *Producer) dispatch(l *lane) {
	if l.busy || len(l.queue) == 0 && (l.open == nil || !l.open.urgent) {
		return
	}
	l.busy = true
	p.running.Go(l.run)
}

// dispatchAll sends what waits, full or not. Called with the lock held.
func (p *Producer) dispatchAll() {
	for _, l := range p.lanes {
		if l.open != nil {
			l.open.urgent = true
		}
		p.dispatch(l)
	}
}

// run sends batches until none is ready.
func (l *lane) run() {
	for {
		l.p.mu.Lock()
		if len(l.queue) == 0 && l.open != nil && l.open.urgent {
			l.seal()
		}
		if len(l.queue) == 0 {
			l.busy = false
			l.p.mu.Unlock()
			return
		}
		b := l.queue[0]
		l.queue = l.queue[1:]
		l.flying = b
		l.p.mu.Unlock()
		ack, err := l.deliver(l.p.background, b)
		l.finish(b, ack, err)
	}
}

// deliver writes one batch, again and again if need be.
func (l *lane) deliver(ctx context.Context, b *batch) (*pb.Ack, error) {
	p := l.p
	b.bytes = b.builder.Build(b.bytes[:0])
	deadline := time.Now().Add(p.o.RetryFor)
	pause := 20 * time.Millisecond
	for {
		ack, err := l.attempt(ctx, b)
		if err == nil {
			l.sequence = addSequence(l.sequence, b.records)
			return ack, nil
		}
		err = fmt.Errorf("produce to %s/%d: %w", p.topic, l.partition, err)
		if !retriable(err) || time.Now().After(deadline) {
			// Whether it was written is not known; its numbers must not be used
			// again for other records.
			l.producerID = -1
			return nil, err
		}
		if p.o.Retrying != nil {
			p.o.Retrying(err)
		}
		p.mu.Lock()
		p.stats.Retries++
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			l.producerID = -1
			return nil, err
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

func (l *lane) attempt(ctx context.Context, b *batch) (*pb.Ack, error) {
	p := l.p
	if !p.o.AllowDuplicates {
		if l.producerID < 0 {
			id, epoch, err := p.c.newProducerID(ctx)
			if err != nil {
				return nil, err
			}
			l.producerID, l.epoch, l.sequence = id, epoch, 0
		}
		record.SetProducer(b.bytes, l.producerID, l.epoch, l.sequence)
	}
	res, err := p.c.logs.ProduceBatches(ctx, &pb.ProduceBatchesRequest{
		Store: p.c.store, Topic: p.topicID, Partition: l.partition, Batches: b.bytes,
	})
	if err != nil {
		return nil, err
	}
	if res.Ack == nil {
		return nil, lattice.E(lattice.Internal, errors.New("the node answered without an acknowledgement"))
	}
	return res.Ack, nil
}

// finish tells everyone who waits, and makes room.
func (l *lane) finish(b *batch, ack *pb.Ack, err error) {
	for _, c := range b.calls {
		if err != nil {
			c.done(Ack{Partition: l.partition, Offset: -1}, err)
			continue
		}
		a := Ack{Partition: l.partition, Offset: ack.FirstOffset + int64(c.index), Duplicate: ack.Duplicate}
		if ack.AppendTime >= 0 {
			a.Time = time.UnixMilli(ack.AppendTime)
		}
		c.done(a, nil)
	}
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	l.flying = nil
	p.buffered -= b.size
	if err != nil {
		p.stats.Failed += int64(b.records)
		if silent := b.records - len(b.calls); silent > 0 {
			p.failed += int64(silent)
			if p.firstErr == nil {
				p.firstErr = err
			}
		}
	} else {
		p.stats.Acked += int64(b.records)
		p.stats.Bytes += int64(len(b.bytes))
		p.stats.Batches++
	}
	p.release()
	close(b.done)
	p.recycle(b)
}

func (p *Producer) newBatch() *batch {
	b, ok := p.spare.Get().(*batch)
	if !ok {
		b = &batch{builder: record.NewBuilder(p.codec, 0)}
	}
	b.done = make(chan struct{})
	return b
}

// recycle keeps the buffers of a finished batch.
func (p *Producer) recycle(b *batch) {
	clear(b.calls)
	*b = batch{builder: b.builder, bytes: b.bytes[:0], calls: b.calls[:0]}
	b.builder.Reset()
	p.spare.Put(b)
}

// addSequence adds n to a sequence number, which wraps to 0 behind the largest int32.
func addSequence(s int32, n int) int32 {
	return int32((int64(s) + int64(n)) & 0x7fffffff)
}
