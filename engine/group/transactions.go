package group

import (
	"cmp"
	"errors"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Offsets in transactions (KIP-98, KIP-447). A producer that reads from one topic
// and writes to another commits how far it read in the transaction in which it
// wrote. Such an offset is durable when the producer is answered, but pending:
// readers of offsets do not see it until EndTransaction makes it the group's, in
// one step with all others of that transaction and group, or drops it.
//
// A crash before EndTransaction's step leaves the offsets pending, and the
// coordinator of transactions, which remembers the group, ends it again; after it
// there is nothing left to end.

// pendingOffset is an offset that waits for the end of a producer's transaction.
type pendingOffset struct {
	Producer int64
	lattice.TopicPartition
}

func (a pendingOffset) compare(b pendingOffset) int {
	return cmp.Or(cmp.Compare(a.Producer, b.Producer), comparePartitions(a.TopicPartition, b.TopicPartition))
}

// TxnCommitRequest commits offsets in a producer's transaction. The member may be
// left out: "", "" and -1, whatever members the group has.
type TxnCommitRequest struct {
	CommitRequest
	Producer int64
	// Ongoing returns nil while the transaction takes offsets of the group. It is
	// asked with locks held when the offsets are about to be written: it must be
	// quick, and must not call the Manager. Whoever ends the transaction makes it
	// fail before calling EndTransaction, so that no offset comes too late.
	Ongoing func() error
}

// CommitInTransaction stores offsets that wait for the end of a transaction, and
// replies when they are durable or refused: as CommitOffsets, or with the error of
// Ongoing.
func (m *Manager) CommitInTransaction(r TxnCommitRequest, reply func(CommitResult)) {
	r.Offsets = slices.Clone(r.Offsets)
	var refused error
	err := m.with(r.Group, r.Generation < 0, func(e *entry, now time.Time, _ *effects) {
		if e.classic != nil {
			refused = e.classic.mayCommit(now, r.CommitRequest, true)
		} else {
			refused = e.consumer.mayCommit(r.CommitRequest, true)
		}
		if refused != nil {
			return
		}
		errs := make([]error, len(r.Offsets))
		plan := func(b *batch) error {
			if err := r.Ongoing(); err != nil {
				return err
			}
			m.planCommit(now, r.Offsets, errs, func(tp lattice.TopicPartition, v Value) {
				b.setPending(e, pendingOffset{r.Producer, tp}, &v)
			})
			return nil
		}
		if !m.enqueueFor(e, plan, true, func(err error) { reply(CommitResult{Err: err, Partitions: errs}) }) {
			refused = ErrClosed
		}
	})
	switch {
	case errors.Is(err, ErrGroupNotFound):
		err = ErrIllegalGeneration
	case errors.Is(refused, ErrStaleMemberEpoch):
		refused = ErrIllegalGeneration // the name that these clients know
	}
	if err := cmp.Or(err, refused); err != nil {
		reply(CommitResult{Err: err})
	}
}

// EndTransaction makes a producer's pending offsets the group's, or drops them,
// durably before it replies: nil, ErrNotStored or ErrClosed. Without any it
// replies nil at once.
func (m *Manager) EndTransaction(group string, producer int64, commit bool, reply func(error)) {
	var refused error
	err := m.with(group, false, func(e *entry, _ time.Time, _ *effects) {
		plan := func(b *batch) error {
			resetID, err := m.random()
			if err != nil {
				return err
			}
			for _, po := range b.allPending(e) {
				if po.Producer != producer {
					continue
				}
				v, _ := b.getPending(e, po)
				b.setPending(e, po, nil)
				if _, there := m.topics.TopicByID(po.Topic); commit && there {
					b.commit(e, po.TopicPartition, v, resetID)
				}
			}
			return nil
		}
		if !m.enqueueFor(e, plan, true, reply) {
			refused = ErrClosed
		}
	})
	if errors.Is(err, ErrGroupNotFound) {
		reply(nil) // it was deleted, and with it what waited
		return
	}
	if err := cmp.Or(err, refused); err != nil {
		reply(err)
	}
}

func (b *batch) getPending(e *entry, po pendingOffset) (Value, bool) {
	if v, ok := b.stagedPending[e.name][po]; ok {
		if v == nil {
			return Value{}, false
		}
		return *v, true
	}
	v, ok := e.pending[po]
	return v, ok
}

func (b *batch) setPending(e *entry, po pendingOffset, v *Value) {
	b.changes = append(b.changes, Change{Key: Key{e.name, po.TopicPartition}, Value: v, Pending: true, Producer: po.Producer})
	b.entries = append(b.entries, e)
	if b.stagedPending[e.name] == nil {
		b.stagedPending[e.name] = map[pendingOffset]*Value{}
	}
	b.stagedPending[e.name][po] = v
}

// allPending returns the offsets that wait, stored or staged, in order.
func (b *batch) allPending(e *entry) []pendingOffset {
	var all []pendingOffset
	for po := range e.pending {
		if _, ok := b.getPending(e, po); ok {
			all = append(all, po)
		}
	}
	for po, v := range b.stagedPending[e.name] {
		if _, stored := e.pending[po]; !stored && v != nil {
			all = append(all, po)
		}
	}
	slices.SortFunc(all, pendingOffset.compare)
	return all
}
