package segment

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestGoldenFiles holds the names and bytes that are on the disk after a clean
// stop. The indexes are Kafka's: an entry has the last offset of the batch it
// points at, as its own tools check.
func TestGoldenFiles(t *testing.T) {
	fs := disk.NewMem()
	l, _, err := Open(fs, "/log", Options{Codec: testCodec{}, IndexBytes: 100, SegmentBytes: 330}, Resume{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for i, ms := range []int64{10, 30, 20, 25, 40} {
		m := Meta{Base: int64(i) * 3, Last: int64(i)*3 + 2, MaxTime: ms, Term: 1}
		b := block(m, 80, 1)
		if _, err := l.Append([]Meta{m}, []int{80}, b); err != nil {
			t.Fatal(err)
		}
		if i < 4 {
			want = append(want, b...)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, hexWant := range map[string]string{
		"00000000000000000000.log":       hex.EncodeToString(want),
		"00000000000000000000.index":     "00000008" + "000000a0",         // the third block ends at offset 8, begins at byte 160
		"00000000000000000000.timeindex": "000000000000001e" + "00000005", // 30 is the greatest time, in the block that ends at 5
		"00000000000000000012.index":     "",
		"00000000000000000012.timeindex": "0000000000000028" + "00000002", // written by the seal
		"00000000000000000012.hint":      "4c580100" + "00000000" + "00000001" + "00000000" + "14947b6c" + "acace1ec",
	} {
		b, err := disk.ReadFile(fs, "/log/"+name)
		if err != nil || hex.EncodeToString(b) != hexWant {
			t.Errorf("%s: %x, %v\nwant %s", name, b, err, hexWant)
		}
	}
	names, err := fs.List("/log")
	if err != nil || strings.Join(names, " ") != "00000000000000000000.index 00000000000000000000.log 00000000000000000000.timeindex "+
		"00000000000000000012.hint 00000000000000000012.index 00000000000000000012.log 00000000000000000012.timeindex" {
		t.Errorf("files: %v, %v", names, err)
	}
}

// FuzzIndexFiles checks, for any bytes of the three files: no panic; entries rise
// and point before the end; nothing is believed without a hint that fits.
func FuzzIndexFiles(f *testing.F) {
	x := memIndex{offsets: []offsetEntry{{5, 100}, {9, 300}}, times: []timeEntry{{1000, 5}}}
	offsets, times := encodeOffsets(x.offsets), encodeTimes(x.times)
	x.offsetsWritten, x.offsetsSum, x.timesWritten, x.timesSum = 2, checksum(0, offsets), 1, checksum(0, times)
	f.Add(offsets, times, encodeHint(&x), int64(1000))
	f.Add([]byte{}, []byte{}, []byte("LX"), int64(0))
	f.Fuzz(func(t *testing.T, offsets, times, hint []byte, end int64) {
		r := rawIndex{offsets, times, hint}
		got := r.before(end)
		if _, _, ok := r.vouched(); !ok && (got.offsets != nil || got.times != nil) {
			t.Fatal("believed without a hint")
		}
		var prev offsetEntry
		for _, e := range decodeOffsets(offsets, end) {
			if e.at <= prev.at || e.last <= prev.last || int64(e.at) >= end {
				t.Fatalf("%+v after %+v, end %d", e, prev, end)
			}
			prev = e
		}
		n := decodeTimes(times, 1<<20)
		for i := range n[min(1, len(n)):] {
			if n[i+1].time <= n[i].time || n[i+1].last <= n[i].last {
				t.Fatalf("%+v after %+v", n[i+1], n[i])
			}
		}
		if !bytes.HasPrefix(times, encodeTimes(n)) || !bytes.HasPrefix(offsets, encodeOffsets(decodeOffsets(offsets, end))) {
			t.Fatal("decoded what is not there")
		}
	})
}

// recordCodec is the codec of a partition: Kafka's record batches.
type recordCodec struct{}

func (recordCodec) HeaderLen() int       { return record.HeaderSize }
func (recordCodec) Check(b []byte) error { return record.CheckCRC(b) }
func (recordCodec) Header(b []byte) (Meta, int, error) {
	h, err := record.ParseHeader(b)
	if err != nil {
		return Meta{}, 0, err
	}
	return Meta{Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Term: h.LeaderEpoch}, h.Size(), nil
}

// TestRecordBatches: record batches are stored as they are, one file is their
// concatenation, and a restart after a kill reads them all.
func TestRecordBatches(t *testing.T) {
	fs := disk.NewMem()
	opt := Options{Codec: recordCodec{}}
	l, _, err := Open(fs, "/log", opt, Resume{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for next := int64(0); next < 300; {
		bl := record.NewBuilder(0, 0)
		for i := range 1 + next%7 {
			bl.Add(1000+next+i, []byte("key"), bytes.Repeat([]byte("v"), int(next)), nil)
		}
		b := bl.Build(nil)
		record.Place(b, next, 7)
		m, size, err := recordCodec{}.Header(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append([]Meta{m}, []int{size}, b); err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
		next = m.Last + 1
	}
	n := 0
	again, rec, err := Open(fs, "/log", opt, Resume{}, func(_ Meta, b []byte) error {
		n += len(b)
		return nil
	})
	if err != nil || n != len(want) || rec.Cut != nil || again.Next() != l.Next() {
		t.Fatalf("%d of %d bytes recovered, %+v, %v", n, len(want), rec, err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := disk.ReadFile(fs, "/log/00000000000000000000.log"); err != nil || !bytes.Equal(b, want) {
		t.Fatalf("the file has %d bytes, want %d: %v", len(b), len(want), err)
	}
}
