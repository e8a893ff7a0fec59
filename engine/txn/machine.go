package txn

import (
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// verdict is what a request comes to: a refusal, the state as it is, or the next
// state, which must be durable before the answer.
type verdict struct {
	err   error
	next  Transaction
	write bool
	// again: next ends a transaction that stands in the way; ask again after it.
	again bool
	// newID: ask again with a producer id that was never used.
	newID bool
}

func refuse(err error, format string, args ...any) verdict {
	return verdict{err: fmt.Errorf("%w: "+format, append([]any{err}, args...)...)}
}

// producerName is who a producer says it is; -1, -1 if it has no name yet.
type producerName struct {
	id    int64
	epoch int16
}

// initialise gives a producer its id and epoch and makes whoever had them before
// stop (InitProducerId). A producer that had an error may name itself, to go on
// under the next epoch unless somebody took over meanwhile (KIP-360). id is one
// that was never used, -1 while none was drawn.
func (t Transaction) initialise(now time.Time, timeout time.Duration, as producerName, id int64) verdict {
	named := as.id >= 0
	switch {
	case t.State == 0:
		if id < 0 {
			return verdict{newID: true}
		}
		return verdict{write: true, next: Transaction{
			ID: t.ID, State: Empty, Producer: id, LastProducer: -1, LastEpoch: -1, Timeout: timeout, Updated: now,
		}}
	case t.State.deciding():
		return verdict{err: ErrConcurrent}
	case named && as != t.name() && (as != t.lastName() || t.State == Ongoing):
		return refuse(ErrFenced, "%q is producer %d epoch %d", t.ID, t.Producer, t.Epoch)
	case t.State == Ongoing:
		return verdict{write: true, again: true, next: t.fence(now, named)}
	}
	used := t.Epoch >= maxEpoch
	if named && as == t.lastName() && !used {
		return verdict{next: t} // the answer was lost
	}
	if used && id < 0 {
		return verdict{newID: true}
	}
	next := t
	next.State, next.Timeout, next.Updated, next.Started = Empty, timeout, now, time.Time{}
	next.LastProducer, next.LastEpoch = -1, -1
	if named {
		next.LastProducer, next.LastEpoch = as.id, as.epoch
	}
	if next.Epoch++; used {
		next.Producer, next.Epoch = id, 0
	}
	return verdict{write: true, next: next}
}

func (t Transaction) name() producerName     { return producerName{t.Producer, t.Epoch} }
func (t Transaction) lastName() producerName { return producerName{t.LastProducer, t.LastEpoch} }

// fence aborts under the next epoch, so that the producer cannot go on. With
// recoverable set it can ask for that epoch, unless another producer comes first.
func (t Transaction) fence(now time.Time, recoverable bool) Transaction {
	next := t
	next.State, next.Updated = PrepareAbort, now
	next.LastProducer, next.LastEpoch = -1, -1
	if recoverable {
		next.LastProducer, next.LastEpoch = t.Producer, t.Epoch
	}
	next.Epoch++
	return next
}

// owns says whether a request of this producer is the transactional id's own.
func (t Transaction) owns(as producerName) error {
	switch {
	case t.State == 0 || as.id != t.Producer:
		return fmt.Errorf("%w: %q, producer %d", ErrProducer, t.ID, as.id)
	case as.epoch != t.Epoch || as.epoch > maxEpoch:
		return fmt.Errorf("%w: epoch %d of producer %d, newest is %d", ErrFenced, as.epoch, as.id, t.Epoch)
	}
	return nil
}

// add brings partitions and groups into the transaction, and begins one if there
// is none (AddPartitionsToTxn, AddOffsetsToTxn).
func (t Transaction) add(now time.Time, as producerName, partitions []lattice.TopicPartition, groups []string) verdict {
	if err := t.owns(as); err != nil {
		return verdict{err: err}
	}
	next := t
	switch {
	case t.State.deciding():
		return verdict{err: ErrConcurrent}
	case t.State != Ongoing:
		next.State, next.Started = Ongoing, now
		next.Partitions, next.Groups = nil, nil
	}
	next.Partitions = slices.Concat(next.Partitions, partitions)
	slices.SortFunc(next.Partitions, comparePartitions)
	next.Partitions = slices.Compact(next.Partitions)
	next.Groups = slices.Concat(next.Groups, groups)
	slices.Sort(next.Groups)
	next.Groups = slices.Compact(next.Groups)
	if len(next.Groups) > maxGroups {
		return refuse(ErrInvalidRequest, "offsets of more than %d groups", maxGroups)
	}
	if t.State == Ongoing && len(next.Partitions) == len(t.Partitions) && len(next.Groups) == len(t.Groups) {
		return verdict{next: t}
	}
	next.Updated = now
	return verdict{write: true, next: next}
}

// end decides (EndTxn). Asked again for what was decided, it says yes.
func (t Transaction) end(now time.Time, as producerName, commit bool) verdict {
	if err := t.owns(as); err != nil {
		return verdict{err: err}
	}
	prepare, complete := PrepareAbort, CompleteAbort
	if commit {
		prepare, complete = PrepareCommit, CompleteCommit
	}
	switch t.State {
	case Ongoing:
		next := t
		next.State, next.Updated = prepare, now
		return verdict{write: true, next: next}
	case complete:
		return verdict{next: t}
	case prepare:
		return verdict{err: ErrConcurrent}
	}
	return refuse(ErrState, "%q is %v", t.ID, t.State)
}

// expire aborts an ongoing transaction whose time is over. Its producer can ask
// to go on under the epoch that it is aborted with.
func (t Transaction) expire(now time.Time) verdict {
	if t.State != Ongoing || now.Before(t.deadline()) {
		return verdict{next: t}
	}
	return verdict{write: true, next: t.fence(now, true)}
}

// complete is the state once the decision is everywhere.
func (t Transaction) complete(now time.Time) Transaction {
	next := t
	next.State = CompleteAbort
	if t.State == PrepareCommit {
		next.State = CompleteCommit
	}
	next.Updated, next.Started = now, time.Time{}
	next.Partitions, next.Groups = nil, nil
	return next
}

// idle reports whether nothing is lost with the transactional id, once nobody has
// used it for the given time.
func (t Transaction) idle(now time.Time, since time.Duration) bool {
	return t.State != Ongoing && !t.State.deciding() && !now.Before(t.Updated.Add(since))
}

// verify returns what is wrong with the state itself.
func (t Transaction) verify() error {
	switch {
	case t.State < Empty || t.State > CompleteAbort:
		return fmt.Errorf("state %d", t.State)
	case t.Producer < 0 || t.Epoch < 0 || t.LastProducer < -1 || t.LastEpoch < -1 || (t.LastProducer < 0) != (t.LastEpoch < 0):
		return fmt.Errorf("producer %d epoch %d, before %d epoch %d", t.Producer, t.Epoch, t.LastProducer, t.LastEpoch)
	case t.Timeout <= 0:
		return fmt.Errorf("timeout %v", t.Timeout)
	case (t.State == Ongoing || t.State.deciding()) == t.Started.IsZero():
		return fmt.Errorf("%v, started %v", t.State, t.Started)
	case t.Started.IsZero() && len(t.Partitions)+len(t.Groups) > 0:
		return fmt.Errorf("%v with %d partitions and %d groups", t.State, len(t.Partitions), len(t.Groups))
	case !ascending(t.Partitions, comparePartitions) || !ascending(t.Groups, func(a, b string) int { return slices.Compare([]byte(a), []byte(b)) }):
		return fmt.Errorf("%q: partitions or groups out of order", t.ID)
	}
	return nil
}

func ascending[T any](all []T, compare func(a, b T) int) bool {
	for i := 1; i < len(all); i++ {
		if compare(all[i-1], all[i]) >= 0 {
			return false
		}
	}
	return true
}
