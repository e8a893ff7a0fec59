package record

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// goldenBatch is two records as Kafka writes them. The bytes are stored for
// ever: if this test changes, the code is wrong, not the test.
const goldenBatch = `
	0000000000000000 // base offset 0
	00000055         // length 85
	ffffffff         // leader epoch -1
	02               // magic
	2518878b         // CRC-32C of all that follows
	0000             // attributes: no codec, create time
	00000001         // last offset delta 1
	000001937a52fc00 // base timestamp 1732924079104
	000001937a52fc00 // max timestamp: the second record is earlier
	ffffffffffffffff // producer id -1
	ffff             // producer epoch -1
	ffffffff         // base sequence -1
	00000002         // 2 records
	24               // record 0: length 18
	00               //   attributes
	00               //   timestamp delta 0
	00               //   offset delta 0
	02 6b            //   key "k"
	0a 76616c7565    //   value "value"
	02               //   1 header
	04 6869          //     key "hi"
	04 0001          //     value 00 01
	20               // record 1: length 16
	00               //   attributes
	03               //   timestamp delta -2
	02               //   offset delta 1
	01               //   key null
	00               //   value empty
	04               //   2 headers
	02 61 01         //     "a": null
	0a 6c6f6e6765 00 //     "longe": empty
`

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var goldenRecords = []Record{
	{0, 1732924079104, []byte("k"), []byte("value"), []RecordHeader{{"hi", []byte{0, 1}}}},
	{1, 1732924079102, nil, []byte{}, []RecordHeader{{"a", nil}, {"longe", []byte{}}}},
}

func TestGoldenBytes(t *testing.T) {
	want := unhex(t, goldenBatch)
	if got := build(None, 0, goldenRecords); !bytes.Equal(got, want) {
		t.Errorf("built\n%x, want\n%x", got, want)
	}
	got, err := readAll(new(Reader), want, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	checkRecords(t, got, goldenRecords)
	if err := CheckCRC(want); err != nil {
		t.Error(err)
	}
}

// TestPlaceBytes: exactly the bytes of offset and epoch change, and the checksum
// still holds.
func TestPlaceBytes(t *testing.T) {
	b := unhex(t, goldenBatch)
	Place(b, 0x0102030405060708, 0x0a0b0c0d)
	want := unhex(t, goldenBatch)
	copy(want, unhex(t, `0102030405060708 00000055 0a0b0c0d`))
	if !bytes.Equal(b, want) {
		t.Errorf("placed\n%x, want\n%x", b, want)
	}
	if err := CheckCRC(b); err != nil {
		t.Error(err)
	}
}

// TestStampAppendTime: every record reads as of that time, and nothing but the
// attribute bit, the greatest timestamp and the checksum changed.
func TestStampAppendTime(t *testing.T) {
	b := unhex(t, goldenBatch)
	const ms = 1732924099999
	StampAppendTime(b, ms)
	h, err := ParseHeader(b)
	if err != nil || CheckCRC(b) != nil || !h.LogAppendTime() || h.MaxTimestamp != ms {
		t.Fatalf("%+v %v %v", h, err, CheckCRC(b))
	}
	got, err := readAll(new(Reader), b, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{goldenRecords[0], goldenRecords[1]}
	want[0].Timestamp, want[1].Timestamp = ms, ms
	checkRecords(t, got, want)

	orig := unhex(t, goldenBatch)
	for i := range b {
		may := i >= atCRC && i < atAttributes+2 || i >= atMaxTimestamp && i < atProducerID
		if b[i] != orig[i] && !may {
			t.Errorf("byte %d changed", i)
		}
	}
}

func TestSetProducer(t *testing.T) {
	b := unhex(t, goldenBatch)
	SetProducer(b, 1<<40, 7, 1<<31-1)
	h, err := ParseHeader(b)
	if err != nil || CheckCRC(b) != nil || h.CheckProduced() != nil {
		t.Fatal(err, CheckCRC(b), h.CheckProduced())
	}
	if !h.Idempotent() || h.ProducerID != 1<<40 || h.ProducerEpoch != 7 || h.BaseSequence != 1<<31-1 {
		t.Errorf("%+v", h)
	}
	if h.LastSequence() != 0 {
		t.Errorf("last sequence %d, want 0: it wraps", h.LastSequence())
	}
}

// TestMurmur2 has the vectors of Kafka's own tests.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := Murmur2([]byte(key)); got != want {
			t.Errorf("Murmur2(%q) = %d, want %d", key, got, want)
		}
		if got, want := PartitionForKey([]byte(key), 7), int32((int64(want)&0x7fffffff)%7); got != want {
			t.Errorf("PartitionForKey(%q, 7) = %d, want %d", key, got, want)
		}
	}
}
