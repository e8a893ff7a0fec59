package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	group      = "readers"
	patience   = 60 * time.Second // of one check
)

var topics = []string{"idempotent", "plain"}

// world is the clients and what they were told.
type world struct {
	t       *testing.T
	at      string
	writers []*writer
	going   atomic.Bool
	wg      sync.WaitGroup
	commits atomic.Int64

	mu        sync.Mutex
	acked     map[string]map[int32]map[int64]string // topic, partition, offset: value
	committed int64                                 // greatest group offset that was acknowledged
	tried     int64                                 // greatest that was asked for
}

// writer is one producer. Its client lives through all rounds, so that an
// idempotent one goes on with its sequence after the node is back.
type writer struct {
	name, topic string
	client      *kgo.Client
	next        int
}

func newWorld(t *testing.T, at string) *world {
	w := &world{t: t, at: at, acked: map[string]map[int32]map[int64]string{}}
	for _, topic := range topics {
		w.acked[topic] = map[int32]map[int64]string{}
		for p := range int32(partitions) {
			w.acked[topic][p] = map[int64]string{}
		}
		for i := range 3 {
			opts := []kgo.Opt{
				kgo.SeedBrokers(at), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
				kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(20 * time.Millisecond),
			}
			if topic == "plain" {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			c, err := kgo.NewClient(opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			w.writers = append(w.writers, &writer{name: fmt.Sprintf("%s-%d", topic, i), topic: topic, client: c})
		}
	}
	return w
}

func (w *world) admin(t *testing.T) (*kadm.Client, context.Context) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.at))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() { cancel(); c.Close() })
	return kadm.NewClient(c), ctx
}

func (w *world) createTopics(t *testing.T) {
	t.Helper()
	a, ctx := w.admin(t)
	segments := "65536" // small, so that kills meet rolls
	resp, err := a.CreateTopics(ctx, partitions, 1, map[string]*string{"segment.bytes": &segments}, topics...)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Error(); err != nil {
		t.Fatal(err)
	}
}

// run lets everybody write until pause.
func (w *world) run() {
	w.going.Store(true)
	for _, x := range w.writers {
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			for w.going.Load() {
				w.write(x)
			}
		}()
	}
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		w.commit()
	}()
}

// pause stops the writers where they are: what an idempotent one has in flight it
// keeps, and delivers when the node is back.
func (w *world) pause() {
	w.going.Store(false)
	w.wg.Wait()
}

// write produces a few records at once and notes what was acknowledged, as it is.
func (w *world) write(x *writer) {
	const burst = 20
	var left atomic.Int64
	left.Store(burst)
	done := make(chan struct{})
	for range burst {
		r := &kgo.Record{Partition: int32(x.next % partitions), Value: []byte(valueOf(x.name, x.next))}
		x.next++
		x.client.Produce(context.Background(), r, func(r *kgo.Record, err error) {
			w.note(r, err)
			if left.Add(-1) == 0 {
				close(done)
			}
		})
	}
	for w.going.Load() {
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (w *world) note(r *kgo.Record, err error) {
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
	case err != nil:
		w.t.Errorf("produce %q: %v", r.Value, err)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if was, ok := w.acked[r.Topic][r.Partition][r.Offset]; ok {
			w.t.Errorf("%s/%d offset %d was acknowledged for %q and for %q", r.Topic, r.Partition, r.Offset, was, r.Value)
		}
		w.acked[r.Topic][r.Partition][r.Offset] = string(r.Value)
	}
}

// commit raises the group's offset, one by one.
func (w *world) commit() {
	c, err := kgo.NewClient(kgo.SeedBrokers(w.at), kgo.RequestRetries(0))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer c.Close()
	a := kadm.NewClient(c)
	for w.going.Load() {
		w.mu.Lock()
		w.tried++
		next := w.tried
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		var o kadm.Offsets
		o.Add(kadm.Offset{Topic: topics[0], Partition: 0, At: next, LeaderEpoch: -1})
		resp, err := a.CommitOffsets(ctx, group, o)
		cancel()
		if err == nil && resp.Error() == nil {
			w.commits.Add(1)
			w.mu.Lock()
			w.committed = max(w.committed, next)
			w.mu.Unlock()
		}
	}
}

// finish delivers everything that is still in flight.
func (w *world) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, x := range w.writers {
		if err := x.client.Flush(ctx); err != nil {
			w.t.Errorf("flush %s: %v", x.name, err)
		}
	}
}

func (w *world) count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n int64
	for _, ps := range w.acked {
		for _, p := range ps {
			n += int64(len(p))
		}
	}
	return n
}

// check reads everything back.
func (w *world) check(t *testing.T) {
	t.Helper()
	// What is acknowledged from here on may lie beyond what is read.
	w.mu.Lock()
	want := map[string]map[int32]map[int64]string{}
	for topic, ps := range w.acked {
		want[topic] = map[int32]map[int64]string{}
		for p, m := range ps {
			want[topic][p] = make(map[int64]string, len(m))
			for at, v := range m {
				want[topic][p][at] = v
			}
		}
	}
	committed := w.committed
	w.mu.Unlock()
	a, ctx := w.admin(t)
	ends, err := a.ListEndOffsets(ctx, topics...)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		for p := range int32(partitions) {
			end, ok := ends.Lookup(topic, p)
			if !ok || end.Err != nil {
				t.Fatalf("end of %s/%d: %v", topic, p, end.Err)
			}
			w.checkPartition(ctx, t, topic, p, end.Offset, want[topic][p])
		}
	}
	fetched, err := a.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := fetched.Lookup(topics[0], 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.At < committed || o.At > w.tried {
		t.Errorf("the group's offset is %d; %d was acknowledged, %d the last that was asked for", o.At, committed, w.tried)
	}
}

// checkPartition reads one partition from 0 to its end.
func (w *world) checkPartition(ctx context.Context, t *testing.T, topic string, p int32, end int64, want map[int64]string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.at), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {p: kgo.NewOffset().At(0)},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen := map[string]int64{}
	last := map[string]int{} // of each idempotent writer
	next := int64(0)
	for next < end {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("read %s/%d at %d of %d: %v", topic, p, next, end, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next {
				t.Errorf("%s/%d: offset %d follows %d", topic, p, r.Offset, next-1)
			}
			next = r.Offset + 1
			v := string(r.Value)
			if w, ok := want[r.Offset]; ok && w != v {
				t.Errorf("%s/%d offset %d: %q was acknowledged, %q is there", topic, p, r.Offset, w, v)
			}
			delete(want, r.Offset)
			if topic != "idempotent" {
				return
			}
			if first, twice := seen[v]; twice {
				t.Errorf("%s/%d: %q is at %d and at %d", topic, p, v, first, r.Offset)
			}
			seen[v] = r.Offset
			name, num, _ := strings.Cut(v, " ")
			var n int
			if _, err := fmt.Sscan(num, &n); err != nil {
				t.Errorf("%s/%d offset %d: %q", topic, p, r.Offset, v)
			}
			if was, ok := last[name]; ok && n <= was {
				t.Errorf("%s/%d: %s wrote %d after %d", topic, p, name, n, was)
			}
			last[name] = n
		})
	}
	for at, v := range want {
		t.Errorf("%s/%d: %q was acknowledged at %d and is not there (end %d)", topic, p, v, at, end)
	}
}
