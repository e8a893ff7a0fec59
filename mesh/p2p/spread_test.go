package p2p

import (
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// TestWhoIsAdmittedIsLetIn has bob learn from ann, who learns of it later, that cat is
// a member.
func TestWhoIsAdmittedIsLetIn(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	sa.admit(idOf("cat"))
	sc := sa.at("cat")
	sc.write(7, 10)
	c := start(t, "cat", nil, sc)
	c.knows(b)
	b.knows(a)
	agree(t, sa, sb, sc)
}

// TestAFullDisk has what the store does not take come again.
func TestAFullDisk(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	sa.write(200, 1000)
	full := true
	sb.keep = func(reconcile.Store) error {
		if full {
			return lattice.E(lattice.Storage, fmt.Errorf("no space left"))
		}
		return nil
	}
	a, b := start(t, "ann", nil, sa), start(t, "bob", func(c *Config) { c.Replicas.RetryMs = 50 }, sb)
	b.knows(a)
	eventually(t, "it is refused", func() bool { return b.refused(sb)[reconcile.NotStored] >= 2 })
	if !b.peer(sb, "ann").Session {
		t.Error("the session ended because a disk was full")
	}
	sb.mu.Lock()
	full = false
	sb.mu.Unlock()
	agree(t, sa, sb)
}

// TestAForkSpreads has two histories of one author meet, and everybody learn of it.
func TestAForkSpreads(t *testing.T) {
	sa := found(t, "ann", "bob", "cat", "eve")
	sb, sc := sa.at("bob"), sa.at("cat")
	e1, e2 := sa.at("eve"), sa.at("eve")
	e1.write(3, 10)
	e2.write(5, 11)
	w := e1.own
	for _, e := range e1.logs[w].entries {
		sa.add(w, e)
	}
	for _, e := range e2.logs[w].entries {
		sc.add(w, e)
	}
	a, b, c := start(t, "ann", nil, sa), start(t, "bob", nil, sb), start(t, "cat", nil, sc)
	b.knows(a, c)
	sa.write(1, 1)
	sc.write(1, 1)
	forked := func(s *memStore) bool { return strings.Contains(s.tips(), "fork of "+idOf("eve").Short()) }
	eventually(t, "all have the proof", func() bool { return forked(sa) && forked(sb) && forked(sc) })
	length := func(s *memStore, w state.Writer) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l := s.logs[w]; l != nil {
			return len(l.entries)
		}
		return 0
	}
	n := length(sa, sa.own)
	for _, s := range []*memStore{sa, sb, sc} {
		eventually(t, "other logs go on", func() bool { return length(s, sa.own) == n && length(s, sc.own) == 1 })
	}
}

// TestASnapshotInsteadOfWhatWasPruned is interrupted once and goes on where it was.
func TestASnapshotInsteadOfWhatWasPruned(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := newMemStore(t, "bob", sa.genesis())
	sb.members[idOf("bob")] = true
	sa.write(2000, 200)
	sa.prune(sa.own, 1500)
	sa.cut = len(sa.snapshot) / 2
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	agree(t, sa, sb)
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.imported != 1 || sa.cut != 0 {
		t.Errorf("imported %d times; cut at %d", sb.imported, sa.cut)
	}
}

// TestASnapshotThatIsAnother is not fetched again and again.
func TestASnapshotThatIsAnother(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := newMemStore(t, "bob", sa.genesis())
	sb.members[idOf("bob")] = true
	sa.write(200, 200)
	sa.prune(sa.own, 150)
	sa.lie = true
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	eventually(t, "it is thrown away", func() bool { return strings.Contains(b.logs.String(), "could not be had") })
	if b.refused(sb)[reconcile.Unproven] != 1 {
		t.Errorf("counted: %v", b.refused(sb))
	}
	sb.write(1, 10)
	eventually(t, "other logs go on", func() bool {
		sa.mu.Lock()
		defer sa.mu.Unlock()
		return sa.logs[sb.own] != nil
	})
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.received != 1 || sb.imported != 0 {
		t.Errorf("received %d times, imported %d", sb.received, sb.imported)
	}
}
