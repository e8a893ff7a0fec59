package flow

import (
	"encoding/json"
	"testing"

	"github.com/lattice-log/lattice/pipeline/event"
)

// TestRebuiltOnce has the news of a rebuild come twice, by a patch of another partition and
// by its own message, which comes again: who follows is reset once.
func TestRebuiltOnce(t *testing.T) {
	f := NewFeed(FeedConfig{ID: "t"}, Position{0, 0})
	at := []int64{0, 0}
	resets := func(partition int32, p event.Patch) int {
		p.Projection, p.TenantSchema, p.ForkID, p.Stream = "p", "s", "main", "x_stream"
		n := 0
		for _, it := range f.Add(epoch, partition, at[partition], &p) {
			if it.Reset {
				n++
			}
		}
		at[partition]++
		return n
	}
	row := func(cursor, epoch int64) event.Patch {
		return event.Patch{EntityID: "e", EventType: "E", Key: json.RawMessage(`{"id":1}`), Cursor: cursor, Epoch: epoch}
	}
	for i, step := range []struct {
		partition int32
		patch     event.Patch
		want      int
	}{
		{0, row(1, 1), 0},
		{1, row(3, 2), 1},
		{0, event.Patch{Reset: true, Cursor: 2, Epoch: 2}, 0},
		{0, event.Patch{Reset: true, Cursor: 2, Epoch: 2}, 0},
		{0, event.Patch{Reset: true, EntityID: "e", Cursor: 4, Epoch: 2}, 1}, // a patch that was too large
		{0, event.Patch{Reset: true, Cursor: 5, Epoch: 3}, 1},
	} {
		if n := resets(step.partition, step.patch); n != step.want {
			t.Errorf("step %d: %d resets, want %d", i, n, step.want)
		}
	}
}
