package state_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
)

// goldenFrontier pins the encoding and the hash of a frontier: statements of roots
// and clients' resume tokens hold them.
const (
	goldenFrontier = "02" +
		"a1000000000000000000000000000000000000000000000000000000000000af" + "02" +
		"0102030405060708" + "ac02" + "0102030405060709" + "01" +
		"b1000000000000000000000000000000000000000000000000000000000000bf" + "01" + "0000000000000009" + "05"
	goldenFrontierHash = "b146cdca7fbb13e660f7084fb22cd9e92f73216390474f3e819b7b346ac6835f"
)

func someFrontier() state.Frontier {
	later := ann
	later.Incarnation++
	return state.Frontier{ann: 300, later: 1, bob: 5, {Author: lattice.AuthorID{0xc1}, Incarnation: 1}: 0}
}

func TestGoldenFrontier(t *testing.T) {
	f := someFrontier()
	if got := hex.EncodeToString(f.AppendTo(nil)); got != goldenFrontier {
		t.Errorf("encoded as %s, frozen as %s", got, goldenFrontier)
	}
	if got := f.Hash().String(); got != goldenFrontierHash {
		t.Errorf("hash %s, frozen %s", got, goldenFrontierHash)
	}
	if f.Entries() != 306 || len(f.Writers()) != 3 {
		t.Errorf("%d entries of %v", f.Entries(), f.Writers())
	}
	if got := (state.Frontier{}).AppendTo(nil); !bytes.Equal(got, []byte{0}) {
		t.Errorf("an empty one: %x", got)
	}
}

// FuzzParseFrontier checks, for any input: no panic; what parses encodes back to
// the exact bytes it came from.
func FuzzParseFrontier(f *testing.F) {
	f.Add(someFrontier().AppendTo(nil))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := state.ParseFrontier(b)
		if err != nil {
			if !errors.Is(err, state.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if got := x.AppendTo(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x comes back as %x", b, got)
		}
		if y, err := state.ParseFrontier(b); err != nil || !maps.Equal(x, y) || x.Hash() != y.Hash() {
			t.Fatalf("%v, then %v, %v", x, y, err)
		}
	})
}

// TestFrontierOtherForms: one meaning has one encoding.
func TestFrontierOtherForms(t *testing.T) {
	good := someFrontier().AppendTo(nil)
	if _, err := state.ParseFrontier(good); err != nil {
		t.Fatal(err)
	}
	b := func(s string) []byte { x, _ := hex.DecodeString(s); return x }
	author := "a1000000000000000000000000000000000000000000000000000000000000af"
	for name, bad := range map[string][]byte{
		"nothing":           {},
		"cut off":           good[:len(good)-1],
		"more":              append(bytes.Clone(good), 0),
		"a padded number":   b("8000"),
		"too many":          b("ffffffffffffffff7f"),
		"no incarnation":    b("01" + author + "00"),
		"nothing folded":    b("01" + author + "01" + "0000000000000001" + "00"),
		"out of order":      b("01" + author + "02" + "0000000000000002" + "01" + "0000000000000001" + "01"),
		"twice":             b("02" + author + "01" + "0000000000000001" + "01" + author + "01" + "0000000000000002" + "01"),
		"an incarnation 2x": b("01" + author + "02" + "0000000000000002" + "01" + "0000000000000002" + "01"),
	} {
		if f, err := state.ParseFrontier(bad); !errors.Is(err, state.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}
