package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

const (
	// minRoom and maxGuess bound the first size of the buffer, when it is a guess
	// or the word of the compressed bytes: that many bytes for each of them.
	minRoom  = 4 << 10
	maxGuess = 64
	// zstdBlock is the most that one block of zstd can decompress to.
	zstdBlock = 128 << 10
	// snappyRatio is above the most that snappy can make of a byte: a copy of 64
	// bytes takes three.
	snappyRatio = 22
)

// errFull means that the decompressed bytes do not fit the room given.
var errFull = errors.New("no room")

// decompressor decompresses whole batches into a buffer that it reuses. The
// zero value is ready.
type decompressor struct {
	buf     []byte
	src     bytes.Reader
	gz      *gzip.Reader
	zs      *zstd.Decoder
	zsLimit int // the limit that zs has
}

// decompress returns src decompressed, at most limit bytes (else ErrTooLarge),
// valid until the next call. The buffer starts at a guess and, when that was
// too small, is dropped and taken anew at four times the size, so that what is
// held at any moment stays within the limit (zstd: and one block), however
// little the compressed bytes say about it.
func (d *decompressor) decompress(c Codec, src []byte, limit int) ([]byte, error) {
	need, err := sizeHint(c, src)
	if err != nil {
		return nil, fmt.Errorf("decompress %v: %w", c, err)
	}
	slack := 0
	if c == Zstd {
		slack = zstdBlock // it tests the size after each block
	}
	need = min(need, limit)
	for {
		if cap(d.buf) < need+slack {
			d.buf = nil
			d.buf = make([]byte, 0, need+slack)
		}
		room := min(cap(d.buf)-slack, limit)
		out, err := d.into(c, d.buf[:0:room+slack], src, room)
		switch {
		case err == nil && len(out) <= room:
			return out, nil
		case err != nil && !errors.Is(err, errFull):
			return nil, fmt.Errorf("decompress %v: %w: %w", c, ErrMalformed, err)
		case room >= limit:
			return nil, fmt.Errorf("decompress %v: %w: more than %d bytes", c, ErrTooLarge, limit)
		}
		need = min(4*room, limit)
	}
}

// into decompresses src to dst, which is empty and whose capacity is room (zstd:
// and a block), or returns errFull.
func (d *decompressor) into(c Codec, dst, src []byte, room int) ([]byte, error) {
	switch c {
	case Gzip:
		return d.gunzip(dst, src)
	case Snappy:
		return unsnappy(dst, src)
	case LZ4:
		return unlz4(dst, src)
	case Zstd:
		return d.unzstd(dst, src, room)
	}
	return nil, ErrCodec
}

// sizeHint says how much room to try first, from what the format tells about
// the size, if it does, but no more than maxGuess times the compressed size.
func sizeHint(c Codec, src []byte) (int, error) {
	told := 4 * len(src)
	switch c {
	case Gzip:
		if n := len(src); n >= 8 {
			told = int(min(binary.LittleEndian.Uint32(src[n-4:]), 1<<31-1)) // its trailer
		}
	case Snappy:
		n, err := snappySize(src)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return max(n, 1), nil
	case LZ4:
		told = lz4Size(src, told)
	case Zstd:
		var h zstd.Header
		if err := h.Decode(src); err == nil && h.HasFCS {
			told = int(min(h.FrameContentSize, 1<<31-1))
		}
	}
	return max(minRoom, min(told, maxGuess*len(src))), nil
}

func (d *decompressor) gunzip(dst, src []byte) ([]byte, error) {
	d.src.Reset(src)
	if d.gz == nil {
		d.gz = new(gzip.Reader)
	}
	if err := d.gz.Reset(&d.src); err != nil {
		return nil, err
	}
	for {
		if len(dst) == cap(dst) {
			return dst, atEOF(d.gz)
		}
		n, err := d.gz.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return nil, err
		}
	}
}

// atEOF returns nil when r is at its end, and errFull when it has more.
func atEOF(r io.Reader) error {
	var one [1]byte
	switch _, err := io.ReadFull(r, one[:]); err {
	case io.EOF:
		return nil
	case nil:
		return errFull
	default:
		return err
	}
}

func (d *decompressor) unzstd(dst, src []byte, room int) ([]byte, error) {
	var err error
	if d.zs == nil {
		// A concurrency of one starts no goroutine. The window may be large, since
		// here it is dst and takes no memory of its own.
		d.zs, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(uint64(room)))
	} else if d.zsLimit != room {
		err = d.zs.ResetWithOptions(nil, zstd.WithDecoderMaxMemory(uint64(room)))
	}
	if err != nil {
		return nil, err
	}
	d.zsLimit = room
	out, err := d.zs.DecodeAll(src, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, errFull
	}
	return out, err
}

// xerialMagic starts the framing of snappy-java: magic, version int32, oldest
// compatible version int32, then chunks of length int32 and a snappy block.
// Java, kafka-python and others write it; librdkafka and franz-go write one bare
// block. Readers of Kafka batches tell them apart by this magic.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = len(xerialMagic) + 8
)

// nextXerial cuts the first chunk off b.
func nextXerial(b []byte) (chunk, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errors.New("cut inside a chunk's length")
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, nil, fmt.Errorf("chunk of %d bytes, %d left", n, len(b))
	}
	return b[:n], b[n:], nil
}

// snappySize returns the decompressed size, exactly, without decompressing.
func snappySize(src []byte) (int, error) {
	if !bytes.HasPrefix(src, []byte(xerialMagic)) {
		return blockSize(src)
	}
	if len(src) < xerialHeader {
		return 0, errors.New("cut inside the framing's header")
	}
	total := 0
	for rest := src[xerialHeader:]; len(rest) > 0; {
		var chunk []byte
		var err error
		if chunk, rest, err = nextXerial(rest); err != nil {
			return 0, err
		}
		n, err := blockSize(chunk)
		if err != nil {
			return 0, err
		}
		total += n // each within its ratio, so the sum is within that of src
	}
	return total, nil
}

func blockSize(block []byte) (int, error) {
	n, err := snappy.DecodedLen(block)
	if err == nil && n > snappyRatio*len(block) {
		err = fmt.Errorf("%d bytes claim to hold %d", len(block), n)
	}
	return n, err
}

func unsnappy(dst, src []byte) ([]byte, error) {
	if !bytes.HasPrefix(src, []byte(xerialMagic)) {
		return appendSnappy(dst, src)
	}
	for rest := src[xerialHeader:]; len(rest) > 0; {
		var chunk []byte
		var err error
		if chunk, rest, err = nextXerial(rest); err != nil {
			return nil, err
		}
		if dst, err = appendSnappy(dst, chunk); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func appendSnappy(dst, block []byte) ([]byte, error) {
	n, err := blockSize(block)
	switch {
	case err != nil:
		return nil, err
	case n > cap(dst)-len(dst):
		return nil, errFull
	}
	out, err := snappy.Decode(dst[len(dst):len(dst)+n], block)
	if err != nil {
		return nil, err
	}
	return dst[:len(dst)+len(out)], nil
}
