package node

import (
	"context"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/structs"
)

func change(t testing.TB, st *store.Store, f func(*structs.Map) error) {
	t.Helper()
	tk, err := st.State().Update(func(tx *keyval.Tx) error { return f(structs.In(tx, "0")) })
	if err == nil {
		err = tk.Wait(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, st *store.Store, n int64) {
	t.Helper()
	change(t, st, func(m *structs.Map) error { _, err := m.Incr([]byte("n"), n); return err })
}

func remove(t testing.TB, st *store.Store, key string) {
	t.Helper()
	change(t, st, func(m *structs.Map) error { _, err := m.Delete([]byte(key)); return err })
}

// pruneApart prunes all that a store has, whoever lacks it.
func pruneApart(t testing.TB, st *store.Store) {
	t.Helper()
	if _, err := st.State().Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, err := st.State().PruneAnyway(t.Context(), lattice.Hash{}); err != nil || p.Entries == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
}

// TestPrunedApart: two nodes are apart, write, delete, count, and prune, each below what
// the other lacks. When they meet they take over each other's snapshots: nothing is
// issued again, nothing counts twice, nothing that was deleted comes back, both sides'
// writes to one key are its heads. Before that one was back with writes of its own only.
func TestPrunedApart(t *testing.T) {
	da, db := t.TempDir(), t.TempDir()
	a, stopA := runTwin(t, da)
	b, stopB := runTwin(t, db)
	writeMany(t, a.first, "k", 50)
	if err := b.join(t.Context(), invited(t, a, roster.Writer)); err != nil {
		t.Fatal(err)
	}
	soon(t, "all of it", func() bool { return getKey(t, b.first, "k49") != "" && b.first.Role() == roster.Writer })
	add(t, a.first, 1)
	add(t, b.first, 10)
	soon(t, "both counts", func() bool { return getKey(t, a.first, "n") == "11" && getKey(t, b.first, "n") == "11" })

	// B is away, writes, and comes back when A has pruned.
	stopA()
	if err := setKey(b.first, "unsent", "1"); err != nil {
		t.Fatal(err)
	}
	remove(t, b.first, "k1")
	add(t, b.first, 100)
	stopB()
	a, stopA = runTwin(t, da)
	remove(t, a.first, "k2")
	add(t, a.first, 1000)
	pruneApart(t, a.first)
	b, stopB = runTwin(t, db)
	is := func(st *store.Store, key, want string) bool { return getKey(t, st, key) == want }
	soon(t, "B is back", func() bool {
		return is(a.first, "unsent", "1") && is(b.first, "k2", "") && is(a.first, "k1", "") && is(a.first, "n", "1111") && is(b.first, "n", "1111")
	})
	alike(t, a.first, b.first)

	// Both are alone, write, and prune.
	stopA()
	remove(t, b.first, "k3")
	writeMany(t, b.first, "b", 20)
	if err := setKey(b.first, "both", "b"); err != nil {
		t.Fatal(err)
	}
	add(t, b.first, 10_000)
	pruneApart(t, b.first)
	stopB()
	a, _ = runTwin(t, da)
	remove(t, a.first, "k4")
	writeMany(t, a.first, "a", 20)
	if err := setKey(a.first, "both", "a"); err != nil {
		t.Fatal(err)
	}
	add(t, a.first, 100_000)
	pruneApart(t, a.first)
	b, _ = runTwin(t, db)
	for _, st := range []*store.Store{a.first, b.first} {
		soon(t, "they have joined", func() bool {
			return is(st, "n", "111111") && is(st, "a19", strings.Repeat("a", 20)) && is(st, "b19", strings.Repeat("b", 20)) && is(st, "k3", "") && is(st, "k4", "")
		})
	}
	alike(t, a.first, b.first)
	for _, st := range []*store.Store{a.first, b.first} {
		var heads []structs.Head
		tk, err := st.State().View(func(tx *keyval.Tx) (err error) {
			heads, _, err = structs.In(tx, "0").Heads([]byte("both"), 10)
			return err
		})
		if err == nil {
			err = tk.Wait(t.Context())
		}
		if err != nil || len(heads) != 2 {
			t.Fatalf("%d heads of what both wrote, %v", len(heads), err)
		}
		if st.State().Status().Equivocations != 0 {
			t.Error("an author signed twice for one place")
		}
	}
}
