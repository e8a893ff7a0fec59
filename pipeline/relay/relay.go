// Package relay carries the outbox of the projections to Kafka: patches to
// causet.patches.v1, dead letters to causet.projection-dlq.v1.
//
// # What it promises
//
// Everything in the outbox is published at least once, after it is durable there. Of one
// entity, the first time that each message is on its topic is in the order of the commits.
// Every message has a stable id, its position in the outbox, in the header "id": a run of
// them that comes again has the same ids, so that whoever keeps the greatest id of a key drops
// what is not above it. Of a patch it is the cursor.
//
// # Life of a message
//
//  1. It is durable in the outbox, in the transaction of its effects. A crash here loses
//     nothing.
//  2. A run of messages is produced: idempotent, acks=all. A crash here, or a failure, leaves
//     some of them on their topics; all come again.
//  3. All are acknowledged, and are deleted from the outbox. A crash before that commit
//     makes them come again.
//
// A message that is larger than its topic allows is made smaller: a patch becomes a reset,
// which says to read the projection again; of a dead letter the raw bytes are left out, and
// if that is not enough the event: the database has both.
//
// Of several processes on one PostgreSQL database one works at a time (Store.Relay).
package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/topic"
)

const (
	// chunk is how many messages are published in one run.
	chunk = 1000
	// publishWithin bounds one run: a connection to the database is held meanwhile.
	publishWithin = 20 * time.Second
	// overhead is what a batch and a record take beside key, value and headers.
	overhead = 256
)

// HeaderID is the header with a message's stable id, decimal.
const HeaderID = "id"

// Options say where to publish.
type Options struct {
	Store *projection.Store
	// Patches and DeadLetters are the topics; they are made if they are not there.
	Patches, DeadLetters topic.Spec
	// Kafka are the options of the connection: addresses, TLS, SASL.
	Kafka []kgo.Opt
	// PollEvery is how often the outbox is looked into unasked (default 250 ms).
	PollEvery time.Duration
	// Pause bounds the wait after a failure (default 5 s).
	Pause  time.Duration
	Logger *slog.Logger
}

// Relay publishes one outbox. Wake may be called from anywhere.
type Relay struct {
	o         Options
	wake      chan struct{} // holds one signal
	published atomic.Int64
	failures  atomic.Int64
}

// New makes a relay; Run does the work.
func New(o Options) *Relay {
	if o.Patches.Name == "" {
		o.Patches.Name = topic.Patches
	}
	if o.DeadLetters.Name == "" {
		o.DeadLetters.Name = topic.DeadLetters
	}
	if o.PollEvery <= 0 {
		o.PollEvery = 250 * time.Millisecond
	}
	if o.Pause <= 0 {
		o.Pause = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Relay{o: o, wake: make(chan struct{}, 1)}
}

// Wake makes the relay look into the outbox now. It does not block.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run publishes until the context ends, and returns nil then. It does not give up on
// errors: it says them and tries again.
func (r *Relay) Run(ctx context.Context) error {
	pause := r.o.Pause / 32
	for ctx.Err() == nil {
		before := r.published.Load()
		err := r.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if pause = min(2*pause, r.o.Pause); r.published.Load() > before {
			pause = r.o.Pause / 32
		}
		r.failures.Add(1)
		r.o.Logger.Warn("publishing patches stopped; it goes on from the outbox", "error", err, "again_in", pause)
		wait(ctx, pause, nil)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// session publishes with one producer until something fails, and says what.
func (r *Relay) session(ctx context.Context) error {
	base := append([]kgo.Opt{kgo.ClientID("lattice-relay"), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(2 * chunk)}, r.o.Kafka...)
	admin, err := kgo.NewClient(base...)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	err = topic.Ensure(ctx, admin, r.o.Patches, r.o.DeadLetters)
	limit := topic.DefaultMaxBytes
	if err == nil {
		limit = topic.MaxBytes(ctx, admin, r.o.Patches.Name, r.o.DeadLetters.Name)
	}
	admin.Close()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(base, kgo.ProducerBatchMaxBytes(int32(limit)))...)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	// Nothing of this session is sent after this.
	defer client.Close()
	for ctx.Err() == nil {
		n, ours, err := r.o.Store.Relay(ctx, chunk, func(ctx context.Context, all []projection.Boxed) error {
			return r.publish(ctx, client, limit, all)
		})
		if err != nil {
			return err
		}
		r.published.Add(int64(n))
		if n < chunk || !ours {
			wait(ctx, r.o.PollEvery, r.wake)
		}
	}
	return ctx.Err()
}

func (r *Relay) publish(ctx context.Context, client *kgo.Client, limit int, all []projection.Boxed) error {
	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	records := make([]*kgo.Record, len(all))
	for i, m := range all {
		rec := &kgo.Record{Topic: r.o.Patches.Name, Key: m.Key, Value: m.Message, Headers: []kgo.RecordHeader{{Key: HeaderID, Value: strconv.AppendInt(nil, m.Position, 10)}}}
		if m.Kind == projection.KindDeadLetter {
			rec.Topic = r.o.DeadLetters.Name
		}
		if overhead+len(rec.Key)+len(rec.Value) > limit {
			var err error
			if rec.Value, err = smaller(m, limit-overhead-len(rec.Key)); err != nil {
				return err
			}
		}
		records[i] = rec
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return lattice.E(lattice.Unavailable, fmt.Errorf("publish %d messages: %w", len(all), err))
	}
	return nil
}

// smaller returns what is said instead of a message that does not fit.
func smaller(m projection.Boxed, limit int) ([]byte, error) {
	if m.Kind == projection.KindPatch {
		p, err := event.ParsePatch(m.Message)
		if err != nil {
			return nil, err
		}
		p.Reset, p.Operations, p.Key = true, nil, nil
		return p.Encode()
	}
	d, err := event.ParseDeadLetter(m.Message)
	if err != nil {
		return nil, err
	}
	d.Raw = nil
	d.StackTrace = "(the bytes are too long for this topic: lattice app dlq show has them)"
	b, err := d.Encode()
	if err == nil && len(b) > limit {
		d.OriginalEvent, d.SourceKey = json.RawMessage("null"), nil
		b, err = d.Encode()
	}
	return b, err
}

// Collector returns the relay's counters for Prometheus; the caller registers it.
func (r *Relay) Collector() prometheus.Collector { return collector{r} }

type collector struct{ r *Relay }

func descriptions() (published, failures *prometheus.Desc) {
	return prometheus.NewDesc("lattice_relay_published_total", "Messages of the outbox that their topics acknowledged.", nil, nil),
		prometheus.NewDesc("lattice_relay_failures_total", "Times that publishing stopped and began anew.", nil, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	a, b := descriptions()
	out <- a
	out <- b
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	a, b := descriptions()
	out <- prometheus.MustNewConstMetric(a, prometheus.CounterValue, float64(c.r.published.Load()))
	out <- prometheus.MustNewConstMetric(b, prometheus.CounterValue, float64(c.r.failures.Load()))
}
