package ballot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/promise"
)

func questions() map[string]Question {
	tp := lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{2}, 16)), Partition: 3}
	store := lattice.StoreID(bytes.Repeat([]byte{1}, 32))
	return map[string]Question{
		"where": {What: Where, Ask: promise.Promise{Store: store, Partition: tp}},
		"promise": {What: Promise, Ask: promise.Promise{
			Store: store, Partition: tp, Previous: lattice.Hash(bytes.Repeat([]byte{4}, 32)), Term: 5,
			Candidate: lattice.AuthorID(bytes.Repeat([]byte{6}, 32)), Incarnation: 7,
		}, Grants: [][]byte{{8}, {9, 9}}},
	}
}

func replies() map[string]Answer {
	return map[string]Answer{
		"where":   {What: Where, Size: 5, End: 6},
		"promise": {What: Promise, Promise: bytes.Repeat([]byte{7}, promise.Size)},
		"refused": {Err: lattice.E(lattice.Fenced, errors.New("no")), Bound: 9, Grants: [][]byte{{8}}},
	}
}

// TestGolden pins the messages as they were first sent. If a case changes, the design is
// wrong, not the test.
func TestGolden(t *testing.T) {
	x := func(b string, n int) string { return strings.Repeat(b, n) }
	tp := x("01", 32) + x("02", 16) + "00000003"
	want := map[string]string{
		"where":   "00000086" + "4c5a0101" + tp + x("00", 76) + "0000",
		"promise": "00000091" + "4c5a0102" + tp + x("04", 32) + "00000005" + x("06", 32) + "0000000000000007" + "0002" + "00000001" + "08" + "00000002" + "0909",
	}
	for name, q := range questions() {
		b := q.AppendTo(nil)
		if got := hex.EncodeToString(b); got != want[name] {
			t.Errorf("question %s\n got %s\nwant %s", name, got, want[name])
		}
		if again, err := ParseQuestion(b[LengthSize:]); err != nil || !bytes.Equal(again.AppendTo(nil), b) {
			t.Errorf("question %s: %v", name, err)
		}
	}
	want = map[string]string{
		"where":   "00000014" + "4c5a0101" + "0000000000000005" + "0000000000000006",
		"promise": "0000011c" + "4c5a0102" + x("07", promise.Size),
		"refused": "00000014" + "4c5a0100" + hex.EncodeToString([]byte{byte(lattice.Fenced)}) + "00000009" + "0002" + "6e6f" + "0001" + "00000001" + "08",
	}
	for name, a := range replies() {
		b := a.AppendTo(nil)
		if got := hex.EncodeToString(b); got != want[name] {
			t.Errorf("answer %s\n got %s\nwant %s", name, got, want[name])
		}
		again, err := ParseAnswer(b[LengthSize:])
		if err != nil || !bytes.Equal(again.AppendTo(nil), b) || lattice.KindOf(again.Err) != lattice.KindOf(a.Err) {
			t.Errorf("answer %s: %+v, %v", name, again, err)
		}
	}
}

// TestBounds: what does not fit is left out, the oldest grants first, or cut.
func TestBounds(t *testing.T) {
	var grants [][]byte
	for i := range 400 {
		grants = append(grants, bytes.Repeat([]byte{byte(i)}, 2<<10))
	}
	q := questions()["promise"]
	q.Grants = grants
	b := q.AppendTo(nil)
	again, err := ParseQuestion(b[LengthSize:])
	if err != nil || len(b) > LengthSize+MaxMessage || len(again.Grants) == 0 || again.Grants[len(again.Grants)-1][0] != byte(399%256) {
		t.Fatalf("%d bytes, %d grants, %v", len(b), len(again.Grants), err)
	}
	a := Answer{Err: errors.New(strings.Repeat("é", 5000)), Grants: grants}
	if b := a.AppendTo(nil); len(b) > LengthSize+MaxMessage {
		t.Fatalf("an answer of %d bytes", len(b))
	} else if _, err := ParseAnswer(b[LengthSize:]); err != nil {
		t.Fatal(err)
	}
	if _, err := Length([LengthSize]byte{0xff}); !errors.Is(err, ErrMessage) {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, q := range questions() {
		f.Add(q.AppendTo(nil)[LengthSize:])
	}
	for _, a := range replies() {
		f.Add(a.AppendTo(nil)[LengthSize:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ParseQuestion(b)
		switch {
		case err != nil && !errors.Is(err, ErrMessage):
			t.Fatal(err)
		case err == nil && !bytes.Equal(q.AppendTo(nil)[LengthSize:], b):
			t.Fatal("the question encodes otherwise")
		}
		a, err := ParseAnswer(b)
		switch {
		case err != nil && !errors.Is(err, ErrMessage):
			t.Fatal(err)
		case err == nil && !bytes.Equal(a.AppendTo(nil)[LengthSize:], b):
			t.Fatal("the answer encodes otherwise")
		}
	})
}
