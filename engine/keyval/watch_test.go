package keyval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/sigchain"
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
		if f := w.Frontier(); rng.IntN(2) == 0 && !bytes.Equal(w.Token(), a.Token(f)) {
			t.Fatalf("at %v its token is another than the frontier's", f)
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

// TestWatchFrontier: a watcher that is told of nothing moves on, so that going on
// from there reads little; one that owes something does not.
func TestWatchFrontier(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	n.set("b/0", "1")
	w, err := n.Watch("0", []byte("a/"), nil)
	n.must(err)
	n.set("b/1", "1")
	if got := w.Frontier()[n.own]; got != 2 {
		t.Errorf("after what is not watched: %d", got)
	}
	n.set("a/1", "1")
	n.set("b/2", "1")
	if got := w.Frontier()[n.own]; got != 2 {
		t.Errorf("with something that was not returned: %d", got)
	}
	if got := next(t, w, true); got != "a/1=1" {
		t.Fatal(got)
	}
	if got := w.Frontier()[n.own]; got != 3 {
		t.Errorf("returned: %d", got)
	}
	if _, ok, err := w.Poll(context.Background()); ok || err != nil {
		t.Fatal(ok, err)
	}
	n.set("b/3", "1")
	if got := w.Frontier()[n.own]; got != 5 {
		t.Errorf("after more that is not watched: %d", got)
	}
	n.close()
}

// TestWatchLongNames: names count, not only how many.
func TestWatchLongNames(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	w, err := n.Watch("0", nil, nil)
	n.must(err)
	long := strings.Repeat("x", watchBytes/8)
	for i := range 20 {
		n.set(fmt.Sprint(long, i), "1")
	}
	seen := 0
	for {
		got := next(t, w, true)
		if got == "lagged" {
			break
		}
		seen++
	}
	if seen == 0 || seen > 8 {
		t.Errorf("%d names were kept", seen)
	}
	again, err := n.Watch("0", nil, w.Frontier())
	n.must(err)
	for ; seen < 20; seen++ {
		if got := next(t, again, true); got == "lagged" {
			t.Fatal("lagged while nothing is written")
		}
	}
	n.close()
}

// TestWatchEnds: with the state, after what it owes; and at once when entries that
// had counted do not any more.
func TestWatchEnds(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	w, err := n.Watch("0", nil, nil)
	n.must(err)
	n.set("a", "1")
	upset, err := n.Watch("0", nil, nil)
	n.must(err)
	n.mu.Lock()
	n.upset()
	n.mu.Unlock()
	if _, err := upset.Next(context.Background()); !errors.Is(err, ErrUpset) {
		t.Errorf("upset: %v", err)
	}
	last, err := n.Watch("0", nil, nil)
	n.must(err)
	n.set("b", "2")
	n.stop()
	if got := next(t, w, true); got != "a=1" {
		t.Errorf("%q", got)
	}
	if got := next(t, last, true); got != "b=2" {
		t.Errorf("%q", got)
	}
	if _, err := last.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("stopped: %v", err)
	}
	if _, err := n.Watch("0", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("watch of what has stopped: %v", err)
	}
	n.close()
}

// TestWatchKept: a write that was reported as failed and turns out to be there is
// told of.
func TestWatchKept(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.set("a", "1")
	w, err := n.Watch("0", nil, nil)
	n.must(err)
	var fail atomic.Bool
	fail.Store(true)
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpSync && fail.Load() {
			return &disk.Fault{Kept: true}
		}
		return nil
	})
	if err := n.update(func(tx *Tx) error { return set(tx, "a", "2") }); err == nil {
		t.Fatal("the sync did not fail")
	}
	fail.Store(false)
	told := map[string]string{}
	for end := time.Now().Add(time.Minute); told["a"] != "2"; {
		if time.Now().After(end) {
			t.Fatal("it is not told")
		}
		clock.Advance(retryEvery)
		if got := next(t, w, false); got == "lagged" {
			from := w.Frontier()
			w.Close()
			w, err = n.Watch("0", nil, from)
			n.must(err)
		} else if got != "" {
			told["a"] = got[2:]
		}
	}
	n.close()
}

// TestWatchPruned: a watch that needs what was pruned is refused, and never begins in
// the middle.
func TestWatchPruned(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	before := n.Frontier()
	for i := range 10 {
		n.set(fmt.Sprint(i), "1")
	}
	late := n.Frontier()
	n.set("last", "1")
	n.must(n.logs.get(n.own).Prune(5))
	if _, err := n.Watch("0", nil, before); !errors.Is(err, ErrPruned) {
		t.Errorf("%v", err)
	}
	w, err := n.Watch("0", nil, late)
	n.must(err)
	if got := next(t, w, true); got != "last=1" {
		t.Errorf("%q", got)
	}
	n.admit(1)
	n.one(foreign(t, 1, sigchain.Signed{}, uint64(testEpoch.UnixMilli())<<16+1000, n.tipsOf(0), putOp(t, 1, "a", "1")))
	theirs := state.Writer{Author: keyOf(1).Author(), Incarnation: 77}
	gone := n.Frontier()
	delete(gone, theirs)
	n.logs.mu.Lock()
	delete(n.logs.list, theirs) // as if all of it were pruned
	n.logs.mu.Unlock()
	if _, err := n.Watch("0", nil, gone); !errors.Is(err, ErrPruned) {
		t.Errorf("a log that is not there: %v", err)
	}
	n.close()
}

// TestWatchMalformed: an entry whose operations are no operations changes nothing that is
// told, live or out of the log, and does not end the stream.
func TestWatchMalformed(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	n.admit(1)
	before := n.Frontier()
	live, err := n.Watch("0", nil, nil)
	n.must(err)
	now := uint64(testEpoch.UnixMilli())<<16 + 1000
	good := putOp(t, 1, "a", "good")
	bad := putOp(t, 1, "b", "bad")
	bad.Body = bad.Body[:len(bad.Body)-1]
	first := foreign(t, 1, sigchain.Signed{}, now, n.tipsOf(0), good, bad)
	n.one(first)
	n.one(foreign(t, 1, first, now+1, nil, putOp(t, 1, "c", "next")))
	back, err := n.Watch("0", nil, before)
	n.must(err)
	for what, w := range map[string]*Watcher{"live": live, "from the log": back} {
		if got := next(t, w, true); got != "c=next" {
			t.Errorf("%s: %q", what, got)
		}
		if got := next(t, w, false); got != "" {
			t.Errorf("%s: then %q", what, got)
		}
	}
	n.close()
}
