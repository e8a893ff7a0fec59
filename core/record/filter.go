package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Keep is the fate of a record in a compaction.
type Keep bool

// The two fates.
const (
	Drop   Keep = false
	Retain Keep = true
)

// Filterer rewrites batches for compaction. The zero value is ready; it keeps
// its buffers, decoders and encoders between batches, so keep it and reuse it.
type Filterer struct {
	r    Reader
	c    compressor
	recs []byte // the records kept so far, encoded
}

// Filter is Filterer.Filter for one batch.
func Filter(dst, batch []byte, l Limits, keep func(Record) Keep) (out []byte, kept int, err error) {
	var f Filterer
	return f.Filter(dst, batch, l, keep)
}

// Filter appends batch, one whole batch, to dst with only the records that keep
// retains, and returns how many these are. The header keeps its offsets, leader
// epoch, producer, sequence and attributes, and each record its bytes; count,
// length and checksum are new, and the greatest timestamp unless the batch has
// append time. The codec stays. When all are kept, the batch is appended
// verbatim; when none is, also of a batch that
// has none, nothing is appended (see Hollow). On an error dst is returned
// as it was. keep gets records that are valid only during its call, without
// headers; it should not be asked about control batches, whose keys are no
// user's.
func (f *Filterer) Filter(dst, batch []byte, l Limits, keep func(Record) Keep) (out []byte, kept int, err error) {
	if err := f.r.Open(batch, l); err != nil {
		return dst, 0, fmt.Errorf("filter: %w", err)
	}
	f.recs = f.recs[:0]
	top := int64(math.MinInt64)
	var rec Record
	for {
		raw, ok, err := f.r.next(&rec, false)
		if err != nil {
			return dst, 0, fmt.Errorf("filter: %w", err)
		}
		if !ok {
			break
		}
		if keep(rec) == Retain {
			f.recs = append(f.recs, raw...)
			top = max(top, rec.Timestamp)
			kept++
		}
	}
	switch kept {
	case 0:
		return dst, 0, nil
	case int(f.r.h.Count):
		return append(dst, batch...), kept, nil
	}
	at := len(dst)
	dst = append(dst, batch[:HeaderSize]...)
	binary.BigEndian.PutUint64(dst[at+atMaxTimestamp:], uint64(top))
	binary.BigEndian.PutUint32(dst[at+atCount:], uint32(kept))
	dst = f.c.append(dst, f.r.h.Compression(), f.recs)
	finish(dst[at:])
	return dst, kept, nil
}

// Hollow appends batch, at least a header, to dst without its records: what a
// compaction leaves where the batch's offsets, or its producer's last sequence,
// must still be told.
func Hollow(dst, batch []byte) []byte {
	at := len(dst)
	dst = append(dst, batch[:HeaderSize]...)
	b := dst[at:]
	b[atAttributes+1] &^= attrCodec
	binary.BigEndian.PutUint32(b[atCount:], 0)
	finish(b)
	return dst
}
