package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Record is one record of a batch. Key and Value are nil when null, and not nil
// when empty.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970, or -1; the batch's when it has append time
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is one header of a record. Keys may repeat. Value is nil when null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// maxHeaders is how many headers one record may have. Kafka has no such limit;
// but a header costs two bytes in a batch and forty in memory, so that without
// one a batch within its limit could take twenty times that.
const maxHeaders = 1 << 16

// Reader reads the records of one batch after another. The zero value is ready;
// it keeps its buffers and decoders between batches, so keep it and reuse it.
type Reader struct {
	h    Header
	dec  decompressor
	data []byte // what follows the last record read
	left int32  // records not yet read
	last int64  // offset delta of the last record read, or -1
	err  error  // why reading stopped, other than at the end
}

// Open starts on batch, one whole batch. It decompresses the records, into a
// buffer of the Reader's that never exceeds the limit (ErrTooLarge), or reads
// them in place when they are not compressed. It does not check the CRC.
func (r *Reader) Open(batch []byte, l Limits) error {
	r.data, r.left, r.last = nil, 0, -1
	h, err := ParseHeader(batch)
	if err == nil {
		err = checkExtent(batch)
	}
	if err != nil {
		r.h, r.err = Header{}, err
		return err
	}
	r.h, r.err = h, nil
	data := batch[HeaderSize:]
	switch {
	case h.Compression() == None:
	case h.Count == 0 && len(data) == 0: // nothing was compressed, not even nothing
	default:
		data, err = r.dec.decompress(h.Compression(), data, l.maxDecompressed())
		if err == nil && int64(h.Count)*minRecord > int64(len(data)) {
			err = fmt.Errorf("%w: %d records in %d bytes", ErrMalformed, h.Count, len(data))
		}
	}
	if err != nil {
		r.err = fmt.Errorf("open batch at %d: %w", h.BaseOffset, err)
		return r.err
	}
	r.data, r.left = data, h.Count
	return nil
}

// Header returns the header of the batch that was opened last.
func (r *Reader) Header() Header { return r.h }

// Next reads the next record into rec and reports whether there was one. Key,
// Value and header values alias the batch or the Reader's buffer and are valid
// until the next Open; rec.Headers is valid until the next Next with this rec,
// which reuses it. A record that breaks the format or whose offset does not rise
// is ErrMalformed (a *RecordError names it), as are bytes after the last one; the
// batch then gives no more records.
func (r *Reader) Next(rec *Record) (bool, error) {
	_, ok, err := r.next(rec, true)
	return ok, err
}

// next is Next, and also returns the record's bytes with their length. Headers
// are always checked, but kept only when asked for.
func (r *Reader) next(rec *Record, headers bool) (raw []byte, ok bool, err error) {
	switch {
	case r.err != nil:
		return nil, false, r.err
	case r.left == 0 && len(r.data) > 0:
		r.err = fmt.Errorf("batch at %d: %w: %d bytes after the last record", r.h.BaseOffset, ErrMalformed, len(r.data))
		return nil, false, r.err
	case r.left == 0:
		return nil, false, nil
	}
	size, n := binary.Varint(r.data)
	if n <= 0 || size < minRecord-1 || size > int64(len(r.data)-n) {
		return nil, false, r.fail("length")
	}
	end := n + int(size)
	body := r.data[n:end:end]
	if what := r.decode(rec, body, headers); what != "" {
		return nil, false, r.fail(what)
	}
	raw, r.data = r.data[:end:end], r.data[end:]
	r.left--
	return raw, true, nil
}

// fail stops reading for good at the current record.
func (r *Reader) fail(what string) error {
	index := int(r.h.Count - r.left)
	r.err = fmt.Errorf("batch at %d: %w", r.h.BaseOffset, &RecordError{index, fmt.Errorf("%w: bad %s", ErrMalformed, what)})
	return r.err
}

// decode reads one record from b, which is all of it but its length, and says
// what is wrong with it, if anything.
func (r *Reader) decode(rec *Record, b []byte, headers bool) (wrong string) {
	b = b[1:] // the attributes of a record have no meaning yet
	dt, n := binary.Varint(b)
	if n <= 0 {
		return "timestamp delta"
	}
	b = b[n:]
	ts := r.h.BaseTimestamp + dt
	if (dt > 0) != (ts > r.h.BaseTimestamp) && dt != 0 {
		return "timestamp delta"
	}
	if r.h.LogAppendTime() {
		ts = r.h.MaxTimestamp
	}
	delta, n := binary.Varint(b)
	if n <= 0 || delta <= r.last || delta > int64(r.h.LastOffsetDelta) {
		return "offset delta"
	}
	b = b[n:]
	key, b, ok := cutBytes(b)
	if !ok {
		return "key"
	}
	value, b, ok := cutBytes(b)
	if !ok {
		return "value"
	}
	rec.Offset, rec.Timestamp, rec.Key, rec.Value = r.h.BaseOffset+delta, ts, key, value
	rec.Headers = rec.Headers[:0]
	if len(b) == 1 && b[0] == 0 { // no headers: nearly every record
		r.last = delta
		return ""
	}
	if wrong = decodeHeaders(rec, b, headers); wrong == "" {
		r.last = delta
	}
	return wrong
}

// decodeHeaders reads the headers of a record, which end where b does.
func decodeHeaders(rec *Record, b []byte, keep bool) (wrong string) {
	count, n := binary.Varint(b)
	if n <= 0 || count < 0 || count > maxHeaders || 2*count > int64(len(b)-n) {
		return "header count"
	}
	b = b[n:]
	for range count {
		var key, value []byte
		var ok bool
		if key, b, ok = cutBytes(b); !ok || key == nil {
			return "header key"
		}
		if value, b, ok = cutBytes(b); !ok {
			return "header value"
		}
		if keep {
			rec.Headers = append(rec.Headers, RecordHeader{string(key), value})
		}
	}
	if len(b) > 0 {
		return "length"
	}
	return ""
}

// cutBytes cuts a length and that many bytes off b. Length -1 gives nil.
func cutBytes(b []byte) (field, rest []byte, ok bool) {
	if len(b) > 0 && b[0] < 0x80 && b[0]&1 == 0 { // one byte, not negative
		n := 1 + int(b[0]>>1)
		if n > len(b) {
			return nil, b, false
		}
		return b[1:n:n], b[n:], true
	}
	size, n := binary.Varint(b)
	switch {
	case n <= 0 || size < -1 || size > math.MaxInt32 || size > int64(len(b)-n):
		return nil, b, false
	case size == -1:
		return nil, b[n:], true
	}
	end := n + int(size)
	return b[n:end:end], b[end:], true
}
