package record

// RecordAtOrAfter is Reader.RecordAtOrAfter for one batch.
func RecordAtOrAfter(batch []byte, l Limits, ms int64) (offset, timestamp int64, found bool, err error) {
	var r Reader
	return r.RecordAtOrAfter(batch, l, ms)
}

// RecordAtOrAfter returns the first record of batch, one whole batch, whose
// timestamp is at or after ms (milliseconds since 1970). A batch whose header
// says that there is none is not opened. Asked for the header's own
// MaxTimestamp, it finds the first record that has it.
func (r *Reader) RecordAtOrAfter(batch []byte, l Limits, ms int64) (offset, timestamp int64, found bool, err error) {
	h, err := ParseHeader(batch)
	if err != nil || h.MaxTimestamp < ms || h.Count == 0 {
		return 0, 0, false, err
	}
	if err := r.Open(batch, l); err != nil {
		return 0, 0, false, err
	}
	var rec Record
	for {
		_, ok, err := r.next(&rec, false)
		if err != nil || !ok {
			return 0, 0, false, err
		}
		if rec.Timestamp >= ms {
			return rec.Offset, rec.Timestamp, true, nil
		}
	}
}

// FindOffset is Reader.FindOffset for one batch.
func FindOffset(batch []byte, l Limits, offset int64) (rec Record, found bool, err error) {
	var r Reader
	return r.FindOffset(batch, l, offset)
}

// FindOffset returns the record of batch, one whole batch, that has the offset,
// and false when the batch has none (it lies outside, or compaction took it).
// The record aliases the batch or the Reader's buffer, until the next Open.
func (r *Reader) FindOffset(batch []byte, l Limits, offset int64) (rec Record, found bool, err error) {
	h, err := ParseHeader(batch)
	if err != nil || offset < h.BaseOffset || offset > h.LastOffset() {
		return Record{}, false, err
	}
	if err := r.Open(batch, l); err != nil {
		return Record{}, false, err
	}
	for {
		ok, err := r.Next(&rec)
		if err != nil || !ok || rec.Offset > offset {
			return Record{}, false, err
		}
		if rec.Offset == offset {
			return rec, true, nil
		}
	}
}
