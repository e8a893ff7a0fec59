package p2p

import (
	"errors"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// farewellStore is a store that shows who was removed a notice, and believes one.
type farewellStore struct {
	*memStore
	notice func(of lattice.NodeID) ([]byte, error)
	told   chan string // notices that came and were believed
}

func (s *farewellStore) Notice(of lattice.NodeID) ([]byte, error) { return s.notice(of) }

func (s *farewellStore) Dismiss(b []byte) error {
	if string(b) != "you were removed" {
		return errors.New("that proves nothing")
	}
	select {
	case s.told <- string(b):
	default:
	}
	return nil
}

func farewells(s *memStore, notice string) *farewellStore {
	return &farewellStore{s, func(lattice.NodeID) ([]byte, error) { return []byte(notice), nil }, make(chan string, 1)}
}

// runFarewell runs a node on loopback with a store that knows of farewells.
func runFarewell(t *testing.T, name string, s *farewellStore) *testNode {
	t.Helper()
	n := start(t, name, nil)
	check(t, n.Add(s))
	return n
}

// TestWhoIsRemovedIsTold: while it is connected, and when it comes back later.
func TestWhoIsRemovedIsTold(t *testing.T) {
	for _, order := range [][2]string{{"ann", "bob"}, {"bob", "ann"}} { // either has the lower id
		sa := found(t, order[0], order[1])
		fa, fb := farewells(sa, "you were removed"), farewells(sa.at(order[1]), "")
		a, b := runFarewell(t, order[0], fa), runFarewell(t, order[1], fb)
		b.knows(a)
		agree(t, sa, fb.memStore)
		eventually(t, "a session", func() bool { return a.peer(sa, order[1]).Session })
		if len(fb.told) > 0 {
			t.Fatal("a member is told that it was removed")
		}
		sa.remove(idOf(order[1]))
		eventually(t, "it is told", func() bool { return len(fb.told) > 0 })
		<-fb.told
		check(t, b.stop())
		late := farewells(sa.at(order[1]), "")
		b = runFarewell(t, order[1], late)
		b.knows(a)
		eventually(t, "it is told when it comes", func() bool { return len(late.told) > 0 })
	}
}

// TestFalseFarewells: a peer that says so without a proof is not believed; that is counted
// and shown.
func TestFalseFarewells(t *testing.T) {
	for _, lie := range []string{"it is a lie", string(make([]byte, MaxNotice)), "", string(make([]byte, MaxNotice+1))} {
		sa := found(t, "ann", "bob")
		fa, fb := farewells(sa, lie), farewells(sa.at("bob"), "")
		a, b := runFarewell(t, "ann", fa), runFarewell(t, "bob", fb)
		b.knows(a)
		sa.remove(idOf("bob"))
		if lie == "" || len(lie) > MaxNotice { // nothing is said
			eventually(t, "it asks", func() bool { return b.peer(fb.memStore, "ann").Reachable })
			continue
		}
		eventually(t, "it is counted", func() bool {
			for _, st := range b.Status().Stores {
				if st.Refused[reconcile.Unproven] > 0 {
					return true
				}
			}
			return false
		})
		if len(fb.told) > 0 {
			t.Error("it was believed")
		}
	}
}

// TestOnlyTheRemovedAreTold: who was never a member hears the same of a store that is here
// and of one that is not; who was removed hears of its own store.
func TestOnlyTheRemovedAreTold(t *testing.T) {
	s := found(t, "ann", "bob")
	a := runFarewell(t, "ann", farewells(s, "you were removed"))
	s.remove(idOf("bob"))
	for _, c := range []struct {
		who   string
		store lattice.StoreID
		want  string
	}{{"eve", s.id, ""}, {"eve", lattice.StoreID{1}, ""}, {"bob", s.id, "you were removed"}, {"bob", lattice.StoreID{1}, ""}} {
		if got := raw(t, c.who, a).hears(protocolFarewell, encodeFarewellRequest(c.store)); string(got) != c.want {
			t.Errorf("%s hears %q of %s, want %q", c.who, got, c.store.Short(), c.want)
		}
	}
	if got := raw(t, "bob", a).hears(protocolFarewell, []byte("LO\x02\x00 and no more than that, which is no request")); len(got) > 0 {
		t.Errorf("another version hears %q", got)
	}
}
