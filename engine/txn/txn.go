// Package txn coordinates the transactions of one store (KIP-98): which producer
// has a transactional id, what its transaction has touched, and whether that is
// committed or aborted, in every partition and group or in none.
//
// # A transaction
//
//	Empty --add--> Ongoing --EndTxn--> PrepareCommit | PrepareAbort
//	                 |                       |               |
//	                 +--time over, or fenced-+--(abort)----->|
//	                                   CompleteCommit | CompleteAbort --add--> Ongoing
//
// Transaction is that state machine, a value: a request and the time go in, the
// next state or a refusal comes out. Manager makes states durable, keeps the
// timers, and writes the markers.
//
// # Its end, and what a crash at each step leaves
//
//  1. Prepare is made durable. Before that a crash leaves the transaction Ongoing:
//     its producer goes on, or its time runs out and it is aborted. From the moment
//     that this step begins, no batch and no offset joins the transaction.
//  2. The decision is taken to each partition (a marker) and each group (its
//     offsets). A crash leaves some of them done; the next start does all again,
//     and what was done is not done twice.
//  3. Complete is written, without a sync of its own: a crash that loses it makes
//     the next start do step 2 again, which changes nothing.
//
// The producer is answered after step 3, so that whoever reads next sees what it
// committed; or after the first attempt at step 2 that failed: the decision stands,
// and the work is repeated until it succeeds.
//
// # Fencing
//
// A producer id belongs to one transactional id, and its epoch rises whenever
// another instance takes over: by InitProducerId, or by the coordinator when a
// transaction's time is over. A producer of an earlier epoch is refused here, and by
// each partition that has seen the later one.
//
// # What it does not do
//
// It serves the protocol without the feature transaction.version (KIP-890's second
// part): producers name their partitions before they write. It coordinates the
// whole store; there is one coordinator, so its epoch in markers is 0.
package txn

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// State is where a transactional id is.
type State uint8

// The states; their numbers are stored.
const (
	Empty State = iota + 1
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
)

// String returns the state as Kafka's tools spell it.
func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case Ongoing:
		return "Ongoing"
	case PrepareCommit:
		return "PrepareCommit"
	case PrepareAbort:
		return "PrepareAbort"
	case CompleteCommit:
		return "CompleteCommit"
	case CompleteAbort:
		return "CompleteAbort"
	}
	return "Dead"
}

// deciding reports whether an end was decided and is not everywhere yet.
func (s State) deciding() bool { return s == PrepareCommit || s == PrepareAbort }

// Transaction is all that is known of one transactional id. The zero State means
// that nothing is. It is a value: slices are never changed in place.
type Transaction struct {
	ID       string
	State    State
	Producer int64 // producer id
	Epoch    int16
	// LastProducer and LastEpoch are what the producer had before, if it asked for
	// more under that name: asked again, it gets the same answer (KIP-360). -1: none.
	LastProducer int64
	LastEpoch    int16
	Timeout      time.Duration            // whole milliseconds
	Started      time.Time                // of the transaction; zero: there is none
	Updated      time.Time                // of the last change
	Partitions   []lattice.TopicPartition // ascending
	Groups       []string                 // whose offsets are in it; ascending
}

// The answers that callers branch on, with the Kafka error code that each one
// stands for. Test with errors.Is: some are wrapped with details.
//
//	ErrNotStored       15  COORDINATOR_NOT_AVAILABLE (retriable)
//	ErrClosed          15  COORDINATOR_NOT_AVAILABLE
//	ErrInvalidRequest  42  INVALID_REQUEST
//	ErrTooMany         44  POLICY_VIOLATION
//	ErrEpoch           47  INVALID_PRODUCER_EPOCH: a batch or offset of an earlier epoch
//	ErrState           48  INVALID_TXN_STATE
//	ErrProducer        49  INVALID_PRODUCER_ID_MAPPING
//	ErrTimeout         50  INVALID_TRANSACTION_TIMEOUT
//	ErrConcurrent      51  CONCURRENT_TRANSACTIONS (retriable)
//	ErrFenced          90  PRODUCER_FENCED, which old versions know as 47
//	ErrNotFound       105  TRANSACTIONAL_ID_NOT_FOUND
var (
	ErrNotStored      = lattice.E(lattice.Storage, errors.New("transaction: its state was not stored"))
	ErrClosed         = lattice.E(lattice.Unavailable, errors.New("transaction: the coordinator is closed"))
	ErrInvalidRequest = lattice.E(lattice.Invalid, errors.New("transaction: invalid request"))
	ErrTooMany        = lattice.E(lattice.TooLarge, errors.New("transaction: this node knows too many transactional ids"))
	ErrEpoch          = lattice.E(lattice.Fenced, errors.New("transaction: the producer's epoch is over"))
	ErrState          = lattice.E(lattice.Conflict, errors.New("transaction: not in a state for this"))
	ErrProducer       = lattice.E(lattice.NotFound, errors.New("transaction: the producer id is not that of the transactional id"))
	ErrTimeout        = lattice.E(lattice.Invalid, errors.New("transaction: the timeout is not within transaction.max.timeout.ms"))
	ErrConcurrent     = lattice.E(lattice.Unavailable, errors.New("transaction: the one before is still ending"))
	ErrFenced         = lattice.E(lattice.Fenced, errors.New("transaction: another producer has taken over the transactional id"))
	ErrNotFound       = lattice.E(lattice.NotFound, errors.New("transaction: no such transactional id"))
)

// maxEpoch is the last epoch that a producer is given: the one above is left for
// fencing it. Then it gets another id.
const maxEpoch = math.MaxInt16 - 1

// maxGroups bounds the groups of one transaction.
const maxGroups = 1000

// maxID is the longest transactional id: the longest string of the Kafka protocol.
const maxID = math.MaxInt16

func comparePartitions(a, b lattice.TopicPartition) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// has reports whether the transaction takes batches in the partition.
func (t *Transaction) has(tp lattice.TopicPartition) bool {
	_, ok := slices.BinarySearchFunc(t.Partitions, tp, comparePartitions)
	return ok
}

// hasGroup likewise for offsets.
func (t *Transaction) hasGroup(name string) bool {
	_, ok := slices.BinarySearch(t.Groups, name)
	return ok
}

// deadline is when an ongoing transaction is aborted.
func (t *Transaction) deadline() time.Time { return t.Started.Add(t.Timeout) }
