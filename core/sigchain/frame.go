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
	var small [FrameHeader + 1024]byte
	frame := appendFrameHeader(small[:0], s)
	leaf := merkle.Leaf{
		Base: int64(s.Seq - 1), Last: int64(s.Seq - 1), MaxTime: clock.Timestamp(s.Time).Milli(), Length: uint32(FrameSize(s)),
	}
	if len(s.raw) <= len(small)-FrameHeader { // most entries: no memory is taken for a hash
		leaf.Sum = sha256.Sum256(append(frame, s.raw...))
		return leaf
	}
	h := sha256.New()
	h.Write(frame)
	h.Write(s.raw)
	leaf.Sum = lattice.Hash(h.Sum(nil))
	return leaf
}
