package group

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Value is one committed offset as it is stored and as replicas merge it.
//
// # Bytes, version 1 (integers are big-endian)
//
//	 0  version      u8 = 1
//	 1  reset        u64  deliberate rewinds so far
//	 9  target       i64  where the latest one went; 0 when reset is 0
//	17  reset id     [16] of the latest one; zero when reset is 0
//	33  offset       i64
//	41  leader epoch i32  -1: none
//	45  term         i32  -1: none
//	49  time         i64  ms since 1970
//	57  metadata     the rest; at most 65,535 bytes
//
// One value has one encoding. A new field needs a new version; bytes once
// written are read forever.
type Value struct {
	// Reset counts deliberate rewinds; Target is the offset that the latest one
	// went to and ResetID tells concurrent ones apart. All zero: never rewound.
	Reset   uint64
	Target  int64
	ResetID [16]byte

	// Offset is what the client committed. 0 is an offset like any other; "none"
	// is the absence of a value. Negative ones are stored as given, as Kafka does.
	Offset int64
	// LeaderEpoch is the client's, returned as given; -1: none.
	LeaderEpoch int32
	// Term is the log's term at the commit, if the offset lay within the
	// committed log then; -1: it did not, and the offset is only the client's
	// word. See Manager.FetchOffsets for what it is for.
	Term     int32
	Time     time.Time // of the commit, in whole milliseconds
	Metadata string
}

const (
	valueVersion  = 1
	valueFixed    = 57
	maxMetadata   = math.MaxUint16
	keyFixed      = 2 + 16 + 4
	maxGroupBytes = math.MaxInt16 // the longest string of the Kafka protocol
)

// AppendTo appends the value's bytes.
func (v Value) AppendTo(dst []byte) []byte {
	dst = append(dst, valueVersion)
	dst = binary.BigEndian.AppendUint64(dst, v.Reset)
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Target))
	dst = append(dst, v.ResetID[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Offset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(v.LeaderEpoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(v.Term))
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Time.UnixMilli()))
	return append(dst, v.Metadata...)
}

// ParseValue reads what AppendTo wrote. Kind Corrupt, or Unsupported when a
// later version wrote it.
func ParseValue(b []byte) (Value, error) {
	if len(b) > 0 && b[0] > valueVersion {
		return Value{}, lattice.E(lattice.Unsupported, fmt.Errorf("committed offset: version %d, this program reads up to %d", b[0], valueVersion))
	}
	if len(b) < valueFixed || b[0] != valueVersion || len(b)-valueFixed > maxMetadata {
		return Value{}, lattice.E(lattice.Corrupt, fmt.Errorf("committed offset: %d bytes that are no version %d value", len(b), valueVersion))
	}
	v := Value{
		Reset:       binary.BigEndian.Uint64(b[1:]),
		Target:      int64(binary.BigEndian.Uint64(b[9:])),
		ResetID:     [16]byte(b[17:33]),
		Offset:      int64(binary.BigEndian.Uint64(b[33:])),
		LeaderEpoch: int32(binary.BigEndian.Uint32(b[41:])),
		Term:        int32(binary.BigEndian.Uint32(b[45:])),
		Time:        time.UnixMilli(int64(binary.BigEndian.Uint64(b[49:]))).UTC(),
		Metadata:    string(b[valueFixed:]),
	}
	switch {
	case v.Reset == 0 && (v.Target != 0 || v.ResetID != [16]byte{}):
		return Value{}, lattice.E(lattice.Corrupt, errors.New("committed offset: a reset target without a reset"))
	case v.Reset > math.MaxInt64:
		return Value{}, lattice.E(lattice.Corrupt, fmt.Errorf("committed offset: reset number %d leaves no room for another", v.Reset))
	case v.LeaderEpoch < -1 || v.Term < -1:
		return Value{}, lattice.E(lattice.Corrupt, fmt.Errorf("committed offset: leader epoch %d, term %d", v.LeaderEpoch, v.Term))
	}
	return v, nil
}

// AppendTo appends the key's bytes: the length of the group's name (u16), the
// name, the topic id and the partition (u32), so that one group's keys stand
// together. The name must not exceed 32,767 bytes.
func (k Key) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(k.Group)))
	dst = append(dst, k.Group...)
	dst = append(dst, k.Topic[:]...)
	return binary.BigEndian.AppendUint32(dst, uint32(k.Partition))
}

// AppendTo appends the key's bytes: those of Key, and the producer id (u64).
func (k PendingKey) AppendTo(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(k.Key.AppendTo(dst), uint64(k.Producer))
}

// ParsePendingKey reads what AppendTo wrote. Kind Corrupt.
func ParsePendingKey(b []byte) (PendingKey, error) {
	n := len(b) - 8
	if n < 0 {
		return PendingKey{}, lattice.E(lattice.Corrupt, fmt.Errorf("offset of a transaction: key of %d bytes", len(b)))
	}
	key, err := ParseKey(b[:n])
	k := PendingKey{key, int64(binary.BigEndian.Uint64(b[n:]))}
	if err == nil && k.Producer < 0 {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("offset of a transaction: producer %d", k.Producer))
	}
	return k, err
}

// ParseKey reads what AppendTo wrote. Kind Corrupt.
func ParseKey(b []byte) (Key, error) {
	n := -1
	if len(b) >= keyFixed {
		n = int(binary.BigEndian.Uint16(b))
	}
	if n < 0 || n > maxGroupBytes || len(b) != keyFixed+n {
		return Key{}, lattice.E(lattice.Corrupt, fmt.Errorf("committed offset: key of %d bytes", len(b)))
	}
	k := Key{Group: string(b[2 : 2+n])}
	copy(k.Topic[:], b[2+n:])
	k.Partition = int32(binary.BigEndian.Uint32(b[18+n:]))
	if k.Partition < 0 {
		return Key{}, lattice.E(lattice.Corrupt, fmt.Errorf("committed offset: partition %d", k.Partition))
	}
	return k, nil
}

// Join returns the greater of two values: the merge of replicas. The greater
// reset number wins; of concurrent resets the lower target; then the greater
// offset. So a stale member that comes back can neither rewind nor skip, and a
// deliberate rewind, which raises the number, is not undone. What is left only
// breaks ties, so that the order is total and Join is commutative, associative
// and idempotent.
func Join(a, b Value) Value {
	if a.compare(b) >= 0 {
		return a
	}
	return b
}

func (v Value) compare(w Value) int {
	return cmp.Or(
		cmp.Compare(v.Reset, w.Reset),
		cmp.Compare(w.Target, v.Target),
		cmp.Compare(v.Offset, w.Offset),
		v.Time.Compare(w.Time),
		cmp.Compare(v.LeaderEpoch, w.LeaderEpoch),
		cmp.Compare(v.Term, w.Term),
		strings.Compare(string(v.ResetID[:]), string(w.ResetID[:])),
		strings.Compare(v.Metadata, w.Metadata),
	)
}

// after returns the value that commit v leaves over what was stored before. The
// result is never less than old, so a replica that joins both keeps v:
//
//   - A commit that moves backwards is a deliberate rewind, whoever made it (its
//     right to commit was checked before): it raises the reset number.
//   - A commit of the same offset (new metadata, say) is later by at least a
//     millisecond, whatever the clock says.
func (v Value) after(old Value, resetID [16]byte) Value {
	v.Reset, v.Target, v.ResetID = old.Reset, old.Target, old.ResetID
	switch {
	case v.Offset < old.Offset:
		v.Reset, v.Target, v.ResetID = old.Reset+1, v.Offset, resetID
	case v.Offset == old.Offset && !v.Time.After(old.Time):
		v.Time = old.Time.Add(time.Millisecond)
	}
	return v
}
