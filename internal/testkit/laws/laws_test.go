package laws

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestJoinsThatHold(t *testing.T) {
	Join(t, rapid.Int(), func(a, b int) int { return max(a, b) }, func(a, b int) bool { return a == b })
	JoinWithin(t, func(t *rapid.T) *rapid.Generator[map[int]int] {
		return rapid.MapOf(rapid.IntRange(0, rapid.IntRange(1, 5).Draw(t, "keys")), rapid.Int())
	}, func(a, b map[int]int) map[int]int {
		out := maps.Clone(a)
		for k, v := range b {
			if have, ok := out[k]; !ok || v > have {
				out[k] = v
			}
		}
		return out
	}, maps.Equal[map[int]int])
}

// entry is a value of the merges that other systems shipped.
type entry struct {
	set  string // members, sorted
	dead bool
	time int
}

// window is a copy of a log: records [start, end) of a branch.
type window struct {
	branch     string
	start, end int
}

// TestJoinsThatBreak: the harness finds what is wrong with merges that were used
// in earnest.
func TestJoinsThatBreak(t *testing.T) {
	eq := func(a, b entry) bool { return a == b }
	for _, tc := range []struct{ law, got string }{
		{"not idempotent", Broken(func(a, b int) int { return a + b }, func(a, b int) bool { return a == b }, 1)},
		{"not commutative", Broken(func(a, b int) int { return a }, func(a, b int) bool { return a == b }, 1, 2)},
		{"not associative", Broken(func(a, b int) int { return (a + b) / 2 }, func(a, b int) bool { return a == b }, 1, 2, 9)},
		// Of two values with one timestamp, the own one wins.
		{"not commutative", Broken(func(a, b entry) entry {
			if b.time > a.time {
				return b
			}
			return a
		}, eq, entry{"x", false, 1}, entry{"y", false, 1})},
		// Members unite unless one side is a newer tombstone.
		{"not associative", Broken(func(a, b entry) entry {
			if a.time > b.time {
				a, b = b, a
			}
			if a.dead || b.dead {
				return b
			}
			members := strings.Split(a.set+b.set, "")
			slices.Sort(members)
			return entry{strings.Join(slices.Compact(members), ""), false, b.time}
		}, eq, entry{"x", false, 1}, entry{"", true, 2}, entry{"y", false, 3})},
		// The longer log wins; of two that are equally long, the own one.
		{"not commutative", Broken(func(a, b window) window {
			if b.end > a.end {
				a, b = b, a
			}
			a.start = max(a.start, b.start)
			return a
		}, func(a, b window) bool { return a == b }, window{"main", 0, 5}, window{"other", 0, 5})},
	} {
		if !strings.HasPrefix(tc.got, tc.law) && !(tc.law == "not associative" && strings.HasPrefix(tc.got, "not inflationary")) {
			t.Errorf("want %s, have %q", tc.law, tc.got)
		}
	}
}
