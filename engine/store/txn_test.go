package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/lattice-log/lattice/storage/disk"
	"pgregory.net/rapid"
)

// sent is a record that was acknowledged.
type sent struct {
	offset int64
	value  string
	txn    *txnModel // nil: not in a transaction
}

// txnModel is a transaction as the test knows it.
type txnModel struct {
	ended, committed bool
	offset           int64 // of the group, -1: none
}

// txnWorld is a store with transactional producers, and what it must show.
type txnWorld struct {
	rt        *rapid.T
	mem       *disk.Mem
	n         *enginetest.Node
	topic     store.Topic
	producers []*enginetest.Producer
	open      []*txnModel // by producer; nil: none
	log       [2][]sent
	group     int64
	values    int
}

func newTxnWorld(rt *rapid.T) *txnWorld {
	w := &txnWorld{rt: rt, mem: disk.NewMem(), group: -1, open: make([]*txnModel, 3)}
	w.n = enginetest.New(rt, w.mem)
	w.topic = w.n.Topic("t", 2, "segment.bytes=1500", "retention.ms=-1")
	for i := range 3 {
		w.producers = append(w.producers, w.n.Producer(fmt.Sprint("p", i)))
	}
	return w
}

func (w *txnWorld) draw(n int) int { return rapid.IntRange(0, n-1).Draw(w.rt, "n") }

func (w *txnWorld) must(err error) {
	w.rt.Helper()
	if err != nil {
		w.rt.Fatal(err)
	}
}

// step does one thing.
func (w *txnWorld) step() {
	i, part := w.draw(3), int32(w.draw(2))
	p := w.producers[i]
	switch k := w.draw(24); {
	case k < 9:
		w.put(i, part)
	case k < 11:
		if w.open[i] == nil {
			w.open[i] = &txnModel{offset: -1}
		}
		w.values++
		w.must(p.Offset("g", w.topic, 0, int64(w.values)))
		w.open[i].offset = int64(w.values)
	case k < 14:
		w.end(i, true)
	case k < 16:
		w.end(i, false)
	case k < 17: // another instance takes over
		w.must(p.Init())
		w.ended(i, false)
	case k < 18: // time runs out
		w.timeOut()
	case k < 20:
		w.values++
		v := fmt.Sprint("plain", w.values)
		w.log[part] = append(w.log[part], sent{w.n.Put(w.n.Part(w.topic, part), record.None, v), v, nil})
	case k < 21:
		w.n.Restart()
	case k < 22:
		w.crash(w.n.Clock.Now())
	case k < 23:
		w.crashAtEnd(i)
	default:
		log := w.n.Part(w.topic, part)
		if b := log.Bounds(); b.Committed > b.Start {
			_, err := log.Truncate(context.Background(), b.Start+int64(w.draw(int(b.Committed-b.Start)))+1)
			w.must(err)
		}
	}
}

// timeOut lets the time of every transaction run out.
func (w *txnWorld) timeOut() {
	w.n.Clock.Advance(enginetest.TxnTimeout)
	for j, p := range w.producers {
		for range 5000 { // the store's work, which sets the timers, may have just begun
			t, err := w.n.Transactions().Describe(p.ID)
			w.must(err)
			if t.State != txn.Ongoing {
				break
			}
			w.n.Clock.Advance(time.Millisecond)
			time.Sleep(time.Millisecond)
		}
		w.settled(p)
		if w.open[j] != nil {
			if _, err := p.Put(w.topic, 0, "late"); err == nil {
				w.rt.Fatal("a producer whose time ran out wrote on")
			}
		}
		w.must(p.Init())
		w.ended(j, false)
	}
}

func (w *txnWorld) put(i int, part int32) {
	if w.open[i] == nil {
		w.open[i] = &txnModel{offset: -1}
	}
	var values []string
	for range 1 + w.draw(3) {
		w.values++
		values = append(values, fmt.Sprintf("%d of %d", w.values, i))
	}
	r, err := w.producers[i].Put(w.topic, part, values...)
	w.must(err)
	for j, v := range values {
		w.log[part] = append(w.log[part], sent{r.Base + int64(j), v, w.open[i]})
	}
}

func (w *txnWorld) end(i int, commit bool) {
	if w.open[i] == nil {
		return
	}
	w.must(w.producers[i].End(commit))
	w.ended(i, commit)
}

// ended notes how the producer's transaction ended.
func (w *txnWorld) ended(i int, commit bool) {
	if o := w.open[i]; o != nil {
		o.ended, o.committed = true, commit
		if commit && o.offset >= 0 {
			w.group = o.offset
		}
		w.open[i] = nil
	}
}

// crash restarts from what a power cut would leave.
func (w *txnWorld) crash(now time.Time) {
	left := w.mem.CrashClone(w.draw(5)*25, rand.New(rand.NewPCG(uint64(w.draw(1000)), 1)))
	w.n.Abandon()
	fsck.MustBeValid(w.rt, left, enginetest.Dir)
	w.mem = left
	w.n = enginetest.Attach(w.rt, left, now)
	w.n.Cfg.Dir = w.n.Cfg.FS.PathJoin(enginetest.Dir, "stores", w.n.Cfg.FS.PathBase(w.n.Cfg.Dir))
	w.n.Start()
	for _, p := range w.producers {
		p.N = w.n
		w.settled(p)
	}
}

// crashAtEnd crashes somewhere between a producer's decision and its answer: then
// the transaction goes on, or ended as decided, everywhere.
func (w *txnWorld) crashAtEnd(i int) {
	if w.open[i] == nil {
		return
	}
	commit := w.draw(2) == 0
	done := make(chan error, 1)
	p := w.producers[i]
	p.N.Transactions().End(p.Request, commit, func(err error) { done <- err })
	if w.draw(2) == 0 {
		time.Sleep(time.Duration(w.draw(400)) * time.Microsecond)
	}
	w.crash(w.n.Clock.Now())
	t, err := w.n.Transactions().Describe(p.ID)
	w.must(err)
	switch {
	case t.State == txn.Ongoing:
	case t.State == txn.CompleteCommit && commit, t.State == txn.CompleteAbort && !commit:
		w.ended(i, commit)
	default:
		w.rt.Fatalf("commit=%v ended as %v", commit, t.State)
	}
	<-done // of the node that crashed
}

// settled waits until no decision of the producer is on its way.
func (w *txnWorld) settled(p *enginetest.Producer) {
	for range 5000 {
		t, err := w.n.Transactions().Describe(p.ID)
		w.must(err)
		if t.State != txn.PrepareCommit && t.State != txn.PrepareAbort {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.rt.Fatalf("the transaction of %s does not end", p.ID)
}

// check compares what readers see with the model.
func (w *txnWorld) check() {
	for part := range w.log {
		log := w.n.Part(w.topic, int32(part))
		b := log.Bounds()
		stable := b.Committed
		var want, all []string
		for _, s := range w.log[part] {
			if s.txn != nil && !s.txn.ended && s.offset >= b.Start {
				stable = min(stable, s.offset)
			}
		}
		for _, s := range w.log[part] {
			if s.offset < b.Start {
				continue
			}
			all = append(all, s.value)
			if s.offset < stable && (s.txn == nil || s.txn.committed) {
				want = append(want, s.value)
			}
		}
		// A transaction whose first batches were truncated holds readers at the start.
		if b.Stable > stable || b.Stable < stable && b.Stable != b.Start {
			w.rt.Fatalf("partition %d: stable %d, want %d; %+v", part, b.Stable, stable, b)
		}
		if b.Stable < stable {
			want = nil
		}
		var got []string
		for _, r := range w.n.ReadCommitted(log) {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, want) {
			w.rt.Fatalf("partition %d: read_committed reads %q, want %q; %+v", part, got, want, b)
		}
		got = nil
		for _, r := range w.n.Read(log, b.Start) {
			if len(r.Key) > 0 && r.Key[0] != 0 { // markers have binary keys
				got = append(got, string(r.Value))
			}
		}
		if !slices.Equal(got, all) {
			w.rt.Fatalf("partition %d: read_uncommitted reads %q, want %q", part, got, all)
		}
	}
	offset := int64(-1)
	for _, o := range w.n.Committed("g") {
		offset = o.Offset
	}
	if offset != w.group {
		w.rt.Fatalf("the group is at %d, want %d", offset, w.group)
	}
}

// TestReadCommittedIsExact: whatever producers, time-outs, restarts and power cuts
// do, a read_committed reader sees exactly the committed records, in order, and
// nothing behind the first of a transaction that is open; and offsets of aborted
// transactions never appear.
func TestReadCommittedIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newTxnWorld(rt)
		defer func() { w.n.Abandon() }()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			w.step()
			w.check()
		}
		w.n.Stop()
		fsck.MustBeClean(rt, w.mem, enginetest.Dir)
	})
}
