package kafka

import (
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
)

// The waiting half of Fetch. Every function here that is not called by a
// partition or a timer has op.mu held.

// arm begins a wait: each partition wakes us when it may have made the answer
// ready. The timer is set once, by the first.
func (op *fetchOp) arm() {
	deficit := op.minBytes - op.total
	open := 0
	for i := range op.parts {
		if p := &op.parts[i]; p.size() < p.max {
			open++
		}
	}
	// If n partitions are to bring d bytes more, one of them brings at least
	// ceil(d/n). So wait for that in each, and share out what is left then: no
	// wake is missed, and few are in vain.
	share := (deficit + open - 1) / open
	sizes := make([]int, len(op.parts))
	for i := range op.parts {
		p := &op.parts[i]
		sizes[i] = p.size()
		if p.slice != nil { // a wait keeps no files open
			p.slice.Release()
			p.slice = nil
		}
	}
	if !op.waited {
		op.waited = true
		op.stop = op.r.c.srv.cfg.Clock.AfterFunc(op.wait, op.expire)
		op.r.onHurry(op.expire)
	}
	op.last = op.total
	op.waking.Store(false)
	for i := range op.parts {
		p := &op.parts[i]
		if sizes[i] < p.max {
			op.cancels = append(op.cancels, p.log.Wait(p.waitAt, max(sizes[i]+share, 1), op.wake))
		}
	}
}

// wake is called by a partition. It may not block, and the first is enough.
func (op *fetchOp) wake() {
	if op.waking.CompareAndSwap(false, true) {
		go op.retry()
	}
}

// disarm withdraws from the partitions.
func (op *fetchOp) disarm() {
	for _, cancel := range op.cancels {
		cancel()
	}
	clear(op.cancels)
	op.cancels = op.cancels[:0]
}

// retry looks whether the answer is ready now, and waits again if not.
func (op *fetchOp) retry() {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.finished {
		return
	}
	op.disarm()
	op.attempt()
	switch {
	case op.ready():
		op.answer()
	case op.total <= op.last:
		// Woken for nothing that we can see, which would wake us again at once:
		// a short pause instead of a spin.
		op.r.c.srv.cfg.Clock.AfterFunc(pauseAfterNothing, op.retry)
	default:
		op.arm()
	}
}

const pauseAfterNothing = 5 * time.Millisecond

// expire answers with what there is: the time is over, or the connection is.
func (op *fetchOp) expire() {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.finished {
		return
	}
	op.disarm()
	op.attempt()
	op.answer()
}

// suspects are partitions in which a read met damage after bytes of the answer
// had left, so that only the connection could be closed. The next read of one
// is checked before it is answered, so that the client gets what is whole, batch
// by batch, and then an error instead of closed connections for ever. The zero
// value is ready. Safe for concurrent use.
type suspects struct {
	some sync.Map // lattice.TopicPartition -> struct{}
}

func (s *suspects) add(id lattice.TopicPartition) { s.some.Store(id, struct{}{}) }

// vet checks the batches that p is about to answer with, if p is suspect.
func (s *suspects) vet(p *fetchPart) {
	if p.size() == 0 {
		return
	}
	id := p.log.ID()
	if _, suspect := s.some.Load(id); !suspect {
		return
	}
	p.slice.Release()
	p.slice = nil
	slice, err := p.log.Read(p.offset, 1) // one batch
	if err == nil {
		err = check(slice)
		slice.Release()
	}
	if err == nil {
		slice, err = p.log.Read(p.offset, 1)
	}
	if err != nil {
		p.fail(err)
		return
	}
	p.slice = slice
}

// check reads a slice to its end.
func check(slice *partition.Slice) error {
	buf := make([]byte, chunkRoom)
	for n := 0; n < slice.Len(); {
		got, err := slice.NextChunk(buf)
		if n += got; err != nil {
			return err
		}
	}
	return nil
}
