package node

import (
	"fmt"
	"log/slog"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
)

// TestForkTravels: what was written in a fork comes to the other members once it is brought
// back, and so does what its node writes after that, which follows it. It goes on so after
// restarts of either.
func TestForkTravels(t *testing.T) {
	da, db := t.TempDir(), t.TempDir()
	a, stopA := runTwin(t, da)
	b, stopB := runTwin(t, db)
	if err := b.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
		t.Fatal(err)
	}
	top := createOn(t, a.first, "orders", 1)
	tp := lattice.TopicPartition{Topic: top.ID}
	produceTo(t, a.first, tp, 5, "before")
	if err := setKey(a.first, "k", "before"); err != nil {
		t.Fatal(err)
	}
	alike(t, a.first, b.first)

	id, err := a.first.MakeFork(t.Context(), "try", nil)
	if err != nil {
		t.Fatal(err)
	}
	fork, err := store.Open(storeConfig(a.cfg, a.key, id, slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	a.engine.run("fork", fork.Run)
	a.all = append(a.all, fork)
	for round := range 2 {
		in := fmt.Sprint("in the fork ", round)
		if err := setKey(fork, "k", in); err != nil {
			t.Fatal(err)
		}
		produceTo(t, fork, tp, 3, in)
		for done := false; !done; {
			got, err := fork.BringBack(t.Context(), a.first)
			if err != nil {
				t.Fatal(err)
			}
			done = got.Done
		}
		soon(t, "what the fork wrote", func() bool { return getKey(t, b.first, "k") == in })
		sameRecords(t, a.first, b.first, tp)
		if err := setKey(a.first, "after", in); err != nil {
			t.Fatal(err)
		}
		soon(t, "what its node wrote after that", func() bool { return getKey(t, b.first, "after") == in })
		alike(t, a.first, b.first)
	}
	stopB()
	if err := setKey(a.first, "while it was off", "a"); err != nil {
		t.Fatal(err)
	}
	b, _ = runTwin(t, db)
	soon(t, "what was written meanwhile", func() bool { return getKey(t, b.first, "while it was off") == "a" })
	stopA()
	a, _ = runTwin(t, da)
	if err := setKey(a.first, "after a restart", "a"); err != nil {
		t.Fatal(err)
	}
	soon(t, "what its node writes after a restart", func() bool { return getKey(t, b.first, "after a restart") == "a" })
	alike(t, a.first, b.first)
}
