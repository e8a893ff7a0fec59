package record

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestRecompress: from any codec to any other, the header keeps all but codec,
// length and checksum, the records are the same, and coming back to where it was
// gives the same records again.
func TestRecompress(t *testing.T) {
	var c Recompressor
	var r Reader
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.SampledFrom(allCodecs).Draw(t, "from")
		to := rapid.SampledFrom(allCodecs).Draw(t, "to")
		batch := build(from, 0, genRecords(1, 12).Draw(t, "records"))
		Place(batch, 5000, 77)
		SetProducer(batch, 9, 3, 12)
		SetTransactional(batch)
		orig := bytes.Clone(batch)
		want, err := readAll(&r, batch, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Recompress([]byte("dst"), batch, to, Limits{})
		if err != nil || !bytes.HasPrefix(out, []byte("dst")) || !bytes.Equal(batch, orig) {
			t.Fatalf("%v to %v: %v", from, to, err)
		}
		out = out[3:]
		if from == to && !bytes.Equal(out, batch) {
			t.Fatal("the same codec, but not verbatim")
		}
		if err := CheckCRC(out); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(&r, out, Limits{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v to %v: %v, %v, want %v", from, to, err, got, want)
		}
		have, _ := ParseHeader(out)
		if have.Compression() != to {
			t.Fatalf("codec %v, want %v", have.Compression(), to)
		}
		was, _ := ParseHeader(batch)
		was.Length, was.CRC, was.Attributes = have.Length, have.CRC, was.Attributes&^attrCodec|int16(to)
		if have != was {
			t.Fatalf("header %+v, want %+v", have, was)
		}
	})
}

func TestRecompressRefuses(t *testing.T) {
	var c Recompressor
	batch := build(Zstd, 0, []Record{{Key: []byte("k"), Value: bytes.Repeat([]byte("x"), 10_000)}})
	dst := []byte("dst")
	if out, err := c.Recompress(dst, batch, LZ4, Limits{MaxDecompressed: 1000}); !errors.Is(err, ErrTooLarge) || string(out) != "dst" {
		t.Errorf("beyond the limit: %q, %v", out, err)
	}
	if out, err := c.Recompress(dst, batch, 7, Limits{}); !errors.Is(err, ErrCodec) || string(out) != "dst" {
		t.Errorf("codec 7: %q, %v", out, err)
	}
	batch[HeaderSize] ^= 0xff // the frame's first bytes
	if out, err := c.Recompress(dst, batch, LZ4, Limits{}); !errors.Is(err, ErrMalformed) || string(out) != "dst" {
		t.Errorf("damaged: %q, %v", out, err)
	}
}
