package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// delivery measures the way from producer to consumer as bench.Latency does, for
// servers that do not speak Kafka's protocol.
type delivery struct {
	w     compare.Work
	begin time.Time
	all   chan struct{} // closed when the last has arrived

	mu   sync.Mutex
	sent []time.Duration // since begin
	way  []time.Duration
}

func newDelivery(w compare.Work) *delivery {
	n := int(w.For.Seconds() * float64(w.Rate))
	return &delivery{w: w, begin: time.Now(), all: make(chan struct{}), sent: make([]time.Duration, 0, n)}
}

// arrived takes the number of a record that a consumer got: the first 8 bytes of
// its value. Numbers begin with 1; others are not of this measurement.
func (d *delivery) arrived(number uint64) {
	now := time.Since(d.begin)
	d.mu.Lock()
	defer d.mu.Unlock()
	if number == 0 || number > uint64(len(d.sent)) || len(d.way) == cap(d.sent) {
		return
	}
	d.way = append(d.way, now-d.sent[number-1])
	if len(d.way) == cap(d.sent) {
		close(d.all)
	}
}

// send sends the records at their rate, and waits for them.
func (d *delivery) send(ctx context.Context, produce func(value []byte) error) ([]time.Duration, error) {
	start := time.Now()
	for i := range cap(d.sent) {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(d.w.Rate))))
		value := make([]byte, max(d.w.Size, 8))
		binary.BigEndian.PutUint64(value, uint64(i)+1)
		d.mu.Lock()
		d.sent = append(d.sent, time.Since(d.begin))
		d.mu.Unlock()
		if err := produce(value); err != nil {
			return nil, err
		}
	}
	select {
	case <-d.all:
		return d.way, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(30 * time.Second):
		d.mu.Lock()
		defer d.mu.Unlock()
		return nil, fmt.Errorf("%d of %d records arrived", len(d.way), cap(d.sent))
	}
}

// latencies fills in what app/bench does not measure itself.
func latencies(one, way []time.Duration) bench.Result {
	return bench.Result{
		Records: int64(len(way)), SyncP50Ms: quantile(one, 0.50), SyncP99Ms: quantile(one, 0.99),
		DeliverP50Ms: quantile(way, 0.50), DeliverP99Ms: quantile(way, 0.99),
	}
}

// quantile returns the value that the fraction q of all is not above, in ms. It
// sorts all.
func quantile(all []time.Duration, q float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	ms := float64(all[min(int(q*float64(len(all))), len(all)-1)]) / 1e6
	return &ms
}
