package trie

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

// TestLeaves: the leaves of a key are found among those of others, whatever they
// share with it, and none of a key that has none.
func TestLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m memory
		want := map[lattice.Hash][]Leaf{}
		var all []Leaf
		for k := range rapid.IntRange(0, 6).Draw(t, "keys") {
			key := KeyOf("m", fmt.Appendf(nil, "%d", k))
			if k > 0 && rapid.Bool().Draw(t, "near") { // shares all but the last bits with another
				key = KeyOf("m", []byte("0"))
				key[31] ^= byte(k)
			}
			for r := range rapid.IntRange(1, 20).Draw(t, "rows") {
				l := Leaf{PathIn(key, state.Field, fmt.Appendf(nil, "%d", r)), ValueOf(fmt.Appendf(nil, "%d/%d", k, r))}
				want[key] = append(want[key], l)
				all = append(all, l)
			}
		}
		m.update(t, all)
		want[KeyOf("m", []byte("none"))] = nil
		want[lattice.Hash{}] = nil
		for key, leaves := range want {
			slices.SortFunc(leaves, func(a, b Leaf) int { return bytes.Compare(a.Path[:], b.Path[:]) })
			var got []Leaf
			if err := Leaves(&m, key, func(l Leaf) error { got = append(got, l); return nil }); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, leaves) {
				t.Fatalf("key %s has %d leaves, want %d", key.Short(), len(got), len(leaves))
			}
		}
	})
}
