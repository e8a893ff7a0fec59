package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/publisher"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within bounds every wait for something that must happen.
const within = time.Minute

// rig is a ledger and what publishes it.
type rig struct {
	t       *testing.T
	url     string
	ledger  *ledger.Ledger
	pub     *publisher.Publisher
	options publisher.Options
	n       int
	stop    func()
}

func newRig(t *testing.T, brokers []string, change func(*publisher.Options)) *rig {
	t.Helper()
	r := &rig{t: t, url: filepath.Join(t.TempDir(), "ledger.db"), options: publisher.Options{
		Projection: topic.Spec{Name: topic.ProjectionEvents, Partitions: 3}, Ledger: topic.Spec{Name: topic.LedgerEvents, Partitions: 2},
		Kafka:    []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })},
		TakeOver: true, Pause: 100 * time.Millisecond, CursorEvery: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}}
	if change != nil {
		change(&r.options)
	}
	r.open()
	return r
}

// open opens the ledger and starts a publisher, as a new process would.
func (r *rig) open() {
	r.t.Helper()
	db, err := sqldb.Open(r.t.Context(), r.url, sqldb.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { db.Close() })
	var committed func([]event.Event)
	if r.ledger, err = ledger.Open(r.t.Context(), db, ledger.Options{Committed: func(e []event.Event) { committed(e) }}); err != nil {
		r.t.Fatal(err)
	}
	if r.pub, err = publisher.New(r.ledger, r.options); err != nil {
		r.t.Fatal(err)
	}
	committed = r.pub.Committed
	r.run()
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	pub := r.pub
	go func() { done <- pub.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
	r.t.Cleanup(r.stop)
}

// commit commits n intents of two events each, over five entities.
func (r *rig) commit(n int) {
	r.t.Helper()
	for range n {
		r.n++
		id := fmt.Sprint("e", r.n%5)
		if _, err := r.ledger.Commit(r.t.Context(), &ledger.Proposal{
			Address:  ledger.Address{TenantSchema: "t", ForkID: "prod", Stream: "user_stream", EntityID: id},
			IntentID: fmt.Sprint("i", r.n), IRVersion: "v1", TS: 1719331200000, CorrelationID: fmt.Sprint("c", r.n),
			Decide: func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
				return ledger.Decision{Events: []ledger.NewEvent{
					{EventType: "A", Payload: json.RawMessage(`{"n":1}`)}, {EventType: "B", EntityID: fmt.Sprint("e", r.n%3), Payload: json.RawMessage(`{}`)},
				}}, nil
			},
		}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// await waits until all that was committed is published.
func (r *rig) await() {
	r.t.Helper()
	head, err := r.ledger.Head(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.until("all is published", func(s publisher.Stats) bool { return s.Cursor >= head })
}

func (r *rig) until(what string, ok func(publisher.Stats) bool) {
	r.t.Helper()
	for end := time.Now().Add(within); !ok(r.pub.Stats()); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("after %s not so: %s; have %+v", within, what, r.pub.Stats())
		}
	}
}

// verify reads both topics and checks them against the ledger: of each entity, the
// first time that each event is there is in order, none is missing, and each says
// what the ledger says. It returns how many records there are beyond one for each.
func (r *rig) verify(brokers []string) int {
	r.t.Helper()
	all, err := r.ledger.Events(r.t.Context(), 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	extra := 0
	for _, name := range []string{r.options.Projection.Name, r.options.Ledger.Name} {
		want := map[string]event.Event{}
		for _, e := range all {
			want[fmt.Sprint(e.Stream, e.EntityID, "#", e.SequenceNumber)] = e
		}
		last := map[string]int64{}
		for _, rec := range consume(r.t, brokers, name) {
			p, err := event.ParseProjection(rec.Value)
			if err != nil {
				r.t.Fatalf("%s: %v in %s", name, err, rec.Value)
			}
			from := provenance(rec)
			e, known := want[fmt.Sprint(from.Stream, p.EntityID, "#", p.SequenceNumber)]
			switch {
			case p.SequenceNumber <= last[p.EntityID]:
				extra++
				continue
			case !known || p.SequenceNumber != last[p.EntityID]+1:
				r.t.Fatalf("%s: %s follows number %d", name, rec.Value, last[p.EntityID])
			}
			last[p.EntityID]++
			if fmt.Sprint(p) != fmt.Sprint(e.Projection()) || string(rec.Key) != p.EntityID ||
				from != (event.Provenance{CorrelationID: e.CorrelationID, IntentID: e.IntentID, Stream: e.Stream, Position: e.Position}) {
				r.t.Fatalf("%s: %s, key %s, headers %+v; want %+v", name, rec.Value, rec.Key, from, e)
			}
			delete(want, fmt.Sprint(from.Stream, p.EntityID, "#", p.SequenceNumber))
			if name == r.options.Ledger.Name {
				if back, err := event.Parse(rec.Value); err != nil || fmt.Sprint(back) != fmt.Sprint(e) {
					r.t.Fatalf("%s: %+v, %v; want %+v", name, back, err, e)
				}
			}
		}
		if len(want) > 0 {
			r.t.Fatalf("%s: %d events are missing, such as %v", name, len(want), want)
		}
	}
	return extra
}

func provenance(rec *kgo.Record) event.Provenance {
	var h []event.Header
	for _, rh := range rec.Headers {
		h = append(h, event.Header{Key: rh.Key, Value: rh.Value})
	}
	return event.ReadHeaders(h)
}

// consume reads a topic from its start to its end.
func consume(t *testing.T, brokers []string, name string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	var all []*kgo.Record
	for int64(len(all)) < left {
		f := client.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("consume %s: %v; %d of %d records", name, err, len(all), left)
		}
		all = append(all, f.Records()...)
	}
	return all
}

func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestPublish(t *testing.T) {
	for _, mode := range []publisher.Mode{publisher.Healing, publisher.Outbox} {
		t.Run(string(mode), func(t *testing.T) {
			c := fake(t)
			r := newRig(t, c.ListenAddrs(), func(o *publisher.Options) { o.Mode = mode })
			r.commit(100)
			r.await()
			if extra := r.verify(c.ListenAddrs()); extra != 0 {
				t.Errorf("%d records twice, though nothing failed", extra)
			}
			s := r.pub.Stats()
			if s.Published != 200 || s.Failed != 0 || s.Skipped != 0 || (mode == publisher.Outbox) != (s.FromLedger == 200) {
				t.Errorf("have %+v", s)
			}
			// A clean stop says how far it came; the next one goes on from there.
			r.stop()
			if held, err := r.ledger.Lease(t.Context(), "kafka"); err != nil || held.Position != 200 || held.Owner != "" {
				t.Errorf("after a stop: %+v, %v", held, err)
			}
			r.commit(10) // nobody publishes
			r.open()
			r.await()
			if extra := r.verify(c.ListenAddrs()); extra != 0 {
				t.Errorf("%d records twice after a clean stop", extra)
			}
			partitions := map[int32]bool{}
			for _, rec := range consume(t, c.ListenAddrs(), topic.ProjectionEvents) {
				partitions[rec.Partition] = true
			}
			if len(partitions) < 2 {
				t.Errorf("all records are in %d partitions", len(partitions))
			}
		})
	}
}

// Requests that are lost, late or refused: commits do not fail and do not wait, and
// all is published when it is over.
func TestBrokerOutage(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), func(o *publisher.Options) { o.MaxInFlight = 50 })
	r.commit(20)
	r.await()
	out, n := true, 0
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n++; !out {
			return nil, nil, false
		}
		switch n % 3 {
		case 0:
			return nil, errors.New("connection cut"), true
		case 1:
			return refuse(req.(*kmsg.ProduceRequest), kerr.NotLeaderForPartition.Code), nil, true
		}
		return refuse(req.(*kmsg.ProduceRequest), kerr.NotEnoughReplicas.Code), nil, true
	})
	r.commit(200) // more than may be in flight, and nobody waits
	r.until("as much is under way as may be", func(s publisher.Stats) bool { return s.InFlight >= 50 })
	if s := r.pub.Stats(); s.Cursor != 40 || s.InFlight != 50 {
		t.Errorf("during the outage the cursor is at %d and %d are under way, want 40 and 50", s.Cursor, s.InFlight)
	}
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) { out = false; return nil, nil, false })
	r.await()
	r.verify(c.ListenAddrs())
}

// A refusal for good ends the session; the next one begins behind what is
// acknowledged, and the order holds.
func TestRefusedRecordHeals(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), nil)
	refusals := 0
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if refusals < 3 {
			refusals++
			return refuse(req.(*kmsg.ProduceRequest), kerr.TopicAuthorizationFailed.Code), nil, true
		}
		return nil, nil, false
	})
	r.commit(100)
	r.await()
	r.verify(c.ListenAddrs())
	if s := r.pub.Stats(); s.Sessions < 2 || s.Failed == 0 {
		t.Errorf("have %+v", s)
	}
}

func refuse(req *kmsg.ProduceRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.ErrorCode = rp.Partition, code
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// The broker is not there when the runtime starts, comes up later, and loses all
// that it had: rewinding the cursor fills it again.
func TestStartsWithoutBrokerAndRewinds(t *testing.T) {
	c := fake(t)
	addr := c.ListenAddrs()[0]
	c.Close()
	r := newRig(t, []string{addr}, nil)
	r.commit(50)
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	c = fake(t, kfake.Ports(n))
	r.await()
	r.verify(c.ListenAddrs())
	c.Close()
	c = fake(t, kfake.Ports(n))
	if err := r.ledger.Rewind(t.Context(), "kafka", 0); err != nil {
		t.Fatal(err)
	}
	r.until("the cursor went back", func(s publisher.Stats) bool { return s.Sessions >= 2 })
	r.commit(1)
	r.await()
	r.verify(c.ListenAddrs())
}

// The runtime is gone without a goodbye: the lease is still its own, and the cursor
// behind.
func TestCrash(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), func(o *publisher.Options) { o.CursorEvery = time.Hour; o.LeaseFor = time.Hour })
	r.commit(100)
	r.await()
	old := r.stop // it goes on: a process that hangs, or was cut off
	r.open()      // TakeOver
	r.commit(10)
	r.await()
	extra := r.verify(c.ListenAddrs())
	if extra == 0 {
		t.Error("the cursor was ahead of what a crash keeps")
	}
	old()
	r.commit(10)
	r.await()
	r.verify(c.ListenAddrs())
}

// Of two processes on one ledger, one publishes what both commit; the other goes on
// when it is gone.
func TestTwoPublishers(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), func(o *publisher.Options) {
		o.TakeOver = false
		o.LeaseFor = time.Hour
		o.PollEvery = 20 * time.Millisecond
	})
	r.commit(1)
	r.await()
	first, firstLedger, stopFirst := r.pub, r.ledger, r.stop
	r.open()
	second, secondLedger := r.pub, r.ledger
	for range 25 { // in turns, so that each has only a part in memory
		r.ledger = secondLedger
		r.commit(1)
		r.ledger = firstLedger
		r.commit(2)
	}
	r.pub = first
	r.await()
	if second.Stats().Leading || !first.Stats().Leading {
		t.Error("both publish, or the wrong one")
	}
	if extra := r.verify(c.ListenAddrs()); extra != 0 {
		t.Errorf("%d records twice", extra)
	}
	stopFirst()
	r.pub, r.ledger = second, secondLedger
	r.commit(10)
	r.await()
	if extra := r.verify(c.ListenAddrs()); extra != 0 {
		t.Errorf("%d records twice after a clean change", extra)
	}
}

// A lease whose owner is gone is taken once it has stood still for long enough.
func TestDeadOwner(t *testing.T) {
	c := fake(t)
	r := newRig(t, c.ListenAddrs(), func(o *publisher.Options) { o.TakeOver = false; o.LeaseFor = 200 * time.Millisecond })
	r.stop()
	held, err := r.ledger.Lease(t.Context(), "kafka")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.ledger.Take(t.Context(), held, "dead"); !ok || err != nil {
		t.Fatalf("have %v, %v", ok, err)
	}
	r.open()
	r.commit(10)
	r.await()
	r.verify(c.ListenAddrs())
}

// An event that is larger than the topic allows holds up nobody, and is remembered.
func TestTooLarge(t *testing.T) {
	c := fake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	small := "2000"
	for _, name := range []string{topic.ProjectionEvents, topic.LedgerEvents} {
		if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &small}, name); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, c.ListenAddrs(), nil)
	r.commit(3)
	if _, err := r.ledger.Commit(t.Context(), &ledger.Proposal{
		Address: ledger.Address{TenantSchema: "t", ForkID: "f", Stream: "s", EntityID: "e"}, IntentID: "big",
		Decide: func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
			return ledger.Decision{Events: []ledger.NewEvent{{EventType: "BIG", Payload: json.RawMessage(`{"x":"` + strings.Repeat("x", 3000) + `"}`)}}}, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	r.commit(3)
	r.await()
	skips, err := r.ledger.Skips(t.Context(), "kafka", 0, 10)
	if err != nil || len(skips) != 1 || skips[0].Position != 7 || !strings.Contains(skips[0].Error, "max.message.bytes is 2000") {
		t.Errorf("have %+v, %v", skips, err)
	}
	if n := len(consume(t, c.ListenAddrs(), topic.ProjectionEvents)); n != 12 || r.pub.Stats().Skipped != 1 {
		t.Errorf("%d records, %+v", n, r.pub.Stats())
	}
	big, err := r.ledger.At(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.pub.Republish(t.Context(), big); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("by hand: %v", err)
	}
}
