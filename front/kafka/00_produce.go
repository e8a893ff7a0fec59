package kafka

import (
	"errors"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Produce (key 0), versions 3 to 13.
//
//	v4   KAFKA_STORAGE_ERROR may be answered
//	v5   log start offset in the answer
//	v7   zstd is allowed (KIP-110)
//	v8   record errors and an error message in the answer (KIP-467)
//	v9   flexible
//	v10  current leader and node endpoints as tags (KIP-951): we are the leader
//	v12  transactions, version 2 (KIP-890): not turned on, see ApiVersions
//	v13  topic ids instead of names (KIP-516)
//
// The records of a partition stay in the frame that they came in: the partition
// numbers them there, writes them, and gives the frame back when they are
// durable. Appends start in the connection's reader, so that batches of one
// client keep their order; nothing waits for the disk.
//
// What another node leads goes there, in the same order, and its answer comes back as
// it is (forward.go).
//
// A batch of a transaction is taken while its producer's transaction has the
// partition (AddPartitionsToTxn). Not served: message formats before magic 2.

// produceOp is one Produce request. It is recycled together with its parts, so
// that a request allocates nothing of its own.
type produceOp struct {
	r      *request
	acks   int16
	wait   time.Duration // for another node's answer, and for acknowledgements
	txn    bool          // the request names a transactional id
	topics []produceTopic
	parts  []*producePart // the first n are in use
	n      int
	left   atomic.Int32 // parts without a result, and one for the reader
}

type produceTopic struct {
	name  []byte // aliases the frame
	id    lattice.TopicID
	parts int
}

type producePart struct {
	op      *produceOp
	done    func(partition.Result, error) // complete, bound once
	index   int32
	records []byte // aliases the frame
	res     partition.Result
	err     error
}

// complete takes the partition's answer.
func (p *producePart) complete(res partition.Result, err error) {
	p.res, p.err = res, err
	p.op.release()
}

// release answers the request when its last part has a result.
func (op *produceOp) release() {
	if op.left.Add(-1) == 0 {
		op.finish()
	}
}

func (c *conn) produce(r *request) error {
	op, _ := c.srv.produces.Get().(*produceOp)
	if op == nil {
		op = new(produceOp)
	}
	op.r = r
	if err := op.decode(r); err != nil {
		op.recycle()
		return err
	}
	op.left.Store(int32(op.n) + 1)
	first := 0
	for i := range op.topics {
		t := &op.topics[i]
		op.start(t, op.parts[first:first+t.parts])
		first += t.parts
	}
	op.release()
	return nil
}

// decode reads the request: the transactional id, acks, timeout, and for each
// topic its partitions' records.
func (op *produceOp) decode(r *request) error {
	d := decoder{b: r.body, flexible: r.flexible()}
	op.txn = len(d.string()) > 0
	op.acks = d.int16()
	// What this node leads is durable or refused soon, whatever the timeout is; it is other
	// nodes that may take longer.
	op.wait = remoteWait(d.int32())
	byID := r.version >= 13
	for range d.array(2) {
		var t produceTopic
		if byID {
			t.id = d.id()
		} else {
			t.name = d.string()
		}
		t.parts = d.array(6)
		if op.n+t.parts > maxRequestParts {
			return errTooManyParts
		}
		for range t.parts {
			p := op.part()
			p.index, p.records = d.int32(), d.bytes()
			d.tags()
		}
		d.tags()
		op.topics = append(op.topics, t)
	}
	d.tags()
	return d.err()
}

// part returns the next unused part, which may be a recycled one.
func (op *produceOp) part() *producePart {
	if op.n == len(op.parts) {
		p := &producePart{op: op}
		p.done = p.complete
		op.parts = append(op.parts, p)
	}
	p := op.parts[op.n]
	p.err, p.res = nil, partition.Result{Base: -1, AppendTime: -1, Start: -1}
	op.n++
	return p
}

// start begins the appends to one topic.
func (op *produceOp) start(t *produceTopic, parts []*producePart) {
	s := op.r.c.srv
	var topicErr error
	switch {
	case op.acks < -1 || op.acks > 1:
		topicErr = kerr.InvalidRequiredAcks
	case s.store.Gone() != nil:
		topicErr = s.store.Gone()
	case op.r.version < 13:
		var ok bool
		if t.id, ok = s.store.TopicIDOf(view(t.name)); !ok {
			topicErr = kerr.UnknownTopicOrPartition
		}
	}
	for _, p := range parts {
		err := topicErr
		if err == nil {
			err = p.err
		}
		if err == nil {
			err = checkBatch(p.records, op.r.version, op.txn)
		}
		var log *partition.Partition
		var leader lattice.NodeID
		if err == nil {
			log, leader, err = s.route(t.id, p.index)
		}
		switch {
		case err != nil:
			p.complete(p.res, err)
		case log != nil:
			log.Append(partition.Append{Batches: p.records, All: op.acks == -1, Wait: op.wait, Done: p.done})
		default:
			p.forward(s, t.id, leader)
		}
	}
}

// checkBatch refuses what Kafka refuses before it looks at the partition: since
// version 3 a request carries exactly one batch of magic 2 for a partition.
// Lengths, checksum and sequence are the partition's to check.
func checkBatch(b []byte, version int16, txn bool) error {
	if len(b) == 0 {
		return refuse(kerr.InvalidRecord, "no record batch")
	}
	h, err := record.ParseHeader(b)
	switch {
	case err != nil:
		return err
	case h.Size() < len(b):
		return refuse(kerr.InvalidRecord, "more than one record batch for a partition")
	case h.Compression() == record.Zstd && version < 7:
		return refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version 7 or later")
	case h.Transactional() && !txn:
		return refuse(kerr.InvalidRequest, "a batch of a transaction without a transactional id")
	}
	return nil
}

// finish answers the request. With acks=0 there is no answer, but an error
// closes the connection, which is how Kafka tells such a client.
func (op *produceOp) finish() {
	r := op.r
	s := r.c.srv
	if op.acks != 0 {
		out := r.begin(64 + 96*op.n)
		out.b = op.appendTo(out.b, s)
		op.recycle()
		r.reply(out)
		return
	}
	failed := false
	for _, p := range op.parts[:op.n] {
		failed = s.code(p.err) != 0 || failed
	}
	c := r.c
	op.recycle()
	r.silence()
	if failed {
		go c.close() // with TLS it may block, which we must not
	}
}

// recycle forgets the request. Its parts stay for the next one.
func (op *produceOp) recycle() {
	s := op.r.c.srv
	for _, p := range op.parts[:op.n] {
		p.records, p.err = nil, nil
	}
	clear(op.topics)
	op.r, op.topics, op.n = nil, op.topics[:0], 0
	if len(op.parts) <= keptParts && cap(op.topics) <= keptParts {
		s.produces.Put(op)
	}
}

// appendTo encodes the answer's body.
func (op *produceOp) appendTo(b []byte, s *Server) []byte {
	version, flexible := op.r.version, op.r.flexible()
	b = appendLength(b, len(op.topics), flexible)
	first := 0
	for i := range op.topics {
		t := &op.topics[i]
		if version >= 13 {
			b = append(b, t.id[:]...)
		} else {
			b = appendString(b, view(t.name), flexible)
		}
		b = appendLength(b, t.parts, flexible)
		for _, p := range op.parts[first : first+t.parts] {
			b = p.appendTo(b, s, version, flexible)
		}
		first += t.parts
		b = appendNoTags(b, flexible)
	}
	b = appendInt32(b, 0) // throttle
	return appendNoTags(b, flexible)
}

func (p *producePart) appendTo(b []byte, s *Server, version int16, flexible bool) []byte {
	b = appendInt32(b, p.index)
	b = appendInt16(b, s.code(p.err))
	b = appendInt64(b, p.res.Base)
	b = appendInt64(b, p.res.AppendTime)
	if version >= 5 {
		b = appendInt64(b, p.res.Start)
	}
	if version >= 8 {
		b = appendRecordErrors(b, p.err, flexible)
		b = appendNullable(b, reason(p.err), flexible)
	}
	return appendNoTags(b, flexible)
}

// appendRecordErrors names the records that a batch was refused for (KIP-467).
func appendRecordErrors(b []byte, err error, flexible bool) []byte {
	bad := recordErrors(err)
	b = appendLength(b, len(bad), flexible)
	for _, e := range bad {
		b = appendInt32(b, int32(e.Index))
		b = appendNullable(b, reason(e), flexible)
		b = appendNoTags(b, flexible)
	}
	return b
}

func recordErrors(err error) []*record.RecordError {
	var all *record.RecordErrors
	var one *record.RecordError
	var other *store.Answered
	switch {
	case err == nil:
	case errors.As(err, &all):
		return all.Errs
	case errors.As(err, &one):
		return []*record.RecordError{one}
	case errors.As(err, &other):
		return other.Records
	}
	return nil
}
