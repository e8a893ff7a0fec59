package record

import (
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compressor compresses whole batches and keeps the encoders. The zero value
// is ready; level is set before the first use.
type compressor struct {
	level int
	sink  sink
	gz    *gzip.Writer
	zs    *zstd.Encoder
	lz    lz4.Compressor
	hc    *lz4.CompressorHC
	tmp   []byte
}

// sink collects what an encoder writes.
type sink []byte

// Write appends p; it does not fail.
func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}

// append appends src, compressed, to dst. Compressing to memory does not fail.
func (c *compressor) append(dst []byte, codec Codec, src []byte) []byte {
	switch codec {
	case None:
		return append(dst, src...)
	case Gzip:
		return c.appendGzip(dst, src)
	case Snappy:
		c.tmp = s2.EncodeSnappy(c.tmp[:cap(c.tmp)], src)
		return append(dst, c.tmp...)
	case LZ4:
		return c.appendLZ4(dst, src)
	case Zstd:
		return c.appendZstd(dst, src)
	}
	panic(fmt.Sprintf("record: compress with %v", codec))
}

func (c *compressor) appendGzip(dst, src []byte) []byte {
	if c.gz == nil {
		level := gzip.DefaultCompression
		if c.level != 0 {
			level = min(max(c.level, gzip.BestSpeed), gzip.BestCompression)
		}
		gz, err := gzip.NewWriterLevel(&c.sink, level)
		must(err)
		c.gz = gz
	}
	c.sink = dst
	c.gz.Reset(&c.sink)
	_, err := c.gz.Write(src)
	must(err)
	must(c.gz.Close())
	dst, c.sink = c.sink, nil
	return dst
}

func (c *compressor) appendZstd(dst, src []byte) []byte {
	if c.zs == nil {
		level := zstd.SpeedDefault
		if c.level != 0 {
			level = zstd.EncoderLevelFromZstd(min(max(c.level, 1), 22))
		}
		zs, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithLowerEncoderMem(true))
		must(err)
		c.zs = zs
	}
	return c.zs.EncodeAll(src, dst)
}

// must panics on an error that the encoders' contracts exclude: options that
// are constant, and a writer that does not fail.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("record: compress: %v", err))
	}
}
