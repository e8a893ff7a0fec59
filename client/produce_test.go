package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func producer(t *testing.T, f *fake, o client.ProducerOptions) *client.Producer {
	t.Helper()
	o.Topic = "events"
	p, err := dial(t, f).Producer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

// Whatever answers get lost, each record is there once and in its order.
func TestRepeatedBatchesAreWrittenOnce(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 1))
			f := newFake(3)
			f.produced = func(bool) error {
				mu.Lock()
				defer mu.Unlock()
				if rng.IntN(3) > 0 {
					return nil
				}
				return connect.NewError(connect.CodeUnavailable, fmt.Errorf("spoilt"))
			}
			p := producer(t, f, client.ProducerOptions{Compression: codec, BatchBytes: 400, Linger: time.Millisecond})
			const n = 120
			want := map[int32][]string{}
			for i := range n {
				key := fmt.Sprint(i % 7)
				part := record.PartitionForKey([]byte(key), 3)
				want[part] = append(want[part], fmt.Sprint(i))
				if err := p.SendAsync(t.Context(), client.Record{Key: []byte(key), Value: []byte(fmt.Sprint(i))}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for part := range int32(3) {
				if got := f.values(t, part); !slices.Equal(got, want[part]) {
					t.Errorf("partition %d holds %q, want %q", part, got, want[part])
				}
			}
			if st := p.Stats(); st.Acked != n || st.Sent != n || st.Failed != 0 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// A refused batch is told, and does not harm what comes after it.
func TestRefusedBatch(t *testing.T) {
	f := newFake(1)
	var refuse atomic.Bool
	f.produced = func(before bool) error {
		if before && refuse.Load() {
			return refusal(connect.CodeResourceExhausted, pb.Kind_KIND_TOO_LARGE, "too large: max.message.bytes", "send less")
		}
		return nil
	}
	p := producer(t, f, client.ProducerOptions{})
	if a, err := p.Send(t.Context(), client.Record{Value: []byte("a")}); err != nil || a.Offset != 0 {
		t.Fatalf("ack %+v, %v", a, err)
	}
	refuse.Store(true)
	_, err := p.Send(t.Context(), client.Record{Value: []byte("b")})
	if lattice.KindOf(err) != lattice.TooLarge || client.Hint(err) != "send less" || !strings.Contains(err.Error(), "events/0") {
		t.Fatalf("kind %v, hint %q, text %q", lattice.KindOf(err), client.Hint(err), err)
	}
	if err := p.SendAsync(t.Context(), client.Record{Value: []byte("c")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); lattice.KindOf(err) != lattice.TooLarge {
		t.Fatalf("flush: %v, want what became of the record", err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatalf("second flush: %v, want it told once", err)
	}
	refuse.Store(false)
	if a, err := p.Send(t.Context(), client.Record{Value: []byte("d")}); err != nil || a.Offset != 1 {
		t.Fatalf("ack %+v, %v", a, err)
	}
	if got := f.values(t, 0); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("log holds %q", got)
	}
}

// A batch is tried again for RetryFor, and then given up.
func TestRetryEnds(t *testing.T) {
	f := newFake(1)
	f.produced = func(bool) error { return connect.NewError(connect.CodeUnavailable, fmt.Errorf("spoilt")) }
	var retries atomic.Int64
	p := producer(t, f, client.ProducerOptions{RetryFor: 30 * time.Millisecond, Retrying: func(error) { retries.Add(1) }})
	if _, err := p.Send(t.Context(), client.Record{}); lattice.KindOf(err) != lattice.Unavailable {
		t.Fatalf("send: %v", err)
	}
	if retries.Load() == 0 {
		t.Error("Retrying was never called")
	}
	if st := p.Stats(); st.Failed != 1 {
		t.Errorf("stats %+v", st)
	}
}

// Batches stay below the limit, except for one record that alone is above it.
func TestBatchBytes(t *testing.T) {
	f := newFake(1)
	f.maxBytes = "1000"
	p := producer(t, f, client.ProducerOptions{Linger: time.Hour})
	for range 50 {
		if err := p.SendAsync(t.Context(), client.Record{Value: make([]byte, 200)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SendAsync(t.Context(), client.Record{Value: make([]byte, 3000)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, n := range f.sizes {
		if last := i == len(f.sizes)-1; !last && n > 1000 || last && n < 3000 {
			t.Errorf("batch %d of %d has %d bytes", i, len(f.sizes), n)
		}
	}
	if len(f.sizes) > 20 {
		t.Errorf("%d batches for 51 records of 200 bytes", len(f.sizes))
	}
}

// Records without a key visit all partitions, a batch at a time.
func TestKeylessRecordsSpread(t *testing.T) {
	f := newFake(4)
	p := producer(t, f, client.ProducerOptions{BatchBytes: 500, Linger: time.Hour})
	for range 40 {
		if err := p.SendAsync(t.Context(), client.Record{Value: make([]byte, 100)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for part := range int32(4) {
		if n := f.ends[part]; n < 5 || n > 15 {
			t.Errorf("partition %d has %d of 40 records", part, n)
		}
	}
}

// The buffer is bounded: sending waits, and goes on when there is room.
func TestBufferIsBounded(t *testing.T) {
	f := newFake(1)
	gate := make(chan struct{})
	f.produced = func(before bool) error {
		if before {
			<-gate
		}
		return nil
	}
	p := producer(t, f, client.ProducerOptions{BufferBytes: 10_000})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	sent := 0
	for ; sent < 100; sent++ {
		if err := p.SendAsync(ctx, client.Record{Value: make([]byte, 1000)}, nil); err != nil {
			if lattice.KindOf(err) != lattice.Unavailable {
				t.Fatal(err)
			}
			break
		}
	}
	if sent < 5 || sent > 10 {
		t.Errorf("%d records of 1,000 bytes went into a buffer of 10,000", sent)
	}
	close(gate)
	if err := p.SendAsync(t.Context(), client.Record{Value: make([]byte, 1000)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(f.values(t, 0)); got != sent+1 {
		t.Errorf("%d records arrived of %d", got, sent+1)
	}
	if err := p.SendAsync(t.Context(), client.Record{}, nil); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("send after close: %v", err)
	}
}

// Callbacks come once each, in order, with consecutive offsets.
func TestCallbacks(t *testing.T) {
	f := newFake(1)
	p := producer(t, f, client.ProducerOptions{BatchBytes: 300})
	var mu sync.Mutex
	var offsets []int64
	for range 100 {
		err := p.SendAsync(t.Context(), client.Record{Value: []byte("x")}, func(a client.Ack, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			offsets = append(offsets, a.Offset)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(offsets) != 100 {
		t.Fatalf("%d callbacks", len(offsets))
	}
	for i, o := range offsets {
		if o != int64(i) {
			t.Fatalf("callback %d has offset %d", i, o)
		}
	}
}

func TestProducerOptions(t *testing.T) {
	c := dial(t, newFake(2))
	if _, err := c.Producer(t.Context(), client.ProducerOptions{Topic: "nope"}); lattice.KindOf(err) != lattice.NotFound {
		t.Errorf("no topic: %v", err)
	}
	if _, err := c.Producer(t.Context(), client.ProducerOptions{Topic: "events", Compression: "zip"}); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("no such compression: %v", err)
	}
	p, err := c.Producer(t.Context(), client.ProducerOptions{Topic: "events", Partition: client.ToPartition(2)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	if _, err := p.Send(t.Context(), client.Record{}); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("partition out of range: %v", err)
	}
}
