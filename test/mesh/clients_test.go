package mesh

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// acked is what clients were told is there.
type acked struct {
	mu      sync.Mutex
	records map[string]map[int32]map[int64]string // topic, partition, offset: value
	keys    map[string]string
	wrong   []string
}

func newAcked() *acked {
	return &acked{records: map[string]map[int32]map[int64]string{}, keys: map[string]string{}}
}

func (a *acked) record(r *kgo.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.records[r.Topic]
	if t == nil {
		t = map[int32]map[int64]string{}
		a.records[r.Topic] = t
	}
	if t[r.Partition] == nil {
		t[r.Partition] = map[int64]string{}
	}
	if old, ok := t[r.Partition][r.Offset]; ok && old != string(r.Value) {
		a.wrong = append(a.wrong, fmt.Sprintf("%s/%d: offset %d was given to %q and to %q", r.Topic, r.Partition, r.Offset, old, r.Value))
	}
	t[r.Partition][r.Offset] = string(r.Value)
}

func (a *acked) key(k, v string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[k] = v
}

func (a *acked) counts() (records, keys int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.records {
		for _, p := range t {
			records += len(p)
		}
	}
	return records, len(a.keys)
}

// writers are the clients of one node: an idempotent producer to each topic, and one
// that sets keys. They go on through everything; what they are not told they do not
// count.
type writers struct {
	m      *machine
	cancel context.CancelFunc
	wg     sync.WaitGroup
	sent   atomic.Int64
}

func (m *machine) write(topics []string) *writers {
	ctx, cancel := context.WithCancel(m.t.Context())
	w := &writers{m: m, cancel: cancel}
	for _, topic := range topics {
		w.wg.Go(func() { w.produce(ctx, topic) })
	}
	w.wg.Go(func() { w.set(ctx) })
	return w
}

func (w *writers) stop() {
	w.cancel()
	w.wg.Wait()
}

// pause is between two writes of a client, so that the links of this test can carry
// them.
const pause = 15 * time.Millisecond

func (w *writers) produce(ctx context.Context, topic string) {
	c, err := kgo.NewClient(
		kgo.SeedBrokers(kafkaAt), kgo.Dialer(w.m.net.dial(w.m.i)), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(-1),
	)
	if err != nil {
		w.m.t.Error(err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		r := &kgo.Record{Value: fmt.Appendf(nil, "%d by way of %s", w.sent.Add(1), w.m.label)}
		if got, err := c.ProduceSync(ctx, r).First(); err == nil {
			w.m.acked.record(got)
		}
		wait(ctx, pause)
	}
}

func (w *writers) set(ctx context.Context) {
	var c *respclient.Client
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for ; ctx.Err() == nil; wait(ctx, pause) {
		if c == nil {
			if err := w.m.net.inside(w.m.i, func() (err error) { c, err = respclient.Dial(redisAt); return err }); err != nil {
				c = nil
				wait(ctx, 100*time.Millisecond)
				continue
			}
		}
		w.m.keys++ // each is set once, so that one without an answer hides no other
		k, v := fmt.Sprintf("%s/%d", w.m.label, w.m.keys), fmt.Sprint(w.sent.Add(1))
		got, err := c.Do("SET", k, v)
		switch {
		case err != nil: // it may be there or not
			_ = c.Close()
			c = nil
		case got.Str == "OK":
			w.m.acked.key(k, v)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// missing says what of what was acknowledged a node does not have; empty: nothing.
func (m *machine) missing(a *acked) string {
	var c *respclient.Client
	if err := m.net.inside(m.i, func() (err error) { c, err = respclient.Dial(redisAt); return err }); err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	for k, v := range a.keys {
		got, err := c.Do("GET", k)
		if err != nil || got.Str != v {
			return fmt.Sprintf("key %s is %s (%v), acknowledged was %q", k, got, err, v)
		}
	}
	for topic, parts := range a.records {
		for p, want := range parts {
			if s := m.lacks(topic, p, want); s != "" {
				return s
			}
		}
	}
	return ""
}

// lacks reads a partition from the node's replica until it has all, or nothing comes.
func (m *machine) lacks(topic string, p int32, want map[int64]string) string {
	c, err := kgo.NewClient(kgo.SeedBrokers(kafkaAt), kgo.Dialer(m.net.dial(m.i)),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	last := int64(-1)
	for o := range want {
		last = max(last, o)
	}
	found, next := 0, int64(0)
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	for next <= last {
		f := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Sprintf("%s/%d: read up to offset %d, acknowledged are %d up to %d: %v", topic, p, next, len(want), last, f.Errors())
		}
		bad := ""
		f.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if v, ok := want[r.Offset]; ok {
				if found++; v != string(r.Value) {
					bad = fmt.Sprintf("%s/%d has %q at offset %d, acknowledged was %q", topic, p, r.Value, r.Offset, v)
				}
			}
		})
		if bad != "" {
			return bad
		}
	}
	if found != len(want) {
		return fmt.Sprintf("%s/%d has %d of %d acknowledged records", topic, p, found, len(want))
	}
	return ""
}
