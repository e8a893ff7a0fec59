package store

import (
	"context"
	"errors"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestOffsetsTopicID pins the id: offsets that were committed for it refer to it.
func TestOffsetsTopicID(t *testing.T) {
	const want = "8262d9cf5ee96512fe53cb60021bb1b3"
	if got := OffsetsTopicID(lattice.StoreID{1, 2, 3}).String(); got != want {
		t.Errorf("the id of the internal topic is %s, want %s", got, want)
	}
}

// TestInternalTopic: it is listed from the first use of a group on, also after a
// start, found at any time, and cannot be changed.
func TestInternalTopic(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, disk.NewMem())
	if got := f.InternalTopics(); len(got) != 0 {
		t.Fatalf("listed before any group was used: %+v", got)
	}
	found, ok := f.Topic(OffsetsTopic)
	if !ok || found.Partitions != 1 || found.Config["cleanup.policy"] != "compact" {
		t.Fatalf("found by name: %v, %+v", ok, found)
	}
	f.UseGroups()
	if got := f.InternalTopics(); len(got) != 1 || got[0].ID != found.ID {
		t.Errorf("listed: %+v, want %s", got, found.ID)
	}
	if got := f.Topics(); len(got) != 0 {
		t.Errorf("it is among the other topics: %+v", got)
	}
	view := topicsOf{f.Store}
	if all := view.AllTopics(); len(all) != 1 || all[0].ID != found.ID {
		t.Errorf("groups see %+v", all)
	}

	p, err := f.Partition(found.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b := p.Bounds(); b.Start != 0 || b.End != 0 || b.Term <= 0 {
		t.Errorf("bounds %+v", b)
	}
	refused := map[string]error{
		"delete": f.DeleteTopic(ctx, found.ID),
		"grow":   f.AddPartitions(ctx, found.ID, 2, false),
		"alter":  f.AlterTopic(ctx, found.ID, []ConfigChange{{Name: "retention.ms"}}, false, false),
	}
	for what, err := range refused {
		if !errors.Is(err, ErrInternal) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := f.CreateTopic(ctx, NewTopic{Name: OffsetsTopic}); !errors.Is(err, ErrTopicExists) {
		t.Errorf("create: %v", err)
	}
	if _, err := p.Truncate(ctx, 0); !errors.Is(err, partition.ErrReadOnly) {
		t.Errorf("truncate: %v", err)
	}
	p.Append(partition.Append{Batches: []byte{1}, Done: func(_ partition.Result, err error) {
		if !errors.Is(err, partition.ErrReadOnly) {
			t.Errorf("append: %v", err)
		}
	}})

	f.restart()
	if got := f.InternalTopics(); len(got) != 0 {
		t.Errorf("listed after a start, and no group has anything: %+v", got)
	}
}

// TestInternalTopicHidden: a topic that somebody had created under the name, when
// that was possible, stays what it is.
func TestInternalTopicHidden(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	made, err := f.CreateTopic(context.Background(), NewTopic{Name: "other", Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock() // as an older version would have left it
	old := f.byID[made.ID]
	old.rec.Name = OffsetsTopic
	delete(f.byName, "other")
	f.byName[OffsetsTopic] = old
	f.mu.Unlock()
	f.UseGroups()
	if got, _ := f.Topic(OffsetsTopic); got.ID != made.ID || got.Partitions != 3 {
		t.Errorf("found %+v, want the one that was created", got)
	}
	if got := f.InternalTopics(); len(got) != 0 {
		t.Errorf("both are listed: %+v", got)
	}
}
