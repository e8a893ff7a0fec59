package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// seeds are batches of every codec and shape, and what is left of them when
// cut or changed.
func seeds() [][]byte {
	var all [][]byte
	for _, codec := range allCodecs {
		b := build(codec, 0, goldenRecords)
		all = append(all, b, Hollow(nil, b), b[:len(b)-1], b[:HeaderSize-1], append(bytes.Clone(b), b...))
		stamped := bytes.Clone(b)
		StampAppendTime(stamped, 99)
		SetProducer(stamped, 1, 2, 3)
		all = append(all, stamped)
	}
	plain := build(None, 0, goldenRecords)
	for i := range foreign {
		all = append(all, recompress(plain, foreign[i].codec, foreign[i].write(panicker{}, plain[HeaderSize:])))
	}
	for at := range plain {
		b := bytes.Clone(plain)
		b[at] ^= 0x80
		all = append(all, b)
	}
	return append(all, nil, make([]byte, 200), bytes.Repeat([]byte{0xff}, 200))
}

type panicker struct{}

func (panicker) Fatalf(format string, _ ...any) { panic(format) }

// FuzzParseHeader checks, for any input: no panic; a header that parses has a
// size and a range that make sense and encodes to the bytes it came from; Next
// cuts the input in two and makes progress; each error is one of the named.
func FuzzParseHeader(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if !named(err) {
				t.Fatalf("unnamed: %v", err)
			}
		} else {
			if h.Size() < HeaderSize || h.NextOffset() <= h.BaseOffset || h.BaseOffset < 0 || h.Count < 0 ||
				int64(h.Count) > h.NextOffset()-h.BaseOffset || !h.Compression().known() {
				t.Fatalf("accepted %+v", h)
			}
			if !bytes.Equal(appendHeader(nil, h), b[:HeaderSize]) {
				t.Fatalf("%+v does not encode to %x", h, b[:HeaderSize])
			}
		}
		for rest := b; ; {
			batch, left, _, err := Next(rest)
			if err != nil || batch == nil {
				if !bytes.Equal(left, rest) && len(rest) > 0 || err == nil && len(rest) > 0 {
					t.Fatalf("left %d of %d, %v", len(left), len(rest), err)
				}
				break
			}
			if !bytes.Equal(append(slices.Clone(batch), left...), rest) || len(batch) < HeaderSize {
				t.Fatal("batch and rest are not the input")
			}
			if err := CheckCRC(batch); err != nil && !errors.Is(err, ErrCRC) {
				t.Fatalf("cut to size, but %v", err)
			}
			rest = left
		}
	})
}

func named(err error) bool {
	for _, want := range []error{ErrShort, ErrMagic, ErrMalformed, ErrCodec, ErrTooLarge, ErrInvalid} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

// fuzzLimit keeps a fuzzed bomb cheap.
const fuzzLimit = 1 << 20

// FuzzRecords checks, for any input: no panic; no more held than the limit; a
// Reader that is used again gives what a fresh one gives; offsets rise within the
// header's range and there are as many records as the header says; every
// record that is read is found by its offset, and the first of its time by time;
// what validates encodes again to the same records; errors are named and final.
func FuzzRecords(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	var used Reader
	f.Fuzz(func(t *testing.T, b []byte) {
		recs, err := readAll(&used, b, Limits{fuzzLimit})
		if held := cap(used.dec.buf); held > fuzzLimit+zstdBlock+zstdOverrun {
			t.Fatalf("holds %d bytes", held)
		}
		var rec Record
		if _, again := used.Next(&rec); again != err { //nolint:errorlint // the same value, not only the same kind
			t.Fatalf("%v, then %v", err, again)
		}
		fresh, err2 := readAll(new(Reader), b, Limits{fuzzLimit})
		if (err == nil) != (err2 == nil) || len(fresh) != len(recs) {
			t.Fatalf("%d records, %v; fresh: %d, %v", len(recs), err, len(fresh), err2)
		}
		last := int64(-1)
		for i, rec := range recs {
			if h := used.Header(); rec.Offset <= last || rec.Offset < h.BaseOffset || rec.Offset > h.LastOffset() {
				t.Fatalf("record %d has offset %d after %d", i, rec.Offset, last)
			}
			last = rec.Offset
		}
		if err != nil {
			if !named(err) {
				t.Fatalf("unnamed: %v", err)
			}
			if Validate(b, Limits{fuzzLimit}, Rules{}) == nil {
				t.Fatalf("validates, but reads with %v", err)
			}
			return
		}
		checkRead(t, b, used.Header(), recs)
	})
}

// checkRead checks the other ways to read b, which holds recs.
func checkRead(t *testing.T, b []byte, h Header, recs []Record) {
	if int32(len(recs)) != h.Count {
		t.Fatalf("%d records, header says %d", len(recs), h.Count)
	}
	for i := range min(len(recs), 4) {
		got, found, err := FindOffset(b, Limits{fuzzLimit}, recs[i].Offset)
		if err != nil || !found || !same(clone(got), recs[i]) {
			t.Fatalf("FindOffset(%d): %v %v %v", recs[i].Offset, got, found, err)
		}
		ts := recs[i].Timestamp
		first := slices.IndexFunc(recs, func(r Record) bool { return r.Timestamp >= ts })
		offset, at, found, err := RecordAtOrAfter(b, Limits{fuzzLimit}, ts)
		switch {
		case err != nil:
			t.Fatal(err)
		case ts > h.MaxTimestamp: // the header lies
		case !found || offset != recs[first].Offset || at != recs[first].Timestamp:
			t.Fatalf("RecordAtOrAfter(%d): %d %d %v, want record %d", ts, offset, at, found, first)
		}
	}
	if err := Validate(b, Limits{fuzzLimit}, Rules{}); err != nil {
		if h.CheckProduced() == nil {
			t.Fatalf("reads, but %v", err)
		}
		return
	}
	if h.LogAppendTime() {
		return
	}
	for i := range recs {
		if recs[i].Offset != h.BaseOffset+int64(i) {
			t.Fatalf("validates with offset %d at %d", recs[i].Offset, i)
		}
		recs[i].Offset = int64(i)
		if d := recs[i].Timestamp - recs[0].Timestamp; (d < 0) != (recs[i].Timestamp < recs[0].Timestamp) {
			return // a delta that no batch can hold, from another base
		}
	}
	again, err := readAll(new(Reader), build(None, 0, recs), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	checkRecords(t, again, recs)
}

// FuzzFilter checks, for any input and any choice of records: no panic; on an
// error dst is as it was; otherwise the result has the chosen records, unchanged,
// a sound checksum and the same offset range and producer; and choosing
// the same again changes nothing.
func FuzzFilter(f *testing.F) {
	for i, b := range seeds() {
		f.Add(b, uint64(i)*0x9e3779b97f4a7c15)
	}
	var used Filterer
	f.Fuzz(func(t *testing.T, b []byte, mask uint64) {
		keep := func(rec Record) Keep { return Keep(mask>>(uint64(rec.Offset)%64)&1 == 1) }
		recs, readErr := readAll(new(Reader), b, Limits{fuzzLimit})
		out, kept, err := used.Filter([]byte("dst"), b, Limits{fuzzLimit}, keep)
		if (err == nil) != (readErr == nil) || !bytes.HasPrefix(out, []byte("dst")) {
			t.Fatalf("filter: %v, read: %v", err, readErr)
		}
		want := slices.DeleteFunc(recs, func(r Record) bool { return keep(r) == Drop })
		if out = out[3:]; err != nil || kept == 0 {
			if len(out) != 0 || err == nil && len(want) != 0 {
				t.Fatalf("%d bytes for %d of %d records, %v", len(out), kept, len(want), err)
			}
			return
		}
		got, err := readAll(new(Reader), out, Limits{fuzzLimit})
		if err != nil {
			t.Fatal(err)
		}
		checkRecords(t, got, want)
		h, _ := ParseHeader(b)
		hh, _ := ParseHeader(out)
		if !bytes.Equal(out, b) && CheckCRC(out) != nil || hh.BaseOffset != h.BaseOffset || hh.LastOffset() != h.LastOffset() ||
			hh.ProducerID != h.ProducerID || hh.BaseSequence != h.BaseSequence || hh.Attributes != h.Attributes {
			t.Fatalf("header %+v of %+v", hh, h)
		}
		again, n, err := used.Filter(nil, out, Limits{fuzzLimit}, keep)
		if err != nil || n != kept || !bytes.Equal(again, out) {
			t.Fatalf("again: %d of %d, %v", n, kept, err)
		}
	})
}

// TestSplit: batches end to end come apart as they were, and a cut one is short.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var run []byte
		var want [][]byte
		for range rapid.IntRange(0, 5).Draw(t, "batches") {
			b := build(rapid.SampledFrom(allCodecs).Draw(t, "codec"), 0, genRecords(1, 3).Draw(t, "records"))
			want = append(want, b)
			run = append(run, b...)
		}
		rest := run
		for i := range want {
			batch, left, h, err := Next(rest)
			if err != nil || !bytes.Equal(batch, want[i]) || h.Size() != len(batch) || cap(batch) != len(batch) {
				t.Fatalf("batch %d: %v", i, err)
			}
			cut := rapid.IntRange(1, len(batch)-1).Draw(t, "cut")
			if got, _, _, err := Next(rest[:cut]); got != nil || !errors.Is(err, ErrShort) {
				t.Fatalf("cut at %d of %d: %v", cut, len(batch), err)
			}
			rest = left
		}
		if batch, rest, _, err := Next(rest); batch != nil || len(rest) != 0 || err != nil {
			t.Fatalf("at the end: %v %d %v", batch, len(rest), err)
		}
	})
}

// TestFlippedByte: no changed byte passes the checksum, but for the offset and
// the epoch, which are the node's.
func TestFlippedByte(t *testing.T) {
	good := build(Zstd, 0, goldenRecords)
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1
		placed := i < atLength || i >= atLeaderEpoch && i <= atMagic // the magic is ParseHeader's
		if err := CheckCRC(b); (err == nil) != placed {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

// TestHeaderRefused has a field out of bounds in each case.
func TestHeaderRefused(t *testing.T) {
	be := binary.BigEndian
	for name, c := range map[string]struct {
		change func(b []byte)
		want   error
	}{
		"magic 1":             {func(b []byte) { b[atMagic] = 1 }, ErrMagic},
		"length below header": {func(b []byte) { be.PutUint32(b[atLength:], 48) }, ErrMalformed},
		"length negative":     {func(b []byte) { be.PutUint32(b[atLength:], 1<<31) }, ErrMalformed},
		"length overflows":    {func(b []byte) { be.PutUint32(b[atLength:], math.MaxInt32) }, ErrMalformed},
		"codec 5":             {func(b []byte) { b[atAttributes+1] = 5 }, ErrCodec},
		"count negative":      {func(b []byte) { be.PutUint32(b[atCount:], math.MaxUint32) }, ErrMalformed},
		"more than offsets":   {func(b []byte) { be.PutUint32(b[atCount:], 3) }, ErrMalformed},
		"more than bytes": {func(b []byte) {
			be.PutUint32(b[atCount:], 100)
			be.PutUint32(b[atLastOffsetDelta:], 99)
		}, ErrMalformed},
		"last delta negative": {func(b []byte) { be.PutUint32(b[atLastOffsetDelta:], 1<<31) }, ErrMalformed},
		"base negative":       {func(b []byte) { be.PutUint64(b, math.MaxUint64) }, ErrMalformed},
		"end overflows":       {func(b []byte) { be.PutUint64(b, math.MaxInt64-1) }, ErrMalformed},
	} {
		b := build(None, 0, goldenRecords)
		c.change(b)
		if _, err := ParseHeader(b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := new(Reader).Open(b, Limits{}); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	old := build(None, 0, goldenRecords)[:20]
	if _, err := ParseHeader(old); !errors.Is(err, ErrShort) {
		t.Error(err)
	}
	old[atMagic] = 0
	if _, err := ParseHeader(old); !errors.Is(err, ErrMagic) {
		t.Error(err) // message sets of old clients may be shorter than our header
	}
}
