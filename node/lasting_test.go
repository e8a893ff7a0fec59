package node

import (
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// standingOf returns what a node knows of a member.
func standingOf(n *twin, who lattice.NodeID) (out store.Member) {
	for _, m := range n.first.Members() {
		if m.Node == who {
			out = m
		}
	}
	return out
}

// TestStandings: over real nodes a member is dormant and says itself that it is back, gets
// another role, is removed, comes back, and two admins remove each other.
func TestStandings(t *testing.T) {
	a, _ := runTwin(t, t.TempDir())
	b, _ := runTwin(t, t.TempDir())
	c, _ := runTwin(t, t.TempDir())
	for _, n := range []*twin{b, c} {
		if err := n.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
			t.Fatal(err)
		}
		soon(t, "the right to write", func() bool { return n.first.Role() == roster.Writer })
	}
	idB, idC := b.key.Author(), c.key.Author()
	if err := c.first.SetDormant(t.Context(), idB, true); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("a writer says that another is dormant: %v", err)
	}
	if err := a.first.SetDormant(t.Context(), idB, true); err != nil {
		t.Fatal(err)
	}
	soon(t, "all know that B is dormant", func() bool { return standingOf(b, idB).Dormant && standingOf(c, idB).Dormant })
	if err := b.first.SetDormant(t.Context(), idB, false); err != nil {
		t.Fatal(err)
	}
	soon(t, "all know that B is back", func() bool { return !standingOf(a, idB).Dormant && !standingOf(c, idB).Dormant })

	for _, id := range []lattice.NodeID{idB, idC} {
		if err := a.first.SetRole(t.Context(), id, roster.Admin); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "two admins", func() bool { return b.first.Role() == roster.Admin && c.first.Role() == roster.Admin })
	if err := b.first.SetRole(t.Context(), idC, roster.Owner); lattice.KindOf(err) != lattice.Denied {
		t.Errorf("an admin makes an owner: %v", err)
	}
	if _, err := b.first.Adopt(t.Context(), idC); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("adopting of who was not removed: %v", err)
	}
	if _, err := b.first.Remove(t.Context(), idC); err != nil {
		t.Fatal(err)
	}
	soon(t, "C knows that an equal removed it", func() bool { return c.first.Gone() != nil && a.first != nil && standingOf(a, idC).Role == roster.None })
	if err := a.first.SetRole(t.Context(), idC, roster.Reader); err != nil {
		t.Fatal(err)
	}
	soon(t, "C is back", func() bool {
		return c.first.Gone() == nil && c.first.Role() == roster.Reader && standingOf(b, idC).Role == roster.Reader
	})
	if err := a.first.SetRole(t.Context(), idB, roster.Reader); err != nil { // less than it has
		t.Fatal(err)
	}
	soon(t, "B has less", func() bool { return standingOf(a, idB).Role == roster.Reader && b.first.Role() == roster.Reader })
}
