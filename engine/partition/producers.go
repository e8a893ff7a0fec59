package partition

import (
	"errors"
	"fmt"
	"math"

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
	// ErrTransaction (48): a batch that belongs to no transaction that is under way, or
	// one outside of its producer's transaction.
	ErrTransaction = lattice.E(lattice.Conflict, errors.New("no transaction for this batch"))
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

// producers is what a partition knows of its producers: their sequences and their
// transactions. It is a pure fold over the batch headers and markers, in offset
// order, and saved as a snapshot, so that it survives truncation and compaction of
// the batches it came from.
type producers struct {
	byID map[int64]*producer
	txns transactions
}

func newProducers() *producers {
	return &producers{byID: map[int64]*producer{}, txns: transactions{open: map[int64]int64{}}}
}

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
	if first, open := ps.txns.open[h.ProducerID]; open && !h.Transactional() {
		return nil, fmt.Errorf("producer %d has a transaction since offset %d, the batch is outside of it: %w", h.ProducerID, first, ErrTransaction)
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
	p := ps.of(h)
	if h.Transactional() {
		ps.txns.wrote(h)
	}
	if len(p.batches) == keptBatches {
		copy(p.batches, p.batches[1:])
		p.batches = p.batches[:keptBatches-1]
	}
	p.batches = append(p.batches, batchSpan{h.BaseSequence, lastSequence(h), h.BaseOffset, h.LastOffset()})
	p.lastTime = max(p.lastTime, h.MaxTimestamp)
}

// of returns the state of a batch's producer, in the batch's epoch.
func (ps *producers) of(h record.Header) *producer {
	p := ps.byID[h.ProducerID]
	if p == nil {
		p = &producer{epoch: h.ProducerEpoch, batches: make([]batchSpan, 0, keptBatches)}
		ps.byID[h.ProducerID] = p
	}
	if h.ProducerEpoch != p.epoch {
		p.epoch = h.ProducerEpoch
		p.batches = p.batches[:0]
	}
	return p
}

// ended folds a written marker into the state.
func (ps *producers) ended(h record.Header, commit bool) {
	p := ps.of(h)
	p.lastTime = max(p.lastTime, h.MaxTimestamp)
	ps.txns.ended(h, commit)
}

// fold folds a stored batch, or as much of it as its header and, for a control
// batch, its record. A control batch that is no marker says nothing.
func (ps *producers) fold(batch []byte) error {
	h, err := record.ParseHeader(batch)
	if err != nil {
		return err
	}
	if !h.Control() {
		ps.wrote(h)
		return nil
	}
	m, ok, err := record.ParseMarker(batch)
	if err == nil && ok {
		ps.ended(h, m.Commit)
	}
	return err
}

// touch notes when a producer wrote, by the node's clock: its records' timestamps
// may be years old.
func (ps *producers) touch(id int64, ms int64) {
	if p := ps.byID[id]; p != nil {
		p.lastTime = max(p.lastTime, ms)
	}
}

// expire forgets producers that wrote nothing since the given time, unless they
// have a transaction.
func (ps *producers) expire(before int64) {
	for id, p := range ps.byID {
		if _, open := ps.txns.open[id]; !open && p.lastTime < before {
			delete(ps.byID, id)
		}
	}
}
