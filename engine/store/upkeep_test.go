package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// kept is a store whose policy the test asks to act, hour by hour.
type kept struct {
	*fixture
	clock *tick.Manual
	n     int
}

func newKept(t *testing.T, u Upkeep) *kept {
	clock := tick.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := &kept{fixture: newFixtureAt(t, disk.NewMem(), clock), clock: clock}
	k.cfg.State.Upkeep = u
	k.restart()
	return k
}

// write changes a key, so that there is something to keep.
func (k *kept) write() {
	k.t.Helper()
	k.n++
	tk, err := k.State().Update(func(tx *keyval.Tx) error {
		return structs.In(tx, "0").Set([]byte("key"), fmt.Append(nil, k.n), false)
	})
	if err == nil {
		err = tk.Wait(k.t.Context())
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// look moves the clock, and has the policy act if Run has not done it yet.
func (k *kept) look(d time.Duration) UpkeepStatus {
	k.t.Helper()
	k.clock.Advance(d)
	if err := k.Tend(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	u, err := k.Upkeep()
	if err != nil {
		k.t.Fatal(err)
	}
	return u
}

func (k *kept) floor() bool {
	_, pruned := k.State().Floor()
	return pruned
}

func (k *kept) root() string {
	k.t.Helper()
	r, err := k.State().Root(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	return r.Hash.String()
}

// TestUpkeepIsOff: without a policy nothing is taken, and nothing pruned.
func TestUpkeepIsOff(t *testing.T) {
	k := newKept(t, Upkeep{})
	k.write()
	if u := k.look(1000 * time.Hour); u.Kept != 0 || k.floor() {
		t.Errorf("%+v", u)
	}
}

// TestUpkeepKeeps: a snapshot an hour if something changed, and no more than are to
// stay; nothing is pruned unless that is asked for. A restart changes nothing of it.
func TestUpkeepKeeps(t *testing.T) {
	k := newKept(t, Upkeep{Every: time.Hour, Keep: 3, PruneAfter: -1})
	k.write()
	first := k.look(0)
	if first.Kept != 1 {
		t.Fatalf("at first: %+v", first)
	}
	if u := k.look(10 * time.Hour); u.Kept != 1 || !u.Newest.Equal(first.Newest) {
		t.Errorf("nothing has changed since: %+v, was %+v", u, first)
	}
	k.write()
	if u := k.look(time.Hour / 2); u.Kept != 1 {
		t.Errorf("too soon: %+v", u)
	}
	for i := range 6 {
		if i == 3 {
			k.restart()
		}
		k.write()
		if u, want := k.look(time.Hour), min(i+2, 3); u.Kept != want || k.clock.Now().Sub(u.Newest) >= time.Hour {
			t.Errorf("after %d hours: %+v at %s, want %d", i+1, u, k.clock.Now(), want)
		}
	}
	if k.floor() {
		t.Error("something was pruned")
	}
}

// TestUpkeepPrunes: history is pruned to a snapshot that is old enough once enough newer
// ones are there; the state stays what it is. What that writes itself is no change:
// a store at rest rests.
func TestUpkeepPrunes(t *testing.T) {
	k := newKept(t, Upkeep{Every: time.Hour, Keep: 2, PruneAfter: 5 * time.Hour})
	pruned := -1
	for i := range 12 {
		k.write()
		root := k.root()
		u := k.look(time.Hour)
		if k.root() != root {
			t.Fatalf("hour %d: the root changed", i)
		}
		if pruned < 0 && k.floor() {
			pruned = i
		}
		if u.Kept > 7 || u.Failed != "" {
			t.Errorf("hour %d: %+v", i, u)
		}
	}
	if pruned < 4 || pruned > 6 {
		t.Errorf("pruned first after %d hours", pruned)
	}
	f, _ := k.State().Floor()
	if age := k.clock.Now().Sub(f.Through); age < 5*time.Hour || age > 8*time.Hour {
		t.Errorf("pruned to what is %s old", age)
	}
	if st := k.State().Status(); st.PrunedEntries == 0 || st.PrunedBytes == 0 {
		t.Errorf("%+v", st)
	}
	k.look(100 * time.Hour)
	u := k.look(100 * time.Hour)
	entries := k.State().Frontier().Entries()
	for range 5 {
		k.look(100 * time.Hour)
	}
	if after := k.State().Frontier().Entries(); after != entries {
		t.Errorf("%d entries came to a store at rest: %+v", after-entries, u)
	}
}

// TestUpkeepFails: what fails is counted and told, and tried again.
func TestUpkeepFails(t *testing.T) {
	k := newKept(t, Upkeep{Every: time.Hour, Keep: 1, PruneAfter: 0})
	k.write()
	fs := k.cfg.FS.(*disk.Mem)
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRename && strings.Contains(op.Path, "/snapshots/") {
			return &disk.Fault{}
		}
		return nil
	})
	k.clock.Advance(time.Hour)
	if err := k.Tend(t.Context()); err == nil {
		t.Fatal("the fault does not show")
	}
	if u, err := k.Upkeep(); err != nil || u.Failures == 0 || u.Failed == "" {
		t.Errorf("%+v, %v", u, err)
	}
	fs.SetFault(nil)
	if u := k.look(time.Hour); u.Kept != 1 || u.Failed != "" {
		t.Errorf("%+v", u)
	}
}
