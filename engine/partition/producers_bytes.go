package partition

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// The snapshot's bytes, version 2, big-endian:
//
//	"LI" | version 2 | 0 | next offset i64 | producers u32 |
//	  each, by id: id i64, epoch i16, last time i64, batches u8,
//	    each: first i32, last i32, base offset i64, last offset i64
//	| open transactions u32 |
//	  each, by producer: producer i64, first offset i64
//	| aborted transactions u32 |
//	  each, by marker: producer i64, first offset i64, marker i64, settled i64
//	| CRC-32C of everything before, u32
//
// Version 1 ends with the producers. It is read, and no more written.
const (
	snapshotMagic   = "LI"
	snapshotVersion = 2
	snapshotHead    = len(snapshotMagic) + 2 + 8 + 4
	producerMinimum = 8 + 2 + 8 + 1
	spanBytes       = 4 + 4 + 8 + 8
	openBytes       = 8 + 8
	abortedBytes    = 4 * 8
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// snapshot encodes the state as of next, the first offset that is not in it.
func (ps *producers) snapshot(next int64) []byte {
	be := binary.BigEndian
	b := append([]byte(snapshotMagic), snapshotVersion, 0)
	b = be.AppendUint64(b, uint64(next))
	b = be.AppendUint32(b, uint32(len(ps.byID)))
	for _, id := range slices.Sorted(maps.Keys(ps.byID)) {
		p := ps.byID[id]
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint64(b, uint64(p.lastTime))
		b = append(b, byte(len(p.batches)))
		for _, s := range p.batches {
			b = be.AppendUint32(b, uint32(s.first))
			b = be.AppendUint32(b, uint32(s.last))
			b = be.AppendUint64(b, uint64(s.base))
			b = be.AppendUint64(b, uint64(s.lastOffset))
		}
	}
	b = be.AppendUint32(b, uint32(len(ps.txns.open)))
	for _, id := range slices.Sorted(maps.Keys(ps.txns.open)) {
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint64(b, uint64(ps.txns.open[id]))
	}
	b = be.AppendUint32(b, uint32(len(ps.txns.aborted)))
	for _, a := range ps.txns.aborted {
		for _, n := range [...]int64{a.ProducerID, a.First, a.Marker, a.settled} {
			b = be.AppendUint64(b, uint64(n))
		}
	}
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

var errSnapshot = lattice.E(lattice.Corrupt, errors.New("producer snapshot is damaged"))

// parseProducers reads a snapshot and the offset it reaches to.
func parseProducers(b []byte) (*producers, int64, error) {
	be := binary.BigEndian
	if len(b) < snapshotHead+4 || string(b[:2]) != snapshotMagic || b[2] < 1 || b[2] > snapshotVersion || b[3] != 0 {
		return nil, 0, errSnapshot
	}
	version, body, sum := b[2], b[:len(b)-4], be.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli()) != sum {
		return nil, 0, errSnapshot
	}
	next, n := int64(be.Uint64(body[4:])), int(be.Uint32(body[12:]))
	body = body[snapshotHead:]
	if next < 0 || n > len(body)/producerMinimum {
		return nil, 0, errSnapshot
	}
	ps := newProducers()
	for range n {
		rest, ok := ps.parseProducer(body)
		if !ok {
			return nil, 0, errSnapshot
		}
		body = rest
	}
	if version >= 2 {
		rest, ok := ps.txns.parse(body, next)
		if !ok {
			return nil, 0, errSnapshot
		}
		body = rest
	}
	if len(body) != 0 {
		return nil, 0, errSnapshot
	}
	return ps, next, nil
}

// parseProducer reads one producer and returns what follows it.
func (ps *producers) parseProducer(b []byte) (rest []byte, ok bool) {
	be := binary.BigEndian
	if len(b) < producerMinimum {
		return nil, false
	}
	id, p := int64(be.Uint64(b)), &producer{epoch: int16(be.Uint16(b[8:])), lastTime: int64(be.Uint64(b[10:]))}
	count := int(b[18])
	b = b[producerMinimum:]
	if count > keptBatches || len(b) < count*spanBytes {
		return nil, false
	}
	p.batches = make([]batchSpan, count, keptBatches)
	for i := range p.batches {
		p.batches[i] = batchSpan{
			int32(be.Uint32(b)), int32(be.Uint32(b[4:])),
			int64(be.Uint64(b[8:])), int64(be.Uint64(b[16:])),
		}
		b = b[spanBytes:]
	}
	if _, twice := ps.byID[id]; twice {
		return nil, false
	}
	ps.byID[id] = p
	return b, true
}

// parse reads the transactions of a snapshot that reaches to next, and returns
// what follows them.
func (t *transactions) parse(b []byte, next int64) (rest []byte, ok bool) {
	be := binary.BigEndian
	count := func(size int) (int, bool) {
		if len(b) < 4 {
			return 0, false
		}
		n := int(be.Uint32(b))
		b = b[4:]
		return n, n <= len(b)/size
	}
	n, ok := count(openBytes)
	if !ok {
		return nil, false
	}
	for range n {
		id, first := int64(be.Uint64(b)), int64(be.Uint64(b[8:]))
		if _, twice := t.open[id]; twice || first < 0 || first >= next {
			return nil, false
		}
		t.open[id] = first
		b = b[openBytes:]
	}
	if n, ok = count(abortedBytes); !ok {
		return nil, false
	}
	last := int64(-1)
	for range n {
		a := Aborted{int64(be.Uint64(b)), int64(be.Uint64(b[8:])), int64(be.Uint64(b[16:])), int64(be.Uint64(b[24:]))}
		if a.First < 0 || a.First >= a.Marker || a.Marker <= last || a.Marker >= next || a.settled > a.Marker+1 {
			return nil, false
		}
		last = a.Marker
		t.aborted = append(t.aborted, a)
		b = b[abortedBytes:]
	}
	return b, true
}
