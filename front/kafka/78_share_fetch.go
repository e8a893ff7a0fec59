package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareFetch (key 78), versions 1 to 2 (KIP-932).
//
//	v1  flexible from the start
//	v2  a strict limit of records (KIP-1206), renewed locks (KIP-1222)
//
// A request works in this order: its session, its acknowledgements, where the group
// begins in partitions that are new to it, and, when all of that is durable, the
// records. With nothing to give it waits as Fetch does: a registration with the
// group and its logs, and one timer. A request that brought acknowledgements does not
// wait, so that their outcome is known at once.
//
// Records are acquired when the answer is made, so that none is locked for a member
// that waits. What turns out to be damaged while it is written is given back.

// fairPart is the part of MaxRecords with which an answer is full enough to leave the
// other partitions to the group's other members: one member that asks first would
// otherwise lock what there is in all of them, and the rest be idle.
const fairPart = 10

// acquireStrictly is the ShareAcquireMode that keeps to MaxRecords.
const acquireStrictly = 1

// shareFetchOp is one ShareFetch request.
type shareFetchOp struct {
	r       *request
	session *share.Session
	err     error // of the whole request
	lock    time.Duration

	wait     time.Duration
	minBytes int
	want     share.Want // of all partitions together
	acks     []share.Acknowledgement
	ackErrs  []error // of acks, once they are known

	waking atomic.Bool // a wake is on its way to retry

	mu       sync.Mutex
	finished bool
	cancel   func()                         // of the wait
	stop     func() bool                    // of the timer
	seen     uint64                         // changes of the group before the last attempt
	have     map[lattice.TopicPartition]int // bytes that it saw, if there were not enough
	missing  int                            // so many more, in each, may be enough

	parts []sharePart
	cuts  []int // where the records of each partition go in the encoded answer
}

// sharePart is one partition of the answer.
type sharePart struct {
	lattice.TopicPartition
	err, ackErr error
	got         share.Acquisition
}

func (p *sharePart) slice() *partition.Slice { return p.got.Slice }

func (p *sharePart) size() int {
	if p.got.Slice == nil {
		return 0
	}
	return p.got.Slice.Len()
}

func (c *conn) shareFetch(r *request) error {
	req, unlock, err := decode[*kmsg.ShareFetchRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	op := &shareFetchOp{
		r: r, wait: millis(max(req.MaxWaitMillis, 0)), minBytes: int(req.MinBytes),
		want: share.Want{
			MaxBytes: min(max(int(req.MaxBytes), 0), c.srv.cfg.MaxFetchBytes), One: req.MaxBytes > 0, MaxRecords: int(req.MaxRecords),
			Strict: req.ShareAcquireMode == acquireStrictly, BatchSize: int(req.BatchSize),
		},
	}
	if op.err = op.open(c, req); op.err != nil {
		op.acks = nil
		op.finish()
		return nil
	}
	group, member := op.session.Group(), op.session.Member()
	op.lock = c.srv.shares.Lock(group)
	c.srv.shares.Acknowledge(group, member, op.acks, req.IsRenewAck, func(errs []error) {
		op.ackErrs = errs
		op.begin()
	})
	if req.ShareSessionEpoch == share.EpochFinal {
		c.srv.shares.Close(op.session)
	}
	return nil
}

// open checks the request and finds its session.
func (op *shareFetchOp) open(c *conn, req *kmsg.ShareFetchRequest) error {
	group, member := deref(req.GroupID), deref(req.MemberID)
	var add, forget []lattice.TopicPartition
	idle := 0 // partitions without acknowledgements
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			tp := lattice.TopicPartition{Topic: t.TopicID, Partition: t.Partitions[j].Partition}
			add = append(add, tp)
			a := share.Acknowledgement{TopicPartition: tp}
			for _, b := range t.Partitions[j].AcknowledgementBatches {
				a.Acks = append(a.Acks, ackOf(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes))
			}
			if len(a.Acks) > 0 {
				op.acks = append(op.acks, a)
			} else {
				idle++
			}
		}
	}
	for i := range req.ForgottenTopicsData {
		t := &req.ForgottenTopicsData[i]
		for _, p := range t.Partitions {
			forget = append(forget, lattice.TopicPartition{Topic: t.TopicID, Partition: p})
		}
	}
	if req.IsRenewAck {
		if req.MaxBytes != 0 || req.MinBytes != 0 || req.MaxRecords != 0 || req.MaxWaitMillis != 0 || idle > 0 {
			return refuse(kerr.InvalidRequest, "a request that renews locks does not fetch")
		}
	}
	var err error
	switch req.ShareSessionEpoch {
	case share.EpochFinal:
		op.session, err = c.srv.shares.Current(group, member)
	case share.EpochOpen:
		if len(op.acks) > 0 {
			return refuse(kerr.InvalidRequest, "a request that opens a share session has nothing to acknowledge")
		}
		if op.session, err = c.srv.shares.Open(group, member, add); err == nil {
			c.own(op.session)
		}
	default:
		op.session, err = c.srv.shares.Continue(group, member, req.ShareSessionEpoch, add, forget)
	}
	if req.ShareSessionEpoch == share.EpochFinal || req.IsRenewAck {
		op.want.MaxRecords = 0
	}
	return err
}

func ackOf(first, last int64, types []int8) share.Ack {
	a := share.Ack{First: first, Last: last, Types: make([]share.AckType, len(types))}
	for i, t := range types {
		a.Types[i] = share.AckType(t)
	}
	return a
}

// begin goes on when the acknowledgements are decided.
func (op *shareFetchOp) begin() {
	if op.want.MaxRecords <= 0 {
		op.finish()
		return
	}
	// What follows reads from logs: that is for a goroutine of this request, not for
	// the one that writes the states of all groups and calls back.
	go op.prepare()
}

func (op *shareFetchOp) prepare() {
	c := op.r.c
	c.srv.shares.Prepare(c.ctx, op.session, func() { go op.first() })
}

func (op *shareFetchOp) first() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.r.onHurry(op.expire)
	op.attempt(op.wait <= 0 || len(op.acks) > 0)
	if op.ready() || op.wait <= 0 || len(op.acks) > 0 {
		op.answer()
		return
	}
	op.stop = op.r.c.srv.cfg.Clock.AfterFunc(op.wait, op.expire)
	op.arm()
}

// attempt acquires records in every partition, within the budget. Unless the answer
// goes whatever it holds, it acquires nothing before there are enough bytes.
func (op *shareFetchOp) attempt(whatever bool) {
	m := op.r.c.srv.shares
	op.parts = op.parts[:0]
	op.seen, op.have = op.session.Changes(), nil
	all := op.session.Partitions()
	if !whatever && op.minBytes > 1 && !op.enough(all) {
		return
	}
	left := op.want
	for _, tp := range all {
		if op.want.MaxRecords-left.MaxRecords >= max(op.want.MaxRecords/fairPart, 1) {
			break
		}
		got, err := m.Acquire(op.session, tp, left)
		if got.Slice == nil && !op.session.Tell(tp, err, false) {
			continue
		}
		if s := got.Slice; s != nil {
			left.MaxBytes, left.MaxRecords, left.One = left.MaxBytes-s.Len(), left.MaxRecords-got.Records(), false
		}
		op.parts = append(op.parts, sharePart{TopicPartition: tp, err: err, got: got})
	}
}

// enough reports whether the partitions have MinBytes to look at. If they are to have
// d more and are n, one of them gets at least ceil(d/n) more.
func (op *shareFetchOp) enough(all []lattice.TopicPartition) bool {
	total, goal, have := 0, min(op.minBytes, op.want.MaxBytes), map[lattice.TopicPartition]int{}
	for _, tp := range all {
		n, err := op.r.c.srv.shares.Available(op.session, tp, goal)
		if total += n; err != nil || total >= goal {
			return true
		}
		have[tp] = n
	}
	op.have = have
	op.missing = (goal - total + len(all) - 1) / max(len(all), 1)
	return false
}

// ready reports whether the answer can go: with records, or with an error that the
// member was not told of.
func (op *shareFetchOp) ready() bool {
	for i := range op.parts {
		if p := &op.parts[i]; p.got.Slice != nil || p.err != nil {
			return true
		}
	}
	return op.session.Closed()
}

// finish is answer for a request that does not fetch.
func (op *shareFetchOp) finish() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.answer()
}

// answer hands the answer to the queue. op.mu is held; nothing of op may be touched
// after it is let go.
func (op *shareFetchOp) answer() {
	op.finished = true
	op.disarm()
	if op.stop != nil {
		op.stop()
	}
	for i := range op.parts {
		op.session.Tell(op.parts[i].TopicPartition, op.parts[i].err, true)
	}
	for i := range op.acks {
		p := op.part(op.acks[i].TopicPartition)
		if p.ackErr = op.ackErrs[i]; p.ackErr == nil {
			continue
		}
		p.ackErr = fmt.Errorf("acknowledge: %w", p.ackErr)
	}
	op.r.answerStream(op)
}

// part returns the answer's part for a partition, which it adds if there is none.
func (op *shareFetchOp) part(tp lattice.TopicPartition) *sharePart {
	for i := range op.parts {
		if op.parts[i].TopicPartition == tp {
			return &op.parts[i]
		}
	}
	op.parts = append(op.parts, sharePart{TopicPartition: tp})
	return &op.parts[len(op.parts)-1]
}

// release is the queue's: the answer was written, or never will be.
func (op *shareFetchOp) release() {
	for i := range op.parts {
		op.parts[i].got.Release()
	}
}

// The waiting half. Every function here that is not called by the group, a log or a
// timer has op.mu held.

// arm begins a wait. A request that takes no bytes waits for its time to be over.
func (op *shareFetchOp) arm() {
	if op.want.MaxBytes <= 0 {
		return
	}
	var least func(lattice.TopicPartition) int
	if have, more := op.have, op.missing; have != nil {
		least = func(tp lattice.TopicPartition) int { return have[tp] + more }
	}
	op.waking.Store(false)
	op.cancel = op.r.c.srv.shares.Wait(op.session, op.seen, least, op.wake)
}

func (op *shareFetchOp) disarm() {
	if op.cancel != nil {
		op.cancel()
		op.cancel = nil
	}
}

// wake is called by the group or a log. It may not block, and the first is enough.
func (op *shareFetchOp) wake() {
	if op.waking.CompareAndSwap(false, true) {
		go op.retry()
	}
}

// retry looks whether there are records now. Woken for nothing, it pauses before it
// waits again, which might wake it at once.
func (op *shareFetchOp) retry() {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.finished {
		return
	}
	op.disarm()
	if op.attempt(false); op.ready() {
		op.answer()
		return
	}
	op.r.c.srv.cfg.Clock.AfterFunc(pauseAfterNothing, op.rested)
}

func (op *shareFetchOp) rested() {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.finished {
		return
	}
	if op.attempt(false); op.ready() {
		op.answer()
		return
	}
	op.arm()
}

// expire answers with what there is: the time is over, or the connection is.
func (op *shareFetchOp) expire() {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.finished {
		return
	}
	op.disarm()
	op.attempt(true)
	op.answer()
}
