package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Builder makes batches: for producers, the native API and the command. It
// keeps its buffers between batches; reuse it.
type Builder struct {
	codec Codec
	comp  compressor
	recs  []byte // encoded records of the batch being built
	count int32
	base  int64 // timestamp of the first record
	max   int64 // greatest timestamp
}

// NewBuilder returns an empty builder. Level 0 is the codec's usual one; others
// are its own scale (gzip 1-9, lz4 1-12, zstd 1-22) and are cut to it; snappy
// and none have no levels. It panics on a codec that ParseCodec does not name.
func NewBuilder(codec Codec, level int) *Builder {
	if !codec.known() {
		panic(fmt.Sprintf("record: new builder: %v", codec))
	}
	return &Builder{codec: codec, comp: compressor{level: level}}
}

// Add appends a record with timestamp ts (milliseconds since 1970, or -1) and
// copies what it is given. A nil key or value is null, an empty one is empty.
func (b *Builder) Add(ts int64, key, value []byte, headers []RecordHeader) {
	if b.count == 0 {
		b.base, b.max = ts, ts
	}
	b.max = max(b.max, ts)
	b.recs = appendRecord(b.recs, ts-b.base, int64(b.count), key, value, headers)
	b.count++
}

// Len is the number of records added since the last Build.
func (b *Builder) Len() int { return int(b.count) }

// Size is the length in bytes of what Build would append without compression.
func (b *Builder) Size() int { return HeaderSize + len(b.recs) }

// Reset drops the records added since the last Build.
func (b *Builder) Reset() { b.recs, b.count = b.recs[:0], 0 }

// Build appends the records as one batch to dst, and empties the builder. The
// base offset is 0, the leader epoch -1, and there is no producer id; see Place
// and SetProducer. Without records it returns dst as it is. It panics beyond
// 2 GiB, where the format ends: call it long before, by Size.
func (b *Builder) Build(dst []byte) []byte {
	if b.count == 0 {
		return dst
	}
	at := len(dst)
	dst = appendHeader(dst, Header{
		LeaderEpoch: -1, Magic: MagicV2, Attributes: int16(b.codec), LastOffsetDelta: b.count - 1,
		BaseTimestamp: b.base, MaxTimestamp: b.max,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Count: b.count,
	})
	dst = b.comp.append(dst, b.codec, b.recs)
	finish(dst[at:])
	b.Reset()
	return dst
}

// appendHeader appends h as bytes.
func appendHeader(dst []byte, h Header) []byte {
	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(h.BaseOffset))
	dst = be.AppendUint32(dst, uint32(h.Length))
	dst = be.AppendUint32(dst, uint32(h.LeaderEpoch))
	dst = append(dst, byte(h.Magic))
	dst = be.AppendUint32(dst, h.CRC)
	dst = be.AppendUint16(dst, uint16(h.Attributes))
	dst = be.AppendUint32(dst, uint32(h.LastOffsetDelta))
	dst = be.AppendUint64(dst, uint64(h.BaseTimestamp))
	dst = be.AppendUint64(dst, uint64(h.MaxTimestamp))
	dst = be.AppendUint64(dst, uint64(h.ProducerID))
	dst = be.AppendUint16(dst, uint16(h.ProducerEpoch))
	dst = be.AppendUint32(dst, uint32(h.BaseSequence))
	return be.AppendUint32(dst, uint32(h.Count))
}

// finish sets the length and the checksum of b, a batch to its last byte.
func finish(b []byte) {
	length := len(b) - lengthOverhead
	if length > math.MaxInt32-lengthOverhead {
		panic(fmt.Sprintf("record: a batch of %d bytes", len(b)))
	}
	binary.BigEndian.PutUint32(b[atLength:], uint32(length))
	seal(b)
}

// appendRecord appends one record with its length.
func appendRecord(dst []byte, dt, delta int64, key, value []byte, headers []RecordHeader) []byte {
	size := 1 + varintLen(dt) + varintLen(delta) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for i := range headers {
		size += varintLen(int64(len(headers[i].Key))) + len(headers[i].Key) + bytesLen(headers[i].Value)
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, dt)
	dst = binary.AppendVarint(dst, delta)
	dst = appendBytes(dst, key)
	dst = appendBytes(dst, value)
	dst = binary.AppendVarint(dst, int64(len(headers)))
	for i := range headers {
		dst = binary.AppendVarint(dst, int64(len(headers[i].Key)))
		dst = append(dst, headers[i].Key...)
		dst = appendBytes(dst, headers[i].Value)
	}
	return dst
}

func appendBytes(dst, field []byte) []byte {
	if field == nil {
		return append(dst, 1) // -1
	}
	dst = binary.AppendVarint(dst, int64(len(field)))
	return append(dst, field...)
}

func bytesLen(field []byte) int {
	if field == nil {
		return 1
	}
	return varintLen(int64(len(field))) + len(field)
}

// varintLen is the number of bytes of v as a zigzag varint.
func varintLen(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
