package clients

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writer writes one record after the other, over all partitions, so that a
// group has something to read.
type writer struct {
	gate   chan struct{} // full while it writes one, and while it is paused
	cancel context.CancelFunc
	done   sync.WaitGroup

	ends []int64 // of the partitions; to be read while it is paused or stopped
	err  error   // likewise
}

func writeOn(t *testing.T, at, topic string) *writer {
	t.Helper()
	cl := observer(t, at, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{gate: make(chan struct{}, 1), cancel: cancel, ends: make([]int64, shared)}
	w.done.Go(func() {
		for i := 0; ctx.Err() == nil && w.write(ctx, cl, i); i++ {
			time.Sleep(2 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		w.cancel()
		w.done.Wait()
	})
	return w
}

func (w *writer) write(ctx context.Context, cl *kgo.Client, i int) bool {
	select {
	case w.gate <- struct{}{}:
		defer func() { <-w.gate }()
	case <-ctx.Done():
		return false
	}
	// What was begun is finished, so that ends says how far it went.
	r := &kgo.Record{Partition: int32(i % shared), Value: fmt.Append(nil, i)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if w.err = cl.ProduceSync(ctx, r).FirstErr(); w.err != nil {
		return false
	}
	w.ends[r.Partition] = r.Offset + 1
	return true
}

func (w *writer) pause()  { w.gate <- struct{}{} }
func (w *writer) resume() { <-w.gate }

// stop ends it and returns the ends of the partitions.
func (w *writer) stop(t *testing.T) []int64 {
	t.Helper()
	w.cancel()
	w.done.Wait()
	if w.err != nil {
		t.Fatalf("write beside the group: %v", w.err)
	}
	return w.ends
}
