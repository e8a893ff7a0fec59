package state

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/core/sigchain"
	"pgregory.net/rapid"
)

func writer(n byte) Writer {
	w := Writer{Incarnation: uint64(n)}
	w.Author[0] = n
	return w
}

func dot(w byte, seq uint64, index uint32) Dot { return Dot{writer(w), seq, index} }

// TestPositions inserts at random places of a list, as several writers: the
// positions order as the list does, none occurs twice, and none is malformed.
func TestPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list [][]byte
		for range rapid.IntRange(1, 200).Draw(t, "inserts") {
			i := rapid.OneOf(rapid.Just(0), rapid.Just(len(list)), rapid.IntRange(0, len(list))).Draw(t, "at")
			var lo, hi []byte
			if i > 0 {
				lo = list[i-1]
			}
			if i < len(list) {
				hi = list[i]
			}
			p := Between(lo, hi, Tag{rapid.Byte().Draw(t, "writer")})
			if !CheckPosition(p) || bytes.Compare(lo, p) >= 0 || hi != nil && bytes.Compare(p, hi) >= 0 {
				t.Fatalf("between %x and %x: %x", lo, hi, p)
			}
			list = slices.Insert(list, i, p)
		}
	})
}

// TestPositionsStayShort: pushes at either end never make longer positions.
func TestPositionsStayShort(t *testing.T) {
	var lo, hi []byte
	for i := range 10000 {
		hi = Between(hi, nil, Tag{byte(i)})
		if lo == nil {
			lo = hi
		}
		lo = Between(nil, lo, Tag{byte(i)})
	}
	if len(lo) != pairSize || len(hi) != pairSize {
		t.Errorf("%d and %d bytes", len(lo), len(hi))
	}
}

func TestScoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64().Draw(t, "a"), rapid.Float64().Draw(t, "b")
		x, errX := ScoreOf(a)
		y, errY := ScoreOf(b)
		if errX != nil || errY != nil {
			t.Skip("not a number")
		}
		if (a < b) != (x < y) || (a == b) != (x == y) || x.Float() != a {
			t.Fatalf("%v is %x, %v is %x", a, x, b, y)
		}
		if back, err := ParseScore(x.Payload()); err != nil || back != x {
			t.Fatal(back, err)
		}
	})
	if _, err := ScoreOf(math.NaN()); err == nil {
		t.Error("NaN has a score")
	}
}

// TestOpsRoundTrip: what is encoded parses to the same, for the writer it was
// encoded for and through another's eyes.
func TestOpsRoundTrip(t *testing.T) {
	own := writer(1)
	for _, op := range []Op{
		&Put{Address: Address{"0", []byte("k"), Register, nil}, Payload: Payload{Bytes: []byte("v")}},
		&Put{
			Address: Address{"0", []byte("k"), Field, []byte("f")}, Supersedes: []Dot{dot(1, 3, 0), dot(2, 9, 70000)}, Under: dot(2, 1, 0),
			Payload: Payload{Sum: &Subtotal{Base: dot(1, 1, 1), From: -5, Count: math.MinInt64}},
		},
		&Put{Address: Address{"", nil, Member, []byte("m")}},
		&End{Address: Address{Map: "x", Key: []byte("k")}, Scope: ScopeKey, Cites: Cites{CiteOf(dot(1, 2, 0)), CiteOf(dot(3, 1<<60, 1))}},
		&End{Address: Address{Map: "x", Key: []byte("k"), Kind: Element}, Scope: ScopeKind},
		&End{Address: Address{Map: "x", Key: []byte("k"), Kind: Scored, Sub: []byte("m")}, Scope: ScopeRow},
		&Expire{Map: "m", Key: []byte("k"), Expiring: Expiring{At: -1, Cover: Cites{CiteOf(dot(2, 2, 2))}}, Supersedes: []Dot{dot(2, 2, 1)}},
	} {
		for _, w := range []Writer{own, writer(2), writer(9)} {
			enc, err := op.Encode(w)
			if err != nil {
				t.Fatalf("%+v: %v", op, err)
			}
			back, err := ParseOp(enc, w)
			if err != nil {
				t.Fatalf("%+v: %v", op, err)
			}
			again, err := back.Encode(w)
			if err != nil || !bytes.Equal(enc.Body, again.Body) {
				t.Errorf("%x is read and written as %x, %v", enc.Body, again.Body, err)
			}
		}
	}
}

// FuzzParseOp: for any bytes no panic, and what parses encodes back to them.
func FuzzParseOp(f *testing.F) {
	own := writer(1)
	for _, op := range []Op{
		&Put{Address: Address{"0", []byte("k"), Register, nil}, Payload: Payload{Bytes: []byte("v")}, Supersedes: []Dot{dot(2, 9, 7)}},
		&End{Address: Address{Map: "x", Key: []byte("k")}, Scope: ScopeKey, Cites: Cites{CiteOf(dot(1, 2, 0))}},
		&Expire{Map: "m", Key: []byte("k"), Expiring: Expiring{At: 5, Cover: Cites{CiteOf(dot(2, 2, 2))}}},
	} {
		enc, err := op.Encode(own)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(enc.Kind, enc.Body)
	}
	f.Fuzz(func(t *testing.T, kind uint16, body []byte) {
		op, err := ParseOp(sigchain.Op{Kind: kind, Body: body}, own)
		if err != nil {
			return
		}
		again, err := op.Encode(own)
		if err != nil || again.Kind != kind || !bytes.Equal(again.Body, body) {
			t.Fatalf("%x is read and written as %x, %v", body, again.Body, err)
		}
	})
}

// FuzzParseRow: the same for rows.
func FuzzParseRow(f *testing.F) {
	f.Add(Row{{dot(1, 1, 0), 5, Payload{Bytes: []byte("v")}}, {dot(2, 1, 0), 6, Payload{Sum: &Subtotal{From: 3}}}}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRow(b)
		if err == nil && !bytes.Equal(r.AppendTo(nil), b) {
			t.Fatalf("%x is read and written as %x", b, r.AppendTo(nil))
		}
	})
}

func TestResolve(t *testing.T) {
	base := dot(1, 1, 0)
	set := Head{base, 10, Payload{Bytes: []byte("10")}}
	sum := func(d Dot, time uint64, base Dot, from, n int64) Head {
		return Head{d, time, Payload{Sum: &Subtotal{base, from, n}}}
	}
	for name, c := range map[string]struct {
		row  Row
		want []string
	}{
		"nothing":                          {nil, nil},
		"a value":                          {Row{set}, []string{"10"}},
		"two writers count on a value":     {Row{set, sum(dot(1, 2, 0), 11, base, 10, 5), sum(dot(2, 1, 0), 12, base, 10, 2)}, []string{"17"}},
		"the value was ended meanwhile":    {Row{sum(dot(2, 1, 0), 12, base, 10, 1)}, []string{"11"}},
		"a later value stands beside":      {Row{sum(dot(2, 1, 0), 12, base, 10, 1), {dot(3, 1, 0), 13, Payload{Bytes: []byte("x")}}}, []string{"x", "11"}},
		"counted from nothing by two":      {Row{sum(dot(1, 1, 0), 1, Dot{}, 0, 10), sum(dot(2, 1, 0), 2, Dot{}, 0, -3)}, []string{"7"}},
		"it stays at the end of the range": {Row{sum(dot(1, 1, 0), 1, Dot{}, 0, math.MaxInt64), sum(dot(2, 1, 0), 2, Dot{}, 0, 1)}, []string{"9223372036854775807"}},
	} {
		var got []string
		for _, r := range c.row.Resolve() {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
