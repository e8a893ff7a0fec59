package keyval

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestImportRefuses: what is broken, forged, of another store or signed by a stranger
// is refused by name, and changes nothing.
func TestImportRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	a, b, clock := twoNodes(t)
	a.changes(rng, 10)
	b.changes(rng, 10)
	good := a.file(a.snapshot())
	before, root := b.dump(), b.root()
	check := func(what string, data []byte, want error) {
		t.Helper()
		if _, err := b.imports(data); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", what, err, want)
		}
		if b.dump() != before || b.root() != root {
			t.Errorf("%s: the state changed", what)
		}
	}
	check("cut", good[:len(good)-10], snapshot.ErrCut)
	for range 40 {
		bad := bytes.Clone(good)
		at := rng.IntN(len(bad)-3) + 3
		bad[at] ^= 1 << rng.IntN(8)
		if _, err := b.imports(bad); err == nil {
			t.Fatalf("byte %d was changed, and it was taken", at)
		}
	}
	check("nothing", nil, snapshot.ErrCut)
	check("another root", resigned(t, good, 0, func(h *snapshot.Head, _ *state.Row) { h.Root[0]++ }), ErrRoot)
	check("another row", resigned(t, good, 0, func(_ *snapshot.Head, r *state.Row) { (*r)[0].Time++ }), ErrRoot)
	check("a write from the future", resigned(t, good, 0, func(_ *snapshot.Head, r *state.Row) { (*r)[0].Dot.Seq += 1000 }), snapshot.ErrDamaged)
	check("a stranger's", resigned(t, good, 5, func(*snapshot.Head, *state.Row) {}), ErrSigner)
	op, err := sigchain.Genesis{Name: "other"}.Op()
	b.must(err)
	g := must(sigchain.Sign(keyOf(0), sigchain.Entry{Incarnation: 1, Seq: 1, Time: 1, Ops: []sigchain.Op{op}}))
	o := options(disk.NewMem(), 0, 2, clock)
	o.Genesis = g
	other := start(t, o)
	other.set("k", "1")
	if _, err := b.imports(other.file(other.snapshot())); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("of another store: %v", err)
	}
	other.close()
	if _, err := b.imports(good); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	a.close()
	b.close()
}

// resigned writes a snapshot anew with something changed, signed by somebody.
func resigned(t *testing.T, b []byte, by byte, f func(*snapshot.Head, *state.Row)) []byte {
	r, err := snapshot.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	h := r.Head()
	var none state.Row = state.Row{{}}
	f(&h, &none)
	var out bytes.Buffer
	w := snapshot.NewWriter(&out, h)
	first := true
	for {
		it, err := r.Next()
		switch it.Kind {
		case snapshot.KindFrontier:
			err = w.Place(state.Writer{Author: it.Place.Author, Incarnation: it.Place.Incarnation}, it.Place.Seq)
		case snapshot.KindRecords:
			err = w.Record(it.Record)
		case snapshot.KindForks:
			err = w.Fork(it.Fork)
		case snapshot.KindRows:
			if first {
				f(&snapshot.Head{}, &it.Row)
				first = false
			}
			err = w.Row(it.Address, it.Row)
		case snapshot.KindSignature:
			if _, err := w.Close(keyOf(by)); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
