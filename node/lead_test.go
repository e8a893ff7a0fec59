package node

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
)

// leads waits until both stores know that a node leads a partition, and it does.
func (c *couple) leads(tp lattice.TopicPartition, who, other *store.Store) {
	c.t.Helper()
	soon(c.t, "the new leader leads", func() bool {
		p, err := who.Partition(tp.Topic, tp.Partition)
		if err != nil || !p.Leads() {
			return false
		}
		leader, err := other.LeaderOf(tp.Topic, tp.Partition)
		return err == nil && leader == who.Info().Node
	})
}

// TestLead passes a partition to the other node, by a command at either, while an
// idempotent producer of each node's writes: every record is there once, in order, and
// both nodes show the same.
func TestLead(t *testing.T) {
	c := newCouple(t)
	orders := createOn(t, c.sa, "orders", 1)
	tp := lattice.TopicPartition{Topic: orders.ID}
	soon(t, "the topic", func() bool { _, ok := c.sb.TopicByID(orders.ID); return ok })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	type written struct {
		offset int64
		value  string
	}
	results, stop := make(chan []written, 2), make(chan struct{})
	for who, n := range []*Node{c.a, c.b} {
		cl := client(t, n, kgo.DefaultProduceTopic("orders"), kgo.UnknownTopicRetries(-1))
		go func() {
			var all []written
			for i := 0; ; i++ {
				select {
				case <-stop:
					results <- all
					return
				default:
				}
				r := &kgo.Record{Value: fmt.Appendf(nil, "%d-%d", who, i)}
				if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
					t.Errorf("a record of client %d: %v", who, err)
					results <- all
					return
				}
				all = append(all, written{r.Offset, string(r.Value)})
			}
		}()
	}
	pa := func() int64 {
		p, err := c.sa.Partition(tp.Topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.Bounds().Committed
	}
	goesOn := func() {
		t.Helper()
		from := pa()
		soon(t, "records come", func() bool { return pa() > from+5 })
	}
	goesOn()
	for i, move := range []struct{ at, to, from *store.Store }{{c.sa, c.sb, c.sa}, {c.sb, c.sa, c.sb}, {c.sb, c.sb, c.sa}, {c.sa, c.sa, c.sb}} {
		if err := move.at.Lead(ctx, tp, move.to.Info().Node, 30*time.Second); err != nil {
			t.Fatalf("move %d: %v", i, err)
		}
		c.leads(tp, move.to, move.from)
		goesOn()
	}
	close(stop)
	all := map[int64]string{}
	for range 2 {
		for _, w := range <-results {
			if old, twice := all[w.offset]; twice {
				t.Fatalf("offset %d was given to %s and %s", w.offset, old, w.value)
			}
			all[w.offset] = w.value
		}
	}
	sameRecords(t, c.sa, c.sb, tp)
	if n := pa(); n != int64(len(all)) {
		t.Fatalf("%d records are there, %d were acknowledged", n, len(all))
	}
	got := bytesOf(t, c.sb, tp, 0)
	for o, v := range all {
		if !bytes.Contains(got, []byte(v)) {
			t.Fatalf("record %s at %d is not there", v, o)
		}
	}
}
