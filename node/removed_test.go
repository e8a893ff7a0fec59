package node

import (
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
)

// TestRemovedNodeIsTold: a node that was removed is shown so, while it is connected and
// when it comes back after it was away. It writes nothing more, and reads what it has.
func TestRemovedNodeIsTold(t *testing.T) {
	db := t.TempDir()
	a, _ := runTwin(t, t.TempDir())
	b, stopB := runTwin(t, db)
	c, _ := runTwin(t, t.TempDir())
	for _, n := range []*twin{b, c} {
		if err := n.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
			t.Fatal(err)
		}
		soon(t, "the right to write", func() bool { return n.first.Role() == roster.Writer })
	}
	if err := setKey(b.first, "k", "1"); err != nil {
		t.Fatal(err)
	}
	soon(t, "the key", func() bool { return getKey(t, a.first, "k") == "1" && getKey(t, c.first, "k") == "1" })

	gone := func(n *twin) bool { return n.first.State().Status().Dismissed != "" }
	check := func(n *twin) {
		t.Helper()
		if err := setKey(n.first, "after", "1"); lattice.KindOf(err) != lattice.Denied {
			t.Errorf("a removed node writes: %v", err)
		}
		if getKey(t, n.first, "k") != "1" {
			t.Error("a removed node does not read what it has")
		}
	}
	if _, err := a.first.Remove(t.Context(), c.key.Author()); err != nil { // C is connected
		t.Fatal(err)
	}
	soon(t, "C is told", func() bool { return gone(c) })
	check(c)

	stopB() // B is away
	if _, err := a.first.Remove(t.Context(), b.key.Author()); err != nil {
		t.Fatal(err)
	}
	b, stopB = runTwin(t, db)
	soon(t, "B is told", func() bool { return gone(b) })
	check(b)
	stopB()
	b, _ = runTwin(t, db) // and it knows with nobody there
	if !gone(b) {
		t.Error("after a restart it does not know that it was removed")
	}
	check(b)
	if gone(a) {
		t.Error("who removed is told that it was")
	}
}
