package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

// rebuilt changes golden batch bytes and renews length and checksum.
func rebuilt(t *testing.T, change func(b []byte) []byte) []byte {
	t.Helper()
	b := change(build(None, 0, goldenRecords))
	finish(b)
	return b
}

func TestValidateRecords(t *testing.T) {
	keyed := []Record{{Key: []byte{}, Timestamp: 100}, {Key: []byte("k"), Timestamp: -1}, {Timestamp: 300}, {Key: []byte("k"), Timestamp: 50}, {Timestamp: 200}}
	for _, c := range []struct {
		name  string
		rules Rules
		bad   []int
		want  error
	}{
		{"nothing asked", Rules{}, nil, nil},
		{"keys", Rules{RequireKeys: true}, []int{2, 4}, ErrNoKey},
		{"not before", Rules{NotBefore: 100}, []int{3}, ErrTimestamp},
		{"not after, at the bound", Rules{NotAfter: 300}, nil, nil},
		{"keys and time", Rules{RequireKeys: true, NotBefore: 201}, []int{0, 2, 3, 4}, nil},
	} {
		for _, codec := range allCodecs {
			err := Validate(build(codec, 0, keyed), Limits{}, c.rules)
			if len(c.bad) == 0 {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			var list *RecordErrors
			var first *RecordError
			if !errors.As(err, &list) || !errors.As(err, &first) || first.Index != c.bad[0] || list.Total != len(c.bad) ||
				lattice.KindOf(first) != lattice.Invalid || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			for i, e := range list.Errs {
				if e.Index != c.bad[i] {
					t.Errorf("%s: record %d, want %d", c.name, e.Index, c.bad[i])
				}
			}
		}
	}
	if err := Validate(build(None, 0, keyed), Limits{}, Rules{NotAfter: 299}); !errors.Is(err, ErrTimestamp) {
		t.Errorf("max timestamp beyond the bound: %v", err)
	}
	stamped := build(None, 0, keyed)
	StampAppendTime(stamped, 1000)
	if err := Validate(stamped, Limits{}, Rules{NotBefore: 60, NotAfter: 299}); err != nil {
		t.Errorf("append time: %v", err)
	}
}

// TestValidateListsAtMost: a batch of only bad records does not make an answer
// without bound.
func TestValidateListsAtMost(t *testing.T) {
	b := NewBuilder(None, 0)
	for range 5000 {
		b.Add(1, nil, nil, nil)
	}
	var list *RecordErrors
	if err := Validate(b.Build(nil), Limits{}, Rules{RequireKeys: true}); !errors.As(err, &list) || list.Total != 5000 || len(list.Errs) != maxRecordErrors {
		t.Errorf("%v", err)
	}
}

// TestValidateBatch has a batch that is wrong as a whole in each case, or a
// record that breaks the format, whose index is told.
func TestValidateBatch(t *testing.T) {
	be := binary.BigEndian
	const second = HeaderSize + 19 // where record 1 starts
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
		index  int
	}{
		"no records":       {func(b []byte) []byte { return Hollow(nil, b) }, ErrInvalid, -1},
		"count too small":  {func(b []byte) []byte { be.PutUint32(b[atCount:], 1); return b }, ErrInvalid, -1},
		"range too large":  {func(b []byte) []byte { be.PutUint32(b[atLastOffsetDelta:], 5); return b }, ErrInvalid, -1},
		"control":          {func(b []byte) []byte { b[atAttributes+1] |= attrControl; return b }, ErrInvalid, -1},
		"delete horizon":   {func(b []byte) []byte { b[atAttributes+1] |= attrDeleteHorizon; return b }, ErrInvalid, -1},
		"transaction only": {func(b []byte) []byte { b[atAttributes+1] |= attrTransactional; return b }, ErrInvalid, -1},
		"no sequence":      {func(b []byte) []byte { SetProducer(b, 1, 1, -1); return b }, ErrInvalid, -1},
		"no epoch":         {func(b []byte) []byte { SetProducer(b, 1, -1, 0); return b }, ErrInvalid, -1},
		"producer -2":      {func(b []byte) []byte { SetProducer(b, -2, -1, -1); return b }, ErrInvalid, -1},
		"count too large": {func(b []byte) []byte {
			be.PutUint32(b[atCount:], 3)
			be.PutUint32(b[atLastOffsetDelta:], 2)
			return b
		}, ErrMalformed, 2},
		"trailing byte":      {func(b []byte) []byte { return append(b, 0) }, ErrMalformed, -1},
		"offset repeated":    {func(b []byte) []byte { b[second+3] = 0; return b }, ErrMalformed, 1},
		"offset negative":    {func(b []byte) []byte { b[HeaderSize+3] = 1; return b }, ErrMalformed, 0},
		"offset beyond":      {func(b []byte) []byte { b[second+3] = 4; return b }, ErrMalformed, 1},
		"record too long":    {func(b []byte) []byte { b[second] = 0x22; return b }, ErrMalformed, 1},
		"record too short":   {func(b []byte) []byte { b[second] = 0x0a; return b }, ErrMalformed, 1},
		"record negative":    {func(b []byte) []byte { b[HeaderSize] = 1; return b }, ErrMalformed, 0},
		"key too long":       {func(b []byte) []byte { b[HeaderSize+4] = 0x7e; return b }, ErrMalformed, 0},
		"key length -2":      {func(b []byte) []byte { b[second+4] = 3; return b }, ErrMalformed, 1},
		"value too long":     {func(b []byte) []byte { b[second+5] = 0x7e; return b }, ErrMalformed, 1},
		"headers too many":   {func(b []byte) []byte { b[second+6] = 0x7e; return b }, ErrMalformed, 1},
		"headers too few":    {func(b []byte) []byte { b[second+6] = 2; return b }, ErrMalformed, 1},
		"headers negative":   {func(b []byte) []byte { b[second+6] = 1; return b }, ErrMalformed, 1},
		"header key null":    {func(b []byte) []byte { b[second+7] = 1; return b }, ErrMalformed, 1},
		"header value long":  {func(b []byte) []byte { b[len(b)-1] = 2; return b }, ErrMalformed, 1},
		"timestamp overflow": {func(b []byte) []byte { be.PutUint64(b[atBaseTimestamp:], 1<<63); return b }, ErrMalformed, 1},
	} {
		err := Validate(rebuilt(t, c.change), Limits{}, Rules{RequireKeys: false})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
			continue
		}
		index := -1
		var re *RecordError
		if errors.As(err, &re) {
			index = re.Index
		}
		if index != c.index {
			t.Errorf("%s: record %d, want %d (%v)", name, index, c.index, err)
		}
	}
	if err := Validate(build(None, 0, goldenRecords), Limits{}, Rules{}); err != nil {
		t.Error(err)
	}
}

// TestHeaderLimit: more headers than a record may have are refused.
func TestHeaderLimit(t *testing.T) {
	for n, want := range map[int]error{maxHeaders: nil, maxHeaders + 1: ErrMalformed} {
		b := build(None, 0, []Record{{Headers: make([]RecordHeader, n)}})
		recs, err := readAll(new(Reader), b, Limits{})
		if !errors.Is(err, want) || want == nil && len(recs[0].Headers) != n {
			t.Errorf("%d headers: %v", n, err)
		}
	}
}

func TestLookup(t *testing.T) {
	var r Reader
	for _, codec := range allCodecs {
		batch := build(codec, 0, []Record{{Timestamp: 10}, {Timestamp: 30}, {Timestamp: 20}, {Timestamp: 30}, {Timestamp: 40}})
		Place(batch, 100, 1)
		for _, gone := range []bool{false, true} { // with and without the record at 101
			if gone {
				var err error
				if batch, _, err = Filter(nil, batch, Limits{}, func(r Record) Keep { return r.Offset != 101 }); err != nil {
					t.Fatal(err)
				}
			}
			at := map[int64]string{9: "100 10", 10: "100 10", 11: "101 30", 30: "101 30", 31: "104 40", 40: "104 40", 41: "none"}
			if gone {
				at[11], at[20], at[30] = "102 20", "102 20", "103 30"
			}
			for ms, want := range at {
				offset, ts, found, err := r.RecordAtOrAfter(batch, Limits{}, ms)
				got := fmt.Sprint(offset, " ", ts)
				if !found {
					got = "none"
				}
				if err != nil || got != want {
					t.Errorf("%v, gone %v: at %d: %s, want %s, %v", codec, gone, ms, got, want, err)
				}
			}
			for offset := int64(98); offset < 107; offset++ {
				rec, found, err := r.FindOffset(batch, Limits{}, offset)
				want := offset >= 100 && offset <= 104 && !(gone && offset == 101)
				if err != nil || found != want || found && rec.Offset != offset {
					t.Errorf("%v: find %d: %v %v %v", codec, offset, rec, found, err)
				}
			}
		}
	}
}

// TestErrorsSayWhat: errors name the batch, the record and the reason.
func TestErrorsSayWhat(t *testing.T) {
	b := rebuilt(t, func(b []byte) []byte { Place(b, 700, 1); b[HeaderSize+4] = 0x7e; return b })
	want := "batch at 700: record 0: malformed record batch: bad key"
	if err := Validate(b, Limits{}, Rules{}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
