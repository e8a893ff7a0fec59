package publisher

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/pipeline/event"
)

// What is taken is exactly what was asked for, in order, whatever was added, missed
// and dropped; what is kept stays within its bounds.
func TestRecent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecent(8, 8*600, false)
		at := int64(1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				if rapid.IntRange(0, 3).Draw(t, "others") == 0 {
					at += int64(rapid.IntRange(1, 5).Draw(t, "missed")) // another process committed
				}
				var run []event.Event
				for range rapid.IntRange(1, 5).Draw(t, "run") {
					run = append(run, event.Event{Position: at, Payload: make(json.RawMessage, rapid.IntRange(0, 300).Draw(t, "bytes"))})
					at++
				}
				r.add(run)
			} else {
				from := at - int64(rapid.IntRange(0, 12).Draw(t, "behind"))
				limit := rapid.IntRange(1, 10).Draw(t, "limit")
				for i, e := range r.take(from, limit) {
					if e.Position != from+int64(i) || i >= limit {
						t.Fatalf("asked for %d from %d, got %d at %d", limit, from, e.Position, i)
					}
				}
			}
			bytes := 0
			for i := range r.events {
				bytes += size(&r.events[i])
			}
			if len(r.events) > 8 || bytes != r.bytes || bytes > 8*600 && len(r.events) > 1 {
				t.Fatalf("%d events of %d bytes, counted %d", len(r.events), bytes, r.bytes)
			}
		}
	})
	// With nobody else's commits in between, all is there.
	r := newRecent(8, 1<<20, false)
	r.add([]event.Event{{Position: 5}, {Position: 6}})
	r.add([]event.Event{{Position: 7}})
	if got := r.take(6, 10); len(got) != 2 || got[0].Position != 6 {
		t.Errorf("have %v", got)
	}
	// Fire-and-forget has no ledger to read: what others commit in between drops nothing.
	r = newRecent(8, 1<<20, true)
	r.add([]event.Event{{Position: 5}})
	if dropped := r.add([]event.Event{{Position: 9}}); dropped != 0 || len(r.drain()) != 2 || len(r.drain()) != 0 {
		t.Error("events are dropped, or given twice")
	}
}

func TestBackoff(t *testing.T) {
	b := newBackoff(time.Second)
	for range 100 {
		if d := b.next(); d < firstPause/2 || d > time.Second {
			t.Errorf("a pause of %s", d)
		}
	}
	b.reset()
	if d := b.next(); d > firstPause {
		t.Errorf("the first pause is %s", d)
	}
}
