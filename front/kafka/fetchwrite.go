package kafka

import (
	"encoding/binary"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
)

// The writing half of Fetch: the connection's writer goroutine calls it, when
// nobody else uses op any more.

// writeTo encodes everything but the records, and copies those from the disk
// through w. When they turn out to be damaged before a byte has left, the answer
// begins again with an error for that partition. Afterwards only the connection
// can be closed: damaged bytes are never the end of a whole answer. The partition
// remembers the damage, so that the next request is answered with what lies before
// it, and then with the error.
func (op *fetchOp) writeTo(w *chunks) error {
	if err := w.flush(); err != nil { // earlier answers
		return err
	}
	for {
		w.since = w.sent
		bad, err := op.writeOnce(w)
		if bad == nil {
			return err
		}
		if w.begun() {
			return fmt.Errorf("answer with %s at %d: %w", bad.log.ID(), bad.offset, err)
		}
		w.n = 0
		bad.fail(err)
		op.reread()
	}
}

// writeOnce writes the answer. bad is the partition that could not be read.
func (op *fetchOp) writeOnce(w *chunks) (bad *fetchPart, err error) {
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
		if damaged, err := p.copyTo(w); err != nil {
			if damaged {
				return p, err
			}
			return nil, err
		}
	}
	return nil, w.append(head.b[from:])
}

// copyTo writes the partition's records.
func (p *fetchPart) copyTo(w *chunks) (damaged bool, err error) {
	return w.copySlice(p.slice, p.size())
}

// copySlice writes the slice's first bytes. damaged tells an error of reading from
// one of writing.
func (w *chunks) copySlice(slice *partition.Slice, left int) (damaged bool, err error) {
	for left > 0 {
		room, err := w.room(min(left, chunkRoom))
		if err != nil {
			return false, err
		}
		n, err := slice.NextChunk(room[:min(left, len(room))])
		switch {
		case err == io.EOF || err == nil && n == 0:
			return true, lattice.E(lattice.Corrupt, fmt.Errorf("%d bytes are missing at the end: %w", left, io.ErrUnexpectedEOF))
		case err != nil:
			return true, err
		}
		w.n += n
		left -= n
	}
	return false, nil
}

// reread finds the same batches again, from their first byte.
func (op *fetchOp) reread() {
	for i := range op.parts {
		p := &op.parts[i]
		size := p.size()
		if size == 0 {
			continue
		}
		p.slice.Release()
		if p.slice, p.err = p.find(size); p.err != nil {
			p.slice = nil
			p.fail(p.err)
		}
	}
}

// appendTo encodes the answer's body without records, and notes in cuts where
// each partition's go.
func (op *fetchOp) appendTo(b []byte, s *Server) []byte {
	v, flexible := op.r.version, op.r.flexible()
	b = appendInt32(b, 0) // throttle
	if v >= 7 {
		b = appendInt16(b, s.code(op.err))
		b = appendInt32(b, 0) // session: none
	}
	topics := op.topics
	if op.err != nil {
		topics = nil
	}
	op.cuts = op.cuts[:0]
	b = appendLength(b, len(topics), flexible)
	first := 0
	for i := range topics {
		t := &topics[i]
		if v >= 13 {
			b = append(b, t.id[:]...)
		} else {
			b = appendString(b, view(t.name), flexible)
		}
		b = appendLength(b, t.parts, flexible)
		for j := first; j < first+t.parts; j++ {
			b = op.appendPart(b, &op.parts[j], s)
		}
		first += t.parts
		b = appendNoTags(b, flexible)
	}
	return appendNoTags(b, flexible)
}

func (op *fetchOp) appendPart(b []byte, p *fetchPart, s *Server) []byte {
	v, flexible := op.r.version, op.r.flexible()
	high, stable, start := p.bounds.Committed, p.bounds.Stable, p.bounds.Start
	if p.err != nil {
		high, stable, start = -1, -1, -1
	}
	b = appendInt32(b, p.index)
	b = appendInt16(b, s.code(p.err))
	b = appendInt64(b, high)
	b = appendInt64(b, stable)
	if v >= 5 {
		b = appendInt64(b, start)
	}
	switch { // aborted transactions: null unless the client asked
	case op.stable:
		b = appendLength(b, len(p.aborted), flexible)
		for _, a := range p.aborted {
			b = appendInt64(b, a.ProducerID)
			b = appendInt64(b, a.First)
			b = appendNoTags(b, flexible)
		}
	default:
		b = appendLength(b, -1, flexible)
	}
	if v >= 11 {
		b = appendInt32(b, -1) // no replica is preferred
	}
	b = appendLength(b, p.size(), flexible)
	op.cuts = append(op.cuts, len(b))
	if !flexible {
		return b
	}
	if p.divEnd < 0 || p.err != nil {
		return append(b, 0)
	}
	b = append(b, 1, 0, 13) // one tag: number 0, the diverging epoch, of 13 bytes
	b = appendInt32(b, p.divEpoch)
	b = appendInt64(b, p.divEnd)
	return append(b, 0)
}
