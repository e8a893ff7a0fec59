package partition

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/core/record"
)

func head(id int64, epoch int16, seq, count int32, base int64) record.Header {
	return record.Header{
		ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq, Count: count, LastOffsetDelta: count - 1,
		BaseOffset: base, MaxTimestamp: base * 10,
	}
}

// TestProducerSequences is a transcript of one producer: what is sent, and what
// the partition says.
func TestProducerSequences(t *testing.T) {
	ps := newProducers()
	for _, step := range []struct {
		what       string
		epoch      int16
		seq, count int32
		at         int64 // offset of the known batch; -1: append it
		err        error
	}{
		{"an unknown producer in the middle of its sequence", 0, 5, 1, -1, ErrUnknownProducer},
		{"the first batch", 0, 0, 10, -1, nil},
		{"its retry", 0, 0, 10, 0, nil},
		{"a batch of another length in its place", 0, 0, 4, -1, ErrOutOfOrder},
		{"the next", 0, 10, 1, -1, nil},
		{"one missing", 0, 12, 1, -1, ErrOutOfOrder},
		{"three more", 0, 11, 1, -1, nil},
		{"", 0, 12, 1, -1, nil},
		{"", 0, 13, 1, -1, nil},
		{"a retry five batches back", 0, 0, 10, 0, nil},
		{"one more", 0, 14, 1, -1, nil},
		{"a retry six batches back: its offset is forgotten", 0, 0, 10, -1, ErrDuplicate},
		{"a new epoch that does not begin at 0", 1, 15, 1, -1, ErrOutOfOrder},
		{"a new epoch", 1, 0, 1, -1, nil},
		{"the old epoch", 0, 15, 1, -1, ErrProducerEpoch},
	} {
		next := int64(0)
		if p := ps.byID[9]; p != nil && len(p.batches) > 0 {
			next = p.batches[len(p.batches)-1].lastOffset + 1
		}
		h := head(9, step.epoch, step.seq, step.count, next)
		was, err := ps.check(h)
		switch {
		case !errors.Is(err, step.err):
			t.Errorf("%s (epoch %d, sequence %d): %v, want %v", step.what, step.epoch, step.seq, err, step.err)
		case step.at >= 0 && (was == nil || was.base != step.at):
			t.Errorf("%s: %+v, want offset %d", step.what, was, step.at)
		case step.at < 0 && was != nil:
			t.Errorf("%s: found at %d", step.what, was.base)
		case err == nil && was == nil:
			ps.wrote(h)
		}
	}
}

func TestSequenceWraps(t *testing.T) {
	ps := newProducers()
	ps.byID[1] = &producer{batches: []batchSpan{{math.MaxInt32 - 1, math.MaxInt32 - 1, 0, 0}}}
	h := head(1, 0, math.MaxInt32, 3, 1) // MaxInt32, 0, 1
	if was, err := ps.check(h); was != nil || err != nil {
		t.Fatal(was, err)
	}
	ps.wrote(h)
	if got := ps.byID[1].lastSequence(); got != 1 {
		t.Errorf("last sequence %d, want 1", got)
	}
	if was, err := ps.check(head(1, 0, 2, 1, 4)); was != nil || err != nil {
		t.Errorf("after the wrap: %v, %v", was, err)
	}
}

// TestProducersAreExactlyOnce sends batches of several producers with retries at
// random, and compares what is written with a model that remembers everything.
func TestProducersAreExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := newProducers()
		type sent struct{ seq, count int32 }
		history := map[int64][]sent{}
		written := map[int64][]int32{}
		next := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			id := int64(rapid.IntRange(1, 3).Draw(t, "producer"))
			h := history[id]
			s := sent{0, int32(rapid.IntRange(1, 5).Draw(t, "count"))}
			if len(h) > 0 {
				s.seq = h[len(h)-1].seq + h[len(h)-1].count
			}
			if back := rapid.IntRange(0, 8).Draw(t, "back"); back > 0 && back <= len(h) {
				s = h[len(h)-back]
			} else {
				history[id] = append(h, s)
			}
			b := head(id, 0, s.seq, s.count, next)
			was, err := ps.check(b)
			if err == nil && was == nil {
				ps.wrote(b)
				next += int64(s.count)
				for i := range s.count {
					written[id] = append(written[id], s.seq+i)
				}
			}
			if rapid.IntRange(0, 20).Draw(t, "restart") == 0 {
				again, at, err := parseProducers(ps.snapshot(next))
				if err != nil || at != next || !reflect.DeepEqual(again, ps) {
					t.Fatalf("snapshot: %v, %d", err, at)
				}
				ps = again
			}
		}
		for id, seqs := range written {
			for i, s := range seqs {
				if s != int32(i) {
					t.Fatalf("producer %d wrote %v", id, seqs)
				}
			}
			last := history[id][len(history[id])-1]
			if int32(len(seqs)) != last.seq+last.count {
				t.Fatalf("producer %d sent %d records, %d were written", id, last.seq+last.count, len(seqs))
			}
		}
	})
}

// TestSnapshotGolden pins the snapshot's bytes: a directory keeps them. Those of
// version 1 are read for ever.
func TestSnapshotGolden(t *testing.T) {
	ps := newProducers()
	ps.wrote(head(7, 2, 0, 3, 100))
	ps.wrote(head(5, 0, 0, 1, 103))
	ps.wrote(head(7, 2, 3, 1, 104))
	v1 := "4c490100" + // "LI", version 1
		"0000000000000069" + // next offset 105
		"00000002" + // producers
		"0000000000000005" + "0000" + "0000000000000406" + "01" + // id 5, epoch 0, time 1030, 1 batch
		"00000000" + "00000000" + "0000000000000067" + "0000000000000067" +
		"0000000000000007" + "0002" + "0000000000000410" + "02" + // id 7, epoch 2, time 1040, 2 batches
		"00000000" + "00000002" + "0000000000000064" + "0000000000000066" +
		"00000003" + "00000003" + "0000000000000068" + "0000000000000068" +
		"b044ee2d" // CRC-32C
	old, err := hex.DecodeString(v1)
	if err != nil {
		t.Fatal(err)
	}
	if got, next, err := parseProducers(old); err != nil || next != 105 || !reflect.DeepEqual(got, ps) {
		t.Errorf("version 1 reads as %+v, %d, %v", got, next, err)
	}
	ps.wrote(inTxn(head(9, 0, 0, 2, 105)))
	ps.wrote(inTxn(head(5, 0, 1, 1, 107)))
	ps.ended(marker(5, 0, 108), false)
	v2 := "4c490200" + // "LI", version 2
		"000000000000006d" + // next offset 109
		"00000003" + // producers
		"0000000000000005" + "0000" + "0000000000000438" + "02" + // id 5, epoch 0, time 1080, 2 batches
		"00000000" + "00000000" + "0000000000000067" + "0000000000000067" +
		"00000001" + "00000001" + "000000000000006b" + "000000000000006b" +
		v1[118:118+38+2*48] + // id 7 as in version 1
		"0000000000000009" + "0000" + "000000000000041a" + "01" +
		"00000000" + "00000001" + "0000000000000069" + "000000000000006a" +
		"00000001" + "0000000000000009" + "0000000000000069" + // open: producer 9 since 105
		"00000001" + // aborted
		"0000000000000005" + "000000000000006b" + "000000000000006c" + "0000000000000069" + // producer 5, 107, marker 108, settled 105
		"087143da" // CRC-32C
	if got := hex.EncodeToString(ps.snapshot(109)); got != v2 {
		t.Errorf("snapshot\n%s, want\n%s", got, v2)
	}
}

// inTxn makes a header that of a transactional batch.
func inTxn(h record.Header) record.Header {
	h.Attributes |= 0x10
	return h
}

// marker is the header of a marker.
func marker(id int64, epoch int16, at int64) record.Header {
	return record.Header{
		ProducerID: id, ProducerEpoch: epoch, BaseSequence: -1, Count: 1, BaseOffset: at, MaxTimestamp: at * 10, Attributes: 0x30,
	}
}

// FuzzParseProducers checks, for any input: no panic, memory in proportion to the
// input, and what parses encodes back to the same bytes if it was sorted.
func FuzzParseProducers(f *testing.F) {
	ps := newProducers()
	ps.wrote(head(7, 2, 0, 3, 100))
	f.Add(ps.snapshot(103))
	f.Add(newProducers().snapshot(0))
	ps.wrote(inTxn(head(9, 0, 0, 2, 105)))
	ps.wrote(inTxn(head(7, 2, 3, 1, 107)))
	ps.ended(marker(7, 2, 108), false)
	f.Add(ps.snapshot(109))
	f.Fuzz(func(t *testing.T, b []byte) {
		ps, next, err := parseProducers(b)
		if err != nil {
			return
		}
		out := ps.snapshot(next)
		again, at, err := parseProducers(out)
		if err != nil || at != next || !reflect.DeepEqual(again, ps) || !bytes.Equal(out, again.snapshot(at)) {
			t.Fatalf("%x reads as %+v at %d and comes back as %x", b, ps, next, out)
		}
	})
}

func TestTerms(t *testing.T) {
	var ts terms
	ts = ts.add(3, 0)
	ts = ts.add(5, 10)
	ts = ts.add(6, 20) // a term without records …
	ts = ts.add(8, 20) // … is replaced by the next at the same base
	ts = ts.add(9, 35)
	for _, c := range []struct {
		term      int32
		found     int32
		end       int64
		offset    int64
		termThere int32
	}{
		{2, -1, -1, -1, -1},
		{3, 3, 10, 9, 3},
		{4, 3, 10, 10, 5},
		{6, 5, 20, 19, 5},
		{8, 8, 35, 20, 8},
		{9, 9, 50, 49, 9},
		{12, 9, 50, 35, 9},
	} {
		if found, end := ts.end(c.term, 50); found != c.found || end != c.end {
			t.Errorf("end of term %d: %d at %d, want %d at %d", c.term, found, end, c.found, c.end)
		}
		if got := ts.at(c.offset); got != c.termThere {
			t.Errorf("term of offset %d: %d, want %d", c.offset, got, c.termThere)
		}
	}
}
