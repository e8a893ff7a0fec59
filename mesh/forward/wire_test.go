package forward

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
)

func tp(topic byte, n int32) lattice.TopicPartition {
	return lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{topic}, 16)), Partition: n}
}

func TestGolden(t *testing.T) {
	x := func(b string, n int) string { return strings.Repeat(b, n) }
	ask := func(a Ask) []byte { return a.AppendTo(nil) }
	answer := func(a Answer) []byte { return a.AppendTo(nil) }
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"opening", Records.Opening(lattice.StoreID(bytes.Repeat([]byte{1}, 32))), "4c460100" + x("01", 32)},
		{"append", ask(Ask{Op: Append, Acks: -1, ID: 2, Wait: 3, Partition: tp(4, 5), Batches: []byte("batch")}),
			"00000029" + "01" + "ff" + "0000" + "0000000000000002" + "00000003" + x("04", 16) + "00000005" + "6261746368"},
		{"truncate", ask(Ask{Op: Truncate, ID: 2, Wait: 3, Partition: tp(4, 5), Before: -1}),
			"0000002c" + "02" + "00" + "0000" + "0000000000000002" + "00000003" + x("04", 16) + "00000005" + x("ff", 8)},
		{"lead", ask(Ask{Op: Lead, ID: 2, Wait: 3, Partition: tp(4, 5), To: lattice.NodeID(bytes.Repeat([]byte{6}, 32))}),
			"00000044" + "03" + "00" + "0000" + "0000000000000002" + "00000003" + x("04", 16) + "00000005" + x("06", 32)},
		{"opening of groups", Groups.Opening(lattice.StoreID(bytes.Repeat([]byte{1}, 32))), "4c470100" + x("01", 32)},
		{"call", ask(Ask{Op: Call, ID: 2, Wait: 3, Body: []byte("body")}),
			"00000028" + "04" + "00" + "0000" + "0000000000000002" + "00000003" + x("00", 20) + "626f6479"},
		{"cancel", ask(Ask{Op: Cancel, ID: 2}), "00000024" + "05" + "00" + "0000" + "0000000000000002" + x("00", 24)},
		{"called", answer(Answer{ID: 1, Base: -1, Time: -1, Body: []byte("body")}),
			"0000002c" + "00" + "00" + "0000" + "0000000000000001" + x("ff", 16) + x("00", 8) + "0000" + "0000" + "626f6479"},
		{"done", answer(Answer{ID: 1, Base: 2, Time: -1, Start: 3}),
			"00000028" + "00" + "00" + "0000" + "0000000000000001" + "0000000000000002" + x("ff", 8) + "0000000000000003" + "0000" + "0000"},
		{"refused", answer(Answer{ID: 1, Refused: true, Kind: lattice.Invalid, Code: 87, Base: -1, Time: -1, Start: 3, Text: "no", Records: []RecordError{{4, "key"}}}),
			"00000033" + "01" + "01" + "0057" + "0000000000000001" + x("ff", 16) + "0000000000000003" + "0002" + "6e6f" + "0001" + "00000004" + "0003" + "6b6579"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestKinds holds the numbers of lattice.Kind, which are in answers.
func TestKinds(t *testing.T) {
	want := []lattice.Kind{
		lattice.Internal, lattice.Invalid, lattice.NotFound, lattice.Exists, lattice.Unavailable, lattice.NotLeader, lattice.Fenced, lattice.OutOfRange,
		lattice.NotYet, lattice.Diverged, lattice.TooLarge, lattice.Storage, lattice.Corrupt, lattice.Denied, lattice.Conflict, lattice.Unsupported,
	}
	for i, k := range want {
		if int(k) != i {
			t.Errorf("%v is %d, in answers it is %d", k, k, i)
		}
	}
}

func TestRefusedBytes(t *testing.T) {
	good := Ask{Op: Append, ID: 1, Partition: tp(1, 0), Batches: []byte("b")}
	refusal := Answer{Refused: true, Code: 7, Base: -1, Time: -1, Start: -1}
	body := func(b []byte) []byte { return b[LengthSize:] }
	asks := map[string]func(*Ask){
		"no batch":           func(a *Ask) { a.Batches = nil },
		"acks 2":             func(a *Ask) { a.Acks = 2 },
		"acks -2":            func(a *Ask) { a.Acks = -2 },
		"a negative number":  func(a *Ask) { a.Partition.Partition = -1 },
		"another operation":  func(a *Ask) { a.Op = 4 },
		"a handoff acked":    func(a *Ask) { a.Op, a.Acks = Lead, 1 },
		"a truncation acked": func(a *Ask) { a.Op, a.Acks = Truncate, 1 },
	}
	for name, change := range asks {
		a := good
		change(&a)
		if _, err := Records.ParseAsk(body(a.AppendTo(nil))); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, a := range map[string]Answer{
		"a refusal without a code":  {Refused: true, Base: -1, Time: -1, Start: -1},
		"a refusal with an offset":  {Refused: true, Code: 1, Base: 1, Time: -1, Start: -1},
		"a kind that there is not":  {Refused: true, Code: 1, Kind: 200, Base: -1, Time: -1, Start: -1},
		"done with a code":          {Code: 1, Start: 1},
		"done with a reason":        {Text: "x", Start: 1},
		"done without a start":      {Start: -1},
		"an offset below -1":        {Base: -2, Start: 1},
		"done, with a record error": {Start: 1, Records: []RecordError{{1, ""}}},
	} {
		if _, err := Records.ParseAnswer(body(a.AppendTo(nil))); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Records.ParseAnswer(append(body(refusal.AppendTo(nil)), 0)); !errors.Is(err, ErrMessage) {
		t.Errorf("a byte too many: %v", err)
	}
	for _, n := range [][LengthSize]byte{{}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 1}} {
		if _, err := Records.AskLength(n); !errors.Is(err, ErrMessage) {
			t.Errorf("length %x: %v", n, err)
		}
		if _, err := Records.AnswerLength(n); !errors.Is(err, ErrMessage) {
			t.Errorf("length %x: %v", n, err)
		}
	}
}

// TestLongReasons: whatever is wrong, an answer about it can be read.
func TestLongReasons(t *testing.T) {
	a := Answer{ID: 1, Refused: true, Code: 87, Base: -1, Time: -1, Start: -1, Text: strings.Repeat("ä", 5000) + "\xff"}
	for i := range uint32(1000) {
		a.Records = append(a.Records, RecordError{i, strings.Repeat("ö", 5000)})
	}
	b := a.AppendTo(nil)
	if n, err := Records.AnswerLength([LengthSize]byte(b)); err != nil || n != len(b)-LengthSize {
		t.Fatalf("length %d of %d: %v", n, len(b)-LengthSize, err)
	}
	got, err := Records.ParseAnswer(b[LengthSize:])
	if err != nil || len(got.Text) > maxText || !utf8.ValidString(got.Text) || len(got.Records) == 0 {
		t.Fatalf("%d bytes of text, %d records: %v", len(got.Text), len(got.Records), err)
	}
}

// FuzzWire checks, for any bytes: no panic, and what parses encodes to the same bytes.
func FuzzWire(f *testing.F) {
	f.Add(Records.Opening(lattice.StoreID{1}))
	ask := Ask{Op: Append, Acks: 1, ID: 2, Wait: 3, Partition: tp(4, 5), Batches: []byte("batch")}
	f.Add(ask.AppendTo(nil)[LengthSize:])
	ask = Ask{Op: Truncate, ID: 2, Partition: tp(4, 5), Before: 9}
	f.Add(ask.AppendTo(nil)[LengthSize:])
	done := Answer{ID: 1, Base: 2, Time: 3, Start: 4}
	f.Add(done.AppendTo(nil)[LengthSize:])
	refused := Answer{ID: 1, Refused: true, Code: 87, Base: -1, Time: -1, Start: 0, Text: "no", Records: []RecordError{{1, "x"}, {2, ""}}}
	f.Add(refused.AppendTo(nil)[LengthSize:])
	call := Ask{Op: Call, ID: 2, Wait: 3, Body: []byte("body")}
	f.Add(call.AppendTo(nil)[LengthSize:])
	called := Answer{ID: 1, Base: -1, Time: -1, Body: []byte("body")}
	f.Add(called.AppendTo(nil)[LengthSize:])
	f.Fuzz(func(t *testing.T, b []byte) {
		for lane := range Lane(Lanes) {
			if id, err := lane.ParseOpening(b); err == nil && !bytes.Equal(lane.Opening(id), b) {
				t.Errorf("opening %x", b)
			}
			if a, err := lane.ParseAsk(b); err == nil && !bytes.Equal(a.AppendTo(nil)[LengthSize:], b) {
				t.Errorf("ask %x", b)
			}
			a, err := lane.ParseAnswer(b)
			if err != nil {
				continue
			}
			if again, err := lane.ParseAnswer(a.AppendTo(nil)[LengthSize:]); err != nil || !reflect.DeepEqual(again, a) {
				t.Errorf("answer %x: %+v, %v", b, again, err)
			}
			if got := a.AppendTo(nil)[LengthSize:]; !bytes.Equal(got, b) {
				t.Errorf("answer %x encodes to %x", b, got)
			}
		}
	})
}

// TestLanes: what belongs to one protocol is none of the other's.
func TestLanes(t *testing.T) {
	body := func(a Ask) []byte { return a.AppendTo(nil)[LengthSize:] }
	answer := func(a Answer) []byte { return a.AppendTo(nil)[LengthSize:] }
	call, cancel, truncate := body(Ask{Op: Call, ID: 1, Body: []byte("x")}), body(Ask{Op: Cancel, ID: 1}), body(Ask{Op: Truncate, ID: 1})
	for name, err := range map[string]error{
		"a call of a leader":        second(Records.ParseAsk(call)),
		"a cancel to a leader":      second(Records.ParseAsk(cancel)),
		"a truncation by a home":    second(Groups.ParseAsk(truncate)),
		"a call with a partition":   second(Groups.ParseAsk(body(Ask{Op: Call, ID: 1, Partition: tp(1, 0), Body: []byte("x")}))),
		"an empty call":             second(Groups.ParseAsk(body(Ask{Op: Call, ID: 1}))),
		"a cancel with a body":      second(Groups.ParseAsk(body(Ask{Op: Cancel, ID: 1, Body: []byte("x")}))),
		"an answer without a body":  second(Groups.ParseAnswer(answer(Answer{ID: 1, Base: -1, Time: -1}))),
		"an answer with an offset":  second(Groups.ParseAnswer(answer(Answer{ID: 1, Base: 1, Time: -1, Body: []byte("x")}))),
		"a leader's with a body":    second(Records.ParseAnswer(answer(Answer{ID: 1, Body: []byte("x")}))),
		"an opening of the other's": second(Groups.ParseOpening(Records.Opening(lattice.StoreID{1}))),
	} {
		if !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
