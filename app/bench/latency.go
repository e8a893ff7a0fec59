package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
)

// Latency measures what one record waits for: Syncs records written one at a
// time, and, at Rate records a second For some time, the way of a record from a
// producer to a consumer at the end of the topic. Records of less than 8 bytes
// get 8, for their number.
func Latency(ctx context.Context, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	if c.Rate < 1 || c.Acks == "0" {
		return Result{}, lattice.E(lattice.Invalid, errors.New("bench: latency needs a rate, and acknowledgements"))
	}
	c.Size = max(c.Size, 8)
	done, err := c.prepare(ctx)
	if err != nil {
		return Result{}, err
	}
	defer done()
	one, err := c.syncs(ctx)
	if err != nil {
		return Result{}, err
	}
	cpu, start := ServerCPU(c.PID), time.Now()
	way, err := c.deliver(ctx)
	if err != nil {
		return Result{}, err
	}
	r := c.result("latency", int64(len(way)), time.Since(start), cpu, ServerCPU(c.PID))
	r.SyncP50Ms, r.SyncP99Ms = percentile(one, 0.50), percentile(one, 0.99)
	r.DeliverP50Ms, r.DeliverP99Ms = percentile(way, 0.50), percentile(way, 0.99)
	return r, nil
}

// deliver sends records at the configured rate and returns how long each took
// to arrive at a consumer. Producer and consumer are clients of their own.
func (c Config) deliver(ctx context.Context) ([]time.Duration, error) {
	consumer, err := c.client(
		kgo.ConsumeTopics(c.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	producer, err := c.client(append(c.producing(), kgo.DefaultProduceTopic(c.Topic), kgo.ProducerLinger(0))...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := c.atEnd(ctx, producer, consumer); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.For+30*time.Second)
	sent := make([]atomic.Int64, max(int64(c.For.Seconds()*float64(c.Rate)), 1)) // ns since begin
	var failed atomic.Pointer[error]
	var sender sync.WaitGroup
	defer sender.Wait()
	defer cancel()
	begin := time.Now()
	sender.Go(func() {
		for i := range sent {
			value := make([]byte, c.Size)
			binary.BigEndian.PutUint64(value, uint64(i)+1)
			pause(ctx, begin.Add(time.Duration(i)*time.Second/time.Duration(c.Rate)))
			sent[i].Store(int64(time.Since(begin)))
			producer.Produce(ctx, &kgo.Record{Value: value, Partition: int32(i) % c.Partitions}, func(_ *kgo.Record, err error) {
				if err != nil && failed.CompareAndSwap(nil, &err) {
					cancel()
				}
			})
		}
	})
	way := make([]time.Duration, 0, len(sent))
	for len(way) < len(sent) {
		fetches := consumer.PollFetches(ctx)
		now := time.Since(begin)
		if err := errors.Join(stopped(ctx, &failed), fetches.Err0()); err != nil {
			return nil, fmt.Errorf("bench: %d of %d records arrived: %w", len(way), len(sent), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if i := binary.BigEndian.Uint64(r.Value); i > 0 && i <= uint64(len(sent)) {
				way = append(way, now-time.Duration(sent[i-1].Load()))
			}
		})
	}
	return way, nil
}

// atEnd writes records numbered 0 until the consumer has seen one in each
// partition, so that it stands at the end and both are connected.
func (c Config) atEnd(ctx context.Context, producer, consumer *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	seen := map[int32]bool{}
	for len(seen) < int(c.Partitions) {
		for p := range c.Partitions {
			if !seen[p] {
				if err := producer.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 8), Partition: p}).FirstErr(); err != nil {
					return fmt.Errorf("bench: produce: %w", err)
				}
			}
		}
		poll, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := consumer.PollFetches(poll)
		stop()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("bench: the consumer sees nothing of what is produced: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[r.Partition] = true })
	}
	return nil
}

// pause waits until a time.
func pause(ctx context.Context, until time.Time) {
	d := time.Until(until)
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
