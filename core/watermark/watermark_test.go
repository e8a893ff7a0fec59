package watermark

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

func writer(author byte, incarnation uint64) state.Writer {
	return state.Writer{Author: lattice.AuthorID{author}, Incarnation: incarnation}
}

func place(author byte, incarnation, seq uint64) sigchain.Place {
	return sigchain.Place{Author: lattice.AuthorID{author}, Incarnation: incarnation, Seq: seq}
}

// TestGolden pins the bytes of a report.
func TestGolden(t *testing.T) {
	op, err := Op(state.Frontier{writer(0xa1, 7): 300, writer(0xa1, 0x0102030405060708): 1, writer(0xb2, 9): 2, writer(0xc3, 1): 0})
	want := "01" + "02" +
		"a1" + zeros(31) + "02" + "0000000000000007" + "ac02" + "0102030405060708" + "01" +
		"b2" + zeros(31) + "01" + "0000000000000009" + "02"
	if got := hex.EncodeToString(op.Body); err != nil || op.Kind != 20 || got != want {
		t.Fatalf("kind %d, %v\n%s\nwant\n%s", op.Kind, err, got, want)
	}
	f, err := Parse(op)
	if err != nil || !maps.Equal(f, state.Frontier{writer(0xa1, 7): 300, writer(0xa1, 0x0102030405060708): 1, writer(0xb2, 9): 2}) {
		t.Fatalf("%v, %v", f, err)
	}
}

func zeros(n int) string { return hex.EncodeToString(make([]byte, n)) }

// TestMalformed: nothing else is a report.
func TestMalformed(t *testing.T) {
	op, err := Op(state.Frontier{writer(1, 1): 1})
	if err != nil {
		t.Fatal(err)
	}
	many := state.Frontier{}
	for i := range uint64(MaxWriters + 1) {
		many[writer(1, i+1)] = 1
	}
	if _, err := Op(many); !errors.Is(err, ErrOp) {
		t.Errorf("too many writers: %v", err)
	}
	if _, err := Op(state.Frontier{}); !errors.Is(err, ErrOp) {
		t.Errorf("no writers: %v", err)
	}
	for name, body := range map[string][]byte{
		"empty": {}, "cut": op.Body[:len(op.Body)-1], "longer": append(bytes.Clone(op.Body), 0), "nobody": {1, 0}, "too many": many.AppendTo([]byte{1}),
	} {
		if _, err := Parse(sigchain.Op{Kind: KindReport, Body: body}); !errors.Is(err, ErrOp) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse(sigchain.Op{Kind: KindReport, Body: append([]byte{2}, op.Body[1:]...)}); !errors.Is(err, sigchain.ErrVersion) {
		t.Errorf("another version: %v", err)
	}
	if _, err := Parse(sigchain.Op{Kind: 5, Body: op.Body}); !errors.Is(err, ErrOp) {
		t.Errorf("another kind: %v", err)
	}
}

// FuzzParse: no panic, and what was read is written as it was, or shorter: a number has
// one shortest form.
func FuzzParse(f *testing.F) {
	op, _ := Op(state.Frontier{writer(1, 1): 1, writer(2, 3): 1 << 40})
	f.Add(op.Body)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Parse(sigchain.Op{Kind: KindReport, Body: body})
		if err != nil {
			return
		}
		again, err := Op(got)
		if err != nil || len(again.Body) > len(body) {
			t.Fatalf("%x is written as %x, %v", body, again.Body, err)
		}
		if back, err := Parse(again); err != nil || !maps.Equal(back, got) {
			t.Fatalf("%v, then %v, %v", got, back, err)
		}
	})
}

// TestSaid: the last incarnation's word counts, in whatever order they come, and within
// one what was said before holds on.
func TestSaid(t *testing.T) {
	w := writer(9, 1)
	type said struct {
		at sigchain.Place
		f  state.Frontier
	}
	one := []said{{place(1, 5, 3), state.Frontier{w: 10, writer(8, 1): 4}}, {place(1, 5, 7), state.Frontier{w: 12}}}
	two := []said{{place(1, 6, 1), state.Frontier{w: 2}}, {place(1, 6, 2), state.Frontier{w: 3}}} // it lost its disk
	want := Said{place(1, 6, 2), state.Frontier{w: 3, writer(1, 6): 2}}
	for i, order := range [][]said{{one[0], one[1], two[0], two[1]}, {two[0], one[0], two[1], one[1]}, {two[0], two[1], one[0], one[1]}} {
		var s Said
		for _, x := range order {
			s = s.After(x.at, x.f)
		}
		if s.At != want.At || !maps.Equal(s.Frontier, want.Frontier) {
			t.Errorf("order %d: %+v", i, s)
		}
	}
	s := Said{}.After(one[0].at, one[0].f).After(one[1].at, one[1].f)
	if !maps.Equal(s.Frontier, state.Frontier{w: 12, writer(8, 1): 4, writer(1, 5): 7}) {
		t.Errorf("%+v", s)
	}
	now := state.Frontier{w: 12, writer(8, 1): 5, writer(1, 5): 7}
	if got := s.Since(writer(1, 5), now); !maps.Equal(got, state.Frontier{writer(8, 1): 5}) {
		t.Errorf("what has come on: %v", got)
	}
	if got := s.Since(writer(1, 6), now); !maps.Equal(got, now) {
		t.Errorf("the first of another start: %v", got)
	}
	if got := s.Since(writer(1, 5), s.Frontier); got != nil {
		t.Errorf("nothing has come on: %v", got)
	}
}

// TestJoinLaws: the join of what replicas know of one author does not depend on order or grouping.
func TestJoinLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	some := func() Said {
		f := state.Frontier{}
		for i := range byte(3) {
			if n := rng.Uint64N(3); n > 0 {
				f[writer(i, 1)] = n
			}
		}
		return Said{place(1, 1+rng.Uint64N(2), 1+rng.Uint64N(2)), f}
	}
	same := func(a, b Said) bool { return a.At == b.At && maps.Equal(a.Frontier, b.Frontier) }
	for range 2000 {
		a, b, c := some(), some(), some()
		if !same(a.Join(b), b.Join(a)) || !same(a.Join(a), a) || !same(a.Join(b).Join(c), a.Join(b.Join(c))) {
			t.Fatalf("%+v\n%+v\n%+v", a, b, c)
		}
	}
}

// TestLeast: whoever has said nothing of a writer has nothing of it.
func TestLeast(t *testing.T) {
	a, b := state.Frontier{writer(1, 1): 5, writer(2, 1): 3}, state.Frontier{writer(1, 1): 4, writer(3, 1): 1}
	if got := Least(a, b); !maps.Equal(got, state.Frontier{writer(1, 1): 4}) {
		t.Error(got)
	}
	if got := Least(a); !maps.Equal(got, a) {
		t.Error(got)
	}
	if len(Least()) != 0 || len(Least(a, nil)) != 0 {
		t.Error("nothing is not nothing")
	}
}
