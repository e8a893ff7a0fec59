package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format, as far as Kafka uses it: one frame with its header
// checksum. Framing here rather than in the library keeps the output in one
// buffer with one limit; the library does the blocks.
const (
	lz4Magic = 0x184D2204

	lz4Version       = 0x40 // of the flags byte, bits 6-7: 01
	lz4VersionMask   = 0xC0
	lz4Independent   = 0x20
	lz4BlockChecksum = 0x10
	lz4ContentSize   = 0x08
	lz4Checksum      = 0x04
	lz4Reserved      = 0x02
	lz4Dictionary    = 0x01

	lz4Block64K   = 4 << 4 // of the block byte, bits 4-6
	lz4Stored     = 1 << 31
	lz4Window     = 64 << 10
	lz4WriteBlock = 64 << 10
)

// lz4Frame is a frame's header.
type lz4Frame struct {
	flags byte
	block int // greatest decompressed size of a block, bytes
	size  int // decompressed size, or -1 when not told
}

func parseLZ4(src []byte) (f lz4Frame, rest []byte, err error) {
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, nil, errors.New("no frame")
	}
	f.flags, f.size = src[4], -1
	head := src[4:]
	n := 2
	switch {
	case f.flags&lz4VersionMask != lz4Version || f.flags&lz4Reserved != 0:
		return f, nil, fmt.Errorf("frame flags %02x", f.flags)
	case f.flags&lz4Dictionary != 0:
		return f, nil, errors.New("frame needs a dictionary")
	case head[1]&0x8F != 0 || head[1] < lz4Block64K:
		return f, nil, fmt.Errorf("block size byte %02x", head[1])
	}
	f.block = 1 << (8 + 2*(head[1]>>4))
	if f.flags&lz4ContentSize != 0 {
		n += 8
		if len(head) < n+1 {
			return f, nil, errors.New("cut inside the frame header")
		}
		f.size = int(min(binary.LittleEndian.Uint64(head[2:]), 1<<31-1))
	}
	if sum := byte(xxh32(head[:n]) >> 8); sum != head[n] {
		return f, nil, fmt.Errorf("header checksum %02x, want %02x", head[n], sum)
	}
	return f, head[n+1:], nil
}

// unlz4 appends one frame, decompressed, to dst within its capacity. Checksums
// of blocks and content are stepped over: the batch's own covers the bytes.
func unlz4(dst, src []byte) ([]byte, error) {
	f, b, err := parseLZ4(src)
	if err != nil {
		return nil, err
	}
	for {
		if len(b) < 4 {
			return nil, errors.New("no end mark")
		}
		word := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if word == 0 {
			break
		}
		n := int(word &^ lz4Stored)
		tail := 0
		if f.flags&lz4BlockChecksum != 0 {
			tail = 4
		}
		if n > f.block || n+tail > len(b) {
			return nil, fmt.Errorf("block of %d bytes, %d left", n, len(b))
		}
		if word&lz4Stored != 0 {
			if n > cap(dst)-len(dst) {
				return nil, errFull
			}
			dst = append(dst, b[:n]...)
		} else if dst, err = f.appendBlock(dst, b[:n]); err != nil {
			return nil, err
		}
		b = b[n+tail:]
	}
	end := 0
	if f.flags&lz4Checksum != 0 {
		end = 4
	}
	switch {
	case len(b) != end:
		return nil, fmt.Errorf("%d bytes after the end mark", len(b))
	case f.size >= 0 && f.size != len(dst):
		return nil, fmt.Errorf("%d bytes where the frame says %d", len(dst), f.size)
	}
	return dst, nil
}

// appendBlock appends one compressed block, decompressed, to dst.
func (f *lz4Frame) appendBlock(dst, block []byte) ([]byte, error) {
	room := min(cap(dst)-len(dst), f.block)
	var dict []byte
	if f.flags&lz4Independent == 0 {
		dict = dst[max(0, len(dst)-lz4Window):]
	}
	n, err := lz4.UncompressBlockWithDict(block, dst[len(dst):len(dst)+room], dict)
	if err != nil {
		// The library does not tell a block that is wrong from one that does not
		// fit. With less room than a block may need, it may be the latter.
		if room < min(f.block, lz4Ratio*len(block)) {
			return nil, errFull
		}
		return nil, err
	}
	return dst[:len(dst)+n], nil
}

// appendLZ4 appends src as one frame of independent 64 KiB blocks, the form that
// every Kafka client reads.
func (c *compressor) appendLZ4(dst, src []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4Version|lz4Independent, lz4Block64K)
	dst = append(dst, byte(xxh32(dst[len(dst)-2:])>>8))
	for len(src) > 0 {
		block := src[:min(len(src), lz4WriteBlock)]
		src = src[len(block):]
		at := len(dst) + 4
		dst = binary.LittleEndian.AppendUint32(dst, 0)
		dst = append(dst, block...) // room for it, and its bytes when it does not shrink
		n := c.lz4Block(dst[at:at+len(block)-1], block)
		word := uint32(n)
		if n == 0 {
			n, word = len(block), lz4Stored|uint32(len(block))
			copy(dst[at:], block) // a failed attempt leaves bytes behind
		}
		binary.LittleEndian.PutUint32(dst[at-4:], word)
		dst = dst[:at+n]
	}
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// lz4Block compresses block into dst and returns how many bytes it took, or 0
// when they do not fit.
func (c *compressor) lz4Block(dst, block []byte) int {
	var n int
	var err error
	if c.level <= 1 {
		n, err = c.lz.CompressBlock(block, dst)
	} else {
		if c.hc == nil {
			c.hc = &lz4.CompressorHC{Level: 1 << (8 + min(c.level, 12)*9/12)}
		}
		n, err = c.hc.CompressBlock(block, dst)
	}
	if err != nil {
		return 0
	}
	return n
}

// xxh32 is XXH32 with seed 0 of fewer than 16 bytes, all that a frame header has.
func xxh32(b []byte) uint32 {
	const (
		p1, p2, p3 = 2654435761, 2246822519, 3266489917
		p4, p5     = 668265263, 374761393
	)
	h := uint32(p5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, x := range b {
		h = bits.RotateLeft32(h+uint32(x)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
