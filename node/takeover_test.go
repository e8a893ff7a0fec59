package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// three nodes that hold a partition, two of which have to.
type trio struct {
	t     *testing.T
	nodes [3]*Node
	first [3]*store.Store
	cfgs  [3]Config
	stops [3]func() error
	tp    lattice.TopicPartition
}

func newTrio(t *testing.T) *trio {
	x := &trio{t: t}
	for i := range x.nodes {
		x.cfgs[i] = local(t)
		x.cfgs[i].Mesh.Listen = "127.0.0.1:0"
		x.start(i)
	}
	set := x.id(0).String()
	for i, n := range x.nodes[1:] {
		token, _, err := x.first[0].Invite(t.Context(), roster.Writer, time.Hour, x.nodes[0].mesh.Addresses()...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.mesh.Join(t.Context(), token, true); err != nil {
			t.Fatal(err)
		}
		x.first[i+1] = defaultOf(t, n)
		soon(t, "the right to write", func() bool { return x.first[i+1].Role() == roster.Writer })
		set += "," + x.id(i+1).String()
	}
	topic, err := x.first[0].CreateTopic(t.Context(), store.NewTopic{
		Name: "orders", Partitions: 1, Config: map[string]string{"lattice.replicas": set, "min.insync.replicas": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.tp = lattice.TopicPartition{Topic: topic.ID}
	for i, n := range x.nodes { // those who joined find each other, too
		soon(t, "connections", func() bool { return n.mesh.Reaches(x.id((i + 1) % 3)) })
	}
	for _, st := range x.first {
		soon(t, "the topic", func() bool { _, ok := st.TopicByID(topic.ID); return ok })
	}
	return x
}

func (x *trio) start(i int) {
	x.nodes[i], x.stops[i] = runNode(x.t, x.cfgs[i])
	x.first[i] = defaultOf(x.t, x.nodes[i])
}

func (x *trio) stop(i int) {
	x.t.Helper()
	if err := x.stops[i](); err != nil {
		x.t.Fatal(err)
	}
}

func (x *trio) id(i int) lattice.NodeID { return x.first[i].Info().Node }

// leads waits until a node leads, and others know.
func (x *trio) leads(who int, others ...int) {
	x.t.Helper()
	soon(x.t, "who leads", func() bool {
		p, err := x.first[who].Partition(x.tp.Topic, 0)
		if err != nil || !p.Leads() {
			return false
		}
		for _, o := range others {
			if at, err := x.first[o].LeaderOf(x.tp.Topic, 0); err != nil || at != x.id(who) {
				return false
			}
		}
		return true
	})
}

// TestTakeover: the leader of three goes away while an idempotent producer writes with
// acks=all; another takes over by the promise of the third; the producer goes on, and
// nothing is lost or there twice; the old leader comes back, and follows. Then the new
// leader is started again: it leads again by itself, once another promises.
func TestTakeover(t *testing.T) {
	x := newTrio(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cl := client(t, x.nodes[1], kgo.DefaultProduceTopic("orders"), kgo.UnknownTopicRetries(-1), kgo.RecordRetries(1<<20), kgo.RequiredAcks(kgo.AllISRAcks()))
	stop, done := make(chan struct{}), make(chan map[int64]string, 1)
	go func() {
		all := map[int64]string{}
		defer func() { done <- all }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r := &kgo.Record{Value: fmt.Appendf(nil, "record-%d;", i)}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Errorf("record %d: %v", i, err)
				return
			}
			if old, twice := all[r.Offset]; twice {
				t.Errorf("offset %d was given to %s and %s", r.Offset, old, r.Value)
			}
			all[r.Offset] = string(r.Value)
		}
	}()
	at := func(i int) int64 {
		p, err := x.first[i].Partition(x.tp.Topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.Bounds().Committed
	}
	goesOn := func(i int) {
		t.Helper()
		from := at(i)
		soon(t, "records come", func() bool { return at(i) > from+5 })
	}
	goesOn(1)
	term := func(i int) int32 {
		p, _ := x.first[i].Partition(x.tp.Topic, 0)
		return p.Bounds().Term
	}
	before := term(1)
	x.stop(0)
	if err := x.first[1].Lead(ctx, x.tp, x.id(1), time.Second); err == nil {
		t.Fatal("a leader that is away handed over")
	}
	last := ""
	soon(t, "the takeover", func() bool {
		err := x.first[1].LeadByPromises(ctx, x.tp, x.id(1), time.Minute)
		if err != nil && !errors.Is(err, store.ErrNotPromised) {
			t.Fatal(err)
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			t.Log(last)
		}
		return err == nil
	})
	x.leads(1, 2)
	goesOn(1)
	goesOn(2)
	if now := term(1); now <= before {
		t.Fatalf("term %d after %d", now, before)
	}
	x.start(0)
	x.leads(1, 0, 2)
	goesOn(0)
	close(stop)
	all := <-done
	sameRecords(t, x.first[1], x.first[0], x.tp)
	sameRecords(t, x.first[1], x.first[2], x.tp)
	if n := at(1); n != int64(len(all)) {
		t.Fatalf("%d records are there, %d were acknowledged", n, len(all))
	}
	got := bytesOf(t, x.first[0], x.tp, 0)
	for o, v := range all {
		if !bytes.Contains(got, []byte(v)) {
			t.Fatalf("record %s at %d is not there", v, o)
		}
	}

	// A leader that is started again waits for a promise, and gets one.
	x.stop(1)
	before = term(0)
	x.stop(0)
	x.stop(2)
	x.start(1)
	p, err := x.first[1].Partition(x.tp.Topic, 0)
	if err != nil || p.Leads() || !p.Waits() {
		t.Fatalf("it leads alone: %v", err)
	}
	if err := <-allOf(x.first[1], x.tp, "x", 2*time.Second); !errors.Is(err, store.ErrAway) {
		t.Fatalf("an append before that: %v", err)
	}
	if err := x.first[1].TakeOver(ctx, x.tp); !errors.Is(err, store.ErrNotPromised) || !errors.Is(err, promise.ErrFew) || !strings.Contains(err.Error(), "1 of the 2") {
		t.Fatalf("without anybody: %v", err)
	}
	x.start(2)
	x.leads(1, 2)
	if now := term(1); now <= before {
		t.Fatalf("term %d after %d", now, before)
	}
	if err := <-allOf(x.first[2], x.tp, "after the restart", time.Minute); err != nil {
		t.Fatal(err)
	}
	shows(t, x.first[1], x.tp, int64(len(all))+1)
	x.start(0)
	shows(t, x.first[0], x.tp, int64(len(all))+1)
	sameRecords(t, x.first[1], x.first[0], x.tp)
}
