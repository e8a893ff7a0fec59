package kafka

import "time"

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
			wait := p.log.Wait
			if p.stable {
				wait = p.log.WaitStable
			}
			op.cancels = append(op.cancels, wait(p.waitAt, max(sizes[i]+share, 1), op.wake))
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
func (op *fetchOp) retry() { op.again(false) }

// rested is retry after a pause: it waits again whatever it finds.
func (op *fetchOp) rested() { op.again(true) }

func (op *fetchOp) again(rested bool) {
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
	case op.total <= op.last && !rested:
		// Woken for nothing that we can see, which might wake us again at once:
		// a short pause instead of a spin.
		op.r.c.srv.cfg.Clock.AfterFunc(pauseAfterNothing, op.rested)
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
