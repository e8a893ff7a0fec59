package state_test

import (
	"slices"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/state/statetest"
	"github.com/lattice-log/lattice/internal/testkit/laws"
	"pgregory.net/rapid"
)

func join(a, b *state.Space) *state.Space { return a.Join(b) }

func equal(a, b *state.Space) bool { return statetest.Text(a) == statetest.Text(b) }

// TestLaws: joining states of one history is commutative, associative and
// idempotent, in every type, whatever the states have folded and in what order.
func TestLaws(t *testing.T) {
	forEach(t, func(t *testing.T, what statetest.Type) {
		laws.JoinWithin(t, func(t *rapid.T) *rapid.Generator[*state.Space] {
			h := statetest.Draw(t, what, 25)
			return rapid.Custom(func(t *rapid.T) *state.Space { return h.Fold(t, some(t, h)) })
		}, join, equal)
	})
}

func forEach(t *testing.T, check func(t *testing.T, what statetest.Type)) {
	for _, what := range statetest.Types() {
		t.Run(string(what), func(t *testing.T) { check(t, what) })
	}
}

func some(t *rapid.T, h statetest.History) []int {
	return rapid.SliceOfN(rapid.IntRange(0, len(h)-1), 0, 4).Draw(t, "entries")
}

// TestOrder: the order in which entries are folded does not show, as long as
// nothing comes before what it has seen.
func TestOrder(t *testing.T) {
	forEach(t, func(t *testing.T, what statetest.Type) {
		rapid.Check(t, func(t *rapid.T) {
			h := statetest.Draw(t, what, 30)
			which := some(t, h)
			if a, b := h.Fold(t, which), h.Fold(t, which); !equal(a, b) {
				t.Fatalf("one order comes to\n%s\nanother to\n%s", statetest.Text(a), statetest.Text(b))
			}
		})
	})
}

// TestJoinIsFold: joining states that were folded to different frontiers comes to
// what folding all their entries comes to; also when joined states are joined, and
// when folding goes on after a join.
func TestJoinIsFold(t *testing.T) {
	forEach(t, func(t *testing.T, what statetest.Type) {
		rapid.Check(t, func(t *rapid.T) {
			h := statetest.Draw(t, what, 30)
			joinIsFold(t, h, some(t, h), some(t, h), some(t, h))
		})
	})
}

func joinIsFold(t *rapid.T, h statetest.History, a, b, c []int) {
	same := func(how string, got, want *state.Space) {
		if !equal(got, want) {
			t.Fatalf("%s:\n%s\nfolded:\n%s", how, statetest.Text(got), statetest.Text(want))
		}
	}
	joined := h.Fold(t, a).Join(h.Fold(t, b))
	same("joined", joined, h.Fold(t, slices.Concat(a, b)))
	abc := slices.Concat(a, b, c)
	want := h.Fold(t, abc)
	same("joined again", joined.Join(h.Fold(t, c)), want)
	h.Apply(joined, h.Frontier(abc))
	same("joined, then folded", joined, want)
}
