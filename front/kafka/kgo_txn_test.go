package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/testkit/kgotxn"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestKgoTransactions commits and aborts by turns, with batches of a few records;
// a read_committed consumer gets exactly what was committed, in order.
func TestKgoTransactions(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 2)
	ctx := testContext(t)
	cl := f.kgo(kgo.TransactionalID("x"), kgo.ProducerLinger(0))
	reader := f.kgo(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	want := map[string][]string{}
	n := 0
	for i := range 40 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		sent := produceN(ctx, t, cl, "t", 1+i%7)
		if err := kgotxn.Loaded(ctx, cl, "t"); err != nil {
			t.Fatal(err)
		}
		commit := i%3 != 1
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
		if !commit {
			continue
		}
		n += 1 + i%7
		for k, v := range sent {
			want[k] = append(want[k], v...)
		}
	}
	equalRecords(t, consumeN(ctx, t, reader, n), want)
}

// TestKgoFenced: a producer that is taken over hears so, whatever it tries.
func TestKgoFenced(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 1)
	ctx := testContext(t)
	first, second := f.kgo(kgo.TransactionalID("x")), f.kgo(kgo.TransactionalID("x"))
	if err := first.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := first.ProduceSync(ctx, kgo.StringRecord("lost")).FirstErr(); err == nil {
		t.Fatal("a record without a topic was taken")
	}
	if err := first.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("lost")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := second.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := second.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("kept")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(kgotxn.Loaded(ctx, first, "t"), kgotxn.Loaded(ctx, second, "t")); err != nil {
		t.Fatal(err)
	}
	if err := first.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the first producer committed after it was taken over")
	}
	if err := second.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Error(err)
	}
	if got := committed(t, f.dial().stable(store.Topic{Name: "t"}, 12, 0)); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("committed: %v", got)
	}
}

// crashing is a server that can be killed: it comes back at the same address over
// what a power cut would have left.
type crashing struct {
	t    *testing.T
	fs   *disk.Mem
	dir  string
	addr string
	cut  func()
	kill func()
}

// cuttable is a listener whose connections can all be made mute at one moment: after
// cut has returned, no byte of an answer leaves.
type cuttable struct {
	net.Listener
	mu  sync.RWMutex // held for reading while a connection writes
	off bool
}

func (l *cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cuttableConn{Conn: c, l: l}, nil
}

func (l *cuttable) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = true
}

type cuttableConn struct {
	net.Conn
	l *cuttable
}

func (c *cuttableConn) Write(b []byte) (int, error) {
	c.l.mu.RLock()
	defer c.l.mu.RUnlock()
	if c.l.off {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func newCrashing(t *testing.T) *crashing {
	c := &crashing{t: t, fs: disk.NewMem(), addr: "127.0.0.1:0"}
	if err := disk.MkdirAll(c.fs, "/data/stores"); err != nil {
		t.Fatal(err)
	}
	id, err := store.Create(c.fs, "/data/stores", identity.FromSeed([32]byte{1, 2, 3}), "main", tick.Real{}, rand.Reader, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.dir = "/data/stores/" + id.String()
	c.start()
	t.Cleanup(func() { c.kill() })
	return c
}

func (c *crashing) start() {
	c.t.Helper()
	groups := group.DefaultConfig()
	groups.InitialRebalanceDelay = 0
	st, err := store.Open(store.Config{
		FS: c.fs, Dir: c.dir, Key: identity.FromSeed([32]byte{1, 2, 3}), Clock: tick.Real{}, Rand: rand.Reader,
		Logger: slog.New(slog.DiscardHandler), Group: groups,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	srv, err := New(Config{DrainTimeout: time.Millisecond}, st)
	if err != nil {
		c.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.addr = ln.Addr().String()
	wires := &cuttable{Listener: ln}
	c.cut = wires.cut
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = st.Run(ctx) })           // how the killed one ends is of no interest
	wg.Go(func() { _ = srv.Serve(ctx, wires) }) // likewise
	c.kill = func() {
		cancel()
		wg.Wait()
		_ = st.Close()
	}
}

// crash mutes the server, takes what a power cut would leave, with a part of what was
// not synced, kills the server, and starts another over that. Muted first: what the old
// server would still say rests on bytes that are not in what is left.
func (c *crashing) crash(rng *mrand.Rand) {
	c.cut()
	left := c.fs.CrashClone(rng.IntN(101), rng)
	c.kill()
	c.fs = left
	c.start()
}

// TestKgoExactlyOnceThroughCrashes copies a topic to another in transactions, with
// two members of a group and offsets in the transactions, while the node crashes
// again and again: every record arrives once.
func TestKgoExactlyOnceThroughCrashes(t *testing.T) {
	c := newCrashing(t)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
	defer cancel()
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(c.addr), kgo.MetadataMinAge(10 * time.Millisecond), kgo.RetryTimeout(30 * time.Second),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	admin := client(kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer admin.Close()
	if r, err := kadm.NewClient(admin).CreateTopics(ctx, 3, 1, nil, "in", "out"); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	const records = 4000
	for i := range records {
		admin.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte(strconv.Itoa(i))}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := admin.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { etl(work, t, c.addr, fmt.Sprint("etl-", i)) })
	}
	rng := mrand.New(mrand.NewPCG(1, 2))
	seen := map[string]int{}
	reader := client(kgo.ConsumeTopics("out"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	crashes := 0
	for next := time.Now(); len(seen) < records && ctx.Err() == nil; {
		if time.Now().After(next) && crashes < 10 {
			c.crash(rng)
			crashes++
			next = time.Now().Add(time.Duration(50+rng.IntN(200)) * time.Millisecond)
		}
		poll, done := context.WithTimeout(ctx, 20*time.Millisecond)
		reader.PollFetches(poll).EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
		done()
	}
	stop()
	wg.Wait()
	if crashes < 3 {
		t.Errorf("%d crashes only", crashes)
	}
	t.Logf("%d crashes", crashes)
	missing, twice := 0, 0
	for i := range records {
		switch n := seen[strconv.Itoa(i)]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing > 0 || twice > 0 {
		t.Errorf("of %d records, %d did not arrive and %d arrived more than once, in %d crashes", records, missing, twice, crashes)
	}
}

// etl copies until ctx ends. Like any such program it begins again, under its
// transactional id, when the outcome of a transaction is not known.
func etl(ctx context.Context, t *testing.T, addr, id string) {
	for ctx.Err() == nil {
		if err := etlSession(ctx, addr, id); err != nil && ctx.Err() == nil {
			t.Logf("%s: %v", id, err)
		}
	}
}

func etlSession(ctx context.Context, addr, id string) error {
	s, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.ConsumerGroup("etl"), kgo.ConsumeTopics("in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RetryTimeout(30*time.Second),
		kgo.DefaultProduceTopic("out"), kgo.TransactionTimeout(20*time.Second),
	)
	if err != nil {
		return err
	}
	defer s.Close()
	for ctx.Err() == nil {
		fetches := s.PollRecords(ctx, 20)
		if fetches.Empty() {
			continue
		}
		if err := s.Begin(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		promise := kgo.AbortingFirstErrPromise(s.Client())
		fetches.EachRecord(func(r *kgo.Record) {
			s.Produce(ctx, &kgo.Record{Value: r.Value}, promise.Promise())
		})
		if _, err := s.End(context.WithoutCancel(ctx), promise.Err() == nil); err != nil {
			return fmt.Errorf("end: %w", err)
		}
	}
	return nil
}
