package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

const shareWorkers = 3

// spot is a record's place in the topic.
type spot struct {
	partition int32
	offset    int64
}

// tasks is what was written and what became of it.
type tasks struct {
	mu       sync.Mutex
	written  map[spot]bool
	seen     map[spot]int  // deliveries
	told     map[spot]bool // accepted, and that was confirmed
	tried    map[spot]bool // accepted, and nobody knows whether that arrived
	again    []string      // what came after it was told
	releases int
}

// TestKillSharesUnderLoad kills a node again and again while members of a share
// group accept most of what is written and release the rest: nothing that was
// confirmed to be accepted comes again, and everything that was written comes.
func TestKillSharesUnderLoad(t *testing.T) {
	n, s := (rounds(t)+3)/4, seed(t)
	t.Logf("%d rounds; repeat with LATTICE_CRASH_SEED=%d", n, s)
	rng := rand.New(rand.NewPCG(s, 1))
	bin, dir, at := realnode.Build(t), t.TempDir(), realnode.FreeAddress(t)
	up := func() *realnode.Node { return realnode.Start(t, bin, dir, "--kafka", at) }
	node := up()
	shareSetUp(t, at, partitions, map[string]string{"share.delivery.count.limit": "10"})
	w := &tasks{written: map[spot]bool{}, seen: map[spot]int{}, told: map[spot]bool{}, tried: map[spot]bool{}}

	ctx, stop := context.WithCancel(t.Context())
	var writing, working sync.WaitGroup
	defer func() { stop(); writing.Wait(); working.Wait() }()
	more, enough := context.WithCancel(ctx)
	defer enough()
	writing.Go(func() {
		w.write(more, t, sharedClient(t, at, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)))
	})
	for i := range shareWorkers {
		m := newSharer(t, at)
		working.Go(func() { w.work(ctx, m, rand.New(rand.NewPCG(s, uint64(i)+2))) })
	}
	for range n {
		before := w.count()
		w.await(t, "records are accepted", func() bool { return w.count() > before+20 })
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		node.Kill()
		node = up()
	}
	enough()
	writing.Wait()
	w.await(t, "everything that was written is accepted", func() bool { return w.left() == 0 })
	stop()
	working.Wait()
	node.Stop(t)
	verify(t, bin, dir)
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d records, %d confirmed, %d releases through %d kills", len(w.written), len(w.told), w.releases, n)
	if len(w.again) > 0 {
		t.Errorf("%d records came after it was confirmed that they are accepted, such as %v", len(w.again), w.again[:min(5, len(w.again))])
	}
}

// write writes until its context ends, and notes what was acknowledged. What may
// have been written without that is seen by the members all the same.
func (w *tasks) write(ctx context.Context, t *testing.T, cl *kgo.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		r := &kgo.Record{Topic: shareTopic, Partition: int32(i % partitions), Value: fmt.Append(nil, i)}
		if err := cl.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); err != nil {
			t.Errorf("write: %v", err)
			return
		}
		w.mu.Lock()
		w.written[spot{r.Partition, r.Offset}] = true
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// work takes records, accepts most, and notes what was confirmed.
func (w *tasks) work(ctx context.Context, m *sharer, rng *rand.Rand) {
	for ctx.Err() == nil {
		var accepts []spot
		m.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			at := spot{r.Partition, r.Offset}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.seen[at]++; w.told[at] {
				w.again = append(w.again, fmt.Sprintf("%d/%d", at.partition, at.offset))
			}
			if rng.IntN(20) == 0 && r.DeliveryCount() < 5 {
				w.releases++
				r.Ack(kgo.AckRelease)
				return
			}
			r.Ack(kgo.AckAccept)
			w.tried[at] = true
			accepts = append(accepts, at)
		})
		if len(accepts) == 0 || m.flush(ctx) != nil {
			continue
		}
		w.mu.Lock()
		for _, at := range accepts {
			w.told[at] = true
		}
		w.mu.Unlock()
	}
}

func (w *tasks) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told)
}

// left counts what was written and nobody has accepted.
func (w *tasks) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := 0
	for at := range w.written {
		if !w.tried[at] {
			left++
		}
	}
	return left
}

func (w *tasks) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in %s; %d of %d are left", what, 2*patience, w.left(), w.count())
		}
	}
}
