package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// ProducerOptions says how a Producer works. Only Topic is required.
type ProducerOptions struct {
	// Topic is a topic's name or id. A producer stays with the incarnation that
	// it found: when the topic is deleted, it ends with kind NotFound.
	Topic string
	// Compression is "none" (default), "gzip", "snappy", "lz4" or "zstd".
	Compression string
	// Partition chooses the partition. nil: by the key's hash, as Kafka's Java
	// clients do; records without a key fill one partition's batch after another.
	Partition PartitionBy
	// Linger is how long SendAsync lets a batch wait for more records. 0: 5 ms;
	// negative: not at all.
	Linger time.Duration
	// BatchBytes is the size of a batch before compression. 0: 1,000,000, or the
	// topic's max.message.bytes if that is smaller.
	BatchBytes int
	// BufferBytes bounds what is not acknowledged yet; beyond it sending waits.
	// 0: 64 MiB.
	BufferBytes int
	// RetryFor is how long one batch is tried again before it fails. 0: two minutes.
	RetryFor time.Duration
	// AllowDuplicates gives up the producer id that makes repeated requests
	// harmless.
	AllowDuplicates bool
	// Retrying is called before a batch is tried again, with the reason. It must
	// not block.
	Retrying func(error)
}

// Producer writes records to one topic. Records of one partition keep the order
// in which they were sent. A batch that had to be repeated is written once,
// unless AllowDuplicates is set. Safe for concurrent use.
type Producer struct {
	c       *Client
	o       ProducerOptions
	topicID string
	topic   string
	codec   record.Codec
	spare   sync.Pool // *batch

	background context.Context
	stop       context.CancelFunc
	running    sync.WaitGroup

	mu       sync.Mutex
	lanes    []*lane
	sticky   int // lane of records without a key
	buffered int
	freed    chan struct{} // closed when buffered shrinks
	closed   bool
	failed   int64 // records lost without a callback since the last Flush
	firstErr error
	stats    ProducerStats
}

// ProducerStats counts what a producer did so far.
type ProducerStats struct {
	Sent    int64 // records given to the producer
	Acked   int64 // records acknowledged
	Failed  int64 // records given up
	Bytes   int64 // bytes of acknowledged batches, compressed
	Batches int64 // acknowledged batches
	Retries int64
}

// Producer returns a producer for one topic. ctx bounds the set-up only.
func (c *Client) Producer(ctx context.Context, o ProducerOptions) (*Producer, error) {
	codec, err := codecOf(o.Compression)
	if err != nil {
		return nil, err
	}
	d, err := c.Topic(ctx, o.Topic)
	if err != nil {
		return nil, fmt.Errorf("produce to %s: %w", o.Topic, err)
	}
	setDefault(&o.Linger, 5*time.Millisecond)
	setDefault(&o.BufferBytes, 64<<20)
	setDefault(&o.RetryFor, 2*time.Minute)
	setDefault(&o.BatchBytes, min(1_000_000, maxBatch(d.Entries)))
	if o.Partition == nil {
		o.Partition = byKey
	}
	p := &Producer{c: c, o: o, topicID: d.ID, topic: d.Name, codec: codec, freed: make(chan struct{})}
	p.background, p.stop = context.WithCancel(context.Background())
	p.grow(d.Partitions)
	if len(p.lanes) == 0 {
		return nil, lattice.E(lattice.Internal, fmt.Errorf("produce to %s: the node tells of no partitions", o.Topic))
	}
	p.running.Go(p.watchPartitions)
	return p, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// maxBatch finds the topic's limit on batches.
func maxBatch(config []ConfigEntry) int {
	for _, e := range config {
		if e.Name == "max.message.bytes" {
			if n, err := strconv.Atoi(e.Value); err == nil && n > 0 {
				return n
			}
		}
	}
	return 1_000_000
}

// Send writes one record and waits until it is durable at the topic's level.
// Concurrent Sends share batches. When ctx ends first, the record may still be
// written.
func (p *Producer) Send(ctx context.Context, r Record) (Ack, error) {
	type outcome struct {
		ack Ack
		err error
	}
	done := make(chan outcome, 1)
	err := p.send(ctx, &r, true, func(a Ack, err error) { done <- outcome{a, err} })
	if err != nil {
		return Ack{}, err
	}
	select {
	case o := <-done:
		return o.ack, o.err
	case <-ctx.Done():
		return Ack{}, lattice.E(lattice.Unavailable, fmt.Errorf("produce to %s: no answer yet: %w", p.topic, ctx.Err()))
	}
}

// SendAsync hands over one record and returns; the bytes are copied. It waits
// only while BufferBytes are not acknowledged. done, if not nil, is called once
// with the outcome; it must not block. The outcome of records without done is
// told by the next Flush.
func (p *Producer) SendAsync(ctx context.Context, r Record, done func(Ack, error)) error {
	return p.send(ctx, &r, p.o.Linger < 0, done)
}

func (p *Producer) send(ctx context.Context, r *Record, urgent bool, done func(Ack, error)) error {
	size := recordSize(r)
	when := r.Time
	if when.IsZero() {
		when = time.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A record larger than the whole buffer goes alone.
	for !p.closed && p.buffered > 0 && p.buffered+size > p.o.BufferBytes {
		freed := p.freed
		p.dispatchAll()
		p.mu.Unlock()
		select {
		case <-freed:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return lattice.E(lattice.Unavailable, fmt.Errorf("produce to %s: the buffer is full: %w", p.topic, ctx.Err()))
		}
	}
	if p.closed {
		return lattice.E(lattice.Conflict, fmt.Errorf("produce to %s: the producer is closed", p.topic))
	}
	l, err := p.choose(r)
	if err != nil {
		return err
	}
	l.add(r, when.UnixMilli(), size, done)
	p.buffered += size
	p.stats.Sent++
	if urgent {
		l.open.urgent = true
	}
	p.dispatch(l)
	return nil
}

// recordSize is an upper bound of what the record adds to a batch, in bytes.
func recordSize(r *Record) int {
	n := 40 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 10 + len(h.Key) + len(h.Value)
	}
	return n
}

// choose returns the record's lane. Called with mu held.
func (p *Producer) choose(r *Record) (*lane, error) {
	n := int32(len(p.lanes))
	i := p.o.Partition(*r, n)
	if i == anywhere {
		i = int32(p.sticky)
	}
	if i < 0 || i >= n {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("produce to %s: no partition %d, there are %d", p.topic, i, n))
	}
	return p.lanes[i], nil
}

// anywhere is byKey's answer for records without a key.
const anywhere = -1

func byKey(r Record, partitions int32) int32 {
	if r.Key == nil {
		return anywhere
	}
	return record.PartitionForKey(r.Key, partitions)
}

// Flush sends what waits and returns when everything that was sent before is
// acknowledged or given up. It reports records without a callback that were
// lost since the last Flush.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	var waits []chan struct{}
	for _, l := range p.lanes {
		waits = l.unfinished(waits)
	}
	p.dispatchAll()
	p.mu.Unlock()
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
			return lattice.E(lattice.Unavailable, fmt.Errorf("flush %s: %w", p.topic, ctx.Err()))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.failed, p.firstErr
	p.failed, p.firstErr = 0, nil
	if err != nil {
		return fmt.Errorf("produce to %s: %d records were not written: %w", p.topic, n, err)
	}
	return nil
}

// Close flushes and ends the producer. When ctx ends first, what is not
// acknowledged by then is given up.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.release()
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.stop()
	p.running.Wait()
	return err
}

// release wakes senders that wait for room. Called with mu held.
func (p *Producer) release() {
	close(p.freed)
	p.freed = make(chan struct{})
}

// Stats tells what was done so far.
func (p *Producer) Stats() ProducerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Partitions returns how many partitions the producer writes to.
func (p *Producer) Partitions() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int32(len(p.lanes))
}

// metadataAge is how old the number of partitions may be. After partitions were
// added, clients disagree so long about the place of a key.
const metadataAge = time.Minute

func (p *Producer) watchPartitions() {
	t := time.NewTicker(metadataAge)
	defer t.Stop()
	for {
		select {
		case <-p.background.Done():
			return
		case <-t.C:
		}
		// A node that is away is tried again at the next tick; sending reports it.
		if d, err := p.c.Topic(p.background, p.topicID); err == nil {
			p.mu.Lock()
			p.grow(d.Partitions)
			p.mu.Unlock()
		}
	}
}

// grow adds lanes up to n partitions. Called with mu held, or before anyone
// else knows p.
func (p *Producer) grow(n int32) {
	for i := int32(len(p.lanes)); i < n; i++ {
		p.lanes = append(p.lanes, &lane{p: p, partition: i, producerID: -1})
	}
}

func codecOf(name string) (record.Codec, error) {
	if name == "" {
		return record.None, nil
	}
	codec, err := record.ParseCodec(name)
	if err != nil {
		return codec, lattice.E(lattice.Invalid, &Error{
			Message: fmt.Sprintf("no compression %q", name), Hint: "use none, gzip, snappy, lz4 or zstd", cause: err,
		})
	}
	return codec, nil
}

// newProducerID asks for an id that no other producer has.
func (c *Client) newProducerID(ctx context.Context) (int64, int16, error) {
	res, err := c.logs.NewProducerID(ctx, &pb.NewProducerIDRequest{Store: c.store})
	if err != nil {
		return -1, -1, err
	}
	return res.ProducerId, int16(res.Epoch), nil
}

// retriable reports whether the same batch may be taken later.
func retriable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	switch lattice.KindOf(err) {
	case lattice.Unavailable, lattice.Storage:
		return true
	default:
		return false
	}
}
