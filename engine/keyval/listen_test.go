package keyval

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// ear notes which keys it hears of.
type ear struct {
	mu     sync.Mutex
	keys   []string
	remade int
}

func (e *ear) Changed(ops []state.Op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, op := range ops {
		if op != nil {
			_, key := op.Target()
			e.keys = append(e.keys, string(key))
		}
	}
}

func (e *ear) Remade() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remade++
}

func (e *ear) took() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.keys
	e.keys = nil
	return out
}

// TestListen: listeners hear of other front ends' updates and of others' entries,
// once and in order; not of quiet updates, of what was undone, or of the reaper.
func TestListen(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	clock := tick.NewManual(testEpoch)
	a := start(t, options(disk.NewMem(), 0, 2, clock))
	a.admit(1)
	b := start(t, options(disk.NewMem(), 1, 3, clock))
	b.receive(rng, a.entries())
	var e ear
	a.Listen(&e)

	var want []string
	var last Ticket
	for i := range 50 { // several share an entry
		key := fmt.Sprint(i)
		f := func(tx *Tx) error { return set(tx, key, "v") }
		var err error
		switch {
		case i%3 == 0:
			last, err = a.UpdateQuietly(f)
		case i%7 == 0:
			_, err = a.Update(func(tx *Tx) error { return errors.Join(f(tx), errAbort) })
			if !errors.Is(err, errAbort) {
				t.Fatal(err)
			}
			err = nil
		default:
			want = append(want, key)
			last, err = a.Update(f)
		}
		a.must(err)
	}
	a.must(last.Wait(context.Background()))
	if got := e.took(); !slices.Equal(got, want) {
		t.Errorf("heard of %v, want %v", got, want)
	}

	b.set("theirs", "1")
	b.del("theirs")
	a.receive(rng, b.entries())
	if got := e.took(); !slices.Equal(got, []string{"theirs", "theirs"}) {
		t.Errorf("of others: heard of %v", got)
	}
	a.receive(rng, b.entries())
	if got := e.took(); len(got) != 0 {
		t.Errorf("known entries: heard of %v", got)
	}

	a.must(a.update(func(tx *Tx) error {
		m := structs.In(tx, "0")
		if err := m.Set([]byte("short"), []byte("v"), false); err != nil {
			return err
		}
		_, err := m.ExpireAt([]byte("short"), testEpoch.UnixMilli()+1)
		return err
	}))
	a.root() // it is in the fold database
	e.took()
	clock.Advance(time.Second)
	gone, _, err := a.Reaper().Pass(context.Background(), 10)
	a.must(err)
	if got := e.took(); len(gone) != 1 || len(got) != 0 {
		t.Errorf("the reaper ended %v: heard of %v", gone, got)
	}
	if e.remade != 0 {
		t.Errorf("%d times remade", e.remade)
	}
	a.close()
	b.close()
}

// TestListenRemade: when the state is made again, listeners are told so.
func TestListenRemade(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	var e ear
	n.Listen(&e)
	n.set("a", "1")
	n.mu.Lock()
	err := n.reset()
	n.mu.Unlock()
	n.must(err)
	if e.remade != 1 || n.get("a") != "1" {
		t.Errorf("%d times remade, a=%q", e.remade, n.get("a"))
	}
	n.close()
}
