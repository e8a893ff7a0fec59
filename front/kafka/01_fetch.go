package kafka

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Fetch (key 1), versions 4 to 18.
//
//	v5   log start offsets
//	v7   fetch sessions (KIP-227): session id 0 in the answer, there are none
//	v9   the client's leader epoch is checked (KIP-320)
//	v10  zstd is allowed (KIP-110)
//	v11  racks (KIP-392): no other replica to prefer
//	v12  flexible; last fetched epoch, diverging epoch (KIP-595)
//	v13  topic ids instead of names (KIP-516)
//	v15  the replica state is a tag (KIP-903)
//	v16  node endpoints as tags (KIP-951): we are the leader
//	v17  replica directory ids (KIP-853), for followers
//	v18  the follower's high watermark as a tag (KIP-1166)
//
// The answer comes when MinBytes can be read, when MaxWait is over, or at once
// when a partition has an error. A wait is a registration with each partition
// and one timer, not a goroutine. Like Kafka, the answer holds at least one
// batch, however large, when there is one (KIP-74); MaxBytes and our own limit
// bound the rest in the order of the request.

// fetchOp is one Fetch request. It is recycled when it was answered without a
// wait: callbacks of a wait may still hold it afterwards.
type fetchOp struct {
	r        *request
	wait     time.Duration
	minBytes int
	maxBytes int
	stable   bool // read_committed: up to the last stable offset, with the aborted transactions
	topics   []fetchTopic
	parts    []fetchPart
	err      error // of the whole request
	total    int   // bytes found

	waking atomic.Bool // a wake is on its way to retry

	mu       sync.Mutex
	waited   bool // callbacks were handed out
	finished bool
	cancels  []func()
	stop     func() bool // the timer
	last     int         // total at the last wait, to notice wakes without progress

	cuts []int // where the records of each partition go in the encoded answer
}

type fetchTopic struct {
	name  []byte // aliases the frame
	id    lattice.TopicID
	parts int
}

type fetchPart struct {
	index     int32
	epoch     int32 // the client's current leader epoch, -1: not given
	lastEpoch int32 // of the record before offset, -1: not given
	offset    int64
	max       int

	log     *partition.Partition
	err     error
	stable  bool
	slice   *partition.Slice
	aborted []partition.Aborted // those in slice, if stable
	bounds  partition.Bounds
	limit   int   // of the slice's bytes, so many are sent
	waitAt  int64 // offset at which to wait for more
	// divEpoch and divEnd say where the client's history left ours; -1: it did not.
	divEpoch int32
	divEnd   int64
}

func (p *fetchPart) size() int {
	if p.slice == nil {
		return 0
	}
	return min(p.slice.Len(), p.limit)
}

func (c *conn) fetch(r *request) error {
	op, _ := c.srv.fetches.Get().(*fetchOp)
	if op == nil {
		op = new(fetchOp)
	}
	op.r = r
	if err := op.decode(r); err != nil {
		op.recycle()
		return err
	}
	op.mu.Lock()
	op.attempt()
	if op.ready() || op.wait <= 0 {
		op.answer()
	} else {
		op.arm()
	}
	op.mu.Unlock()
	return nil
}

// decode reads the request.
func (op *fetchOp) decode(r *request) error {
	d := decoder{b: r.body, flexible: r.flexible()}
	v := r.version
	if v <= 14 {
		d.int32() // replica id: we have no followers that ask this way
	}
	op.wait = time.Duration(d.int32()) * time.Millisecond
	op.minBytes, op.maxBytes = int(d.int32()), int(d.int32())
	op.stable = d.int8() == 1
	if v >= 7 {
		session, epoch := d.int32(), d.int32()
		switch {
		case epoch < -1:
			op.err = kerr.InvalidFetchSessionEpoch
		case epoch > 0:
			op.err = kerr.FetchSessionIDNotFound // we never gave one
		}
		_ = session // 0 and -1 ask for everything, whatever the session
	}
	for range d.array(2) {
		var t fetchTopic
		if v >= 13 {
			t.id = d.id()
		} else {
			t.name = d.string()
		}
		t.parts = d.array(16)
		if len(op.parts)+t.parts > maxRequestParts {
			return errTooManyParts
		}
		for range t.parts {
			op.parts = append(op.parts, decodeFetchPart(&d, v))
		}
		d.tags()
		op.topics = append(op.topics, t)
	}
	// What follows is of no use without sessions: forgotten topics, the rack, tags.
	op.maxBytes = min(max(op.maxBytes, 0), r.c.srv.cfg.MaxFetchBytes)
	return d.err()
}

func decodeFetchPart(d *decoder, v int16) fetchPart {
	p := fetchPart{index: d.int32(), epoch: -1, lastEpoch: -1}
	if v >= 9 {
		p.epoch = d.int32()
	}
	p.offset = d.int64()
	if v >= 12 {
		p.lastEpoch = d.int32()
	}
	if v >= 5 {
		d.int64() // a follower's log start
	}
	p.max = int(max(d.int32(), 1)) // one batch goes even for 0
	d.tags()
	return p
}

// attempt looks for data in every partition, within the budget.
func (op *fetchOp) attempt() {
	op.total = 0
	if op.err != nil {
		return
	}
	s := op.r.c.srv
	first := 0
	for i := range op.topics {
		t := &op.topics[i]
		err := op.resolve(t)
		for j := first; j < first+t.parts; j++ {
			p := &op.parts[j]
			p.reset()
			if p.err = err; err == nil {
				p.stable = op.stable
				p.read(s, t.id, op.maxBytes-op.total, op.total == 0)
				if op.r.version < 10 {
					p.withoutZstd(s)
				}
				op.total += p.size()
			}
		}
		first += t.parts
	}
}

// resolve finds the topic, again at each attempt: it may have been deleted.
func (op *fetchOp) resolve(t *fetchTopic) error {
	if op.r.version >= 13 {
		return nil // the request has the id
	}
	var ok bool
	if t.id, ok = op.r.c.srv.store.TopicIDOf(view(t.name)); !ok {
		return kerr.UnknownTopicOrPartition
	}
	return nil
}

func (p *fetchPart) reset() {
	if p.slice != nil {
		p.slice.Release()
	}
	p.slice, p.aborted, p.err, p.log, p.limit = nil, nil, nil, nil, math.MaxInt
	p.bounds = partition.Bounds{Start: -1, Committed: -1, End: -1, Stable: -1}
	p.divEpoch, p.divEnd = -1, -1
}

// read finds the partition's next batches: up to budget bytes, or one batch of
// any size when nothing else was found before it.
func (p *fetchPart) read(s *Server, topic lattice.TopicID, budget int, first bool) {
	if p.log, p.err = s.partitionByID(topic, p.index); p.err != nil {
		return
	}
	if p.err = checkTerm(p.log, p.epoch); p.err != nil {
		return
	}
	p.bounds = p.log.Bounds()
	p.waitAt = p.offset
	if p.diverged() || budget <= 0 && !first {
		return
	}
	slice, err := p.find(max(min(p.max, budget), 1))
	switch {
	case err == nil && (first || slice.Len() <= budget):
		p.slice = slice
		if p.stable {
			p.aborted = slice.Aborted()
		}
	case err == nil:
		slice.Release() // a batch that is larger than what is left: the next request begins with it
	case lattice.KindOf(err) == lattice.NotYet:
		// Not committed yet, or not here yet: clients would reset their position,
		// in silence, if we called that out of range. Where another node leads, this
		// one does not know what is: the leader may have it.
		if p.bounds = p.log.Bounds(); p.offset <= p.bounds.End || !p.log.Leads() {
			p.waitAt = p.bounds.Committed
			return
		}
		p.err = fmt.Errorf("%w: %w", kerr.OffsetOutOfRange, err)
	default:
		p.fail(err)
	}
}

// find finds batches at the partition's offset, as the client wants to see them.
func (p *fetchPart) find(max int) (*partition.Slice, error) {
	if p.stable {
		return p.log.ReadStable(p.offset, max)
	}
	return p.log.Read(p.offset, max)
}

// fail takes an error from reading. Damage is the disk's, not the client's.
func (p *fetchPart) fail(err error) {
	if p.slice != nil {
		p.slice.Release()
		p.slice = nil
	}
	switch p.err = err; lattice.KindOf(err) {
	case lattice.Storage, lattice.Corrupt: // its cause would look like a corrupt message of the client's
		p.err = fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
	}
}

// diverged compares the epoch of the client's last record with ours: when the
// client's history is another one, the answer says where they part (KIP-595).
func (p *fetchPart) diverged() bool {
	if p.lastEpoch < 0 {
		return false
	}
	epoch, end, err := p.log.TermEnd(p.lastEpoch)
	switch {
	case err != nil:
		p.err = fmt.Errorf("%w: %w", kerr.UnknownLeaderEpoch, err)
	case epoch < 0:
		p.err = fmt.Errorf("%w: epoch %d is not in the log", kerr.OffsetOutOfRange, p.lastEpoch)
	case epoch == p.lastEpoch && !p.log.Leads() && end == p.log.Bounds().Committed:
		return false // the epoch ends where this replica does: that it goes on elsewhere is no divergence
	case epoch < p.lastEpoch || end < p.offset:
		p.divEpoch, p.divEnd = epoch, end
	default:
		return false
	}
	return true
}

// checkTerm compares a client's idea of the leader epoch with ours.
func checkTerm(log *partition.Partition, epoch int32) error {
	err := log.CheckTerm(epoch)
	switch {
	case err == nil:
		return nil
	case lattice.KindOf(err) == lattice.Fenced:
		return fmt.Errorf("%w: %w", kerr.FencedLeaderEpoch, err)
	}
	return fmt.Errorf("%w: %w", kerr.UnknownLeaderEpoch, err)
}

// ready reports whether the answer can go: enough bytes, an error that the
// client must see, or nothing that more could come from.
func (op *fetchOp) ready() bool {
	if op.err != nil || op.total >= op.minBytes || len(op.parts) == 0 {
		return true
	}
	room := false
	for i := range op.parts {
		p := &op.parts[i]
		if p.err != nil || p.divEnd >= 0 {
			return true
		}
		room = room || p.size() < p.max
	}
	return !room || op.total >= op.maxBytes
}

// answer hands the answer to the queue. op.mu is held; nothing of op may be
// touched after it is let go.
func (op *fetchOp) answer() {
	op.finished = true
	op.disarm()
	if op.stop != nil {
		op.stop()
	}
	op.r.answerStream(op)
}

// release is the queue's: the answer was written, or never will be.
func (op *fetchOp) release() {
	op.mu.Lock()
	waited := op.waited
	for i := range op.parts {
		op.parts[i].reset()
	}
	op.mu.Unlock()
	if !waited {
		op.recycle()
	}
}

// recycle forgets the request, and keeps the op for another.
func (op *fetchOp) recycle() {
	s := op.r.c.srv
	if cap(op.parts) > keptParts || cap(op.topics) > keptParts {
		return
	}
	clear(op.topics)
	op.r, op.err, op.topics, op.parts = nil, nil, op.topics[:0], op.parts[:0]
	op.finished, op.total = false, 0
	s.fetches.Put(op)
}
