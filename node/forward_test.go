package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/forward"
)

// wire carries TCP connections to one address, until it is cut.
type wire struct {
	ln net.Listener
	to string

	mu    sync.Mutex
	down  bool
	ends  map[net.Conn]bool
	works sync.WaitGroup
}

// newWire begins a wire to an address on which nothing listens yet.
func newWire(t *testing.T) *wire {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{to: free.Addr().String(), ends: map[net.Conn]bool{}}
	if w.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	w.works.Go(func() {
		for {
			in, err := w.ln.Accept()
			if err != nil {
				return
			}
			w.works.Go(func() { w.carry(in) })
		}
	})
	t.Cleanup(func() {
		w.ln.Close()
		w.set(true)
		w.works.Wait()
	})
	return w
}

// keep holds a connection until the wire is cut; false: it is.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[c] = true
	return !w.down
}

func (w *wire) drop(c net.Conn) {
	c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ends, c)
}

func (w *wire) carry(in net.Conn) {
	defer w.drop(in)
	if !w.keep(in) {
		return
	}
	out, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer w.drop(out)
	if !w.keep(out) {
		return
	}
	w.works.Go(func() {
		io.Copy(in, out) //nolint:errcheck // the end of either is the end of both
		in.Close()
	})
	io.Copy(out, in) //nolint:errcheck // as above
}

// set cuts the wire, or mends it.
func (w *wire) set(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for c := range w.ends {
		if down {
			c.Close()
		}
	}
}

// couple is two nodes of one store that reach each other over wires.
type couple struct {
	t      *testing.T
	wires  [2]*wire
	ca, cb Config
	a, b   *Node
	stopA  func() error
	sa, sb *store.Store
}

// newCouple changes the configuration of both by change.
func newCouple(t *testing.T, change ...func(*Config)) *couple {
	t.Helper()
	return newCoupleAs(t, roster.Writer, change...)
}

// newCoupleAs is newCouple of a second node with a role.
func newCoupleAs(t *testing.T, role roster.Role, change ...func(*Config)) *couple {
	t.Helper()
	c := &couple{t: t, wires: [2]*wire{newWire(t), newWire(t)}, ca: local(t), cb: local(t)}
	for i, cfg := range []*Config{&c.ca, &c.cb} {
		for _, f := range change {
			f(cfg)
		}
		cfg.Mesh.Listen, cfg.Mesh.Announce = c.wires[i].to, c.wires[i].ln.Addr().String()
	}
	c.a, c.stopA = runNode(t, c.ca)
	c.b, _ = runNode(t, c.cb)
	c.sa = defaultOf(t, c.a)
	token, _, err := c.sa.Invite(t.Context(), role, time.Hour, c.a.mesh.Addresses()...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.b.mesh.Join(t.Context(), token, true); err != nil {
		t.Fatal(err)
	}
	c.sb = defaultOf(t, c.b)
	soon(t, "the right to write", func() bool { return c.sb.Role() == role })
	return c
}

// cut cuts or mends both ways.
func (c *couple) cut(down bool) {
	for _, w := range c.wires {
		w.set(down)
	}
}

// topic makes a topic on a, and waits until b knows it.
func (c *couple) topic(name string, partitions int32) store.Topic {
	c.t.Helper()
	topic, err := c.sa.CreateTopic(c.t.Context(), store.NewTopic{Name: name, Partitions: partitions})
	if err != nil {
		c.t.Fatal(err)
	}
	soon(c.t, "the topic on the other node", func() bool { _, ok := c.sb.TopicByID(topic.ID); return ok })
	return topic
}

func client(t *testing.T, n *Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Info().Kafka), kgo.MetadataMinAge(20 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// read returns the values of a topic's only partition, as a node serves them, up to its end.
func read(t *testing.T, n *Node, topic string, want int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl := client(t, n, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for len(got) < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(got), err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// TestForwardAcrossCuts has a client of one node produce to a topic of another, while
// the connection between the nodes is cut and mended: every record is there once, and
// in order.
func TestForwardAcrossCuts(t *testing.T) {
	c := newCouple(t)
	topic := c.topic("t", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl := client(t, c.b, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchMaxBytes(600), kgo.StopProducerOnDataLossDetected())
	const n = 3000
	var acked atomic.Int64
	cuts := make(chan struct{})
	go func() {
		defer close(cuts)
		for at := int64(n / 6); at <= 4*n/6; at += n / 6 {
			for acked.Load() < at && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			c.cut(true)
			time.Sleep(50 * time.Millisecond)
			c.cut(false)
		}
	}()
	var want []string
	for i := range n {
		want = append(want, strconv.Itoa(i))
		cl.Produce(ctx, kgo.StringRecord(want[i]), func(r *kgo.Record, err error) {
			if err != nil || r.Offset != int64(i) {
				t.Errorf("record %d is told to be at %d: %v", i, r.Offset, err)
			}
			acked.Add(1)
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	<-cuts
	if p, err := c.sa.Partition(topic.ID, 0); err != nil || p.Bounds().Committed != n {
		t.Fatalf("the leader has %d records, want %d: %v", p.Bounds().Committed, n, err)
	}
	if got := read(t, c.a, "t", n); !slices.Equal(got, want) {
		t.Error("the leader's records are not those that were produced, each once and in order")
	}
}

// produce asks a node to append a batch, once.
func produce(t *testing.T, n *Node, topic store.Topic, wait time.Duration) error {
	t.Helper()
	b := record.NewBuilder(record.None, 0)
	b.Add(time.Now().UnixMilli(), nil, []byte("x"), nil)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(wait.Milliseconds())
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = b.Build(nil)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	rt.Partitions = append(rt.Partitions, part)
	req.Topics = append(req.Topics, rt)
	cl := client(t, n, kgo.RequestRetries(0), kgo.DisableIdempotentWrite())
	resp, err := cl.SeedBrokers()[0].RetriableRequest(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// TestForwardWithoutLeader: while the leader is off, clients are told so, and when it
// is back all works again by itself.
func TestForwardWithoutLeader(t *testing.T) {
	c := newCouple(t)
	topic := c.topic("t", 1)
	if err := produce(t, c.b, topic, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.stopA(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the leader to be out of reach", func() bool {
		err := produce(t, c.b, topic, time.Minute)
		if err != nil && !errors.Is(err, kerr.LeaderNotAvailable) && !errors.Is(err, kerr.RequestTimedOut) {
			t.Fatal(err)
		}
		return errors.Is(err, kerr.LeaderNotAvailable)
	})
	// A client that retries, as they all do, notices nothing but the time.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sent := make(chan error, 1)
	client(t, c.b, kgo.DefaultProduceTopic("t")).Produce(ctx, kgo.StringRecord("y"), func(r *kgo.Record, err error) {
		if err == nil && r.Offset != 1 {
			err = fmt.Errorf("at %d", r.Offset)
		}
		sent <- err
	})
	c.a, _ = runNode(t, c.ca)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if got := read(t, c.a, "t", 2); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("the leader has %v", got)
	}
}

// TestAnswered: what became of an ask, as the engine is told it.
func TestAnswered(t *testing.T) {
	for _, x := range []struct {
		err  error
		want error
	}{{forward.ErrUnreachable, store.ErrAway}, {forward.ErrBusy, store.ErrAway}, {forward.ErrLost, store.ErrNoAnswer}, {forward.ErrTooLarge, forward.ErrTooLarge}} {
		if got := answered(forward.Answer{}, fmt.Errorf("ask: %w", x.err)); !errors.Is(got, x.want) {
			t.Errorf("%v: %v", x.err, got)
		}
	}
	bad := &record.RecordErrors{Errs: []*record.RecordError{{Index: 3, Err: errors.New("no key")}}, Total: 1}
	b := refusal(5, fmt.Errorf("refused: %w", bad))
	again, err := forward.Records.ParseAnswer(b.AppendTo(nil)[forward.LengthSize:])
	if err != nil {
		t.Fatal(err)
	}
	var told *store.Answered
	if err := answered(again, nil); !errors.As(err, &told) || told.Code != kerr.InvalidRecord.Code || len(told.Records) != 1 || told.Records[0].Index != 3 || told.Records[0].Err.Error() != "no key" {
		t.Errorf("told %+v", told)
	}
	if startOf(again) != 5 || startOf(forward.Answer{}) != -1 {
		t.Error("the start of the log is not told")
	}
}

// TestReadElsewhere: what is written to a topic of one node, by way of either, is read
// at the other; a group that works there commits, and the first node sees how far it is.
func TestReadElsewhere(t *testing.T) {
	c := newCouple(t)
	c.topic("t", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var want []string
	producers := []*kgo.Client{client(t, c.a, kgo.DefaultProduceTopic("t")), client(t, c.b, kgo.DefaultProduceTopic("t"))}
	for i := range 200 {
		want = append(want, strconv.Itoa(i))
		if err := producers[i%2].ProduceSync(ctx, kgo.StringRecord(want[i])).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, c.b, "t", len(want)); !slices.Equal(got, want) {
		t.Errorf("the other node serves %d records, want %d in order", len(got), len(want))
	}
	member := func(n *Node) *kgo.Client {
		return client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	}
	poll := func(cl *kgo.Client, n int) (got []string) {
		t.Helper()
		for len(got) < n {
			fetches := cl.PollRecords(ctx, n-len(got))
			if err := fetches.Err(); err != nil {
				t.Fatalf("after %d records: %v", len(got), err)
			}
			fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	at := member(c.b)
	if got := poll(at, 120); !slices.Equal(got, want[:120]) {
		t.Error("the group reads something else")
	}
	at.LeaveGroup()
	offset := func(n *Node) int64 {
		resp, err := groupOffset(ctx, client(t, n), "g", "t")
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	soon(t, "the group's offset on the first node", func() bool { return offset(c.a) == 120 })
	// The group goes on at the first node.
	if got := poll(member(c.a), 80); !slices.Equal(got, want[120:]) {
		t.Errorf("it goes on with %v", got)
	}
}

// groupOffset asks for the offset that a group committed of a topic's first partition.
func groupOffset(ctx context.Context, cl *kgo.Client, group, topic string) (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = topic, []int32{0}
	g.Topics = append(g.Topics, gt)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return -1, err
	}
	if len(resp.Groups) > 0 {
		return resp.Groups[0].Topics[0].Partitions[0].Offset, nil
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}
