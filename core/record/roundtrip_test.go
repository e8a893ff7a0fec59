package record

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// genBytes gives null, empty, short, and (so that codecs have work) long and
// repetitive fields.
func genBytes() *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.Just([]byte(nil)),
		rapid.Just([]byte{}),
		rapid.SliceOfN(rapid.Byte(), 1, 80),
		rapid.Custom(func(t *rapid.T) []byte {
			unit := rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "unit")
			return bytes.Repeat(unit, rapid.IntRange(1, 4000).Draw(t, "times"))
		}),
	)
}

func genRecord() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		rec := Record{
			// Deltas of both signs, none of which leaves int64.
			Timestamp: rapid.OneOf(rapid.Int64Range(-1, 2_000_000_000_000), rapid.Int64Range(math.MinInt64/2+1, math.MaxInt64/2)).Draw(t, "ts"),
			Key:       genBytes().Draw(t, "key"),
			Value:     genBytes().Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			rec.Headers = append(rec.Headers, RecordHeader{rapid.String().Draw(t, "hk"), genBytes().Draw(t, "hv")})
		}
		return rec
	})
}

func genRecords(least, most int) *rapid.Generator[[]Record] {
	return rapid.Custom(func(t *rapid.T) []Record {
		recs := rapid.SliceOfN(genRecord(), least, most).Draw(t, "records")
		for i := range recs {
			recs[i].Offset = int64(i)
		}
		return recs
	})
}

func build(codec Codec, level int, recs []Record) []byte {
	b := NewBuilder(codec, level)
	for _, r := range recs {
		b.Add(r.Timestamp, r.Key, r.Value, r.Headers)
	}
	return b.Build(nil)
}

func same(a, b Record) bool {
	if a.Offset != b.Offset || a.Timestamp != b.Timestamp || len(a.Headers) != len(b.Headers) ||
		!sameBytes(a.Key, b.Key) || !sameBytes(a.Value, b.Value) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !sameBytes(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// clone copies a record out of a Reader's buffer, nils kept.
func clone(rec Record) Record {
	rec.Key, rec.Value, rec.Headers = bytes.Clone(rec.Key), bytes.Clone(rec.Value), slices.Clone(rec.Headers)
	for i := range rec.Headers {
		rec.Headers[i].Value = bytes.Clone(rec.Headers[i].Value)
	}
	return rec
}

// readAll reads every record of batch, copied.
func readAll(r *Reader, batch []byte, l Limits) ([]Record, error) {
	if err := r.Open(batch, l); err != nil {
		return nil, err
	}
	var all []Record
	var rec Record
	for {
		ok, err := r.Next(&rec)
		if err != nil || !ok {
			return all, err
		}
		all = append(all, clone(rec))
	}
}

func checkRecords(t interface{ Fatalf(string, ...any) }, got, want []Record) {
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("record %d: have %.200v, want %.200v", i, got[i], want[i])
		}
	}
}

// TestRoundtrip: what a Builder was given, a Reader gives back, for every codec
// and level, through one reused Reader and Builder; header, checksum and deep
// check agree.
func TestRoundtrip(t *testing.T) {
	var r Reader
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(allCodecs).Draw(t, "codec")
		level := rapid.IntRange(-3, 25).Draw(t, "level")
		b := NewBuilder(codec, level)
		for range 2 {
			recs := genRecords(1, 12).Draw(t, "records")
			top := int64(math.MinInt64)
			for i, rec := range recs {
				b.Add(rec.Timestamp, rec.Key, rec.Value, rec.Headers)
				top = max(top, rec.Timestamp)
				if b.Len() != i+1 {
					t.Fatalf("Len %d after %d", b.Len(), i+1)
				}
			}
			size := b.Size()
			batch := b.Build(nil)
			if codec == None && len(batch) != size {
				t.Fatalf("Size said %d, built %d", size, len(batch))
			}
			if b.Len() != 0 || b.Size() != HeaderSize {
				t.Fatalf("after Build: Len %d, Size %d", b.Len(), b.Size())
			}
			h, err := ParseHeader(batch)
			if err != nil {
				t.Fatalf("ParseHeader: %v", err)
			}
			if err := CheckCRC(batch); err != nil {
				t.Fatalf("CheckCRC: %v", err)
			}
			if err := h.CheckProduced(); err != nil {
				t.Fatalf("CheckProduced: %v", err)
			}
			if h.Size() != len(batch) || h.Count != int32(len(recs)) || h.Compression() != codec || h.MaxTimestamp != top || h.Idempotent() {
				t.Fatalf("header %+v", h)
			}
			got, err := readAll(&r, batch, Limits{})
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			checkRecords(t, got, recs)
		}
	})
}
