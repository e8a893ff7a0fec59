package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"sort"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
)

// Errors of idempotent producers, with the Kafka code that each stands for.
var (
	// ErrProducerEpoch (47): the batch carries an older epoch than the partition has seen.
	ErrProducerEpoch = lattice.E(lattice.Fenced, errors.New("producer epoch is over"))
	// ErrOutOfOrder (45): a sequence number is missing before this batch.
	ErrOutOfOrder = lattice.E(lattice.Conflict, errors.New("producer sequence out of order"))
	// ErrDuplicate (46): the batch is older than the last five, so its offset is not known any more.
	ErrDuplicate = lattice.E(lattice.Exists, errors.New("producer sequence already written"))
	// ErrUnknownProducer (59): the producer's state has expired, so a sequence above 0 cannot be placed.
	ErrUnknownProducer = lattice.E(lattice.NotFound, errors.New("producer id unknown: its state expired"))
)

// keptBatches is how many of a producer's last batches can be told apart from
// new ones: a client may have five requests in flight (KIP-98).
const keptBatches = 5

// batchSpan is one written batch of a producer.
type batchSpan struct {
	first, last int32 // sequence numbers
	base        int64 // offset of the first record
	lastOffset  int64
}

// producer is what a partition knows of one producer id.
type producer struct {
	epoch    int16
	lastTime int64 // greatest append time, ms
	batches  []batchSpan
}

func (p *producer) lastSequence() int32 {
	if len(p.batches) == 0 {
		return -1
	}
	return p.batches[len(p.batches)-1].last
}

// producers is the idempotence state of a partition: a pure fold over the batch
// headers, in offset order. It is saved as a snapshot, so that it survives
// truncation and compaction of the batches it came from.
type producers struct {
	byID map[int64]*producer
}

func newProducers() *producers { return &producers{byID: map[int64]*producer{}} }

// nextSequence wraps from MaxInt32 to 0, as Kafka's does.
func nextSequence(s int32) int32 {
	if s == math.MaxInt32 {
		return 0
	}
	return s + 1
}

// lastSequence is the sequence number of a batch's last record, with wrap.
func lastSequence(h record.Header) int32 {
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) % (math.MaxInt32 + 1))
}

// check says what to do with a batch: append it (nil, nil), answer with where it
// is already (span, nil), or refuse it.
func (ps *producers) check(h record.Header) (*batchSpan, error) {
	if h.BaseSequence < 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("producer %d: sequence %d is negative", h.ProducerID, h.BaseSequence))
	}
	p := ps.byID[h.ProducerID]
	switch {
	case p == nil:
		if h.BaseSequence != 0 {
			return nil, fmt.Errorf("producer %d, sequence %d: %w", h.ProducerID, h.BaseSequence, ErrUnknownProducer)
		}
		return nil, nil
	case h.ProducerEpoch < p.epoch:
		return nil, fmt.Errorf("producer %d: epoch %d, newest is %d: %w", h.ProducerID, h.ProducerEpoch, p.epoch, ErrProducerEpoch)
	case h.ProducerEpoch > p.epoch:
		if h.BaseSequence != 0 {
			return nil, fmt.Errorf("producer %d: new epoch %d begins with sequence %d, want 0: %w",
				h.ProducerID, h.ProducerEpoch, h.BaseSequence, ErrOutOfOrder)
		}
		return nil, nil
	}
	last := lastSequence(h)
	for i := range p.batches {
		if b := &p.batches[i]; b.first == h.BaseSequence && b.last == last {
			return b, nil
		}
	}
	want := nextSequence(p.lastSequence())
	switch {
	case h.BaseSequence == want:
		return nil, nil
	case len(p.batches) > 0 && before(h.BaseSequence, p.batches[0].first):
		return nil, fmt.Errorf("producer %d, sequence %d: %w", h.ProducerID, h.BaseSequence, ErrDuplicate)
	}
	return nil, fmt.Errorf("producer %d: sequence %d, want %d: %w", h.ProducerID, h.BaseSequence, want, ErrOutOfOrder)
}

// before reports whether sequence a was given out before b, on the circle of
// non-negative int32 numbers.
func before(a, b int32) bool {
	return uint32(b-a)&math.MaxInt32 < 1<<30 && a != b
}

// wrote folds a written batch (with its final offsets) into the state.
func (ps *producers) wrote(h record.Header) {
	if !h.Idempotent() || h.Control() {
		return
	}
	p := ps.byID[h.ProducerID]
	if p == nil {
		p = &producer{batches: make([]batchSpan, 0, keptBatches)}
		ps.byID[h.ProducerID] = p
	}
	if h.ProducerEpoch != p.epoch {
		p.epoch = h.ProducerEpoch
		p.batches = p.batches[:0]
	}
	if len(p.batches) == keptBatches {
		copy(p.batches, p.batches[1:])
		p.batches = p.batches[:keptBatches-1]
	}
	p.batches = append(p.batches, batchSpan{h.BaseSequence, lastSequence(h), h.BaseOffset, h.LastOffset()})
	p.lastTime = max(p.lastTime, h.MaxTimestamp)
}

// expire forgets producers that wrote nothing since the given time.
func (ps *producers) expire(before int64) {
	for id, p := range ps.byID {
		if p.lastTime < before {
			delete(ps.byID, id)
		}
	}
}

// The snapshot's bytes, version 1, big-endian:
//
//	"LI" | version 1 | 0 | next offset i64 | producers u32 |
//	  each, by id: id i64, epoch i16, last time i64, batches u8,
//	    each: first i32, last i32, base offset i64, last offset i64
//	| CRC-32C of everything before, u32
const (
	snapshotMagic   = "LI\x01\x00"
	producerMinimum = 8 + 2 + 8 + 1
	spanBytes       = 4 + 4 + 8 + 8
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// snapshot encodes the state as of next, the first offset that is not in it.
func (ps *producers) snapshot(next int64) []byte {
	ids := make([]int64, 0, len(ps.byID))
	for id := range ps.byID {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	be := binary.BigEndian
	b := []byte(snapshotMagic)
	b = be.AppendUint64(b, uint64(next))
	b = be.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
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
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

var errSnapshot = lattice.E(lattice.Corrupt, errors.New("producer snapshot is damaged"))

// parseProducers reads a snapshot and the offset it reaches to.
func parseProducers(b []byte) (*producers, int64, error) {
	be := binary.BigEndian
	const head = len(snapshotMagic) + 8 + 4
	if len(b) < head+4 || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return nil, 0, errSnapshot
	}
	body, sum := b[:len(b)-4], be.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli()) != sum {
		return nil, 0, errSnapshot
	}
	next := int64(be.Uint64(body[4:]))
	n := int(be.Uint32(body[12:]))
	body = body[head:]
	if next < 0 || n > len(body)/producerMinimum {
		return nil, 0, errSnapshot
	}
	ps := newProducers()
	for range n {
		if len(body) < producerMinimum {
			return nil, 0, errSnapshot
		}
		id, p := int64(be.Uint64(body)), &producer{epoch: int16(be.Uint16(body[8:])), lastTime: int64(be.Uint64(body[10:]))}
		count := int(body[18])
		body = body[producerMinimum:]
		if count > keptBatches || len(body) < count*spanBytes {
			return nil, 0, errSnapshot
		}
		p.batches = make([]batchSpan, count, keptBatches)
		for i := range p.batches {
			p.batches[i] = batchSpan{
				int32(be.Uint32(body)), int32(be.Uint32(body[4:])),
				int64(be.Uint64(body[8:])), int64(be.Uint64(body[16:])),
			}
			body = body[spanBytes:]
		}
		if _, twice := ps.byID[id]; twice {
			return nil, 0, errSnapshot
		}
		ps.byID[id] = p
	}
	if len(body) != 0 {
		return nil, 0, errSnapshot
	}
	return ps, next, nil
}
