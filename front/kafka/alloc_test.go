package kafka

import (
	"bytes"
	"context"
	"testing"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/invariant"
)

// TestAllocations counts what the hot paths allocate in this package and below:
// a few objects a request, none for each record or partition of it.
func TestAllocations(t *testing.T) {
	d := newDirect(t)
	if _, err := d.srv.store.CreateTopic(context.Background(), store.NewTopic{Name: "os", Partitions: 4, Config: map[string]string{"lattice.durability": "os"}}); err != nil {
		t.Fatal(err)
	}
	topic, _ := d.srv.store.Topic("os")
	values := make([]string, 1000)
	for i := range values {
		values[i] = "a record of about forty bytes, no more..."
	}
	produce := frame(produceReq(topic, 9, 0, batch(record.None, values...)), 1)[4:]
	fetch := frame(fetchReq(topic, 12, 0, 0), 1)[4:]
	run := d.runner()
	run(produce)
	for name, tc := range map[string]struct {
		frame []byte
		most  float64
	}{
		"produce of 1000 records": {produce, 12},
		"fetch":                   {fetch, 12},
	} {
		got := testing.AllocsPerRun(200, func() { run(tc.frame) })
		t.Logf("%s: %.1f allocations", name, got)
		if raceEnabled {
			continue // the race detector makes pools forget at random
		}
		if invariant.Enabled {
			tc.most *= 2 // assertions box what they would print
		}
		if got > tc.most {
			t.Errorf("%s: %.1f allocations, want at most %.0f", name, got, tc.most)
		}
	}
}

// runner returns a function that takes one frame through one connection.
func (d *direct) runner() func(frame []byte) {
	nc := &sink{}
	c := newConn(d.srv, nc, context.Background(), make(chan struct{}))
	return func(b []byte) {
		f := d.srv.bufs.get(len(b))
		f.b = append(f.b, b...)
		d.srv.frames.try(int64(len(b)))
		if err := c.dispatch(f); err != nil {
			panic(err)
		}
		c.mu.Lock()
		for c.head != nil || c.writing {
			c.moved.Wait()
		}
		c.mu.Unlock()
		nc.mu.Lock()
		nc.out.Reset()
		nc.mu.Unlock()
	}
}

func BenchmarkProduce(b *testing.B) {
	for name, n := range map[string]int{"1x100B": 1, "1000x100B": 1000} {
		b.Run(name, func(b *testing.B) {
			d := newDirect(b)
			topic, err := d.srv.store.CreateTopic(context.Background(), store.NewTopic{Name: "os", Partitions: 1, Config: map[string]string{"lattice.durability": "os", "retention.bytes": "1000000"}})
			if err != nil {
				b.Fatal(err)
			}
			values := make([]string, n)
			for i := range values {
				values[i] = string(bytes.Repeat([]byte{'x'}, 100))
			}
			f := frame(produceReq(topic, 9, 0, batch(record.None, values...)), 1)[4:]
			run := d.runner()
			b.SetBytes(int64(len(f)))
			b.ReportAllocs()
			for b.Loop() {
				run(f)
			}
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	d := newDirect(b)
	for range 10 {
		d.do(b, 0, 9, bodyOf(produceReq(d.topic, 9, 0, batch(record.None, string(bytes.Repeat([]byte{'x'}, 100_000))))))
	}
	f := frame(fetchReq(d.topic, 12, 0, 0), 1)[4:]
	run := d.runner()
	b.SetBytes(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		run(f)
	}
}

// BenchmarkFramework is what a request costs without the engine: framing,
// decoding, the queue, encoding.
func BenchmarkFramework(b *testing.B) {
	d := newDirect(b)
	req := produceReq(d.topic, 9, 7, batch(record.None, "x")) // no such partition
	f := frame(req, 1)[4:]
	run := d.runner()
	b.ReportAllocs()
	for b.Loop() {
		run(f)
	}
}
