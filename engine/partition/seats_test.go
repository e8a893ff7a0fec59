package partition

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
)

// TestStep: from any set and number to any other, in steps that change one member at most,
// each of which a grant can say.
func TestStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quorum := func() cosign.Quorum {
			set := []lattice.AuthorID{{1}} // the leader
			for i := byte(2); i < 7; i++ {
				if rapid.Bool().Draw(t, "in") {
					set = append(set, lattice.AuthorID{i})
				}
			}
			return cosign.Quorum{Set: set, Min: rapid.IntRange(1, len(set)).Draw(t, "min")}
		}
		now, want := quorum(), quorum()
		for n := 0; !now.Equal(want); n++ {
			if n > 12 {
				t.Fatalf("%+v does not come to %+v", now, want)
			}
			next := step(now, want)
			differ := 0
			for _, a := range append(slices.Clone(now.Set), next.Set...) {
				if slices.Contains(now.Set, a) != slices.Contains(next.Set, a) {
					differ++
				}
			}
			if differ > 1 || next.Min < 1 || next.Min > len(next.Set) || !slices.Contains(next.Set, lattice.AuthorID{1}) || next.Equal(now) {
				t.Fatalf("%+v after %+v", next, now)
			}
			now = next
		}
	})
}
