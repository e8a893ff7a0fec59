package state_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

var (
	ann = state.Writer{Author: lattice.AuthorID{0xa1, 31: 0xaf}, Incarnation: 0x0102030405060708}
	bob = state.Writer{Author: lattice.AuthorID{0xb1, 31: 0xbf}, Incarnation: 9}
)

func dotOf(w state.Writer, seq uint64, index uint32) state.Dot {
	return state.Dot{Writer: w, Seq: seq, Index: index}
}

func score(f float64) state.Payload {
	s, err := state.ScoreOf(f)
	if err != nil {
		panic(err)
	}
	return s.Payload()
}

type namedOp struct {
	name string
	op   state.Op
}

// goldenOps are operations as ann writes them.
func goldenOps() []namedOp {
	key := []byte("key")
	return []namedOp{
		{"put register", &state.Put{Address: state.Address{Map: "0", Key: key, Kind: state.Register}, Payload: state.Payload{Bytes: []byte("value")}}},
		{"put field", &state.Put{
			Address: state.Address{Map: "15", Key: key, Kind: state.Field, Sub: []byte("field")}, Payload: state.Payload{Bytes: []byte{}},
			Supersedes: []state.Dot{dotOf(ann, 300, 2), dotOf(bob, 1, 70000)}, Under: dotOf(bob, 7, 0),
		}},
		{"put subtotal", &state.Put{
			Address:    state.Address{Map: "0", Key: key, Kind: state.Register},
			Payload:    state.Payload{Sum: &state.Subtotal{Base: dotOf(bob, 5, 1), From: 100, Count: -3}},
			Supersedes: []state.Dot{dotOf(ann, 2, 0)},
		}},
		{"put first subtotal", &state.Put{Address: state.Address{Map: "0", Key: key, Kind: state.Register}, Payload: state.Payload{Sum: &state.Subtotal{Count: math.MaxInt64}}}},
		{"put member", &state.Put{Address: state.Address{Map: "", Key: nil, Kind: state.Member, Sub: []byte("member")}}},
		{"put scored", &state.Put{Address: state.Address{Map: "0", Key: key, Kind: state.Scored, Sub: []byte("member")}, Payload: score(-2.5)}},
		{"put element", &state.Put{
			Address: state.Address{Map: "0", Key: key, Kind: state.Element, Sub: state.Between(nil, nil, state.Tag{1, 2, 3, 4, 5, 6, 7, 8})}, Payload: state.Payload{Bytes: []byte("e")},
		}},
		{"end key", &state.End{Address: state.Address{Map: "0", Key: key}, Scope: state.ScopeKey, Cites: state.Cites{state.CiteOf(dotOf(ann, 4, 1)), state.CiteOf(dotOf(bob, 1<<40, 0))}}},
		{"end kind", &state.End{Address: state.Address{Map: "0", Key: key, Kind: state.Member}, Scope: state.ScopeKind}},
		{"end row", &state.End{Address: state.Address{Map: "0", Key: key, Kind: state.Field, Sub: []byte("field")}, Scope: state.ScopeRow, Cites: state.Cites{state.CiteOf(dotOf(bob, 1, 0))}}},
		{"expire", &state.Expire{
			Map: "0", Key: key, Expiring: state.Expiring{At: 1_700_000_000_000, Cover: state.Cites{state.CiteOf(dotOf(bob, 2, 2))}}, Supersedes: []state.Dot{dotOf(bob, 2, 1)},
		}},
	}
}

func goldenRows() map[string]state.Row {
	expiring := state.Expiring{At: 1_700_000_000_000, Cover: state.Cites{state.CiteOf(dotOf(ann, 1, 0)), state.CiteOf(dotOf(bob, 2, 2))}}
	return map[string]state.Row{
		"row of two values": {{Dot: dotOf(ann, 1, 0), Time: 1 << 40, Payload: state.Payload{Bytes: []byte("a")}}, {Dot: dotOf(bob, 300, 1), Time: 1<<40 + 1, Payload: state.Payload{Bytes: nil}}},
		"row of a subtotal": {{Dot: dotOf(ann, 1, 0), Time: 5, Payload: state.Payload{Sum: &state.Subtotal{Base: dotOf(bob, 1, 0), From: -1, Count: 64}}}},
		"row of an expiry":  {{Dot: dotOf(bob, 3, 0), Time: 6, Payload: expiring.Payload()}},
	}
}

// TestGoldenBytes pins operations and rows as they were first written: operations
// are signed, and rows are in the state's root. If a case changes, the design is
// wrong, not the test.
func TestGoldenBytes(t *testing.T) {
	text, err := os.ReadFile("testdata/v1/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	frozen := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		frozen[name] = value
	}
	pin := func(name string, kind uint16, b []byte) {
		now := fmt.Sprintf("%d %x", kind, b)
		if now != frozen[name] {
			t.Errorf("%s: %s\nfrozen: %s", name, now, frozen[name])
		}
		delete(frozen, name)
	}
	for _, c := range goldenOps() {
		op, err := c.op.Encode(ann)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		pin(c.name, op.Kind, op.Body)
	}
	for name, r := range goldenRows() {
		pin(name, 0, r.AppendTo(nil))
	}
	for name := range frozen {
		t.Errorf("%s is not checked", name)
	}
}

// TestOldBytesOpen reads what is frozen.
func TestOldBytesOpen(t *testing.T) {
	text, err := os.ReadFile("testdata/v1/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		kind, digits, _ := strings.Cut(value, " ")
		k, err1 := strconv.Atoi(kind)
		b, err2 := hex.DecodeString(digits)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(name, err)
		}
		if k == 0 {
			if r, err := state.ParseRow(b); err != nil || len(r) == 0 {
				t.Errorf("%s: %v, %v", name, r, err)
			}
			continue
		}
		op, err := state.ParseOp(sigchain.Op{Kind: uint16(k), Body: b}, ann)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := op.Encode(ann)
		if err != nil || !bytes.Equal(again.Body, b) {
			t.Errorf("%s is written as %x, %v", name, again.Body, err)
		}
		for i := range b {
			if _, err := state.ParseOp(sigchain.Op{Kind: uint16(k), Body: b[:i]}, ann); err == nil {
				t.Errorf("%s: its first %d bytes parse", name, i)
			}
		}
		later := append([]byte{2}, b[1:]...)
		if _, err := state.ParseOp(sigchain.Op{Kind: uint16(k), Body: later}, ann); !errors.Is(err, sigchain.ErrVersion) {
			t.Errorf("%s in version 2: %v", name, err)
		}
	}
}

// FuzzParseExpiring checks, for any bytes: no panic; what parses encodes back to
// the bytes it came from.
func FuzzParseExpiring(f *testing.F) {
	f.Add(goldenRows()["row of an expiry"][0].Payload.Bytes)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := state.ParseExpiring(state.Payload{Bytes: b})
		if err != nil {
			if !errors.Is(err, state.ErrMalformed) {
				t.Fatalf("%v is no ErrMalformed", err)
			}
			return
		}
		if again := e.Payload().Bytes; !bytes.Equal(again, b) {
			t.Fatalf("%x is read and written as %x", b, again)
		}
	})
}

// FuzzHostileOps folds any two operations into a state, in an entry each: no
// panic, and joining with what was before them changes nothing.
func FuzzHostileOps(f *testing.F) {
	ops := goldenOps()
	for i, c := range ops {
		one, err1 := c.op.Encode(ann)
		two, err2 := ops[(i+3)%len(ops)].op.Encode(bob)
		if err := errors.Join(err1, err2); err != nil {
			f.Fatal(err)
		}
		f.Add(one.Kind, one.Body, two.Kind, two.Body)
	}
	f.Fuzz(func(t *testing.T, kindA uint16, bodyA []byte, kindB uint16, bodyB []byte) {
		s := &state.Space{Frontier: state.Frontier{}}
		for _, x := range []struct {
			w    state.Writer
			kind uint16
			body []byte
		}{{ann, kindA, bodyA}, {bob, kindB, bodyB}, {ann, kindB, bodyB}} {
			op, err := state.ParseOp(sigchain.Op{Kind: x.kind, Body: x.body}, x.w)
			if err != nil {
				return
			}
			before := s.Join(&state.Space{})
			d := dotOf(x.w, s.Frontier[x.w]+1, 0)
			s.Apply(op, d, 7)
			s.Pass(x.w, d.Seq)
			if !equal(before.Join(s), s) || !equal(s.Join(before), s) {
				t.Fatalf("%x changes when joined with what was before it", x.body)
			}
			for a, r := range s.Rows {
				r.Resolve()
				if a.Kind == state.Expiry {
					if _, err := r.Expired(0); err != nil {
						t.Fatalf("%x leaves an expiry that cannot be read: %v", x.body, err)
					}
				}
			}
		}
	})
}
