package store

import (
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/tick"
)

// bounds keeps a clock's bound as if it were durable.
type bounds struct {
	at   uint64
	puts int
}

func (b *bounds) ClockBound() (uint64, error) { return b.at, nil }

func (b *bounds) PutClockBound(bound uint64) error {
	b.at = bound
	b.puts++
	return nil
}

// TestStampsStayNearTheWallClock: a node that starts again and again, in no time, gives
// out ascending timestamps that nobody refuses for being ahead, and reserves them
// seldom while it runs.
func TestStampsStayNearTheWallClock(t *testing.T) {
	wall, kept := tick.NewManual(time.UnixMilli(1_700_000_000_000)), &bounds{}
	last := uint64(0)
	for start := range 500 {
		s, err := newStamps(wall, kept, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			next, err := s.next()
			if err != nil {
				t.Fatalf("start %d: %v", start, err)
			}
			if next <= last {
				t.Fatalf("start %d: %d after %d", start, next, last)
			}
			last = next
		}
	}
	ahead := time.Duration(int64(last>>16)-wall.Now().UnixMilli()) * time.Millisecond
	if ahead > stampsAhead+500*2*stampsMore {
		t.Errorf("after 500 starts the clock is %s ahead", ahead)
	}
	wall.Advance(time.Minute)
	s, err := newStamps(wall, kept, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept.puts = 0
	for range 100 {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		wall.Advance(100 * time.Millisecond)
	}
	if kept.puts > 2 {
		t.Errorf("reserved %d times in 10 s", kept.puts)
	}
}
