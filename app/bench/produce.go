package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Produce measures writing: first Records records as fast as they are taken, or
// as many as are taken Within, then Syncs records one at a time.
func Produce(ctx context.Context, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	done, err := c.prepare(ctx)
	if err != nil {
		return Result{}, err
	}
	defer done()
	cpu := ServerCPU(c.PID)
	records, took, err := c.fill(ctx)
	if err != nil {
		return Result{}, err
	}
	r := c.result("produce", records, took, cpu, ServerCPU(c.PID))
	latencies, err := c.syncs(ctx)
	if err != nil {
		return Result{}, err
	}
	r.SyncP50Ms, r.SyncP99Ms = percentile(latencies, 0.50), percentile(latencies, 0.99)
	return r, nil
}

// fill writes the records and returns how many, and how long it took until the
// last was acknowledged.
func (c Config) fill(ctx context.Context) (int64, time.Duration, error) {
	cl, err := c.client(append(c.producing(), kgo.DefaultProduceTopic(c.Topic), kgo.ProducerLinger(5*time.Millisecond))...)
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	// Connections and metadata are not what is measured.
	if err := cl.Ping(ctx); err != nil {
		return 0, 0, unreachable(err)
	}
	values := payloads(c.Size)
	perBatch := max(int64(c.BatchBytes)/int64(c.Size+16), 1)
	var failed atomic.Pointer[error]
	onDone := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	start := time.Now()
	records := make([]kgo.Record, min(c.Records, 4096))
	sent := c.Records
	for i := int64(0); i < c.Records; i++ {
		at := i % int64(len(records))
		if at == 0 {
			if c.Within > 0 && i > 0 && time.Since(start) >= c.Within {
				sent = i
				break
			}
			if i > 0 {
				c.progress(int64(len(records)))
			}
			if err := stopped(ctx, &failed); err != nil {
				return 0, 0, err
			}
			// A record belongs to the client until it is acknowledged.
			records = make([]kgo.Record, len(records))
		}
		r := &records[at]
		r.Value = values[i%int64(len(values))]
		r.Partition = int32(i / perBatch % int64(c.Partitions))
		cl.Produce(ctx, r, onDone)
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, 0, fmt.Errorf("bench: flush: %w", err)
	}
	took := time.Since(start)
	c.progress((sent-1)%int64(len(records)) + 1)
	return sent, took, stopped(ctx, &failed)
}

func stopped(ctx context.Context, failed *atomic.Pointer[error]) error {
	if p := failed.Load(); p != nil {
		return fmt.Errorf("bench: produce: %w", *p)
	}
	return ctx.Err()
}

// syncs writes records one at a time and returns how long each took.
func (c Config) syncs(ctx context.Context) ([]time.Duration, error) {
	if c.Syncs == 0 || c.Acks == "0" {
		return nil, nil
	}
	cl, err := c.client(append(c.producing(), kgo.DefaultProduceTopic(c.Topic), kgo.ProducerLinger(0))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	value := payloads(c.Size)[0]
	all := make([]time.Duration, 0, c.Syncs)
	const warmUp = 10
	for i := range c.Syncs + warmUp {
		start := time.Now()
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return nil, fmt.Errorf("bench: synchronous produce: %w", err)
		}
		if i >= warmUp {
			all = append(all, time.Since(start))
		}
	}
	return all, nil
}

func (c Config) progress(n int64) {
	if c.Progress != nil {
		c.Progress(n, n*int64(c.Size))
	}
}

// payloads returns some values of size bytes that compress about as JSON does:
// to a third or so. They are the same in every run.
func payloads(size int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{`"order":`, `"price":`, `"customer":`, `"status":"paid",`, `"at":"2026-`, `true,`, `null,`}
	all := make([][]byte, 64)
	for i := range all {
		b := make([]byte, 0, size+32)
		for len(b) < size {
			b = append(b, words[rng.IntN(len(words))]...)
			for range 6 {
				b = append(b, byte('0'+rng.IntN(10)))
			}
		}
		all[i] = b[:size:size]
	}
	return all
}
