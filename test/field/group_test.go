package field

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

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
	second.leave(t)
	until(t, "the first member has all again", func() bool { return len(first.has()) == shared }, first)
	ends := w.stop(t)
	missing := func() (all []place) {
		for p, end := range ends {
			for offset := range end {
				if at := (place{int32(p), offset}); !first.saw(at) && !second.saw(at) {
					all = append(all, at)
				}
			}
		}
		return all
	}
	until(t, fmt.Sprintf("every record is seen, of %v", ends), func() bool { return len(missing()) == 0 }, first)
	first.leave(t)

	if names := ask("groups").Names; !slices.Contains(names, r.Group) {
		t.Errorf("the group is not in the list %q", names)
	}
	if !slices.Contains(c.without, "committed") {
		at := ask("committed").Offsets
		for p, end := range ends {
			if got := at[int32(p)]; got != end {
				t.Errorf("partition %d is committed to %d, want %d", p, got, end)
			}
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

// writer writes one record after the other, over all partitions.
type writer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	ends   []int64 // of the partitions; to be read when it stopped
	err    error   // likewise
}

func writeOn(t *testing.T, at, topic string) *writer {
	t.Helper()
	cl := observer(t, at, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{cancel: cancel, ends: make([]int64, shared)}
	w.done.Go(func() {
		for i := 0; ctx.Err() == nil && w.err == nil; i++ {
			// What was begun is finished, so that ends says how far it went.
			r := &kgo.Record{Partition: int32(i % shared), Value: fmt.Append(nil, i)}
			if w.err = cl.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); w.err == nil {
				w.ends[r.Partition] = r.Offset + 1
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		w.cancel()
		w.done.Wait()
	})
	return w
}

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
