package api_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/storage/disk"
)

// watcher pulls from a watch.
type watcher struct {
	t    *testing.T
	next func() (client.KeyChange, error, bool)
	stop func()
	last []byte // resume
}

func watch(t *testing.T, keys client.Keys, prefix string, o client.WatchOptions) *watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	next, stop := iter.Pull2(keys.Watch(ctx, []byte(prefix), o))
	w := &watcher{t: t, next: next, stop: func() { stop(); cancel() }}
	t.Cleanup(w.stop)
	return w
}

func (w *watcher) event() client.KeyChange {
	w.t.Helper()
	c, err, ok := w.next()
	if err != nil || !ok {
		w.t.Fatalf("the watch ended: %v", err)
	}
	if len(c.Resume) > 0 {
		w.last = c.Resume
	}
	return c
}

// caughtUp reads up to the event that says so, and returns what came before.
func (w *watcher) caughtUp() (before []string) {
	w.t.Helper()
	for {
		c := w.event()
		if c.CaughtUp {
			return before
		}
		before = append(before, shown(c))
	}
}

func shown(c client.KeyChange) string {
	switch {
	case c.Lagged:
		return "lagged"
	case c.Deleted:
		return string(c.Key) + " deleted"
	case c.Type != client.StringKey:
		return string(c.Key) + " " + string(c.Type)
	}
	return string(c.Key) + "=" + string(c.Value)
}

func (w *watcher) want(want string) client.KeyChange {
	w.t.Helper()
	for {
		c := w.event()
		if c.CaughtUp {
			continue // a newer place to go on from
		}
		if shown(c) != want {
			w.t.Fatalf("%s, want %s", shown(c), want)
		}
		return c
	}
}

func put(t *testing.T, keys client.Keys, key, value string) {
	t.Helper()
	if err := keys.Put(t.Context(), []byte(key), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func TestWatchKeys(t *testing.T) {
	s, c, _ := node(t)
	keys := c.Keys("")
	put(t, keys, "user:old", "before")
	put(t, keys, "user:gone", "x")
	if _, err := keys.Delete(t.Context(), []byte("user:gone")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, keys, "user:", client.WatchOptions{})
	if before := w.caughtUp(); len(before) != 0 {
		t.Errorf("from now: %v", before)
	}
	put(t, keys, "other", "x")
	put(t, keys, "user:1", "ann")
	got := w.want("user:1=ann")
	if got.Origin.Author != s.Info().Node.String() || len(got.Origin.Hash) != 64 || got.Origin.Time.IsZero() || len(got.Resume) == 0 {
		t.Errorf("origin %+v, resume %x", got.Origin, got.Resume)
	}
	b := new(client.KeyBatch).Put([]byte("user:h"), client.Content{Type: client.HashKey, Fields: []client.KeyField{{Field: []byte("f"), Value: []byte("v")}}}, time.Time{})
	if err := keys.Write(t.Context(), b.Delete([]byte("user:1"))); err != nil {
		t.Fatal(err)
	}
	w.want("user:h hash")
	w.want("user:1 deleted")
	put(t, c.Keys("7"), "user:1", "elsewhere")
	put(t, keys, "user:2", "bob")
	w.want("user:2=bob")

	current := watch(t, keys, "user:", client.WatchOptions{Current: true})
	for _, want := range []string{"user:2=bob", "user:h hash", "user:old=before"} {
		if c := current.want(want); c.Resume != nil {
			t.Errorf("%s has a place to go on from before all were told", want)
		}
	}
	if rest := current.caughtUp(); len(rest) != 0 || len(current.last) == 0 {
		t.Errorf("then %v, resume %x", rest, current.last)
	}
	put(t, keys, "user:3", "eve")
	current.want("user:3=eve")
	w.want("user:3=eve")

	for name, o := range map[string]client.WatchOptions{
		"no token":   {From: []byte("nonsense")},
		"both":       {From: w.last, Current: true},
		"cut off":    {From: w.last[:len(w.last)-1]},
		"with more":  {From: append(bytes.Clone(w.last), 0)},
		"of another": {From: append([]byte{1, 9, 9, 9, 9, 9, 9, 9, 9}, w.last[9:]...)},
	} {
		_, err, _ := watch(t, keys, "", o).next()
		wantKind(t, name, err, lattice.Invalid)
	}
}

// TestWatchResume: a watcher goes on where it was, across a restart of the node, and
// is told of all that changed meanwhile, as it is then.
func TestWatchResume(t *testing.T) {
	s, restart := openStoreTwice(t, disk.NewMem(), "stores")
	keys := dial(t, client.Options{URL: serve(t, s, api.Config{})}).Keys("")
	w := watch(t, keys, "", client.WatchOptions{})
	w.caughtUp()
	put(t, keys, "a", "1")
	put(t, keys, "b", "1")
	w.want("a=1")
	at := w.last
	put(t, keys, "a", "2")
	put(t, keys, "c", "1")
	if _, err := keys.Delete(t.Context(), []byte("c")); err != nil {
		t.Fatal(err)
	}
	s = restart()
	for { // the first node has stopped: what it owed, then the end
		_, err, ok := w.next()
		if err != nil {
			wantKind(t, "the node stopped", err, lattice.Unavailable)
			break
		}
		if !ok {
			t.Fatal("the watch ended without a reason")
		}
	}
	keys = dial(t, client.Options{URL: serve(t, s, api.Config{})}).Keys("")
	put(t, keys, "d", "1")
	again := watch(t, keys, "", client.WatchOptions{From: at})
	told := map[string]bool{}
	for _, e := range again.caughtUp() {
		told[e] = true
	}
	for _, want := range []string{"a=2", "b=1", "c deleted", "d=1"} {
		if !told[want] {
			t.Errorf("not told %s: %v", want, told)
		}
	}
	if len(told) != 4 {
		t.Errorf("told %v", told)
	}
	put(t, keys, "e", "1")
	again.want("e=1")
	if len(again.last) > 200 {
		t.Errorf("a place of %d bytes", len(again.last))
	}
}

// TestSlowWatcher: one that does not read costs the node a bounded queue; it is told
// that it fell behind, and then of every key.
func TestSlowWatcher(t *testing.T) {
	_, c, _ := node(t)
	keys := c.Keys("")
	w := watch(t, keys, "", client.WatchOptions{})
	w.caughtUp()
	want := map[string]string{}
	write := func(n int, size int) {
		t.Helper()
		b := new(client.KeyBatch)
		for range n {
			key, value := fmt.Sprintf("k%05d", len(want)), string(bytes.Repeat([]byte{'v'}, size))
			b.Put([]byte(key), client.Content{Type: client.StringKey, Value: []byte(value)}, time.Time{})
			want[key] = key + "=" + value
		}
		if err := keys.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 {
		write(16, 64<<10) // more than what is under way to a reader that does not read
	}
	for range 20 {
		write(1000, 1) // more than a watcher's queue
	}
	lagged := false
	for len(want) > 0 {
		e := w.event()
		lagged = lagged || e.Lagged
		if shown(e) == want[string(e.Key)] {
			delete(want, string(e.Key))
		}
	}
	if !lagged {
		t.Error("it was not told that it fell behind")
	}
	put(t, keys, "last", "1")
	for shown(w.event()) != "last=1" {
	}
}

func TestProveKey(t *testing.T) {
	s, c, _ := node(t)
	keys := c.Keys("3")
	put(t, keys, "k", "value")
	for key, want := range map[string]string{"k": `key "k" of map "3" holds "value"`, "none": `there is no key "none" of map "3"`} {
		b, err := keys.ProveKey(t.Context(), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		r, err := proof.VerifyKey(b)
		if err != nil || r.What != want || r.Store != s.Info().ID {
			t.Errorf("%s: %+v, %v", key, r, err)
		}
	}
	st, err := c.Status(t.Context())
	if err != nil || len(st.Stores) != 1 {
		t.Fatal(st, err)
	}
	b, err := keys.ProveKey(t.Context(), []byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := proof.VerifyKey(b)
	if o := st.Stores[0]; err != nil || o.StateRoot != r.State.Root.String() || o.Entries == 0 || o.Writers == 0 {
		t.Errorf("status %+v, proof of root %s, %v", o, r.State.Root, err)
	}
	put(t, keys, "k", "another")
	if again, err := c.Status(t.Context()); err != nil || again.Stores[0].StateRoot == st.Stores[0].StateRoot || again.Stores[0].FrontierRoot == st.Stores[0].FrontierRoot {
		t.Errorf("the roots stayed: %+v, %v", again, err)
	}
}
