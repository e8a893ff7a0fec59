package record

import (
	"fmt"
	"strconv"
)

// Codec is the compression of a batch's records, as in its attributes.
type Codec uint8

// The codecs that Kafka defines.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4

	codecs = 5
)

func (c Codec) known() bool { return c < codecs }

// String returns the codec's name in Kafka's compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "codec " + strconv.Itoa(int(c))
}

// ParseCodec reads a name as String writes it. An unknown one is ErrCodec.
func ParseCodec(name string) (Codec, error) {
	for c := range Codec(codecs) {
		if c.String() == name {
			return c, nil
		}
	}
	return None, fmt.Errorf("%w %q: use none, gzip, snappy, lz4 or zstd", ErrCodec, name)
}

// DefaultMaxDecompressed is the limit that a zero Limits stands for, in bytes.
const DefaultMaxDecompressed = 64 << 20

// Limits bounds what opening a batch may cost.
type Limits struct {
	// MaxDecompressed is how many bytes the records of one batch may decompress
	// to; 0 stands for DefaultMaxDecompressed. Records that are not compressed
	// are read in place and need no limit.
	MaxDecompressed int
}

func (l Limits) maxDecompressed() int {
	if l.MaxDecompressed <= 0 {
		return DefaultMaxDecompressed
	}
	return l.MaxDecompressed
}
