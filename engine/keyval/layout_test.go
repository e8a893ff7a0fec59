package keyval

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of a layout that has none")

// goldenState writes one of everything that a fold database holds, by two
// incarnations, and returns the file system and the clock.
func goldenState(t *testing.T) (*disk.Mem, *tick.Manual) {
	fs, clock := disk.NewMem(), tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.set("plain", "value")
	n.set("large", strings.Repeat("large", inlineMax/5))
	n.set("gone", "value")
	row := func(k state.Kind, key, sub string, p state.Payload) {
		n.must(n.update(func(tx *Tx) error {
			a := state.Address{Map: "0", Key: []byte(key), Kind: k, Sub: []byte(sub)}
			r, err := tx.Row(a)
			if err != nil {
				return err
			}
			_, err = tx.Put(a, p, r.Dots(), state.Dot{})
			return err
		}))
	}
	score, err := state.ScoreOf(-2.5)
	n.must(err)
	for range 2 {
		row(state.Field, "hash", "field", state.Payload{Bytes: []byte("v")})
		row(state.Member, "set", "member", state.Payload{})
		row(state.Scored, "sorted", "member", score.Payload())
		row(state.Element, "list", string(state.Between(nil, nil, state.Tag{1, 2, 3})), state.Payload{Bytes: []byte("e")})
		row(state.Register, "counter", "", state.Payload{Sum: &state.Subtotal{Count: 7}})
		n.must(n.update(func(tx *Tx) error {
			k, err := tx.Key("0", []byte("large"))
			if err != nil {
				return err
			}
			return tx.Expire("0", []byte("large"), state.Expiring{At: 1 << 50, Cover: k.Seen}, k.Expiry.Dots())
		}))
		n.close()
		n = start(t, options(fs, 0, n.o.Incarnation+1, clock))
	}
	n.must(n.update(func(tx *Tx) error { // beside what is there
		_, err := tx.Put(reg("plain"), state.Payload{Bytes: []byte("other")}, nil, state.Dot{})
		return err
	}))
	n.must(n.update(func(tx *Tx) error {
		k, err := tx.Key("0", []byte("gone"))
		if err != nil {
			return err
		}
		return tx.End(reg("gone"), state.ScopeKey, k.Seen)
	}))
	n.must(n.update(func(tx *Tx) error {
		base := state.Dot{Writer: tx.Writer(), Seq: 1}
		a := state.Address{Map: "a second map", Key: []byte("key"), Kind: state.Register}
		_, err := tx.Put(a, state.Payload{Sum: &state.Subtotal{Base: base, From: -1, Count: 1 << 40}}, nil, state.Dot{})
		return err
	}))
	row(state.Field, "hash", "of another start", state.Payload{Bytes: []byte("v")}) // version 2: cites that are counted
	n.close()
	return fs, clock
}

// dump returns a fold database, a line a key.
func dump(t *testing.T, fs disk.FS) string {
	db, err := kv.Open(fs, "/store/state", kv.Options{NoJournal: true, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = db.Iterate(nil, func(k, v []byte) error {
		_, err := fmt.Fprintf(&b, "%x %x\n", k, v)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGoldenLayout holds the fold database to the bytes of its version. If it
// fails, what was written before would be misread: a change of the layout is a
// new version, with a file of its own.
func TestGoldenLayout(t *testing.T) {
	file := filepath.Join("testdata", fmt.Sprintf("fold-v%d.txt", layoutVersion))
	fs, clock := goldenState(t)
	got := dump(t, fs)
	want, err := os.ReadFile(file)
	if os.IsNotExist(err) && *rewrite {
		want = []byte(got)
		err = os.WriteFile(file, want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the fold database is\n%s\nwant\n%s", got, want)
	}

	// A fold database with the bytes of the file is taken as it is: a value that
	// only it has is read.
	replaceState(t, fs, string(want), func(v []byte) []byte { return bytes.Replace(v, []byte("large"), []byte("LARGE"), 1) })
	n := start(t, options(fs, 0, 9, clock))
	defer n.close()
	if v := n.get("large"); !strings.HasPrefix(v, "LARGElargelarge") {
		t.Errorf("the fold database was not used: %.40q", v)
	}
	if v := n.get("plain"); v != "other" {
		t.Errorf("plain is %q", v)
	}
	if v := n.get("counter"); v != "7" {
		t.Errorf("counter is %q", v)
	}
}

// replaceState puts what a golden file says in the place of the fold database; edit
// may change values.
func replaceState(t *testing.T, fs disk.FS, lines string, edit func([]byte) []byte) {
	t.Helper()
	if err := fs.RemoveAll("/store/state"); err != nil {
		t.Fatal(err)
	}
	db, err := kv.Open(fs, "/store/state", kv.Options{NoJournal: true, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	b := db.Batch()
	for line := range strings.Lines(lines) {
		var kv [2][]byte
		for i, f := range strings.Split(strings.TrimSuffix(line, "\n"), " ") {
			if kv[i], err = hex.DecodeString(f); err != nil {
				t.Fatal(err)
			}
		}
		if edit != nil {
			kv[1] = edit(kv[1])
		}
		b.Set(kv[0], kv[1])
	}
	if err := errors.Join(db.Commit(b, false), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// FuzzRecords checks, for any bytes of a key's or row's record: no panic; what
// parses encodes to what parses to the same.
func FuzzRecords(f *testing.F) {
	w := newWriters()
	for i := range byte(3) {
		w.number(state.Writer{Author: keyOf(i).Author(), Incarnation: uint64(i) + 1})
	}
	c := codec{w}
	golden, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("fold-v%d.txt", layoutVersion)))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		_, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		b, err := hex.DecodeString(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := c.parseRow(b); err == nil {
			again, err := c.parseRow(c.appendRow(nil, r))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(r) && !anySum(r) {
				t.Errorf("row %v, again %v, %v", r, again, err)
			}
		}
		k, apart, err := c.parseKey(b)
		if err != nil {
			return
		}
		for kind, n := range k.counts {
			if n < 0 {
				t.Errorf("%d rows of kind %d", n, kind)
			}
		}
		if k.counts[state.Expiry] > 0 && len(k.expiry) == 0 || k.counts[state.Register] > 0 && len(k.register) == 0 && !apart {
			t.Errorf("rows are counted that are not there: %+v", k)
		}
		if apart || k.apart() {
			return // the register would be elsewhere
		}
		again, _, err := c.parseKey(c.appendKey(nil, &k))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(k) && !anySum(k.register) && !anySum(k.expiry) {
			t.Errorf("key %+v, again %+v, %v", k, again, err)
		}
	})
}

// anySum reports whether a row prints pointers.
func anySum(r state.Row) bool {
	for _, h := range r {
		if h.Payload.Sum != nil {
			return true
		}
	}
	return false
}
