package store

import (
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestCrashBeforeTheTermIsTold: a node that sealed a partition and lost its power before the
// grant was state opens, and tells of it then.
func TestCrashBeforeTheTermIsTold(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	tp := f.part(f.topic("t", 1, nil), 0).ID()
	p, err := f.Partition(tp.Topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := identity.FromSeed([32]byte{9}).Author()
	if err := p.Seal(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if told, err := f.readTerms(tp); err != nil || len(told) != 0 {
		t.Fatalf("%d grants are state before the restart: %v", len(told), err)
	}
	f.restart()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		told, err := f.readTerms(tp)
		if err != nil {
			t.Fatal(err)
		}
		if len(told) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the grant is not state")
		}
	}
	if leader, err := f.LeaderOf(tp.Topic, 0); err != nil || leader != to {
		t.Fatalf("%s leads, %v", leader.Short(), err)
	}
}
