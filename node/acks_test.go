package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
)

// allOf begins an append with acks=all at a store, wherever the partition is led.
func allOf(st *store.Store, id lattice.TopicPartition, value string, wait time.Duration) <-chan error {
	b := record.NewBuilder(record.None, 0)
	b.Add(time.Now().UnixMilli(), nil, []byte(value), nil)
	done := make(chan error, 1)
	st.Append(id.Topic, id.Partition, -1, wait, partition.Append{Batches: b.Build(nil), Done: func(_ partition.Result, err error) { done <- err }})
	return done
}

// shows waits until a store's readers see records up to an offset.
func shows(t *testing.T, st *store.Store, id lattice.TopicPartition, want int64) {
	t.Helper()
	soon(t, "what is committed", func() bool {
		p, err := st.Partition(id.Topic, id.Partition)
		return err == nil && p.Bounds().Committed == want
	})
}

// TestAcksOfThree: three nodes, of which two have to hold a record. All see it; a client of
// a follower is answered when it is committed; one follower is stopped, and it goes on; both
// are, and nothing is committed, at any node; one returns, and it is.
func TestAcksOfThree(t *testing.T) {
	db := t.TempDir()
	a, _ := runTwin(t, t.TempDir())
	b, stopB := runTwin(t, db)
	c, stopC := runTwin(t, t.TempDir())
	for _, n := range []*twin{b, c} {
		if err := n.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "the right to write", func() bool { return b.first.Role() == roster.Writer && c.first.Role() == roster.Writer })
	set := strings.Join([]string{a.key.Author().String(), b.key.Author().String(), c.key.Author().String()}, ",")
	topic, err := a.first.CreateTopic(t.Context(), store.NewTopic{
		Name: "orders", Partitions: 1, Config: map[string]string{"lattice.replicas": set, "min.insync.replicas": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := lattice.TopicPartition{Topic: topic.ID}
	for range 5 {
		if err := <-allOf(a.first, id, "at the leader", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*twin{a, b, c} {
		shows(t, n.first, id, 5)
	}
	if err := <-allOf(b.first, id, "at a follower", time.Minute); err != nil {
		t.Fatal(err)
	}
	sameRecords(t, a.first, c.first, id)

	stopC()
	if err := <-allOf(a.first, id, "without one", time.Minute); err != nil {
		t.Fatal(err)
	}
	shows(t, b.first, id, 7)
	stopB()
	if err := <-allOf(a.first, id, "without both", 2*time.Second); !errors.Is(err, partition.ErrNotEnoughAfter) {
		t.Fatalf("%v, want not enough after append", err)
	}
	shows(t, a.first, id, 7)
	p, err := a.first.Partition(id.Topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if st := p.AckStatus(); st.OnlyHere != 1 || st.Min != 2 || len(st.Replicas) != 3 {
		t.Errorf("%+v", st)
	}
	b, _ = runTwin(t, db)
	shows(t, a.first, id, 8)
	shows(t, b.first, id, 8)
	sameRecords(t, a.first, b.first, id)
}

// TestAcksThroughAThird: A and C never meet: what C acknowledges comes to A by way of B,
// which is not in the set, and what is committed comes back.
func TestAcksThroughAThird(t *testing.T) {
	a, _ := runTwin(t, t.TempDir())
	b, _ := runTwin(t, t.TempDir())
	c, _ := runTwin(t, t.TempDir())
	if err := b.join(t.Context(), invited(t, a, roster.Admin)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the right to invite", func() bool { return b.first.Role() == roster.Admin })
	if err := c.join(t.Context(), invited(t, b, roster.Writer)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the member is known", func() bool { _, ok := a.first.State().Member(c.key.Author()); return ok })
	topic, err := a.first.CreateTopic(t.Context(), store.NewTopic{
		Name: "orders", Partitions: 1,
		Config: map[string]string{"lattice.replicas": a.key.Author().String() + "," + c.key.Author().String(), "min.insync.replicas": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := lattice.TopicPartition{Topic: topic.ID}
	if err := <-allOf(a.first, id, "one", time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*twin{a, b, c} {
		shows(t, n.first, id, 1)
	}
}
