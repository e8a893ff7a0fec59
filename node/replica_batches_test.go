package node

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
)

// createOn makes a topic on a node, which leads it.
func createOn(t testing.TB, st *store.Store, name string, partitions int32) store.Topic {
	t.Helper()
	topic, err := st.CreateTopic(t.Context(), store.NewTopic{Name: name, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// produceTo appends a batch of some records to a partition that the node leads.
func produceTo(t *testing.T, st *store.Store, id lattice.TopicPartition, records int, value string) {
	t.Helper()
	p, err := st.Partition(id.Topic, id.Partition)
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBuilder(record.None, 0)
	for i := range records {
		b.Add(time.Now().UnixMilli(), []byte("key"), fmt.Append(nil, value, i), nil)
	}
	done := make(chan error, 1)
	p.Append(partition.Append{Batches: b.Build(nil), Done: func(_ partition.Result, err error) { done <- err }})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// bytesOf returns what a store's readers see of a partition from an offset on, whole
// batches as they are stored; nothing if the partition is not there yet.
func bytesOf(t *testing.T, st *store.Store, id lattice.TopicPartition, from int64) []byte {
	t.Helper()
	p, err := st.Partition(id.Topic, id.Partition)
	if err != nil {
		return nil
	}
	var out []byte
	for from < p.Bounds().Committed {
		s, err := p.Read(from, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		heads, err := s.Headers()
		if err != nil || len(heads) == 0 {
			t.Fatalf("at %d: %v", from, err)
		}
		for left := s.Len(); left > 0; {
			chunk := make([]byte, left)
			n, err := s.NextChunk(chunk)
			if err != nil || n == 0 {
				t.Fatalf("%d bytes at %d: %v", n, from, err)
			}
			out, left = append(out, chunk[:n]...), left-n
		}
		from = heads[len(heads)-1].LastOffset() + 1
		s.Release()
	}
	return out
}

// sameRecords waits until readers of both stores see the same of a partition.
func sameRecords(t *testing.T, a, b *store.Store, id lattice.TopicPartition) {
	t.Helper()
	pa, err := a.Partition(id.Topic, id.Partition)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the records are there", func() bool {
		pb, err := b.Partition(id.Topic, id.Partition)
		return err == nil && pb.Bounds().Committed == pa.Bounds().Committed
	})
	from := pa.Bounds().Start
	want, got := bytesOf(t, a, id, from), bytesOf(t, b, id, from)
	if len(want) == 0 || !bytes.Equal(want, got) {
		t.Fatalf("%d bytes on one, %d on the other", len(want), len(got))
	}
}

// TestRecordsTravel: what is produced on the node that leads a topic is read from another
// node's store at the same offsets, byte for byte: what was there before it joined, what
// comes live, and what came while it was off. Both have topics that they lead.
func TestRecordsTravel(t *testing.T) {
	da, db := t.TempDir(), t.TempDir()
	a, stopA := runTwin(t, da)
	b, stopB := runTwin(t, db)
	orders := createOn(t, a.first, "orders", 2)
	one := lattice.TopicPartition{Topic: orders.ID, Partition: 1}
	for range 20 {
		produceTo(t, a.first, one, 5, "before")
	}
	if err := b.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
		t.Fatal(err)
	}
	sameRecords(t, a.first, b.first, one)
	for range 10 {
		produceTo(t, a.first, one, 3, "live")
	}
	sameRecords(t, a.first, b.first, one)
	soon(t, "the right to write", func() bool { return b.first.Role() == roster.Writer })
	replies := createOn(t, b.first, "replies", 1)
	back := lattice.TopicPartition{Topic: replies.ID}
	produceTo(t, b.first, back, 7, "back")
	sameRecords(t, b.first, a.first, back)

	stopB()
	for range 30 {
		produceTo(t, a.first, one, 50, "while it was off")
	}
	later := createOn(t, a.first, "later", 1)
	new := lattice.TopicPartition{Topic: later.ID}
	produceTo(t, a.first, new, 9, "a topic that it does not know")
	b, _ = runTwin(t, db)
	sameRecords(t, a.first, b.first, one)
	sameRecords(t, a.first, b.first, new)

	stopA()
	produceTo(t, b.first, back, 4, "alone")
	a, _ = runTwin(t, da)
	sameRecords(t, b.first, a.first, back)
	produceTo(t, a.first, one, 2, "of the next term")
	sameRecords(t, a.first, b.first, one)

	if err := a.first.DeleteTopic(t.Context(), later.ID); err != nil {
		t.Fatal(err)
	}
	soon(t, "the topic is gone", func() bool { _, ok := b.first.TopicByID(later.ID); return !ok })
	produceTo(t, a.first, one, 2, "goes on")
	sameRecords(t, a.first, b.first, one)
}

// TestRecordsThroughAThird: A and C never meet, and C reads A's records, which B has
// brought it, also when A is off.
func TestRecordsThroughAThird(t *testing.T) {
	da := t.TempDir()
	a, stopA := runTwin(t, da)
	b, _ := runTwin(t, t.TempDir())
	orders := createOn(t, a.first, "orders", 1)
	id := lattice.TopicPartition{Topic: orders.ID}
	for range 20 {
		produceTo(t, a.first, id, 10, "before")
	}
	if err := b.join(t.Context(), invited(t, a, roster.Admin)); err != nil {
		t.Fatal(err)
	}
	sameRecords(t, a.first, b.first, id)
	soon(t, "the right to invite", func() bool { return b.first.Role() == roster.Admin })
	token := invited(t, b, roster.Reader)
	stopA()
	c, _ := runTwin(t, t.TempDir())
	if err := c.join(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	sameRecords(t, b.first, c.first, id)
	for _, s := range b.mesh.Status().Stores {
		if s.Store == b.first.Info().ID && (s.Batches == nil || len(s.Batches.Peers) == 0) {
			t.Errorf("it is not shown: %+v", s)
		}
	}
}
