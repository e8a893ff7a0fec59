package keyval

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

func (n *node) proves(key, what string) proof.KeyResult {
	n.t.Helper()
	b, err := n.ProveFile(context.Background(), "0", []byte(key))
	n.must(err)
	r, err := proof.VerifyKey(b)
	n.must(err)
	if !strings.HasPrefix(r.What, what) {
		n.t.Errorf("key %q: %s, want %s", key, r.What, what)
	}
	if r.Store != n.store || r.Author != keyOf(0).Author() {
		n.t.Errorf("key %q: signed by %s for %s", key, r.Author, r.Store)
	}
	return r
}

// TestProveFile: values, every type, versions apart, expiry and absence, while the
// node runs and from a state that nobody runs.
func TestProveFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	a := start(t, options(fs, 0, 2, clock))
	a.admit(1)
	b := start(t, options(disk.NewMem(), 1, 3, clock))
	b.receive(rng, a.entries())
	a.proves("apart", "there is no key")
	a.set("apart", "a's")
	b.set("apart", "b's")
	a.receive(rng, b.entries())
	a.must(a.update(func(tx *Tx) error {
		m := structs.In(tx, "0")
		_, err1 := m.HSet([]byte("hash"), []byte("f"), []byte("v"))
		_, err2 := m.SAdd([]byte("set"), []byte("x"), []byte("y"))
		err3 := m.Set([]byte("short"), []byte("v"), false)
		_, err4 := m.ExpireAt([]byte("short"), testEpoch.UnixMilli()+1000)
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil {
				return err
			}
		}
		return nil
	}))
	check := func(n *node) {
		t.Helper()
		r := n.proves("apart", `key "apart" of map "0" holds `)
		if !r.Conflicted || len(r.Rows) != 1 || len(r.Rows[0].Row) != 2 {
			t.Errorf("versions apart: %+v", r)
		}
		n.proves("hash", `key "hash" of map "0" is a hash of 1 fields`)
		n.proves("set", `key "set" of map "0" is a set of 2 members`)
		n.proves("nothing", `there is no key "nothing"`)
	}
	check(a)
	if r := a.proves("short", `key "short" of map "0" holds "v"`); r.Expires.IsZero() {
		t.Errorf("no expiry: %+v", r)
	}
	root := a.root()
	a.close()

	db, err := Open(options(fs, 0, 5, clock)) // and nobody runs it
	a.must(err)
	stopped := &node{DB: db, t: t}
	if stopped.root() != root {
		t.Error("another root")
	}
	check(stopped)
	a.must(db.Close())

	clock.Advance(2 * time.Second)
	again := start(t, options(fs, 0, 6, clock))
	again.proves("short", `there is no key "short" of map "0": it expired at`)
	again.close()
	b.close()
}

// TestProveTooLarge: a key whose rows are more than a proof holds is refused by name.
func TestProveTooLarge(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	for i := range 6 {
		n.must(n.update(func(tx *Tx) error {
			_, err := structs.In(tx, "0").HSet([]byte("huge"), []byte{byte(i)}, make([]byte, 12<<20))
			return err
		}))
	}
	if _, err := n.ProveFile(context.Background(), "0", []byte("huge")); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("%v", err)
	}
	n.close()
}
