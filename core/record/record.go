// Package record reads, checks, places and builds Kafka record batches of
// magic 2 as bytes. A batch that a producer sent is stored verbatim: the only
// bytes a node sets are the base offset and the leader epoch, which lie outside
// the checksum, and, for topics that ask for append time, the timestamp fields.
// Topics that name a codec get batches of another one compressed anew.
//
// The header, big-endian, 61 bytes (KIP-98, "Message Format"):
//
//	 0         8       12      16    17      21    23
//	 +---------+-------+-------+-----+-------+-----+-----------+
//	 | base    | length| leader|magic| crc32c|attri| last      |
//	 | offset 8| 4     | epoch4| 1   | 4     |butes| offset d.4|
//	 +---------+-------+-------+-----+-------+-----+-----------+
//	27         35        43       51    53         57        61
//	 +---------+---------+--------+-----+----------+---------+----------
//	 | base    | max     |producer|epoch| base     | record  | records
//	 | time   8| time   8| id    8| 2   | sequence4| count  4| ...
//	 +---------+---------+--------+-----+----------+---------+----------
//
// length counts the bytes after itself. The CRC-32C covers everything from the
// attributes to the end, so offset and epoch can be set in place. Attributes:
// bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon.
// The records may be compressed as a whole; each of them is
//
//	length varint | attributes 1 | timestamp delta varlong | offset delta varint |
//	key length varint, key | value length varint, value | header count varint, headers
//
// with zigzag varints, and length -1 for a key or value that is null. The page
// docs/format/recordbatch.md says what this implementation refuses.
//
// Bytes are hostile until checked: no function here panics, loops without
// progress or allocates in proportion to a number it was merely told.
// Everything is safe for concurrent use except the values that hold buffers
// (Reader, Builder, Filterer), which belong to one goroutine at a time.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	lattice "github.com/lattice-log/lattice"
)

// HeaderSize is the length of a batch without records, in bytes.
const HeaderSize = 61

// MagicV2 is the only batch format that is stored and served.
const MagicV2 = 2

// Where the header's fields start.
const (
	atBaseOffset      = 0
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57

	// lengthOverhead is what Header.Length does not count: offset and length.
	lengthOverhead = atLeaderEpoch
	// minRecord is the size of the smallest record: seven fields of a byte.
	minRecord = 7
)

// Attribute bits.
const (
	attrCodec         = 0x07
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Errors that callers branch on. What is returned wraps one of these.
var (
	// ErrShort means that the bytes end inside the batch: more may follow.
	ErrShort = lattice.E(lattice.Invalid, errors.New("record batch is cut short"))
	// ErrMagic means an older message format (0, 1) or no batch at all.
	ErrMagic = lattice.E(lattice.Invalid, errors.New("record batch has another magic than 2"))
	// ErrMalformed means that the fields contradict each other or the format.
	ErrMalformed = lattice.E(lattice.Invalid, errors.New("malformed record batch"))
	// ErrInvalid means a well-formed batch that a producer may not send.
	ErrInvalid = lattice.E(lattice.Invalid, errors.New("invalid record batch"))
	// ErrCRC means that the bytes are not those that were written.
	ErrCRC = lattice.E(lattice.Corrupt, errors.New("record batch does not match its CRC-32C"))
	// ErrCodec means a compression that Kafka has not defined.
	ErrCodec = lattice.E(lattice.Unsupported, errors.New("unknown compression"))
	// ErrTooLarge means that the batch decompresses to more than the limit.
	ErrTooLarge = lattice.E(lattice.TooLarge, errors.New("record batch is too large when decompressed"))
)

// Header is the header of a batch, field by field. Timestamps are milliseconds
// since 1970; -1 stands for none, as it does in ProducerID, ProducerEpoch and
// BaseSequence.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after this field; see Size
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32 // records in the batch; after compaction less than LastOffsetDelta+1
}

// ParseHeader reads the header at the start of b, which may hold less or more
// than the batch, but at least HeaderSize bytes (else ErrShort). It refuses
// another magic (ErrMagic), an unknown codec (ErrCodec) and fields that no
// batch can have (ErrMalformed), and does not look at the checksum. What it
// accepts has 0 <= Count-1 <= LastOffsetDelta or no records, an offset range
// within int64, and a Size that is at least HeaderSize and fits an int32.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, headerShort(b)
	}
	be := binary.BigEndian
	h := Header{
		BaseOffset:      int64(be.Uint64(b[atBaseOffset:])),
		Length:          int32(be.Uint32(b[atLength:])),
		LeaderEpoch:     int32(be.Uint32(b[atLeaderEpoch:])),
		Magic:           int8(b[atMagic]),
		CRC:             be.Uint32(b[atCRC:]),
		Attributes:      int16(be.Uint16(b[atAttributes:])),
		LastOffsetDelta: int32(be.Uint32(b[atLastOffsetDelta:])),
		BaseTimestamp:   int64(be.Uint64(b[atBaseTimestamp:])),
		MaxTimestamp:    int64(be.Uint64(b[atMaxTimestamp:])),
		ProducerID:      int64(be.Uint64(b[atProducerID:])),
		ProducerEpoch:   int16(be.Uint16(b[atProducerEpoch:])),
		BaseSequence:    int32(be.Uint32(b[atBaseSequence:])),
		Count:           int32(be.Uint32(b[atCount:])),
	}
	return h, h.check()
}

// headerShort says what is wrong with fewer than HeaderSize bytes: an old
// format is told from its magic, which lies in the same place in all of them.
func headerShort(b []byte) error {
	if len(b) > atMagic && b[atMagic] != MagicV2 {
		return fmt.Errorf("%w: %d", ErrMagic, int8(b[atMagic]))
	}
	return fmt.Errorf("%w: %d bytes of a %d byte header", ErrShort, len(b), HeaderSize)
}

func (h *Header) check() error {
	switch {
	case h.Magic != MagicV2:
		return fmt.Errorf("%w: %d", ErrMagic, h.Magic)
	case h.Length < HeaderSize-lengthOverhead || h.Length > math.MaxInt32-lengthOverhead:
		return fmt.Errorf("%w: length %d", ErrMalformed, h.Length)
	case !h.Compression().known():
		return fmt.Errorf("%w: codec %d", ErrCodec, h.Compression())
	case h.LastOffsetDelta < 0:
		return fmt.Errorf("%w: last offset delta %d", ErrMalformed, h.LastOffsetDelta)
	case h.BaseOffset < 0 || h.BaseOffset > math.MaxInt64-1-int64(h.LastOffsetDelta):
		return fmt.Errorf("%w: base offset %d, last offset delta %d", ErrMalformed, h.BaseOffset, h.LastOffsetDelta)
	case h.Count < 0 || int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrMalformed, h.Count, h.LastOffsetDelta)
	case h.Compression() == None && int64(h.Count)*minRecord > int64(h.Size()-HeaderSize):
		return fmt.Errorf("%w: %d records in %d bytes", ErrMalformed, h.Count, h.Size()-HeaderSize)
	}
	return nil
}

// Size is the length of the whole batch in bytes.
func (h Header) Size() int { return int(h.Length) + lengthOverhead }

// LastOffset is the last offset the batch covers, whether or not a record of
// that offset is left.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset after the batch.
func (h Header) NextOffset() int64 { return h.LastOffset() + 1 }

// LastSequence is the sequence number of the last record; sequences wrap from
// MaxInt32 to 0. It is -1 in a batch without a producer's sequence.
func (h Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & math.MaxInt32)
}

// Compression is the codec of the records.
func (h Header) Compression() Codec { return Codec(h.Attributes & attrCodec) }

// LogAppendTime reports whether every record's timestamp is MaxTimestamp.
func (h Header) LogAppendTime() bool { return h.Attributes&attrAppendTime != 0 }

// Transactional reports whether the batch is part of a transaction.
func (h Header) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control reports whether the records are markers, not a user's data.
func (h Header) Control() bool { return h.Attributes&attrControl != 0 }

// Idempotent reports whether the batch has a producer id, and so a sequence.
func (h Header) Idempotent() bool { return h.ProducerID >= 0 }

// DeleteHorizon returns the time in milliseconds from which tombstones may go
// (KIP-534), when a compaction noted one; it then stands in BaseTimestamp.
func (h Header) DeleteHorizon() (ms int64, ok bool) {
	return h.BaseTimestamp, h.Attributes&attrDeleteHorizon != 0
}

// CheckProduced checks what Kafka asks of a batch that a producer sends:
// records, one for each offset; no control batch or delete horizon; and an id,
// epoch and sequence that are all there or all absent. It costs nothing; see
// Validate for the records themselves. Errors are ErrInvalid.
func (h Header) CheckProduced() error {
	switch {
	case h.Count == 0:
		return fmt.Errorf("%w: no records", ErrInvalid)
	case h.LastOffsetDelta != h.Count-1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrInvalid, h.Count, h.LastOffsetDelta)
	case h.Control():
		return fmt.Errorf("%w: a client may not write control batches", ErrInvalid)
	case h.Attributes&attrDeleteHorizon != 0:
		return fmt.Errorf("%w: a client may not set a delete horizon", ErrInvalid)
	case h.ProducerID < -1 || h.ProducerEpoch < -1 || h.BaseSequence < -1:
		return fmt.Errorf("%w: producer %d epoch %d sequence %d", ErrInvalid, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case h.Idempotent() && (h.ProducerEpoch < 0 || h.BaseSequence < 0):
		return fmt.Errorf("%w: producer %d has epoch %d, sequence %d", ErrInvalid, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case !h.Idempotent() && h.Transactional():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalid)
	}
	return nil
}

// CheckCRC compares b, one whole batch and nothing else, with its checksum. It
// returns ErrCRC, or what is wrong with the length (ErrShort, ErrMalformed). It
// does not allocate.
func CheckCRC(b []byte) error {
	if err := checkExtent(b); err != nil {
		return err
	}
	want := binary.BigEndian.Uint32(b[atCRC:])
	if got := checksum(b); got != want {
		return fmt.Errorf("%w: have %08x, header says %08x", ErrCRC, got, want)
	}
	return nil
}

// checkExtent verifies that b is as long as its length field says.
func checkExtent(b []byte) error {
	if len(b) < HeaderSize {
		return headerShort(b)
	}
	size := int64(int32(binary.BigEndian.Uint32(b[atLength:]))) + lengthOverhead
	switch {
	case size < HeaderSize || int64(len(b)) > size:
		return fmt.Errorf("%w: %d bytes where the header says %d", ErrMalformed, len(b), size)
	case int64(len(b)) < size:
		return fmt.Errorf("%w: %d of %d bytes", ErrShort, len(b), size)
	}
	return nil
}

// checksum is the CRC-32C of what the checksum covers.
func checksum(b []byte) uint32 {
	return crc32.Checksum(b[atAttributes:], crc32.MakeTable(crc32.Castagnoli)) // the table is made once, by the library
}

// Place sets the base offset and the leader epoch of the batch at the start of
// b, in place. Both lie outside the checksum. b holds a header at least.
func Place(b []byte, base int64, term int32) {
	_ = b[HeaderSize-1]
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(term))
}

// StampAppendTime gives every record of b, one whole batch, the timestamp ms
// (milliseconds since 1970), in place, and renews the checksum.
func StampAppendTime(b []byte, ms int64) {
	b[atAttributes+1] |= attrAppendTime
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(ms))
	seal(b)
}

// SetProducer makes b, one whole batch, that of an idempotent producer, in
// place, and renews the checksum.
func SetProducer(b []byte, id int64, epoch int16, sequence int32) {
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(sequence))
	seal(b)
}

// seal renews the checksum of b, one whole batch.
func seal(b []byte) { binary.BigEndian.PutUint32(b[atCRC:], checksum(b)) }

// Next cuts the first batch off b, a run of batches end to end such as Produce
// and Fetch carry. Without an error, batch and rest together are b; at the end,
// when b is empty, batch is nil. A batch that ends beyond b is ErrShort: a Fetch
// answer may end so. Otherwise as ParseHeader; the checksum is not looked at.
func Next(b []byte) (batch, rest []byte, h Header, err error) {
	if len(b) == 0 {
		return nil, nil, Header{}, nil
	}
	h, err = ParseHeader(b)
	switch {
	case err != nil:
		return nil, b, h, err
	case h.Size() > len(b):
		return nil, b, h, fmt.Errorf("%w: %d of %d bytes", ErrShort, len(b), h.Size())
	}
	return b[:h.Size():h.Size()], b[h.Size():], h, nil
}
