package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
)

func readAll(t interface{ Fatal(...any) }, l *lines) (keys, values []string) {
	for {
		rec, err := l.next()
		if err == io.EOF {
			return keys, values
		}
		if err != nil {
			t.Fatal(err)
		}
		keys, values = append(keys, shown(rec.Key)), append(values, shown(rec.Value))
	}
}

func shown(b []byte) string {
	if b == nil {
		return "nil"
	}
	return "=" + string(b)
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, in string
		l        lines
		keys     []string
		values   []string
	}{
		{"last line without newline", "a\nb", lines{}, []string{"nil", "nil"}, []string{"=a", "=b"}},
		{"empty lines are records", "\n\n", lines{}, []string{"nil", "nil"}, []string{"=", "="}},
		{"nothing", "", lines{}, nil, nil},
		{"separator", "k::v:w\nx\n::y\n", lines{separator: []byte("::")}, []string{"=k", "nil", "="}, []string{"=v:w", "=x", "=y"}},
		{"tombstone", "k:\n:v\n", lines{separator: []byte(":"), nullEmpty: true}, []string{"=k", "nil"}, []string{"nil", "=v"}},
		{"long line", strings.Repeat("x", 1<<20) + "\ny\n", lines{}, []string{"nil", "nil"}, []string{"=" + strings.Repeat("x", 1<<20), "=y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.l.r = newInput(t.Context(), strings.NewReader(c.in))
			keys, values := readAll(t, &c.l)
			if !slices.Equal(keys, c.keys) || !slices.Equal(values, c.values) {
				t.Errorf("have %.80q %.80q", keys, values)
			}
		})
	}
}

// TestLengthDelimited checks that any records written with their lengths are
// read back, in whatever pieces they arrive, and that a cut anywhere but
// between two records is an error.
func TestLengthDelimited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 0, 8).Draw(t, "records")
		var b []byte
		ends := map[int]int{0: 0}
		for i, v := range want {
			b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
			ends[len(b)] = i + 1
		}
		cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		l := lines{lengths: true, r: newInput(ctx, iotestOneByte{bytes.NewReader(b[:cut])})}
		n := 0
		for {
			rec, err := l.next()
			if err == io.EOF {
				if whole, ok := ends[cut]; !ok || whole != n {
					t.Fatalf("%d records read from %d of %d bytes without error", n, cut, len(b))
				}
				return
			}
			if err != nil {
				if _, ok := ends[cut]; ok || lattice.KindOf(err) != lattice.Invalid {
					t.Fatalf("cut between records at %d: %v", cut, err)
				}
				return
			}
			if !bytes.Equal(rec.Value, want[n]) {
				t.Fatalf("record %d is %q, want %q", n, rec.Value, want[n])
			}
			n++
		}
	})
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }

// TestInputInterrupted checks that the end of the context ends a read that
// nothing else would end.
func TestInputInterrupted(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	l := lines{r: newInput(ctx, r)}
	if _, err := l.next(); err == nil || err.Error() != "interrupted" {
		t.Errorf("have %v", err)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{"": "", ":": ":", `\t`: "\t", `a\0b`: "a\x00b", `\\n`: `\n`} {
		if got, err := unescape(in); err != nil || string(got) != want {
			t.Errorf("unescape(%q) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`\`, `\x`} {
		if got, err := unescape(in); err == nil {
			t.Errorf("unescape(%q) = %q", in, got)
		}
	}
}
