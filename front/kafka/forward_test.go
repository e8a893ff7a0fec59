package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// fate is what becomes of one ask of another leader.
type fate int

const (
	done      fate = iota
	away           // nothing is sent
	lostThere      // it does not arrive, and nobody knows
	lostBack       // it is done, and the answer does not arrive
)

// link is store.Elsewhere with the leader in the same process. Asks are done in order.
type link struct {
	asker  lattice.NodeID
	leader *store.Store
	home   *Server // of groups, nil: it is away

	mu    sync.Mutex
	next  func() fate // nil: done
	asked []store.RemoteAppend
}

func (l *link) fate() fate {
	if l.next == nil {
		return done
	}
	return l.next()
}

func (l *link) set(next func() fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

// told is an error as it comes from another node.
func told(err error) error {
	if err == nil {
		return nil
	}
	a := &store.Answered{}
	a.Code, a.Text, a.Records = Refusal(err)
	return lattice.E(lattice.KindOf(err), a)
}

// Append implements store.Elsewhere.
func (l *link) Append(leader lattice.NodeID, a store.RemoteAppend) {
	l.mu.Lock()
	defer l.mu.Unlock()
	none := partition.Result{Base: -1, AppendTime: -1, Start: -1}
	copied := a
	copied.Batches = slices.Clone(a.Batches)
	l.asked = append(l.asked, copied)
	answer := a.Done
	switch f := l.fate(); {
	case leader != l.leader.Info().Node || f == away:
		go answer(none, store.ErrAway)
		return
	case f == lostThere:
		go answer(none, store.ErrNoAnswer)
		return
	case f == lostBack:
		answer = func(partition.Result, error) { a.Done(none, store.ErrNoAnswer) }
	}
	l.leader.AppendLed(l.asker, a.Partition, partition.Append{Batches: copied.Batches, Done: func(r partition.Result, err error) { answer(r, told(err)) }})
}

// Truncate implements store.Elsewhere.
func (*link) Lead(_ lattice.NodeID, _ lattice.TopicPartition, _ lattice.NodeID, _ time.Duration, done func(error)) {
	done(store.ErrAway)
}

func (l *link) Ask(_ lattice.NodeID, ask []byte, _ time.Duration, done func([]byte, error)) (cancel func()) {
	if l.home == nil {
		done(nil, store.ErrAway)
		return func() {}
	}
	return l.home.AnswerHome(l.asker, slices.Clone(ask), func(b []byte, err error) { done(b, told(err)) })
}

func (l *link) Reaches(lattice.NodeID) bool { return l.home != nil }

func (l *link) Truncate(leader lattice.NodeID, tp lattice.TopicPartition, before int64, _ time.Duration, answer func(int64, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.fate() {
	case away:
		answer(-1, store.ErrAway)
	case lostThere, lostBack:
		answer(-1, store.ErrNoAnswer)
	default:
		start, err := l.leader.TruncateLed(context.Background(), l.asker, tp, before)
		answer(start, told(err))
	}
}

// pair is a store on two nodes: the topics are a's, and the server of b is asked.
type pair struct {
	a, b *fixture
	link *link
}

func newPair(t *testing.T, role roster.Role) *pair {
	t.Helper()
	p := &pair{a: newFixture(t, Config{}), b: &fixture{t: t, fs: disk.NewMem()}}
	token, _, err := p.a.store.Invite(t.Context(), role, time.Hour, "/ip4/127.0.0.1/tcp/1")
	if err != nil {
		t.Fatal(err)
	}
	key := identity.FromSeed([32]byte{9})
	logger := slog.New(slog.DiscardHandler)
	if err := errors.Join(p.a.store.Redeem(t.Context(), token.Claim(key.Author())), disk.MkdirAll(p.b.fs, "/data/stores")); err != nil {
		t.Fatal(err)
	}
	id, err := store.Join(p.b.fs, "/data/stores", p.a.store.Genesis(), p.a.store.Info().Node, logger)
	if err != nil {
		t.Fatal(err)
	}
	p.b.store, err = store.Open(store.Config{
		FS: p.b.fs, Dir: "/data/stores/" + id.String(), Key: key, Clock: tick.Real{}, Rand: rand.Reader, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.b.store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, p.b.store.Close()); err != nil {
			t.Error(err)
		}
	})
	p.link = &link{asker: key.Author(), leader: p.a.store}
	p.b.store.UseElsewhere(p.link)
	p.b.serve(Config{})
	return p
}

// meet gives each node what the other wrote.
func (p *pair) meet() {
	t := p.a.t
	t.Helper()
	for _, way := range [][2]*store.Store{{p.a.store, p.b.store}, {p.b.store, p.a.store}} {
		for _, l := range way[0].State().LogStates() {
			span, err := way[0].State().ReadSpan(l.Writer, 0, l.Tip.Seq, 1<<26)
			if err != nil {
				t.Fatal(err)
			}
			var all []sigchain.Signed
			for _, b := range span.Entries {
				e, err := sigchain.Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, e)
			}
			if _, err := way[1].State().Receive(all); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// topic makes a topic on a, and returns when b knows it.
func (p *pair) topic(name string, partitions int32, configs ...string) store.Topic {
	p.a.t.Helper()
	topic := p.a.topic(name, partitions, configs...)
	until(p.a.t, "the topic on the other node", func() bool {
		p.meet()
		_, ok := p.b.store.TopicByID(topic.ID)
		return ok
	})
	return topic
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 3000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never came to: %s", what)
}

// held returns the values that the leader has of a partition, from its start.
func (p *pair) held(topic store.Topic, n int32) []string {
	p.a.t.Helper()
	log, err := p.a.store.Partition(topic.ID, n)
	if err != nil {
		p.a.t.Fatal(err)
	}
	var out []string
	c := p.a.dial()
	for at := log.Bounds().Start; at < log.Bounds().Committed; at = log.Bounds().Start + int64(len(out)) {
		got := values(p.a.t, c.fetch(topic, 12, n, at).RecordBatches)
		if len(got) == 0 {
			p.a.t.Fatalf("nothing at %d", at)
		}
		out = append(out, got...)
	}
	return out
}

// TestForwardedProduce: a client of one node produces to a partition that another
// leads, with every version, and hears what the leader says.
func TestForwardedProduce(t *testing.T) {
	p := newPair(t, roster.Writer)
	topic, keyed := p.topic("t", 2), p.topic("keyed", 1, "cleanup.policy", "compact", "max.message.bytes", "300")
	c := p.b.dial()
	meta := ask[*kmsg.MetadataResponse](c, newReq[*kmsg.MetadataRequest](12))
	for _, m := range meta.Topics {
		for _, part := range m.Partitions {
			if len(meta.Brokers) != 1 || part.ErrorCode != 0 || part.Leader != p.b.srv.nodeID() || len(part.ISR) != 1 || part.ISR[0] != part.Leader || len(part.OfflineReplicas) != 0 {
				t.Fatalf("%s is described as %+v", *m.Topic, part)
			}
		}
	}
	for v := int16(3); v <= 13; v++ {
		if got := c.produce(topic, v, 1, batch(record.None, fmt.Sprint(v))); got.ErrorCode != 0 || got.BaseOffset != int64(v-3) || got.LogAppendTime != -1 || v >= 5 && got.LogStartOffset != 0 {
			t.Errorf("version %d: %+v", v, got)
		}
	}
	if got := p.held(topic, 1); len(got) != 11 || got[10] != "13" {
		t.Errorf("the leader has %v", got)
	}
	// Both nodes' partitions in one request: each is answered by itself.
	mine, err := p.b.store.CreateTopic(t.Context(), store.NewTopic{Name: "mine", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	req := produceReq(topic, 9, 0, batch(record.None, "x"))
	req.Topics = append(req.Topics, produceReq(mine, 9, 0, batch(record.None, "y")).Topics...)
	req.Topics = append(req.Topics, produceReq(topic, 9, 7, batch(record.None, "z")).Topics...)
	got := ask[*kmsg.ProduceResponse](c, req).Topics
	if got[0].Partitions[0].ErrorCode != 0 || got[1].Partitions[0].ErrorCode != 0 || got[2].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("three partitions: %+v", got)
	}
	// What the leader refuses is refused as it says.
	broken := batch(record.None, "x")
	broken[len(broken)-1] ^= 1
	keyless := record.NewBuilder(record.None, 0)
	keyless.Add(1, nil, []byte("v"), nil)
	for name, x := range map[string]struct {
		records []byte
		want    *kerr.Error
		bad     int
	}{
		"too large": {batch(record.None, strings.Repeat("x", 400)), kerr.MessageTooLarge, 0},
		"broken":    {broken, kerr.CorruptMessage, 0},
		"keyless":   {keyless.Build(nil), kerr.InvalidRecord, 1},
		"empty":     {nil, kerr.InvalidRecord, 0},
	} {
		got := c.produce(keyed, 9, 0, x.records)
		if got.ErrorCode != x.want.Code || got.BaseOffset != -1 || got.ErrorMessage == nil || len(got.ErrorRecords) != x.bad {
			t.Errorf("%s: %+v, want %v", name, got, x.want)
		}
	}
	// acks=0: no answer, and it is there.
	req = produceReq(topic, 9, 0, batch(record.None, "quiet"))
	req.Acks = 0
	c.send(req)
	c.sent = nil
	until(t, "a record without an answer", func() bool { return slices.Contains(p.held(topic, 0), "quiet") })
	// The timeout of the request is how long the leader has.
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if last := p.link.asked[len(p.link.asked)-1]; last.Acks != 0 || last.Wait != remoteWait(req.TimeoutMillis) {
		t.Errorf("asked with acks %d, for %v", last.Acks, last.Wait)
	}
}

func TestRemoteWait(t *testing.T) {
	for ms, want := range map[int32]time.Duration{-1: usualWait, 0: usualWait, 1: time.Millisecond, 1500: 1500 * time.Millisecond, 1 << 30: longestWait} {
		if got := remoteWait(ms); got != want {
			t.Errorf("%d: %v, want %v", ms, got, want)
		}
	}
}

// TestForwardedFates: what a client is told when the leader cannot be asked, and when
// it gives no answer. With acks=0 it is told by the end of its connection.
func TestForwardedFates(t *testing.T) {
	p := newPair(t, roster.Writer)
	topic := p.topic("t", 1)
	c := p.b.dial()
	for _, x := range []struct {
		fate fate
		want *kerr.Error
	}{{away, kerr.LeaderNotAvailable}, {lostThere, kerr.RequestTimedOut}, {lostBack, kerr.RequestTimedOut}} {
		p.link.set(func() fate { return x.fate })
		got := c.produce(topic, 9, 0, batch(record.None, fmt.Sprint(x.fate)))
		if got.ErrorCode != x.want.Code || !x.want.Retriable || got.BaseOffset != -1 {
			t.Errorf("%v: %+v", x.want, got)
		}
		quiet := p.b.dial()
		req := produceReq(topic, 9, 0, batch(record.None, "quiet"))
		req.Acks = 0
		quiet.send(req)
		quiet.closed()
	}
	p.link.set(nil)
	if got := c.produce(topic, 9, 0, batch(record.None, "back")); got.ErrorCode != 0 || got.BaseOffset != 2 { // behind what was lost on its way back
		t.Errorf("back again: %+v", got)
	}
	if got := p.held(topic, 0); !slices.Equal(got, []string{fmt.Sprint(lostBack), "quiet", "back"}) {
		t.Errorf("the leader has %v", got)
	}
}

// TestForwardedByReader: whoever may not write in the store cannot by way of others.
func TestForwardedByReader(t *testing.T) {
	p := newPair(t, roster.Reader)
	topic := p.topic("t", 1)
	if got := p.b.dial().produce(topic, 9, 0, batch(record.None, "x")); got.ErrorCode != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("a reader's batch: %+v", got)
	}
	if got := p.held(topic, 0); len(got) != 0 {
		t.Errorf("the leader has %v", got)
	}
}

// TestForwardedIdempotence has franz-go produce with several requests in flight while
// asks and answers are lost: the leader has each record once, in order.
func TestForwardedIdempotence(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, roster.Writer)
			topic := p.topic("t", 1)
			n, spell := uint64(0), uint64(0)
			p.link.set(func() fate { // spells in which all goes wrong in one way
				n++
				if spell > 0 {
					spell--
				} else if (n+seed)%7 == 0 {
					spell = 1 + (n+seed)%4
				}
				if spell == 0 {
					return done
				}
				return []fate{away, lostThere, lostBack}[(n/8+seed)%3]
			})
			ctx := testContext(t)
			cl := p.b.kgo(kgo.ProducerBatchMaxBytes(600), kgo.DefaultProduceTopic("t"), kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }), kgo.StopProducerOnDataLossDetected())
			var want []string
			for i := range 400 {
				want = append(want, fmt.Sprint(i))
				cl.Produce(ctx, kgo.StringRecord(fmt.Sprint(i)), func(r *kgo.Record, err error) {
					if err != nil || r.Offset != int64(i) {
						t.Errorf("record %d is told to be at %d: %v", i, r.Offset, err)
					}
				})
				if i%5 == 0 {
					time.Sleep(time.Millisecond) // several batches
				}
			}
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if got := p.held(topic, 0); !slices.Equal(got, want) {
				t.Errorf("the leader has %d records, want %d, each once and in order", len(got), len(want))
			}
		})
	}
}

// TestRetryAtTheLeader: a producer whose answer was lost sends its batch again, to the
// leader itself, and hears where it is.
func TestRetryAtTheLeader(t *testing.T) {
	p := newPair(t, roster.Writer)
	topic := p.topic("t", 1)
	init := newReq[*kmsg.InitProducerIDRequest](4)
	id := ask[*kmsg.InitProducerIDResponse](p.b.dial(), init)
	if id.ErrorCode != 0 {
		t.Fatal(id.ErrorCode)
	}
	again := ask[*kmsg.InitProducerIDResponse](p.a.dial(), init)
	if again.ProducerID == id.ProducerID {
		t.Fatalf("both nodes give producer id %d", id.ProducerID)
	}
	make := func() []byte {
		b := record.NewBuilder(record.None, 0)
		b.Add(1000, nil, []byte("once"), nil)
		built := b.Build(nil)
		record.SetProducer(built, id.ProducerID, id.ProducerEpoch, 0)
		return built
	}
	p.link.set(func() fate { return lostBack })
	if got := p.b.dial().produce(topic, 9, 0, make()); got.ErrorCode != kerr.RequestTimedOut.Code {
		t.Fatalf("%+v", got)
	}
	if got := p.a.dial().produce(topic, 9, 0, make()); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("at the leader: %+v", got)
	}
	p.link.set(nil)
	if got := p.b.dial().produce(topic, 9, 0, make()); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("by way of the other again: %+v", got)
	}
	if got := p.held(topic, 0); !slices.Equal(got, []string{"once"}) {
		t.Errorf("the leader has %v", got)
	}
}
