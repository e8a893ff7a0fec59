package keyval

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestReaperEndsWhatIsDue(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	expire := func(key string, after time.Duration) {
		t.Helper()
		n.must(n.update(func(tx *Tx) error {
			m := structs.In(tx, "0")
			if err := m.Set([]byte(key), []byte("v"), false); err != nil {
				return err
			}
			_, err := m.ExpireAt([]byte(key), clock.Now().Add(after).UnixMilli())
			return err
		}))
	}
	var want []string
	for i := range 50 {
		key := fmt.Sprintf("due%02d", i)
		expire(key, time.Second)
		want = append(want, key)
	}
	expire("later", time.Hour)
	expire("moved", time.Second)
	expire("moved", time.Hour)
	expire("kept", time.Second)
	expire("again", time.Second)
	n.must(n.update(func(tx *Tx) error { _, err := structs.In(tx, "0").Persist([]byte("kept")); return err }))
	n.set("plain", "v")
	clock.Advance(2 * time.Second)
	n.set("again", "v") // ends what had expired, and has no expiry

	r := n.Reaper()
	var gone []string
	n.wait(func() bool {
		clock.Advance(time.Millisecond) // rounds are written by this clock
		names, _, err := r.Pass(context.Background(), 7)
		n.must(err)
		if len(names) > 7 {
			t.Fatalf("%d keys in a pass of 7", len(names))
		}
		for _, name := range names {
			gone = append(gone, string(name.Key))
		}
		return len(gone) >= len(want)
	})
	slices.Sort(gone)
	if !slices.Equal(gone, want) {
		t.Fatalf("reaped %q", gone)
	}
	for _, key := range []string{"later", "moved", "kept", "again", "plain"} {
		if got := n.get(key); got == "" {
			t.Errorf("%s is gone", key)
		}
	}
	n.must(n.update(func(tx *Tx) error {
		l, err := tx.Len("0")
		if l != 5 {
			t.Errorf("%d keys are left", l)
		}
		return err
	}))
	names, more, err := r.Pass(context.Background(), 7)
	if len(names) > 0 || more || err != nil {
		t.Fatalf("%v %v %v", names, more, err)
	}
}
