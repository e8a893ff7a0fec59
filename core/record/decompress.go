package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

const (
	// minRoom and maxGuess bound the first size of the buffer when it is a guess,
	// or the word of the compressed bytes: that many bytes for each of them.
	minRoom  = 4 << 10
	maxGuess = 64
	// The most that a compressed byte can stand for: deflate's longest match takes
	// two bits, a copy of 64 bytes three bytes of snappy; lz4 counts by 255.
	gzipRatio   = 1032
	snappyRatio = 22
	lz4Ratio    = 255
	// zstdBlock is the most that one block of zstd can decompress to.
	zstdBlock = 128 << 10
	// zstdOverrun is by how much its decoder likes to write beyond, to be faster.
	zstdOverrun = 16
)

// errFull means that the decompressed bytes do not fit the room given.
var errFull = errors.New("no room")

// decompressor decompresses whole batches into a buffer that it reuses. The
// zero value is ready.
type decompressor struct {
	buf []byte
	src bytes.Reader
	gz  *gzip.Reader
	zs  *zstd.Decoder
}

// decompress returns src decompressed, at most limit bytes (else ErrTooLarge),
// valid until the next call. The buffer starts at a guess and, when that was
// too small, is dropped and taken anew at four times the size: so what is held
// at any moment is within the limit (zstd: and a block of 128 KiB), and within
// what src can hold at best.
func (d *decompressor) decompress(c Codec, src []byte, limit int) ([]byte, error) {
	size, err := estimate(c, src)
	switch {
	case err != nil:
		return nil, fmt.Errorf("decompress %v: %w: %w", c, ErrMalformed, err)
	case size.least > limit:
		return nil, fmt.Errorf("decompress %v: %w: %d bytes or more, limit %d", c, ErrTooLarge, size.least, limit)
	}
	slack := 0
	if c == Zstd {
		slack = zstdBlock // its decoder does not tell a full buffer from other errors: so it never meets one
	}
	most := min(size.most, limit)
	for room := min(size.guess, most); ; room = min(4*room, most) {
		if room+slack >= most {
			room = most
		}
		if need := min(room+slack, size.most+zstdOverrun); cap(d.buf) < need {
			d.buf = nil
			d.buf = make([]byte, 0, need)
		}
		room = min(max(room, cap(d.buf)-slack), most)
		out, err := d.into(c, d.buf[:0:min(room+slack, cap(d.buf))], src)
		switch {
		case len(out) > room:
			err = errFull
		case err == nil:
			return out, nil
		}
		switch {
		case !errors.Is(err, errFull):
			return nil, fmt.Errorf("decompress %v: %w: %w", c, ErrMalformed, err)
		case room == size.most:
			return nil, fmt.Errorf("decompress %v: %w: claims to hold more than it can", c, ErrMalformed)
		case room == limit:
			return nil, fmt.Errorf("decompress %v: %w: more than %d bytes", c, ErrTooLarge, limit)
		}
	}
}

// into decompresses src to dst, which is empty, within its capacity, or returns
// errFull. With another error it returns what it had so far.
func (d *decompressor) into(c Codec, dst, src []byte) ([]byte, error) {
	switch c {
	case Gzip:
		return d.gunzip(dst, src)
	case Snappy:
		return unsnappy(dst, src)
	case LZ4:
		return unlz4(dst, src)
	case Zstd:
		return d.unzstd(dst, src)
	}
	return nil, ErrCodec
}

// extent is what can be said about the decompressed size without decompressing.
type extent struct {
	least, most int // for certain
	guess       int // where to start: the size if told, but no more than maxGuess for each byte
}

func estimate(c Codec, src []byte) (extent, error) {
	var e extent
	told := 4 * len(src)
	switch c {
	case Gzip:
		e.most = times(len(src), gzipRatio)
		if n := len(src); n >= 8 {
			told = int(min(binary.LittleEndian.Uint32(src[n-4:]), math.MaxInt32)) // its trailer
		}
	case Snappy:
		n, err := snappySize(src)
		return extent{n, n, n}, err
	case LZ4:
		f, _, err := parseLZ4(src)
		if err != nil {
			return e, err
		}
		e.most = times(len(src), lz4Ratio)
		if f.size >= 0 {
			told = f.size
		}
	case Zstd:
		least, most, err := zstdSize(src)
		if err != nil {
			return e, err
		}
		e.least, e.most = int(min(least, math.MaxInt)), int(min(most, math.MaxInt))
		told = min(8*len(src), e.most)
		if least == most {
			told = e.most
		}
	}
	e.guess = max(minRoom, min(told, times(len(src), maxGuess)))
	return e, nil
}

// times is n*ratio, or the greatest int when that is beyond it.
func times(n, ratio int) int { return ratio * min(n, math.MaxInt/ratio) }

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

func (d *decompressor) unzstd(dst, src []byte) ([]byte, error) {
	if d.zs == nil {
		// A concurrency of one starts no goroutine. A window takes no memory of its
		// own here, since it is dst.
		zs, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, err
		}
		d.zs = zs
	}
	out, err := d.zs.DecodeAll(src, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, errFull
	}
	return out, err
}

// zstdSize walks over the frames of src, and the blocks of each, and returns how
// much they decompress to at least and at most. A frame that tells its size
// decompresses to that or not at all.
func zstdSize(src []byte) (least, most int64, err error) {
	for len(src) > 0 {
		var h zstd.Header
		if err := h.Decode(src); err != nil {
			return 0, 0, err
		}
		src = src[h.HeaderSize:]
		if h.Skippable {
			if uint64(h.SkippableSize) > uint64(len(src)) {
				return 0, 0, errors.New("cut inside a frame to skip")
			}
			src = src[h.SkippableSize:]
			continue
		}
		var low, high int64
		if low, high, src, err = zstdBlocks(src); err != nil {
			return 0, 0, err
		}
		if h.HasFCS {
			if h.FrameContentSize < uint64(low) || h.FrameContentSize > uint64(high) {
				return 0, 0, fmt.Errorf("frame of %d to %d bytes claims to hold %d", low, high, h.FrameContentSize)
			}
			low, high = int64(h.FrameContentSize), int64(h.FrameContentSize)
		}
		least, most = least+low, most+high
		if h.HasCheckSum {
			src = src[min(4, len(src)):] // the decoder misses it if it is not there
		}
	}
	return least, most, nil
}

// zstdBlocks walks over the blocks of one frame and returns what they decompress
// to at least and at most, and what follows the last of them.
func zstdBlocks(src []byte) (least, most int64, rest []byte, err error) {
	for last := false; !last; {
		if len(src) < 3 {
			return 0, 0, nil, errors.New("cut inside a block's header")
		}
		head := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		size := int(head >> 3)
		takes := size
		last = head&1 != 0
		switch head >> 1 & 3 {
		case 0: // stored
			least, most = least+int64(size), most+int64(size)
		case 1: // one byte, repeated
			least, most = least+int64(size), most+int64(size)
			takes = 1
		default:
			most += zstdBlock
		}
		if src = src[3:]; takes > len(src) || size > zstdBlock {
			return 0, 0, nil, fmt.Errorf("block of %d bytes, %d left", size, len(src))
		}
		src = src[takes:]
	}
	return least, most, src, nil
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
