package structs_test

import (
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/engine/structs/memory"
)

// TestReapLeavesNothing: the expiry of a key goes with what expired.
func TestReapLeavesNothing(t *testing.T) {
	mem := memory.New(state.Writer{Incarnation: 1})
	key := []byte("k")
	tx := mem.Begin(1000)
	m := structs.In(tx, "0")
	if err := m.Set(key, []byte("v"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := m.ExpireAt(key, 2000); err != nil {
		t.Fatal(err)
	}
	tx = mem.Begin(1500)
	if all, err := structs.In(tx, "0").Reap(key); all || err != nil {
		t.Fatalf("before its time: %v, %v", all, err)
	}
	tx = mem.Begin(3000)
	if all, err := structs.In(tx, "0").Reap(key); !all || err != nil {
		t.Fatalf("%v, %v", all, err)
	}
	if k, err := tx.Key("0", key); err != nil || len(k.Seen) > 0 || len(k.Expiry) > 0 {
		t.Fatalf("%+v is left, %v", k, err)
	}
}
