package crash

import (
	"context"
	"errors"
	"fmt"
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

// kinds are the topics. A killed process loses nothing that it wrote, so that
// even durability "os" must hold.
var kinds = []struct {
	topic      string
	idempotent bool
	durability string
}{
	{"idempotent", true, "fsync"},
	{"plain", false, "fsync"},
	{"lazy", true, "os"},
}

const perKind = 2 // writers

// world is the clients and what they were told.
type world struct {
	t       *testing.T
	at      string
	writers []*writer
	going   atomic.Bool
	wg      sync.WaitGroup
	commits atomic.Int64

	catalogue catalogue

	mu        sync.Mutex
	acked     map[string]map[int32]map[int64]string // topic, partition, offset: value
	committed int64                                 // greatest group offset that was acknowledged
	tried     int64                                 // greatest that was asked for
}

// writer is one producer. Its client lives through all rounds, so that an
// idempotent one goes on with its sequence after the node is back.
type writer struct {
	name   string
	client *kgo.Client
	next   int
}

func newWorld(t *testing.T, at string) *world {
	w := &world{t: t, at: at, acked: map[string]map[int32]map[int64]string{}}
	for _, k := range kinds {
		w.acked[k.topic] = map[int32]map[int64]string{}
		for p := range int32(partitions) {
			w.acked[k.topic][p] = map[int64]string{}
		}
		for i := range perKind {
			opts := []kgo.Opt{
				kgo.SeedBrokers(at), kgo.DefaultProduceTopic(k.topic), kgo.RequiredAcks(kgo.AllISRAcks()),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
				kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(20 * time.Millisecond),
			}
			if !k.idempotent {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			c, err := kgo.NewClient(opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			w.writers = append(w.writers, &writer{name: fmt.Sprintf("%s-%d", k.topic, i), client: c})
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
	for _, k := range kinds {
		config := map[string]*string{"segment.bytes": &segments, "lattice.durability": &k.durability}
		if _, err := a.CreateTopic(ctx, partitions, 1, config, k.topic); err != nil {
			t.Fatalf("create %s: %v", k.topic, err)
		}
	}
}

// run lets everybody write until pause.
func (w *world) run() {
	w.going.Store(true)
	for _, x := range w.writers {
		w.wg.Go(func() {
			for w.going.Load() {
				w.write(x)
			}
		})
	}
	w.wg.Go(w.commit)
	w.wg.Go(w.makeTopics)
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
		o.Add(kadm.Offset{Topic: kinds[0].topic, Partition: 0, At: next, LeaderEpoch: -1})
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
	for _, k := range kinds {
		ends, err := a.ListEndOffsets(ctx, k.topic)
		if err != nil {
			t.Fatal(err)
		}
		for p := range int32(partitions) {
			end, ok := ends.Lookup(k.topic, p)
			if !ok || end.Err != nil {
				t.Fatalf("end of %s/%d: %v", k.topic, p, end.Err)
			}
			w.checkPartition(ctx, t, span{k.topic, p, end.Offset, k.idempotent}, want[k.topic][p])
		}
	}
	w.checkTopics(ctx, t, a)
	fetched, err := a.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := fetched.Lookup(kinds[0].topic, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.At < committed || o.At > w.tried {
		t.Errorf("the group's offset is %d; %d was acknowledged, %d the last that was asked for", o.At, committed, w.tried)
	}
}
