package record

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestFilter: the records kept are those asked for, with their offsets,
// timestamps and bytes; the header keeps its offset range, epoch, producer and
// sequence; filtering again by the same rule changes nothing; nothing is lost
// when all are kept, and what dst held before stays.
func TestFilter(t *testing.T) {
	var f Filterer
	var r Reader
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(allCodecs).Draw(t, "codec")
		recs := genRecords(1, 12).Draw(t, "records")
		batch := build(codec, 0, recs)
		Place(batch, 5000, 77)
		SetProducer(batch, 9, 3, math.MaxInt32-2)
		if rapid.Bool().Draw(t, "append time") {
			StampAppendTime(batch, 1234)
		}
		orig := bytes.Clone(batch)
		before, err := readAll(&r, batch, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		chosen := rapid.SliceOfN(rapid.Bool(), len(recs), len(recs)).Draw(t, "keep")
		keep := func(rec Record) Keep { return Keep(chosen[rec.Offset-5000]) }
		var want []Record
		top := int64(math.MinInt64)
		for i, k := range chosen {
			if k {
				want = append(want, before[i])
				top = max(top, before[i].Timestamp)
			}
		}
		out, kept, err := f.Filter([]byte("dst"), batch, Limits{}, keep)
		if err != nil || kept != len(want) || !bytes.HasPrefix(out, []byte("dst")) || !bytes.Equal(batch, orig) {
			t.Fatalf("kept %d, want %d; %v", kept, len(want), err)
		}
		out = out[3:]
		switch {
		case kept == 0:
			if len(out) != 0 {
				t.Fatalf("%d bytes for no records", len(out))
			}
			return
		case kept == len(recs) && !bytes.Equal(out, batch):
			t.Fatal("all kept, but not verbatim")
		}
		if err := CheckCRC(out); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(&r, out, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		checkRecords(t, got, want)
		h, _ := ParseHeader(out)
		wantH, _ := ParseHeader(batch)
		wantH.Count, wantH.Length, wantH.CRC, wantH.MaxTimestamp = int32(kept), h.Length, h.CRC, h.MaxTimestamp
		if h != wantH || kept < len(recs) && h.MaxTimestamp != top {
			t.Fatalf("header %+v, want %+v with max %d", h, wantH, top)
		}
		again, _, err := Filter(nil, out, Limits{}, keep)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("filtering again changed it: %v", err)
		}
	})
}

func TestFilterKeepsDstOnError(t *testing.T) {
	batch := build(None, 0, goldenRecords)
	batch[len(batch)-1] = 0x7f
	out, kept, err := Filter([]byte("dst"), batch, Limits{}, func(Record) Keep { return Retain })
	if !errors.Is(err, ErrMalformed) || kept != 0 || string(out) != "dst" {
		t.Errorf("%q %d %v", out, kept, err)
	}
}

// TestHollow: offsets, producer and sequence stay, no record does, and the
// result reads, filters and looks up as an empty batch.
func TestHollow(t *testing.T) {
	for _, codec := range allCodecs {
		batch := build(codec, 0, goldenRecords)
		Place(batch, 40, 2)
		SetProducer(batch, 9, 3, 11)
		out := Hollow([]byte("dst"), batch)[3:]
		if err := CheckCRC(out); err != nil || len(out) != HeaderSize {
			t.Fatal(len(out), err)
		}
		h, err := ParseHeader(out)
		if err != nil || h.BaseOffset != 40 || h.LastOffset() != 41 || h.LeaderEpoch != 2 || h.Count != 0 ||
			h.ProducerID != 9 || h.ProducerEpoch != 3 || h.LastSequence() != 12 {
			t.Errorf("%v: %+v %v", codec, h, err)
		}
		if recs, err := readAll(new(Reader), out, Limits{}); err != nil || len(recs) != 0 {
			t.Errorf("%v: read %v %v", codec, recs, err)
		}
		if b, kept, err := Filter(nil, out, Limits{}, func(Record) Keep { return Retain }); err != nil || kept != 0 || len(b) != 0 {
			t.Errorf("%v: filter %x %d %v", codec, b, kept, err)
		}
		if _, _, found, err := RecordAtOrAfter(out, Limits{}, 0); found || err != nil {
			t.Errorf("%v: found %v %v", codec, found, err)
		}
		if _, found, err := FindOffset(out, Limits{}, 40); found || err != nil {
			t.Errorf("%v: found %v %v", codec, found, err)
		}
	}
}
