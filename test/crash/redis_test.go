package crash

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// redisWriters is how many Redis clients write at once.
const redisWriters = 50

// TestCrashRedis writes through many Redis clients, one command at a time, in
// pipelines and in transactions, and kills the node in each round. After each
// restart every acknowledged write is there, at the level fsync: strings are what was
// written last or what was tried since, counters count every acknowledged increment and
// none that nobody asked for, lists have every element once and in order, hashes, sets
// and sorted sets everything that was added and nothing that was removed, both halves
// of a transaction or none, and what a reader was shown is never taken back. Now and then
// and at the end the whole directory is checked.
func TestCrashRedis(t *testing.T) {
	n, s := rounds(t), seed(t)
	t.Logf("%d rounds; repeat with LATTICE_CRASH_SEED=%d", n, s)
	rng := rand.New(rand.NewPCG(s, 1))
	bin := realnode.Build(t)
	for life := 0; life*perLife < n && !t.Failed(); life++ {
		t.Run(fmt.Sprintf("life-%d", life+1), func(t *testing.T) {
			liveRedis(t, bin, rng, min(perLife, n-life*perLife))
		})
	}
}

// liveRedis is n rounds on one data directory.
func liveRedis(t *testing.T, bin string, rng *rand.Rand, n int) {
	dir, at := t.TempDir(), realnode.FreeAddress(t)
	up := func() *realnode.Node { return realnode.Start(t, bin, dir, "--kafka", "", "--redis", at) }
	w := newRedisWorld(t, at)
	var half int64
	for round := range n {
		if round == n/2 {
			half = w.acked.Load()
		}
		node := up()
		w.check(t)
		w.run()
		time.Sleep(time.Duration(50+rng.IntN(900)) * time.Millisecond)
		node.Kill()
		w.pause()
		if t.Failed() {
			t.Fatalf("in round %d", round+1)
		}
		if round%5 == 4 {
			verify(t, bin, dir)
		}
	}
	node := up()
	w.check(t)
	node.Stop(t)
	verify(t, bin, dir)
	t.Logf("%d writes of %d clients were acknowledged through %d kills", w.acked.Load(), redisWriters, n)
	if w.acked.Load() < int64(n*redisWriters) {
		t.Errorf("only %d writes were acknowledged: the test tested nothing", w.acked.Load())
	}
	if n >= 6 && w.acked.Load() == half {
		t.Errorf("in the last %d of %d lives nothing was acknowledged: a node that was killed takes no more writes", n-n/2, n)
	}
}

// redisWorld is the clients and what they were told.
type redisWorld struct {
	t       *testing.T
	at      string
	writers []*redisWriter
	going   atomic.Bool
	wg      sync.WaitGroup
	acked   atomic.Int64 // writes

	// What all writers share: how much was acknowledged of it, and how much tried.
	counter, transfers tally
	seen               atomic.Int64 // greatest value of the counter that a reader was shown
}

// tally counts what was acknowledged, and what was tried.
type tally struct{ acked, tried atomic.Int64 }

// holds reports whether a number can be what is there.
func (a *tally) holds(n int64) bool { return n >= a.acked.Load() && n <= a.tried.Load() }

func (a *tally) String() string {
	return fmt.Sprintf("%d were acknowledged and %d tried", a.acked.Load(), a.tried.Load())
}

// raise keeps the greatest of what it is given.
func raise(at *atomic.Int64, n int64) {
	for was := at.Load(); n > was && !at.CompareAndSwap(was, n); was = at.Load() {
	}
}

func newRedisWorld(t *testing.T, at string) *redisWorld {
	w := &redisWorld{t: t, at: at}
	for i := range redisWriters {
		w.writers = append(w.writers, &redisWriter{w: w, name: strconv.Itoa(i), rng: rand.New(rand.NewPCG(uint64(i), 2))})
	}
	return w
}

// run lets everybody write until the node is gone.
func (w *redisWorld) run() {
	w.going.Store(true)
	for _, x := range w.writers {
		w.wg.Go(func() {
			if err := x.write(); w.going.Load() && err != nil {
				w.t.Errorf("writer %s: %v", x.name, err)
			}
		})
	}
	w.wg.Go(w.read)
}

// pause waits until all have noticed.
func (w *redisWorld) pause() { w.wg.Wait() }

// read looks at the counter all the time: what it was shown is durable.
func (w *redisWorld) read() {
	c, err := respclient.Dial(w.at)
	if err != nil {
		return
	}
	defer c.Close()
	for {
		v, err := c.Do("GET", "counter")
		if err != nil {
			return // the node is gone
		}
		if !v.Null {
			n, err := strconv.ParseInt(v.Str, 10, 64)
			if err != nil {
				w.t.Errorf("the counter reads %s", v)
				return
			}
			raise(&w.seen, n)
		}
	}
}

// check holds the node to what was acknowledged, and lets the writers go on from what is there.
func (w *redisWorld) check(t *testing.T) {
	t.Helper()
	c, err := respclient.Dial(w.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := checker{t, c}
	n := k.int("GET", "counter")
	if !w.counter.holds(n) {
		t.Errorf("the counter is %d; %s", n, &w.counter)
	}
	if seen := w.seen.Load(); n < seen {
		t.Errorf("the counter is %d; a reader was shown %d", n, seen)
	}
	left, right := k.int("GET", "left"), k.int("GET", "right")
	if left != -right || !w.transfers.holds(right) {
		t.Errorf("of transfers, left is %d and right %d; %s", left, right, &w.transfers)
	}
	// What was tried and not acknowledged is decided now.
	w.counter.acked.Store(n)
	w.counter.tried.Store(n)
	w.transfers.acked.Store(right)
	w.transfers.tried.Store(right)
	for _, x := range w.writers {
		x.check(k)
	}
}

// checker reads what is there.
type checker struct {
	t *testing.T
	c *respclient.Client
}

func (k checker) do(args ...string) respclient.Value {
	k.t.Helper()
	v, err := k.c.Do(args...)
	if err != nil || v.Err() != "" {
		k.t.Fatalf("%q: %v %v", args, v, err)
	}
	return v
}

// int reads a number; nothing counts as 0.
func (k checker) int(args ...string) int64 {
	k.t.Helper()
	v := k.do(args...)
	if v.Null {
		return 0
	}
	n, err := strconv.ParseInt(v.Str, 10, 64)
	if err != nil {
		k.t.Fatalf("%q: %s", args, v)
	}
	return n
}
