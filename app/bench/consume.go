package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
)

// Consume measures reading Records records from the start of the topic, or as many
// at its end, if all partitions have as many. A topic
// that it makes itself it fills first; that is not measured.
func Consume(ctx context.Context, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	own := c.Topic == ""
	done, err := c.prepare(ctx)
	if err != nil {
		return Result{}, err
	}
	defer done()
	if own {
		quiet := c
		quiet.Progress = nil
		n, _, err := quiet.fill(ctx)
		if err != nil {
			return Result{}, err
		}
		c.Records = n
	}
	from := kgo.NewOffset().AtStart()
	if c.Newest {
		from = kgo.NewOffset().AtEnd().Relative(-c.Records / int64(c.Partitions))
	}
	cl, err := c.client(
		kgo.ConsumeTopics(c.Topic), kgo.ConsumeResetOffset(from),
		kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(4<<20), kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return Result{}, err
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return Result{}, unreachable(err)
	}
	cpu, start := ServerCPU(c.PID), time.Now()
	records, bytes, err := c.drain(ctx, cl)
	if err != nil {
		return Result{}, err
	}
	took := time.Since(start)
	if !own {
		c.Size = int(bytes / max(records, 1))
	}
	r := c.result("consume", records, took, cpu, ServerCPU(c.PID))
	r.Acks = ""
	return r, nil
}

// drain polls until enough records came, or none came for some time.
func (c Config) drain(ctx context.Context, cl *kgo.Client) (records, bytes int64, err error) {
	const silence = 10 * time.Second
	for records < c.Records {
		poll, cancel := context.WithTimeout(ctx, silence)
		fetches := cl.PollRecords(poll, 100_000)
		late := poll.Err()
		cancel()
		if err := ctx.Err(); err != nil {
			return records, bytes, err
		}
		before, beforeBytes := records, bytes
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			bytes += int64(len(r.Key) + len(r.Value))
		})
		if c.Progress != nil {
			c.Progress(records-before, bytes-beforeBytes)
		}
		if records > before {
			continue
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return records, bytes, fmt.Errorf("bench: fetch %s/%d: %w", e.Topic, e.Partition, e.Err)
			}
		}
		if late != nil {
			return records, bytes, lattice.E(lattice.NotYet, fmt.Errorf("bench: %s has %d records only, of %d asked for", c.Topic, records, c.Records))
		}
	}
	return records, bytes, nil
}
