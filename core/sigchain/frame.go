package sigchain

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/merkle"
)

// In its author's log an entry stands in a frame, which lets the log find its way
// and tell a torn tail without knowing any version of the entry. A block of the
// log is a frame, so the tree, and with it the author's checkpoints, commits to
// the whole of it: the entry with its signature.
//
//	 0      2     3     4        8      16     24      28
//	+------+-----+-----+--------+------+------+-------+----------
//	| "LA" | ver | 0   | length | seq  | time | crc   | entry ...      big-endian
//	|      | 1   |     | u32    | u64  | u64  | u32   |
//	+------+-----+-----+--------+------+------+-------+----------
//
// length is the entry's, time its hybrid timestamp, crc the CRC-32C of everything
// else in the frame. The entry with sequence number n is the block at offset n-1.
// A frame that was written keeps its bytes.
const (
	// FrameVersion is the version of the frame.
	FrameVersion = 1
	// FrameHeader is the length of what stands before the entry.
	FrameHeader = 2 + 1 + 1 + 4 + 8 + 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FrameSum returns the checksum of a frame: header is what stands before the
// checksum, entry what stands behind it.
func FrameSum(header, entry []byte) uint32 {
	return crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, entry)
}

// FrameSize returns the length of the frame of s.
func FrameSize(s Signed) int { return FrameHeader + len(s.raw) }

// AppendFrame appends the frame of s.
func AppendFrame(b []byte, s Signed) []byte {
	return append(appendFrameHeader(b, s), s.raw...)
}

func appendFrameHeader(b []byte, s Signed) []byte {
	at := len(b)
	b = append(b, 'L', 'A', FrameVersion, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.raw)))
	b = binary.BigEndian.AppendUint64(b, s.Seq)
	b = binary.BigEndian.AppendUint64(b, s.Time)
	return binary.BigEndian.AppendUint32(b, FrameSum(b[at:], s.raw))
}

// Leaf returns what the tree of its author's log commits to for s.
func Leaf(s Signed) merkle.Leaf {
	return merkle.Leaf{
		Base: int64(s.Seq - 1), Last: int64(s.Seq - 1), MaxTime: clock.Timestamp(s.Time).Milli(), Length: uint32(FrameSize(s)), Sum: frameSum(s),
	}
}

func frameSum(s Signed) lattice.Hash {
	header := appendFrameHeader(make([]byte, 0, FrameHeader), s) // crc32 has it escape
	var small [FrameHeader + 2048]byte                           // most entries fit: no memory is taken for a hash
	if len(s.raw) <= len(small)-FrameHeader {
		return sha256.Sum256(append(append(small[:0], header...), s.raw...))
	}
	h := sha256.New()
	h.Write(header)
	h.Write(s.raw)
	return lattice.Hash(h.Sum(small[:0]))
}
