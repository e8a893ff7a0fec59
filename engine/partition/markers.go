package partition

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/storage/segment"
)

// joinsTransaction says whether a new batch belongs to a transaction that is under
// way, and holds readers of committed records back before it. p.mu is held.
//
// The coordinator lets a transaction end before it calls End, which takes the lock
// that is held here: a batch is refused, or lies before its transaction's marker.
func (p *Partition) joinsTransaction(h record.Header, next int64) error {
	if p.o.Transactions == nil {
		return fmt.Errorf("there are no transactions here: %w", ErrTransaction)
	}
	if err := p.o.Transactions.Ongoing(p.id, h.ProducerID, h.ProducerEpoch); err != nil {
		return err
	}
	// Before the batch can be committed: whoever sees it committed sees this.
	p.unstable.Store(min(p.unstable.Load(), next))
	return nil
}

// End writes the marker that ends a producer's transaction here, and calls done
// when it is as durable as the topic wants, or with the reason why not; then it
// may be called again. Once the transaction has ended here, or if it never had a
// batch here, it writes nothing: so a marker is written once, however often a
// crash makes the coordinator repeat itself. Any number may be under way at once.
// ErrProducerEpoch: a later epoch than the marker's wrote here.
func (p *Partition) End(m record.Marker, done func(error)) {
	end, err := p.end(m)
	if err != nil {
		done(err)
		return
	}
	p.log.Notify(end, done)
}

// Abort ends a producer's transaction here that its coordinator knows nothing of,
// so that readers of committed records get on: a transaction hangs when the
// coordinator's memory of it is lost, as with a catalogue from an older backup.
// It is like End otherwise. ErrTransaction: the coordinator does know it.
func (p *Partition) Abort(producer int64, epoch int16, done func(error)) {
	end, err := p.abort(producer, epoch)
	if err != nil {
		done(err)
		return
	}
	p.log.Notify(end, done)
}

func (p *Partition) abort(producer int64, epoch int16) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Under the lock: no batch of a new transaction comes between.
	if p.o.Transactions != nil && p.o.Transactions.Holds(p.id, producer) {
		return 0, fmt.Errorf("%s: the transaction of producer %d is its coordinator's to end: %w", p.id, producer, ErrTransaction)
	}
	return p.endLocked(record.Marker{ProducerID: producer, Epoch: epoch, Time: p.o.Clock.Now().UnixMilli()})
}

func (p *Partition) end(m record.Marker) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endLocked(m)
}

// endLocked writes the marker, and returns the offset that must be durable. p.mu
// is held.
func (p *Partition) endLocked(m record.Marker) (int64, error) {
	switch {
	case p.closed:
		return 0, ErrClosed
	case !p.Leads() || p.sealed:
		return 0, ErrNotLeader
	case p.holdUp:
		return 0, ErrChanging
	}
	_, _, next := p.log.Bounds()
	if _, open := p.producers.txns.open[m.ProducerID]; !open {
		return next, nil
	}
	if known := p.producers.byID[m.ProducerID]; known != nil {
		if m.Epoch < known.epoch {
			return 0, fmt.Errorf("%s: producer %d: a marker of epoch %d, newest is %d: %w", p.id, m.ProducerID, m.Epoch, known.epoch, ErrProducerEpoch)
		}
		// Never later than the records: a lookup by time is after those, and a
		// file keeps no longer than they do.
		m.Time = known.lastTime
	}
	if err := p.grantTermLocked(); err != nil {
		return 0, err
	}
	term := p.term.Load()
	b := m.AppendTo(nil)
	record.Place(b, next, term)
	h, err := record.ParseHeader(b)
	if err != nil {
		return 0, err
	}
	meta := segment.Meta{Base: next, Last: next, MaxTime: h.MaxTimestamp, Term: term}
	if err := p.log.Append([]segment.Meta{meta}, []int{len(b)}, b); err != nil {
		return 0, fmt.Errorf("append a marker to %s at %d: %w", p.id, next, err)
	}
	p.terms = p.terms.add(term, next)
	if p.several() {
		p.acks.wrote(h.NextOffset(), p.o.Clock.Now())
	}
	p.producers.ended(h, m.Commit)
	p.settle(0)
	return h.NextOffset(), nil
}

// settle works out the first offset whose fate readers do not know, when they see
// what lies below committed. p.mu is held, or nobody else has p yet.
func (p *Partition) settle(committed int64) {
	t := &p.producers.txns
	p.unstable.Store(t.seen(committed))
	p.endings.Store(int32(len(t.ending)))
}

// stable returns the last stable offset, for bounds that were read before the call.
func (p *Partition) stable(start, committed int64) int64 {
	first := p.unstable.Load()
	if first >= committed {
		return committed
	}
	if p.endings.Load() > 0 {
		p.mu.Lock()
		p.settle(committed)
		p.mu.Unlock()
		first = p.unstable.Load()
	}
	return max(start, min(first, committed))
}

// provable says whether the batch's records are somebody's, and will stay so.
func (p *Partition) provable(batch []byte) error {
	h, err := record.ParseHeader(batch)
	switch {
	case err != nil:
		return err
	case h.Control():
		return lattice.E(lattice.Conflict, errors.New("it is the end of a transaction, no record"))
	case !h.Transactional():
		return nil
	case h.BaseOffset >= p.Bounds().Stable:
		return lattice.E(lattice.NotYet, errors.New("its transaction is not committed"))
	case p.abortedIn(h.BaseOffset, h.NextOffset())(h):
		return lattice.E(lattice.Conflict, errors.New("its transaction was aborted"))
	}
	return nil
}
