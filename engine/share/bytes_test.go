package share

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

// TestGoldenState holds the bytes of version 1.
func TestGoldenState(t *testing.T) {
	s := State{Start: 1000, Term: 7, Runs: []StateRun{
		{2, uint8(available), 3}, {300, uint8(acknowledged), 0}, {1, uint8(absent), 0}, {5, uint8(archived), 0}, {1, uint8(available), 0},
	}}
	const want = "01" + "00000000000003e8" + "00000007" + "020103" + "ac020300" + "010500" + "050400" + "010100"
	if got := hex.EncodeToString(s.AppendTo(nil)); got != want {
		t.Fatalf("have %s\nwant %s", got, want)
	}
	b, _ := hex.DecodeString(want)
	back, err := ParseState(b)
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Fatalf("%+v, %v", back, err)
	}
	if s.End() != 1309 {
		t.Errorf("end %d", s.End())
	}
}

// TestParseStateRefuses holds what is damage, and that a later version is not.
func TestParseStateRefuses(t *testing.T) {
	good := State{Start: 5, Term: -1, Runs: []StateRun{{2, 1, 1}}}.AppendTo(nil)
	later := append([]byte{2}, good[1:]...)
	if _, err := ParseState(later); lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("version 2: %v", err)
	}
	run := func(bytes ...byte) []byte { return append(append([]byte(nil), good...), bytes...) }
	for name, b := range map[string][]byte{
		"nothing":                  {},
		"version 0":                append([]byte{0}, good[1:]...),
		"cut short":                good[:12],
		"half a run":               run(1, 3),
		"empty run":                run(0, 3, 0),
		"state of memory only":     run(1, 2, 0),
		"unknown state":            run(1, 6, 0),
		"settled, with deliveries": run(1, 3, 1),
		"like the one before":      run(1, 1, 1),
		"length not the shortest":  run(0x81, 0, 3, 0),
		"beyond the last offset":   run(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 3, 0),
		"begins with settled":      append(append([]byte(nil), good[:stateFixed]...), 1, 3, 0),
		"negative start":           append([]byte{1, 0xff}, good[2:]...),
		"term below none":          append(append([]byte(nil), good[:9]...), 0xff, 0xff, 0xff, 0xfe),
	} {
		if s, err := ParseState(b); lattice.KindOf(err) != lattice.Corrupt || err == nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// FuzzParseState: no panic, and what is taken is encoded in one way only, and makes
// a window in order that says the same.
func FuzzParseState(f *testing.F) {
	f.Add(State{Start: 5, Term: -1, Runs: []StateRun{{2, 1, 1}, {300, 3, 0}}}.AppendTo(nil))
	f.Add(State{}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			return
		}
		if again := s.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x becomes %x", b, again)
		}
		w := windowOf(s)
		if err := w.verify(); err != nil {
			t.Fatal(err)
		}
		if back := w.state(s.Term, limits{deliveries: 5}); !bytes.Equal(back.AppendTo(nil), b) {
			t.Fatalf("%+v becomes %+v", s, back)
		}
	})
}
