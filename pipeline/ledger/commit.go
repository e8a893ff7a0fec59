package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// waiter is a proposal in Commit.
type waiter struct {
	p    *Proposal
	lead chan struct{} // closed: it is this caller's turn to commit for all who wait
	done chan struct{} // closed: result is there
	Result
}

// Commit appends what the proposal's Decide says, in a transaction that it may
// share with others, and returns when that is durable. If the context ends while
// the proposal waits, nothing of it is there; if it ends later, Commit returns
// with the answer all the same.
//
// An error of kind Unavailable means that it may be sent again, with the same
// intent id, and has happened at most once then.
func (l *Ledger) Commit(ctx context.Context, p *Proposal) (Answer, error) {
	if err := p.check(); err != nil {
		return Answer{}, err
	}
	w := &waiter{p: p, lead: make(chan struct{}), done: make(chan struct{})}
	l.mu.Lock()
	if len(l.waiting) >= l.o.MaxWaiting {
		l.mu.Unlock()
		return Answer{}, ErrBusy
	}
	l.waiting = append(l.waiting, w)
	if !l.leading {
		l.leading = true
		close(w.lead)
	}
	l.mu.Unlock()

	select {
	case <-w.lead:
	case <-w.done:
		return w.Answer, w.Err
	case <-ctx.Done():
		if l.withdraw(w) {
			return Answer{}, ctx.Err()
		}
		<-w.done
		return w.Answer, w.Err
	}
	// The first in the queue leads, so its own proposal is in the batch.
	l.commit(context.WithoutCancel(ctx), l.take())
	return w.Answer, w.Err
}

// withdraw takes a waiter out of the queue and reports whether it was there. If
// it was its turn to lead, the next one's comes.
func (l *Ledger) withdraw(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	select {
	case <-w.lead:
		l.next()
	default:
	}
	return true
}

// take removes the next batch from the queue.
func (l *Ledger) take() []*waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.waiting) && n < l.o.MaxBatch && (n == 0 || size+l.waiting[n].p.Size <= l.o.MaxBytes) {
		size += l.waiting[n].p.Size
		n++
	}
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return batch
}

// next hands the lead to the first who waits. The caller holds mu.
func (l *Ledger) next() {
	l.leading = len(l.waiting) > 0
	if l.leading {
		close(l.waiting[0].lead)
	}
}

// commit appends a batch, hands the lead on, and tells all.
func (l *Ledger) commit(ctx context.Context, batch []*waiter) {
	defer func() {
		// Also when something panicked: nobody may wait for ever.
		l.mu.Lock()
		l.next()
		l.mu.Unlock()
		for _, w := range batch {
			close(w.done)
		}
	}()
	if err := l.write(ctx, batch); err == nil {
		return
	} else if len(batch) == 1 || sqldb.Classify(err) == sqldb.ClassTransient {
		for _, w := range batch {
			w.Result = Result{Err: fmt.Errorf("append to the ledger: %w", err)}
		}
		return
	}
	// One of them is to blame, and nothing of the batch is there: each alone.
	for i := range batch {
		if err := l.write(ctx, batch[i:i+1]); err != nil {
			batch[i].Result = Result{Err: fmt.Errorf("append to the ledger: %w", err)}
		}
	}
}

// write appends some proposals in one transaction.
func (l *Ledger) write(ctx context.Context, batch []*waiter) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.CommitWithin)
	defer cancel()
	proposals := make([]*Proposal, len(batch))
	for i, w := range batch {
		proposals[i] = w.p
	}
	var results []Result
	err := l.db.Write(ctx, func(tx sqldb.Tx) error {
		var err error
		results, err = l.Append(ctx, tx, proposals...)
		return err
	})
	if err != nil {
		return err
	}
	var events []event.Event
	for i, w := range batch {
		w.Result = results[i]
		if !w.Repeated {
			events = append(events, w.Events...)
		}
	}
	if l.o.Committed != nil && len(events) > 0 {
		l.o.Committed(events)
	}
	return nil
}

// decide calls Decide. A panic in it is the proposal's error and nobody else's.
func (l *Ledger) decide(p *Proposal, e Entity, lookup Lookup) (d Decision, err error) {
	defer func() {
		if v := recover(); v != nil {
			l.o.Logger.Error("a rule panicked", "intent_type", p.IntentType, "intent", p.IntentID, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("intent %s: a rule panicked: %v", p.IntentType, v)
		}
	}()
	d, err = p.Decide(e, lookup)
	if err == nil && d.Rejection == nil {
		err = checkDecision(&d)
	}
	return d, err
}

func checkDecision(d *Decision) error {
	if len(d.Events) > MaxEvents {
		return tooLarge("the intent emits %d events, the limit is %d", len(d.Events), MaxEvents)
	}
	if len(d.State) > MaxState {
		return tooLarge("the entity's state would have %d bytes, the limit is %d", len(d.State), MaxState)
	}
	for i := range d.Events {
		e := &d.Events[i]
		errs := []error{event.CheckName("eventType", e.EventType), event.CheckPayload(e.Payload)}
		if e.Stream != "" {
			errs = append(errs, event.CheckName("stream", e.Stream))
		}
		if e.EntityID != "" {
			errs = append(errs, event.CheckID("entityId", e.EntityID))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("event %s that the intent emits: %w", e.EventType, err)
		}
	}
	return nil
}
