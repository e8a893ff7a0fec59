package node

import (
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
)

// TestMutualRemoval: two admins remove each other on both sides of a cut, each before it hears of the other.
// When the sides meet both removals stand, on every node; what the other had not seen of each has no effect,
// is listed, and counts again once the owner adopts it; and who is let in again has it, too.
func TestMutualRemoval(t *testing.T) {
	if testing.Short() {
		t.Skip("four nodes, started and stopped several times")
	}
	dirs := map[string]string{}
	nodes, stops := map[string]*twin{}, map[string]func(){}
	up := func(names ...string) {
		for _, n := range names {
			if dirs[n] == "" {
				dirs[n] = t.TempDir()
			}
			nodes[n], stops[n] = runTwin(t, dirs[n])
		}
	}
	down := func(names ...string) {
		for _, n := range names {
			stops[n]()
		}
	}
	up("a", "b", "c", "d")
	ids := map[string]lattice.NodeID{}
	for n, role := range map[string]roster.Role{"b": roster.Admin, "c": roster.Admin, "d": roster.Writer} {
		if err := nodes[n].join(t.Context(), invited(t, nodes["a"], role)); err != nil {
			t.Fatal(err)
		}
		ids[n] = nodes[n].key.Author()
		soon(t, "its role", func() bool { return nodes[n].first.Role() == role })
	}
	for n := range ids {
		soon(t, "all know all", func() bool {
			return standingOf(nodes[n], ids["b"]).Role == roster.Admin && standingOf(nodes[n], ids["c"]).Role == roster.Admin && standingOf(nodes[n], ids["d"]).Role == roster.Writer
		})
	}
	// Which members reach each other is left to them otherwise; these two must, with the first gone.
	if _, err := nodes["c"].mesh.Connect(t.Context(), ids["d"], nodes["d"].mesh.Addresses(), false); err != nil {
		t.Fatal(err)
	}
	// Each is left to itself with one witness.
	apart := func(with, admin, other, key string) {
		t.Helper()
		if err := setKey(nodes[admin].first, key, "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := nodes[admin].first.Remove(t.Context(), ids[other]); err != nil {
			t.Fatal(err)
		}
		soon(t, "the witness knows", func() bool {
			return standingOf(nodes[with], ids[other]).Role == roster.None && getKey(t, nodes[with].first, key) == "1"
		})
	}
	down("c", "d")
	apart("a", "b", "c", "of-b")
	down("a", "b")
	up("c", "d")
	apart("d", "c", "b", "of-c")
	down("c")

	up("a") // the witnesses meet
	for _, n := range []string{"a", "d"} {
		st := nodes[n]
		soon(t, "both removals stand on "+n, func() bool {
			b, c := standingOf(st, ids["b"]), standingOf(st, ids["c"])
			return b.Role == roster.None && c.Role == roster.None && b.Unseen > 0 && c.Unseen > 0
		})
		soon(t, "what was not seen has no effect on "+n, func() bool { return getKey(t, st.first, "of-b") == "" && getKey(t, st.first, "of-c") == "" })
	}
	alike(t, nodes["a"].first, nodes["d"].first)

	if _, err := nodes["d"].first.Adopt(t.Context(), ids["b"]); lattice.KindOf(err) != lattice.Denied {
		t.Fatalf("a writer adopts: %v", err)
	}
	done, err := nodes["a"].first.Adopt(t.Context(), ids["b"])
	if err != nil || done.Entries == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, n := range []string{"a", "d"} {
		soon(t, "what was adopted counts on "+n, func() bool { return getKey(t, nodes[n].first, "of-b") == "1" })
		if getKey(t, nodes[n].first, "of-c") != "" || standingOf(nodes[n], ids["b"]).Role != roster.None {
			t.Fatalf("on %s adopting one's entries changed more than that", n)
		}
	}
	if err := nodes["a"].first.SetRole(t.Context(), ids["b"], roster.Writer); err != nil {
		t.Fatal(err)
	}
	up("b", "c")
	soon(t, "B is back", func() bool {
		return nodes["b"].first.Gone() == nil && nodes["b"].first.Role() == roster.Writer && getKey(t, nodes["b"].first, "of-b") == "1"
	})
	soon(t, "C is told that it was removed", func() bool { return nodes["c"].first.Gone() != nil })
	alike(t, nodes["a"].first, nodes["b"].first)
}
