package kafka

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/twmb/franz-go/pkg/kerr"
)

// The writing half of ShareFetch: the connection's writer goroutine calls it, when
// nobody else uses op any more.

// writeTo works as that of Fetch: records are copied from the disk, and when they
// turn out to be damaged before a byte has left, the answer begins again with an
// error for that partition, whose records are given back.
func (op *shareFetchOp) writeTo(w *chunks) error {
	if err := w.flush(); err != nil { // earlier answers
		return err
	}
	op.sort()
	for {
		w.since = w.sent
		bad, err := op.writeOnce(w)
		if bad == nil {
			return err
		}
		if w.begun() {
			return fmt.Errorf("answer with %s: %w", bad.TopicPartition, err)
		}
		w.n = 0
		op.r.c.srv.shares.GiveBack(op.session, bad.TopicPartition, bad.got.Acquired)
		bad.got.Release()
		bad.got.Slice, bad.got.Acquired = nil, nil
		bad.err = fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
		for i := range op.parts {
			if s := op.parts[i].slice(); s != nil {
				s.Rewind()
			}
		}
	}
}

// sort brings the partitions of a topic together.
func (op *shareFetchOp) sort() {
	var sorted []sharePart
	done := map[lattice.TopicID]bool{}
	for i := range op.parts {
		id := op.parts[i].Topic
		if done[id] {
			continue
		}
		done[id] = true
		for _, p := range op.parts[i:] {
			if p.Topic == id {
				sorted = append(sorted, p)
			}
		}
	}
	op.parts = sorted
}

// writeOnce writes the answer. bad is the partition that could not be read.
func (op *shareFetchOp) writeOnce(w *chunks) (bad *sharePart, err error) {
	s := op.r.c.srv
	head := op.r.begin(64 + 128*len(op.parts))
	defer s.bufs.put(head)
	head.b = op.appendTo(head.b, s)
	size := len(head.b) - 4
	for i := range op.parts {
		size += op.parts[i].size()
	}
	binary.BigEndian.PutUint32(head.b, uint32(size))
	from := 0
	for i := range op.parts {
		p := &op.parts[i]
		if p.size() == 0 {
			continue
		}
		if err := w.append(head.b[from:op.cuts[i]]); err != nil {
			return nil, err
		}
		from = op.cuts[i]
		if damaged, err := w.copySlice(p.slice(), p.size()); err != nil {
			if damaged {
				return p, err
			}
			return nil, err
		}
	}
	return nil, w.append(head.b[from:])
}

// appendTo encodes the answer's body without records, and notes in cuts where each
// partition's go.
func (op *shareFetchOp) appendTo(b []byte, s *Server) []byte {
	b = appendInt32(b, 0) // throttle
	b = appendFailure(b, s, op.err)
	b = appendInt32(b, int32(op.lock.Milliseconds()))
	op.cuts = op.cuts[:0]
	topics := 0
	for i := range op.parts {
		if i == 0 || op.parts[i].Topic != op.parts[i-1].Topic {
			topics++
		}
	}
	b = appendLength(b, topics, true)
	for i := range op.parts {
		p := &op.parts[i]
		if i == 0 || p.Topic != op.parts[i-1].Topic {
			n := 1
			for n < len(op.parts)-i && op.parts[i+n].Topic == p.Topic {
				n++
			}
			b = append(b, p.Topic[:]...)
			b = appendLength(b, n, true)
		}
		b = op.appendPart(b, p, s)
		if i == len(op.parts)-1 || op.parts[i+1].Topic != p.Topic {
			b = appendNoTags(b, true)
		}
	}
	b = appendLength(b, 0, true) // other nodes
	return appendNoTags(b, true)
}

func (op *shareFetchOp) appendPart(b []byte, p *sharePart, s *Server) []byte {
	b = appendInt32(b, p.Partition)
	b = appendFailure(b, s, p.err)
	b = appendFailure(b, s, p.ackErr)
	b = appendInt32(b, -1) // the leader has not changed
	b = appendInt32(b, -1)
	b = appendNoTags(b, true)
	b = appendLength(b, p.size(), true)
	op.cuts = append(op.cuts, len(b))
	b = appendLength(b, len(p.got.Acquired), true)
	for _, a := range p.got.Acquired {
		b = appendInt64(b, a.First)
		b = appendInt64(b, a.Last)
		b = appendInt16(b, a.Deliveries)
		b = appendNoTags(b, true)
	}
	return appendNoTags(b, true)
}

// appendFailure encodes an error code and its reason.
func appendFailure(b []byte, s *Server, err error) []byte {
	code, text := s.fail(err)
	return appendNullable(appendInt16(b, code), deref(text), true)
}
