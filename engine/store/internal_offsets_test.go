package store_test

import (
	"testing"

	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestInternalTopicOffsets: groups can commit offsets for the internal topic. They
// are there after a start, and fsck does not take them for strays.
func TestInternalTopicOffsets(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	internal, ok := n.Store.Topic(store.OffsetsTopic)
	if !ok {
		t.Fatal("there is no internal topic")
	}
	n.Commit("g", internal, 0, 0, "seen")
	n.Restart()
	if got := n.Committed("g"); len(got) != 1 || got[0].Topic != internal.Name || got[0].Metadata != "seen" {
		t.Errorf("committed after a start: %+v", got)
	}
	if got := n.InternalTopics(); len(got) != 1 || got[0].ID != internal.ID {
		t.Errorf("listed after a start, with a group: %+v", got)
	}
	n.Stop()
	for _, f := range fsck.MustBeClean(t, fs, enginetest.Dir).Findings {
		t.Errorf("fsck: %v", f)
	}
}
