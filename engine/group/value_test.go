package group

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"pgregory.net/rapid"
)

// TestGoldenBytes holds the bytes of offsets that nodes have on disk. If a case
// changes, the change is wrong, not the test.
func TestGoldenBytes(t *testing.T) {
	values := []struct {
		name  string
		value Value
		parts []string
	}{
		{"an explicit zero", Value{Offset: 0, LeaderEpoch: -1, Term: -1, Time: time.UnixMilli(0)}, []string{
			"01",                               // version
			"0000000000000000",                 // reset
			"0000000000000000",                 // target
			"00000000000000000000000000000000", // reset id
			"0000000000000000",                 // offset
			"ffffffff",                         // leader epoch
			"ffffffff",                         // term
			"0000000000000000",                 // time
		}},
		{"everything", Value{
			Reset: 2, Target: 5, ResetID: [16]byte{0xaa, 15: 0xbb}, Offset: 258, LeaderEpoch: 3, Term: 4,
			Time: time.UnixMilli(1_700_000_000_123), Metadata: "né",
		}, []string{
			"01",                               // version
			"0000000000000002",                 // reset
			"0000000000000005",                 // target
			"aa0000000000000000000000000000bb", // reset id
			"0000000000000102",                 // offset
			"00000003",                         // leader epoch
			"00000004",                         // term
			"0000018bcfe5687b",                 // time
			"6ec3a9",                           // metadata
		}},
	}
	for _, c := range values {
		want := strings.Join(c.parts, "")
		if got := hex.EncodeToString(c.value.AppendTo(nil)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
		b, _ := hex.DecodeString(want)
		got, err := ParseValue(b)
		if err != nil || got.compare(c.value) != 0 {
			t.Errorf("%s: parsed %+v, %v", c.name, got, err)
		}
	}
	key := Key{"orders", lattice.TopicPartition{Topic: lattice.TopicID{1, 15: 2}, Partition: 7}}
	want := "0006" + hex.EncodeToString([]byte("orders")) + "01000000000000000000000000000002" + "00000007"
	if got := hex.EncodeToString(key.AppendTo(nil)); got != want {
		t.Errorf("key:\n got %s\nwant %s", got, want)
	}
}

// FuzzParseValue checks, for any input: no panic; what parses encodes back to
// the exact bytes it came from.
func FuzzParseValue(f *testing.F) {
	f.Add(Value{LeaderEpoch: -1, Term: -1}.AppendTo(nil))
	f.Add(Value{Reset: 1, Target: 9, Offset: 9, Metadata: "m"}.AppendTo(nil))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseValue(b)
		if err != nil {
			if k := lattice.KindOf(err); k != lattice.Corrupt && k != lattice.Unsupported {
				t.Fatalf("kind %s: %v", k, err)
			}
			return
		}
		if got := v.AppendTo(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x encodes as %x", b, got)
		}
	})
}

// FuzzParseKey checks the same of keys.
func FuzzParseKey(f *testing.F) {
	f.Add(Key{"g", lattice.TopicPartition{Partition: 1}}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKey(b)
		if err != nil {
			return
		}
		if got := k.AppendTo(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x encodes as %x", b, got)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	good := Value{Reset: 1, Target: 1, LeaderEpoch: -1, Term: -1}.AppendTo(nil)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "too short": good[:valueFixed-1], "version 0": change(0, 0), "version 2": change(0, 2),
		"a target without a reset": change(8, 0), "leader epoch -2": change(44, 0xfe), "term -2": change(48, 0xfe),
		"too much metadata":       append(bytes.Clone(good), make([]byte, maxMetadata+1)...),
		"a reset beyond counting": change(1, 0x80),
	} {
		if _, err := ParseValue(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func drawValue(t *rapid.T, name string) Value {
	v := Value{
		Offset: rapid.Int64Range(-2, 4).Draw(t, name+" offset"), LeaderEpoch: rapid.Int32Range(-1, 1).Draw(t, name+" epoch"),
		Term: rapid.Int32Range(-1, 1).Draw(t, name+" term"), Time: time.UnixMilli(rapid.Int64Range(0, 2).Draw(t, name+" time")).UTC(),
		Metadata: rapid.SampledFrom([]string{"", "a"}).Draw(t, name+" metadata"),
	}
	if v.Reset = rapid.Uint64Range(0, 2).Draw(t, name+" reset"); v.Reset > 0 {
		v.Target = rapid.Int64Range(0, 2).Draw(t, name+" target")
		v.ResetID[0] = byte(rapid.IntRange(0, 1).Draw(t, name+" reset id"))
	}
	return v
}

// TestJoinLaws: replicas that saw the same values agree, in whatever order they
// saw them, and the rule of the design decides which value that is.
func TestJoinLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawValue(t, "a"), drawValue(t, "b"), drawValue(t, "c")
		if Join(a, a) != a {
			t.Fatal("not idempotent")
		}
		if Join(a, b) != Join(b, a) {
			t.Fatal("not commutative")
		}
		if Join(Join(a, b), c) != Join(a, Join(b, c)) {
			t.Fatal("not associative")
		}
		j := Join(a, b)
		switch {
		case a.Reset > b.Reset && j != a:
			t.Fatal("the greater reset number lost")
		case a.Reset == b.Reset && a.Target < b.Target && j != a:
			t.Fatal("of concurrent resets the greater target won")
		case a.Reset == b.Reset && a.Target == b.Target && a.Offset > b.Offset && j != a:
			t.Fatal("the greater offset lost")
		}
	})
}

// TestCommitsOnlyGrow: a commit is what is read afterwards, also by a replica
// that joins it with anything that was there before, and only a commit that
// moves backwards counts as a reset.
func TestCommitsOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, "first")
		before := v
		for i := range rapid.IntRange(1, 6).Draw(t, "commits") {
			c := drawValue(t, "commit")
			c.Reset, c.Target, c.ResetID = 0, 0, [16]byte{}
			next := c.after(v, [16]byte{byte(i)})
			if next.Offset != c.Offset || next.Metadata != c.Metadata || next.LeaderEpoch != c.LeaderEpoch {
				t.Fatalf("commit %+v is stored as %+v", c, next)
			}
			if (next.Reset > v.Reset) != (c.Offset < v.Offset) {
				t.Fatalf("from %d to %d: reset %d to %d", v.Offset, c.Offset, v.Reset, next.Reset)
			}
			if Join(v, next) != next || Join(before, next) != next {
				t.Fatalf("%+v does not come after %+v", next, v)
			}
			v = next
		}
	})
}
