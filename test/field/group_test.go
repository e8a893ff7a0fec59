package field

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const shared = 6 // partitions of a group's topic

// groups: each way of a client to share partitions; every day, the first of the
// classic protocol and the one of KIP-848.
func (b *bench) groups(t *testing.T, c *client, p *process) {
	for i, way := range c.groups {
		if !b.whole && i > 0 && way != "server" {
			continue
		}
		t.Run(way, func(t *testing.T) { b.rebalance(t, c, p, way) })
	}
}

// rebalance: a second member joins while records come in, and leaves again.
// Every record is seen, and the group ends where the partitions end.
func (b *bench) rebalance(t *testing.T, c *client, p *process, way string) {
	r := request{Bootstrap: b.at, Topic: topicOf("group", c.name, way), Group: topicOf("by", c.name, way), Balancer: way}
	makeTopic(t, b.at, r.Topic, shared)
	w := writeOn(t, b.at, r.Topic)

	first := join(t, c, r)
	until(t, "the first member has all and reads", func() bool { return len(first.has()) == shared && first.reads() > 30 }, first)
	second := join(t, c, r)
	until(t, "two members have half each and read", func() bool {
		both := append(first.has(), second.has()...)
		slices.Sort(both)
		return len(first.has()) == shared/2 && len(slices.Compact(both)) == shared && second.reads() > 30
	}, first, second)
	ask := func(do string) answer {
		if slices.Contains(c.without, do) {
			return answer{Members: 2, Names: []string{r.Group}} // nothing to check
		}
		r := r
		r.Do = do
		return p.must(t, r)
	}
	if n := ask("members").Members; n != 2 && !(way == "server" && c.classic) {
		t.Errorf("the group is described with %d members, want 2", n)
	}
	if c.drops {
		w.pause()
		allSeen(t, w.ends, first, second)
	}
	second.leave(t)
	if c.drops {
		w.resume()
	}
	until(t, "the first member has all again", func() bool { return len(first.has()) == shared }, first)
	ends := w.stop(t)
	allSeen(t, ends, first, second)
	first.leave(t)

	if names := ask("groups").Names; !slices.Contains(names, r.Group) {
		t.Errorf("the group is not in the list %q", names)
	}
	at := committed(t, b.at, r)
	if !slices.Contains(c.without, "committed") {
		at = ask("committed").Offsets
	}
	for p, end := range ends {
		if got := at[int32(p)]; got != end {
			t.Errorf("partition %d is committed to %d, want %d", p, got, end)
		}
	}
	if slices.Contains(c.without, "forget") {
		return
	}
	ask("forget")
	if names := ask("groups").Names; slices.Contains(names, r.Group) {
		t.Errorf("the group was deleted, and is in the list %q", names)
	}
}

// allSeen waits until each record below the ends was read by some member. Of
// these the first must stay.
func allSeen(t *testing.T, ends []int64, members ...*member) {
	t.Helper()
	missing := func() (all []place) {
		for p, end := range ends {
			for offset := range end {
				at := place{int32(p), offset}
				if !slices.ContainsFunc(members, func(m *member) bool { return m.saw(at) }) {
					all = append(all, at)
				}
			}
		}
		return all
	}
	until(t, fmt.Sprintf("every record is seen, of %v", ends), func() bool { return len(missing()) == 0 }, members[0])
}

// committed asks the observer where a group is.
func committed(t *testing.T, at string, r request) map[int32]int64 {
	t.Helper()
	all, err := kadm.NewClient(observer(t, at)).FetchOffsets(t.Context(), r.Group)
	if err == nil {
		err = all.Error()
	}
	if err != nil {
		t.Fatalf("committed offsets of %s: %v", r.Group, err)
	}
	offsets := map[int32]int64{}
	for p, o := range all[r.Topic] {
		offsets[p] = o.At
	}
	return offsets
}

// writer writes one record after the other, over all partitions.
type writer struct {
	gate   chan struct{} // full while it writes one, and while it is paused
	cancel context.CancelFunc
	done   sync.WaitGroup
	ends   []int64 // of the partitions; to be read while it is paused or stopped
	err    error   // likewise
}

func writeOn(t *testing.T, at, topic string) *writer {
	t.Helper()
	cl := observer(t, at, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{gate: make(chan struct{}, 1), cancel: cancel, ends: make([]int64, shared)}
	w.done.Go(func() {
		for i := 0; ctx.Err() == nil && w.write(ctx, cl, i); i++ {
			time.Sleep(10 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		w.cancel()
		w.done.Wait()
	})
	return w
}

func (w *writer) write(ctx context.Context, cl *kgo.Client, i int) bool {
	select {
	case w.gate <- struct{}{}:
		defer func() { <-w.gate }()
	case <-ctx.Done():
		return false
	}
	// What was begun is finished, so that ends says how far it went.
	r := &kgo.Record{Partition: int32(i % shared), Value: fmt.Append(nil, i)}
	if w.err = cl.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); w.err != nil {
		return false
	}
	w.ends[r.Partition] = r.Offset + 1
	return true
}

func (w *writer) pause()  { w.gate <- struct{}{} }
func (w *writer) resume() { <-w.gate }

// stop ends it and returns the ends of the partitions.
func (w *writer) stop(t *testing.T) []int64 {
	t.Helper()
	w.cancel()
	w.done.Wait()
	if w.err != nil {
		t.Fatalf("write beside the group: %v", w.err)
	}
	return w.ends
}
