package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/record"
)

// TestCompressionType: a topic that names a codec stores every batch in it, from
// producers with sequences too, and one that does not keeps what it gets.
func TestCompressionType(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	codecs := map[string]record.Codec{
		"uncompressed": record.None, "gzip": record.Gzip, "snappy": record.Snappy, "lz4": record.LZ4, "zstd": record.Zstd,
	}
	for name, want := range codecs {
		topic := f.topic(name, 1, "compression.type", name)
		n := 0
		for _, sent := range codecs {
			b := batch(sent, fmt.Sprint(n), strings.Repeat("x", 500))
			record.SetProducer(b, 7, 0, int32(2*n))
			for range 2 { // the second is a retry
				if p := c.produce(topic, 9, 0, slices.Clone(b)); p.ErrorCode != 0 || p.BaseOffset != int64(2*n) {
					t.Fatalf("%v into %s: %+v", sent, name, p)
				}
			}
			n++
		}
		stored := c.fetch(topic, 12, 0, 0).RecordBatches
		if got := values(t, stored); len(got) != 2*n { // checks the CRCs
			t.Errorf("%s: %d records, want %d", name, len(got), 2*n)
		}
		for rest := stored; len(rest) > 0; {
			_, tail, h, err := record.Next(rest)
			if err != nil || h.Compression() != want {
				t.Fatalf("%s: a batch is stored as %v (%v)", name, h.Compression(), err)
			}
			rest = tail
		}
	}
	as := f.topic("producer", 1)
	if p := c.produce(as, 9, 0, batch(record.Snappy, "a")); p.ErrorCode != 0 {
		t.Fatal(p.ErrorCode)
	}
	if h, err := record.ParseHeader(c.fetch(as, 12, 0, 0).RecordBatches); err != nil || h.Compression() != record.Snappy {
		t.Errorf("compression.type=producer: stored as %v, %v", h.Compression(), err)
	}
	// What fits as it is sent may not fit as it is stored.
	small := f.topic("small", 1, "compression.type", "uncompressed", "max.message.bytes", "1000")
	if p := c.produce(small, 9, 0, batch(record.Zstd, strings.Repeat("x", 2000))); p.ErrorCode != 10 {
		t.Errorf("too large once unpacked: error %d, want MESSAGE_TOO_LARGE", p.ErrorCode)
	}
}
