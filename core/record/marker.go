package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Marker is the end of a producer's transaction in one partition: a control
// batch with one record (KIP-98, "Control Messages"). Key and value of that
// record, big-endian:
//
//	key    version i16 = 0 | type i16: 0 abort, 1 commit
//	value  version i16 = 0 | coordinator epoch i32
type Marker struct {
	ProducerID       int64
	Epoch            int16
	Commit           bool  // else the transaction was aborted
	CoordinatorEpoch int32 // counts changes of the coordinator; 0 for one that never changes
	Time             int64 // ms since 1970
}

const (
	markerAbort  = 0
	markerCommit = 1
	markerKey    = 4
	markerValue  = 6
)

// AppendTo appends the marker's batch, with base offset 0 and no leader epoch.
func (m Marker) AppendTo(dst []byte) []byte {
	at := len(dst)
	dst = appendHeader(dst, Header{
		LeaderEpoch: -1, Magic: MagicV2, Attributes: attrTransactional | attrControl,
		BaseTimestamp: m.Time, MaxTimestamp: m.Time,
		ProducerID: m.ProducerID, ProducerEpoch: m.Epoch, BaseSequence: -1, Count: 1,
	})
	be := binary.BigEndian
	kind := uint16(markerAbort)
	if m.Commit {
		kind = markerCommit
	}
	key := be.AppendUint16(make([]byte, 2, markerKey), kind)
	value := be.AppendUint32(make([]byte, 2, markerValue), uint32(m.CoordinatorEpoch))
	dst = appendRecord(dst, 0, 0, key, value, nil)
	finish(dst[at:])
	return dst
}

// ParseMarker reads a control batch, one whole batch. ok is false for a control
// record of another type than the two: it says nothing of transactions, and is
// passed over. A batch that is no control batch, or has another shape than one
// record with such a key and value, is ErrMalformed.
func ParseMarker(batch []byte) (m Marker, ok bool, err error) {
	var r Reader
	if err := r.Open(batch, Limits{MaxDecompressed: 1 << 10}); err != nil {
		return m, false, err
	}
	h := r.Header()
	var rec Record
	more, err := r.Next(&rec)
	switch be := binary.BigEndian; {
	case err != nil:
		return m, false, err
	case !h.Control() || !more || h.Count != 1 || len(rec.Key) < markerKey || int16(be.Uint16(rec.Key)) < 0:
		return m, false, fmt.Errorf("%w: a batch of %d records is no control batch", ErrMalformed, h.Count)
	default:
		kind := be.Uint16(rec.Key[2:])
		if kind > markerCommit || !h.Transactional() || !h.Idempotent() {
			return m, false, nil
		}
		if len(rec.Value) < markerValue || be.Uint16(rec.Value) > math.MaxInt16 {
			return m, false, fmt.Errorf("%w: a transaction's end of %d bytes", ErrMalformed, len(rec.Value))
		}
		return Marker{
			ProducerID: h.ProducerID, Epoch: h.ProducerEpoch, Commit: kind == markerCommit,
			CoordinatorEpoch: int32(be.Uint32(rec.Value[2:])), Time: rec.Timestamp,
		}, true, nil
	}
}

// SetTransactional makes b, one whole batch of a producer, part of that
// producer's transaction, in place, and renews the checksum.
func SetTransactional(b []byte) {
	b[atAttributes+1] |= attrTransactional
	seal(b)
}
