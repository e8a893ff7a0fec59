package txn

import (
	"encoding/binary"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// The stored bytes of a Transaction, version 1 (integers are big-endian):
//
//	 0  version        u8 = 1
//	 1  state          u8: 1 Empty, 2 Ongoing, 3 PrepareCommit, 4 PrepareAbort,
//	                   5 CompleteCommit, 6 CompleteAbort
//	 2  producer id    i64
//	10  epoch          i16
//	12  last producer  i64  -1: none
//	20  last epoch     i16  -1: none
//	22  timeout        i32  ms
//	26  started        i64  ms since 1970; -1: no transaction
//	34  updated        i64  ms since 1970
//	42  partitions     u32, each: topic id [16], partition u32; ascending
//	    groups         u32, each: length u16, name; ascending
//
// The transactional id is the key. One value has one encoding. A new field needs a
// new version; bytes once written are read for ever.
const (
	version        = 1
	fixedBytes     = 42
	partitionBytes = 16 + 4
)

// AppendTo appends the transaction's bytes, without its id.
func (t Transaction) AppendTo(dst []byte) []byte {
	be := binary.BigEndian
	dst = append(dst, version, byte(t.State))
	dst = be.AppendUint64(dst, uint64(t.Producer))
	dst = be.AppendUint16(dst, uint16(t.Epoch))
	dst = be.AppendUint64(dst, uint64(t.LastProducer))
	dst = be.AppendUint16(dst, uint16(t.LastEpoch))
	dst = be.AppendUint32(dst, uint32(t.Timeout.Milliseconds()))
	started := int64(-1)
	if !t.Started.IsZero() {
		started = t.Started.UnixMilli()
	}
	dst = be.AppendUint64(dst, uint64(started))
	dst = be.AppendUint64(dst, uint64(t.Updated.UnixMilli()))
	dst = be.AppendUint32(dst, uint32(len(t.Partitions)))
	for _, tp := range t.Partitions {
		dst = append(dst, tp.Topic[:]...)
		dst = be.AppendUint32(dst, uint32(tp.Partition))
	}
	dst = be.AppendUint32(dst, uint32(len(t.Groups)))
	for _, g := range t.Groups {
		dst = be.AppendUint16(dst, uint16(len(g)))
		dst = append(dst, g...)
	}
	return dst
}

// Parse reads what AppendTo wrote for the transactional id. Kind Corrupt, or
// Unsupported when a later version wrote it.
func Parse(id string, b []byte) (Transaction, error) {
	bad := func(what string) (Transaction, error) {
		return Transaction{}, lattice.E(lattice.Corrupt, fmt.Errorf("transaction %q: %s", id, what))
	}
	if len(b) > 0 && b[0] > version {
		return Transaction{}, lattice.E(lattice.Unsupported, fmt.Errorf("transaction %q: version %d, this program reads up to %d", id, b[0], version))
	}
	if len(b) < fixedBytes || b[0] != version || len(id) == 0 || len(id) > maxID {
		return bad(fmt.Sprintf("%d bytes that are no version %d value", len(b), version))
	}
	be := binary.BigEndian
	t := Transaction{
		ID: id, State: State(b[1]), Producer: int64(be.Uint64(b[2:])), Epoch: int16(be.Uint16(b[10:])),
		LastProducer: int64(be.Uint64(b[12:])), LastEpoch: int16(be.Uint16(b[20:])),
		Timeout: time.Duration(int32(be.Uint32(b[22:]))) * time.Millisecond,
		Updated: time.UnixMilli(int64(be.Uint64(b[34:]))).UTC(),
	}
	started := int64(be.Uint64(b[26:]))
	if started < -1 {
		return bad(fmt.Sprintf("started at %d", started))
	}
	if started >= 0 {
		t.Started = time.UnixMilli(started).UTC()
	}
	rest, ok := t.parseParts(b[fixedBytes:])
	if !ok || len(rest) > 0 {
		return bad("its partitions and groups do not fill its bytes")
	}
	if err := t.verify(); err != nil {
		return bad(err.Error())
	}
	return t, nil
}

// parseParts reads the partitions and groups and returns what follows them.
func (t *Transaction) parseParts(b []byte) (rest []byte, ok bool) {
	be := binary.BigEndian
	count := func(size int) (n int, ok bool) {
		if len(b) < 4 {
			return 0, false
		}
		n = int(be.Uint32(b))
		b = b[4:]
		return n, n <= len(b)/size
	}
	n, ok := count(partitionBytes)
	if !ok {
		return nil, false
	}
	for range n {
		tp := lattice.TopicPartition{Topic: lattice.TopicID(b[:16]), Partition: int32(be.Uint32(b[16:]))}
		if tp.Partition < 0 {
			return nil, false
		}
		t.Partitions = append(t.Partitions, tp)
		b = b[partitionBytes:]
	}
	if n, ok = count(2); !ok {
		return nil, false
	}
	for range n {
		if len(b) < 2 || len(b)-2 < int(be.Uint16(b)) {
			return nil, false
		}
		size := int(be.Uint16(b))
		t.Groups = append(t.Groups, string(b[2:2+size]))
		b = b[2+size:]
	}
	return b, true
}
