package keyval

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// next returns what a watcher says within the time that a test may take, "" when
// nothing is there.
func next(t *testing.T, w *Watcher, some bool) string {
	t.Helper()
	d := time.Minute
	if !some {
		d = time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c, err := w.Next(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && !some:
		return ""
	case errors.Is(err, ErrLagged):
		return "lagged"
	case err != nil:
		t.Fatal(err)
	case c.Deleted:
		return string(c.Key) + " deleted"
	}
	return fmt.Sprintf("%s=%s", c.Key, c.Value)
}

func (n *node) del(key string) {
	n.t.Helper()
	n.must(n.update(func(tx *Tx) error {
		k, err := tx.Key("0", []byte(key))
		if err != nil {
			return err
		}
		return tx.End(reg(key), state.ScopeKey, k.Seen)
	}))
}

func TestWatch(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	n.set("a/old", "1")
	before := n.Frontier()
	n.set("a/1", "x")
	w, err := n.Watch("0", []byte("a/"), nil)
	n.must(err)
	back, err := n.Watch("0", []byte("a/"), before)
	n.must(err)
	other, err := n.Watch("one", nil, nil)
	n.must(err)
	if got := next(t, back, true); got != "a/1=x" {
		t.Fatalf("from the frontier: %q", got)
	}
	n.set("b/1", "not ours")
	n.set("a/2", "y")
	for _, w := range []*Watcher{w, back} {
		if got := next(t, w, true); got != "a/2=y" {
			t.Fatalf("%q", got)
		}
	}
	at := w.Frontier()
	n.set("a/1", "z")
	n.del("a/1") // before anybody read of the first change
	if err := n.update(func(tx *Tx) error {
		if err := set(tx, "a/1", "undone"); err != nil {
			return err
		}
		return errAbort
	}); !errors.Is(err, errAbort) {
		t.Fatal(err)
	}
	for _, w := range []*Watcher{w, back} {
		if got := next(t, w, true); got != "a/1 deleted" {
			t.Fatalf("%q", got)
		}
		if got := next(t, w, false); got != "" {
			t.Fatalf("again: %q", got)
		}
	}
	again, err := n.Watch("0", []byte("a/"), at)
	n.must(err)
	for got := next(t, again, true); got != ""; got = next(t, again, false) {
		if got != "a/1 deleted" {
			t.Fatalf("a key that is gone is shown as %q", got)
		}
	}
	if got := next(t, other, false); got != "" {
		t.Fatalf("another map: %q", got)
	}
	w.Close()
	if _, err := w.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
	n.close()
}

// TestWatchLags: a watcher that does not read is told so, and misses nothing when
// it goes on from its frontier.
func TestWatchLags(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	w, err := n.Watch("0", nil, nil)
	n.must(err)
	keys := 2*watchMax + 100
	for at := 0; at < keys; {
		n.must(n.update(func(tx *Tx) error {
			for range min(500, keys-at) {
				if err := set(tx, fmt.Sprint(at), "1"); err != nil {
					return err
				}
				at++
			}
			return nil
		}))
	}
	seen := map[string]bool{}
	lags := 0
	for len(seen) < keys {
		got := next(t, w, true)
		if got == "lagged" {
			lags++
			from := w.Frontier()
			w.Close()
			w, err = n.Watch("0", nil, from)
			n.must(err)
			continue
		}
		seen[got] = true
	}
	if lags == 0 {
		t.Fatal("it never lagged")
	}
	n.close()
}

// TestWatchMisses: whatever is written, received, dropped and made again while
// somebody watches, what it was told last of every key is what the key is.
func TestWatchMisses(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	clock := tick.NewManual(testEpoch)
	a := start(t, options(disk.NewMem(), 0, 2, clock))
	a.admit(1)
	b := start(t, options(disk.NewMem(), 1, 3, clock))
	b.receive(rng, a.entries())
	w, err := a.Watch("0", nil, a.Frontier())
	a.must(err)
	told := map[string]string{}
	for i := range 60 {
		n := []*node{a, b}[rng.IntN(2)]
		key := fmt.Sprint(rng.IntN(5))
		if rng.IntN(3) == 0 {
			n.del(key)
		} else {
			n.set(key, fmt.Sprint(i))
		}
		if rng.IntN(3) == 0 {
			a.receive(rng, b.entries())
			b.receive(rng, a.entries())
		}
		if rng.IntN(10) == 0 {
			from := w.Frontier()
			w.Close()
			w, err = a.Watch("0", nil, from)
			a.must(err)
		}
		for range rng.IntN(3) {
			note(t, w, told, false)
		}
	}
	a.receive(rng, b.entries())
	right := func() bool {
		for i := range 5 {
			if key := fmt.Sprint(i); told[key] != a.get(key) {
				return false
			}
		}
		return true
	}
	for !right() { // what is missing makes this fail by the minute that next waits
		note(t, w, told, true)
	}
	a.close()
	b.close()
}

func note(t *testing.T, w *Watcher, told map[string]string, some bool) bool {
	t.Helper()
	got := next(t, w, some)
	if got == "" {
		return false
	}
	var key, value string
	if n, _ := fmt.Sscanf(got, "%s deleted", &key); n == 1 && got == key+" deleted" {
		told[key] = ""
		return true
	}
	for i := range got {
		if got[i] == '=' {
			key, value = got[:i], got[i+1:]
		}
	}
	told[key] = value
	return true
}
