package keyval

import (
	"context"
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestWrittenInSteps reads rows of a new key while a round that wrote them is being
// noted, and the table forgets all that it may: none of them is missing.
func TestWrittenInSteps(t *testing.T) {
	o := options(disk.OS(), 0, 2, tick.Real{})
	o.Dir, o.Durability, o.CacheBytes = t.TempDir(), signedlog.OS, 1
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	const fields = 2*writtenItems + 10
	tk, err := db.UpdateLater(func(tx *Tx) error {
		for i := range fields {
			if _, err := tx.Put(part(state.Field, fmt.Sprint(i)), state.Payload{Bytes: []byte("x")}, nil, state.Dot{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Decide(tk)
	if err := tk.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	read := func() {
		_, err := db.View(func(tx *Tx) error {
			for i := range fields {
				// What was never there comes into the table, and something has to leave it.
				if _, err := tx.Row(part(state.Field, fmt.Sprint("none ", i))); err != nil {
					return err
				}
				if r, err := tx.Row(part(state.Field, fmt.Sprint(i))); err != nil || len(r) != 1 {
					return fmt.Errorf("field %d: %v, %v", i, r, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	db.mu.Lock()
	r := db.flying
	if r == nil {
		r = db.takeRound(nil)
	} else {
		<-db.rounds
		db.flying = nil
	}
	if err := db.writeRound(r); err != nil {
		t.Fatal(err)
	}
	steps := 0
	db.t.written(r, func() {
		steps++
		db.mu.Unlock()
		read()
		db.mu.Lock()
	})
	db.mu.Unlock()
	if read(); steps < 2 {
		t.Errorf("noted in %d steps", steps)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDecide has an update decided by its caller, at each level, with nobody else there.
func TestDecide(t *testing.T) {
	for _, level := range []signedlog.Durability{signedlog.Fsync, signedlog.Interval, signedlog.OS} {
		o := options(disk.OS(), 0, 2, tick.Real{})
		o.Dir, o.Durability = t.TempDir(), level
		db, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		tk, err := db.UpdateLater(func(tx *Tx) error {
			_, err := tx.Put(reg("a"), state.Payload{Bytes: []byte("x")}, nil, state.Dot{})
			return err
		})
		if err != nil || tk.decided() {
			t.Fatalf("%s: decided %v, %v", level, tk.decided(), err)
		}
		if db.Decide(tk); !tk.decided() {
			t.Fatalf("%s: not decided", level)
		}
		if err := tk.Wait(context.Background()); err != nil {
			t.Errorf("%s: %v", level, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
