package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// kmsgRecord is rec as another implementation's type.
func kmsgRecord(rec Record, base int64) kmsg.Record {
	r := kmsg.NewRecord()
	r.TimestampDelta64, r.OffsetDelta, r.Key, r.Value = rec.Timestamp-base, int32(rec.Offset), rec.Key, rec.Value
	for _, h := range rec.Headers {
		r.Headers = append(r.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // the length of a length of 0 is 1
	return r
}

// TestKmsgReads: franz-go reads from a built batch what was put in.
func TestKmsgReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := genRecords(1, 12).Draw(t, "records")
		b := build(None, 0, recs)
		var k kmsg.RecordBatch
		if err := k.ReadFrom(b); err != nil {
			t.Fatalf("kmsg: %v", err)
		}
		h, err := ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if theirs := kmsgHeader(&k); theirs != h {
			t.Fatalf("kmsg has %+v, we %+v", theirs, h)
		}
		for i, left := 0, k.Records; len(left) > 0; i++ {
			size, n := binary.Varint(left)
			r := kmsg.NewRecord()
			if err := r.ReadFrom(left[:n+int(size)]); err != nil {
				t.Fatalf("kmsg: record %d: %v", i, err)
			}
			got := Record{int64(r.OffsetDelta), k.FirstTimestamp + r.TimestampDelta64, r.Key, r.Value, nil}
			for _, h := range r.Headers {
				got.Headers = append(got.Headers, RecordHeader{h.Key, h.Value})
			}
			if !same(got, recs[i]) {
				t.Fatalf("record %d: kmsg has %.200v, want %.200v", i, got, recs[i])
			}
			left = left[n+int(size):]
		}
	})
}

func kmsgHeader(k *kmsg.RecordBatch) Header {
	return Header{
		k.FirstOffset, k.Length, k.PartitionLeaderEpoch, k.Magic, uint32(k.CRC), k.Attributes, k.LastOffsetDelta,
		k.FirstTimestamp, k.MaxTimestamp, k.ProducerID, k.ProducerEpoch, k.FirstSequence, k.NumRecords,
	}
}

// TestKmsgWrites: what franz-go encodes, we read, and encode to the same bytes.
func TestKmsgWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := genRecords(1, 12).Draw(t, "records")
		k := kmsg.RecordBatch{
			PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(recs) - 1),
			FirstTimestamp: recs[0].Timestamp, MaxTimestamp: recs[0].Timestamp,
			ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(recs)),
		}
		for _, rec := range recs {
			k.MaxTimestamp = max(k.MaxTimestamp, rec.Timestamp)
			r := kmsgRecord(rec, k.FirstTimestamp)
			k.Records = r.AppendTo(k.Records)
		}
		k.Length = int32(len(k.Records) + 49)
		k.CRC = int32(crc32.Checksum(k.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
		theirs := k.AppendTo(nil)
		if err := CheckCRC(theirs); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(new(Reader), theirs, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		checkRecords(t, got, recs)
		if ours := build(None, 0, recs); !bytes.Equal(ours, theirs) {
			t.Fatalf("we write\n%x, kmsg\n%x", ours, theirs)
		}
	})
}

// TestFranzCompression: franz-go's client reads the records that we compress,
// and we those that it compresses, for every codec.
func TestFranzCompression(t *testing.T) {
	theirs := map[Codec]kgo.CompressionCodec{
		Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}
	recs := benchRecords()
	for i := range recs {
		recs[i].Offset = int64(i)
	}
	plain := build(None, 0, recs)
	for codec, theirCodec := range theirs {
		ours := build(codec, 0, recs)
		got, err := kgo.DefaultDecompressor().Decompress(ours[HeaderSize:], kgo.CompressionCodecType(codec))
		if err != nil || !bytes.Equal(got, plain[HeaderSize:]) {
			t.Errorf("%v: franz-go reads %d of %d bytes: %v", codec, len(got), len(plain)-HeaderSize, err)
		}
		c, err := kgo.DefaultCompressor(theirCodec)
		if err != nil {
			t.Fatal(err)
		}
		z, used := c.Compress(new(bytes.Buffer), plain[HeaderSize:])
		if Codec(used) != codec {
			t.Fatalf("%v: franz-go used codec %d", codec, used)
		}
		back, err := readAll(new(Reader), recompress(plain, codec, z), Limits{})
		if err != nil {
			t.Errorf("%v: %v", codec, err)
		}
		checkRecords(t, back, recs)
	}
}
