package flow

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/lattice-log/lattice/pipeline/event"
)

// TestResumeBehindOneThatWaits: a gateway that begins anew reads partitions in another order,
// so that a patch waits for the one before it, of another partition. What it passes on meanwhile
// is not taken for what a client has that came from another gateway.
func TestResumeBehindOneThatWaits(t *testing.T) {
	now := time.Unix(1e9, 0)
	patch := func(row int, prev, cursor int64) *event.Patch {
		return &event.Patch{Projection: "p", EntityID: "e", EventType: "E", Key: json.RawMessage(fmt.Sprintf(`{"id":%d}`, row)), PrevCursor: prev, Cursor: cursor}
	}
	f := NewFeed(FeedConfig{ID: "aa"}, Position{0, 0})
	f.Add(now, 1, 0, patch(1, 5, 7)) // waits for cursor 5
	f.Add(now, 1, 1, patch(2, 0, 8))
	f.Add(now, 1, 2, patch(3, 0, 9))
	f.Add(now, 0, 0, patch(1, 0, 5))
	a, err := f.Resume(Selector{Projection: Projection{Name: "p"}}, From{Cursor: Position{1, 2}.Cursor("aa")})
	if err != nil {
		t.Fatal(err)
	}
	if a.Kind != Replay || len(a.Items) != 1 || a.Items[0].last != 9 {
		t.Errorf("who has all but the last is answered %s with %d patches", a.Kind, len(a.Items))
	}
}
