package clock

import (
	"errors"
	"math"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"pgregory.net/rapid"
)

const drift = 60_000

// TestGolden pins the bits of a timestamp.
func TestGolden(t *testing.T) {
	ts := At(1700000000000, 1)
	if ts != 0x018bcfe568000001 || ts.Milli() != 1700000000000 || ts.Counter() != 1 || ts.String() != "1700000000000.1" {
		t.Errorf("%#x %v", uint64(ts), ts)
	}
	for ms, want := range map[int64]Timestamp{-1: 0, math.MinInt64: 0, 0: 0, MaxMilli: 0xffffffffffff0000, MaxMilli + 1: 0xffffffffffff0000, math.MaxInt64: 0xffffffffffff0000} {
		if got := At(ms, 0); got != want {
			t.Errorf("At(%d) = %#x, want %#x", ms, uint64(got), uint64(want))
		}
	}
}

// TestTimestampsOnlyGrow drives a clock by a wall clock that jumps both ways,
// through crashes at any point, and checks that each timestamp issued is greater
// than every one issued or observed before.
func TestTimestampsOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Clock
		var durable, greatest Timestamp
		now := int64(1700000000000)
		t.Repeat(map[string]func(*rapid.T){
			"wall clock jumps": func(t *rapid.T) { now += rapid.Int64Range(-200_000, 200_000).Draw(t, "by") },
			"wall clock is wild": func(t *rapid.T) {
				now = rapid.SampledFrom([]int64{0, -1 << 40, 1700000000000, 4102444800000}).Draw(t, "now")
			},
			"tick": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					ts, err := c.Tick(now, -1)
					if errors.Is(err, ErrBound) {
						bound, err := c.Reserve(now, rapid.Int64Range(0, 5000).Draw(t, "ahead"))
						if err != nil {
							t.Fatal(err)
						}
						durable = bound
						if rapid.Bool().Draw(t, "crash before extending") {
							c = Resume(durable)
							return
						}
						c.Extend(bound)
						if ts, err = c.Tick(now, -1); err != nil {
							t.Fatalf("after reserving: %v", err)
						}
					} else if err != nil {
						t.Fatal(err)
					}
					if ts <= greatest {
						t.Fatalf("issued %v after %v", ts, greatest)
					}
					if ts.Milli() < now {
						t.Fatalf("issued %v, the wall clock is %d", ts, now)
					}
					greatest = ts
				}
			},
			"observe": func(t *rapid.T) {
				ts := At(now+rapid.Int64Range(-2*drift, 2*drift).Draw(t, "ahead"), rapid.Uint16().Draw(t, "counter"))
				before := c
				switch followed := c.Observe(ts, now, drift); {
				case followed && c.Last < ts:
					t.Fatal("observed, but not followed")
				case !followed && (c != before || ts.Milli()-max(now, 0) <= drift):
					t.Fatalf("held %v at %d, or moved by it", ts, now)
				}
				// What was observed counts only until a crash: the entries that
				// carried it are observed again then.
			},
			"crash": func(*rapid.T) { c = Resume(durable) },
		})
	})
}

// TestObservedComesBefore: what is issued after observing is greater.
func TestObservedComesBefore(t *testing.T) {
	c := Resume(At(1000, 0))
	c.Extend(At(100_000, 0))
	if !c.Observe(At(2000, 7), 1500, drift) {
		t.Fatal("held")
	}
	if ts, err := c.Tick(1500, drift); err != nil || ts != At(2000, 8) {
		t.Errorf("%v, %v", ts, err)
	}
}

// TestFarFuture: an author in 2050 moves nobody's clock.
func TestFarFuture(t *testing.T) {
	now := int64(1700000000000)
	c := Clock{Bound: MaxTimestamp}
	if c.Observe(At(2524608000000, 0), now, drift) || c.Last != 0 {
		t.Errorf("followed to %v", c.Last)
	}
	if !Held(At(now+drift+1, 0), now, drift) || Held(At(now+drift, 0xffff), now, drift) || Held(0, now, drift) {
		t.Error("the border of what is held moved")
	}
	if Held(MaxTimestamp, math.MaxInt64, drift) || !Held(MaxTimestamp, math.MinInt64, drift) {
		t.Error("extreme wall clocks")
	}
}

// TestOwnClockSetBack: a node refuses a write that every other node would hold.
func TestOwnClockSetBack(t *testing.T) {
	c := Clock{Last: At(4102444800000, 0), Bound: MaxTimestamp}
	before := c
	if _, err := c.Tick(1700000000000, drift); !errors.Is(err, ErrDrift) || lattice.KindOf(err) != lattice.Conflict || c != before {
		t.Errorf("%v", err)
	}
	if _, err := c.Tick(4102444800000-drift, drift); err != nil {
		t.Errorf("within the drift: %v", err)
	}
}

// TestCounterOverflow: the 65,537th timestamp of a millisecond is in the next.
func TestCounterOverflow(t *testing.T) {
	c := Clock{Bound: MaxTimestamp}
	var last Timestamp
	for range 1<<16 + 1 {
		ts, err := c.Tick(5, drift)
		if err != nil || ts <= last && last != 0 {
			t.Fatalf("%v after %v, %v", ts, last, err)
		}
		last = ts
	}
	if last != At(6, 0) {
		t.Errorf("%v, want 6.0", last)
	}
}

func TestEndOfTime(t *testing.T) {
	c := Clock{Last: MaxTimestamp - 2, Bound: MaxTimestamp}
	if ts, err := c.Tick(0, -1); err != nil || ts != MaxTimestamp-1 {
		t.Errorf("%v, %v", ts, err)
	}
	if _, err := c.Tick(0, -1); !errors.Is(err, ErrBound) {
		t.Errorf("at the last bound: %v", err)
	}
	if b, err := c.Reserve(0, 1000); err != nil || b != MaxTimestamp {
		t.Errorf("reserve at the end: %v, %v", b, err)
	}
	c = Clock{Last: MaxTimestamp, Bound: MaxTimestamp}
	for _, err := range []error{second(c.Tick(0, -1)), second(c.Reserve(0, 1))} {
		if !errors.Is(err, ErrExhausted) {
			t.Errorf("after the last: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestZeroClockAsksForABound(t *testing.T) {
	var c Clock
	if _, err := c.Tick(1000, drift); !errors.Is(err, ErrBound) || lattice.KindOf(err) != lattice.Unavailable {
		t.Errorf("%v", err)
	}
	if Resume(0) != (Clock{}) {
		t.Error("resuming from nothing is not the zero clock")
	}
	c.Extend(At(2000, 0))
	c.Extend(At(1, 0))
	if ts, err := c.Tick(1000, drift); err != nil || ts != At(1000, 0) {
		t.Errorf("%v, %v", ts, err)
	}
}
