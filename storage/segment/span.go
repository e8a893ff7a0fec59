package segment

import (
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
)

// Span is a run of whole blocks in one file. The file stays readable until
// Release, whatever happens to the segment. The bytes are not checked.
type Span struct {
	h       *handle
	Segment int64 // first offset of the file
	At, Len int64 // byte range
	First   int64 // first offset of the first block
	Last    int64 // no block covers a later offset; it lies below the limit that was asked for
	// Rewritten: by Replace, so that blocks may be missing, and others not what was appended.
	Rewritten bool
}

// ReadAt reads bytes of the span; off 0 is the first byte of the first block.
func (s *Span) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.Len {
		return 0, io.EOF
	}
	short := int64(len(p)) > s.Len-off
	if short {
		p = p[:s.Len-off]
	}
	n, err := s.h.f.ReadAt(p, s.At+off)
	switch {
	case n == len(p) && short:
		return n, io.EOF
	case n == len(p):
		return n, nil
	case errors.Is(err, io.EOF) || err == nil:
		return n, corrupt("segment %d: the file ends at %d, before its blocks do", s.Segment, s.At+off+int64(n))
	}
	return n, storage("read segment %d at %d: %w", s.Segment, s.At+off, err)
}

// Release lets go of the file. It must be called once.
func (s *Span) Release() {
	if s.h != nil {
		s.h.release()
		s.h = nil
	}
}

// ReleaseAll releases every span.
func ReleaseAll(spans []Span) {
	for i := range spans {
		spans[i].Release()
	}
}

// Spans returns the blocks from the one that covers offset from (after a
// compaction: or the next one), as long as they end before offset limit and
// have at most maxBytes together, but at least one if there is one. Nothing
// before limit: no spans, no error. The caller releases them. Errors are those
// of Find; what comes before a damaged place is returned without one.
func (l *Log) Spans(from, limit int64, maxBytes int64) ([]Span, error) {
	limit = min(limit, l.Next())
	var out []Span
	for first := true; from < limit && (first || maxBytes > 0); {
		var sp Span
		var next int64
		err := l.with(from, func(v view, h *handle) (err error) {
			sp, next, err = l.spanIn(v, h, from, limit, maxBytes, first)
			return err
		})
		if err != nil {
			if len(out) > 0 {
				return out, nil
			}
			return nil, fmt.Errorf("read from offset %d: %w", from, err)
		}
		if sp.Len > 0 {
			out = append(out, sp)
			maxBytes -= sp.Len
			first = false
		}
		if next <= from {
			return out, nil
		}
		from = next
	}
	return out, nil
}

// spanIn returns the span inside one segment, and the offset to go on from: the
// segment's next if the span reaches its end, else from itself.
func (l *Log) spanIn(v view, h *handle, from, limit, maxBytes int64, first bool) (Span, int64, error) {
	start, ok, err := l.find(v, h, from)
	if err != nil {
		return Span{}, from, err
	}
	if !ok {
		if !v.compacted {
			return Span{}, from, corrupt("offset %d: segment %d ends before: %w", from, v.base, ErrGap)
		}
		return Span{}, v.next, nil
	}
	if start.m.Last >= limit || !first && start.size > maxBytes {
		return Span{}, from, nil
	}
	end, next, last := v.end, v.next, v.next-1
	if limit < v.next || v.end-start.at > maxBytes {
		if end, last, err = l.boundary(v, h, start, limit, start.at+max(maxBytes, start.size)); err != nil {
			return Span{}, from, err
		}
		if end < v.end {
			next = from
		}
	}
	l.opt.Handles.mu.Lock()
	l.opt.Handles.ref(h)
	l.opt.Handles.mu.Unlock()
	return Span{h: h, Segment: v.base, At: start.at, Len: end - start.at, First: start.m.Base, Last: last, Rewritten: v.compacted}, next, nil
}

// boundary returns the end of the last block, from start on, that ends at or
// before byte position pos and before offset limit, and an offset that no block
// up to there lies beyond. A damaged block ends it too.
func (l *Log) boundary(v view, h *handle, start place, limit, pos int64) (end, last int64, err error) {
	end, last = start.at+start.size, start.m.Last
	less := func(e offsetEntry) bool {
		return int64(e.at) <= pos && v.base+int64(e.last) < limit
	}
	from, ok, err := l.floor(v, h, less)
	if err != nil || ok && int64(from.at) <= start.at {
		ok = false
	}
	if ok {
		_, found, err := l.walk(v, h, from, true, func(place) bool { return true })
		if err != nil || !found {
			ok = false // a wrong entry: walk from the start instead
		}
	}
	if !ok {
		from = offsetEntry{uint32(start.m.Last - v.base), uint32(start.at)}
	} else {
		end, last = int64(from.at), v.base+int64(from.last)
	}
	_, _, err = l.walk(v, h, from, true, func(p place) bool {
		if p.m.Last >= limit || p.at+p.size > pos {
			return true
		}
		end, last = p.at+p.size, p.m.Last
		return false
	})
	if err != nil && lattice.KindOf(err) != lattice.Corrupt && !errors.Is(err, errBadIndex) {
		return 0, 0, err
	}
	return end, last, nil
}

// Read reads the whole block that covers offset (after a compaction: or the next
// one) into buf, which grows as needed, and checks it.
func (l *Log) Read(offset int64, buf []byte) (Meta, []byte, error) {
	for {
		m, pos, err := l.Find(offset)
		if err != nil {
			return m, nil, err
		}
		b, err := l.readBlock(pos, m, buf[:0])
		if errors.Is(err, errGone) {
			continue
		}
		if err == nil {
			if err = l.opt.Codec.Check(b); err != nil {
				err = lattice.E(lattice.Corrupt, err)
			}
		}
		if err != nil {
			return m, nil, fmt.Errorf("read the block at %s: %w", pos, err)
		}
		return m, b, nil
	}
}

func (l *Log) readBlock(pos Pos, want Meta, buf []byte) ([]byte, error) {
	v, ok := l.segmentAt(pos.Segment)
	if !ok {
		return nil, errGone
	}
	h, err := l.acquire(v.s)
	if err != nil {
		return nil, err
	}
	defer h.release()
	sc := scanner{f: h.f, codec: l.opt.Codec, end: v.end, buf: buf[:cap(buf)]}
	m, b, err := sc.block(pos.At)
	if err == nil && m != want {
		return nil, errGone // replaced since
	}
	return b, err
}

// Walk calls f for each block from the one that covers offset from, in order, as
// long as they end before offset limit, with its position and bytes, which are
// valid until f returns. They are not checked. Errors are those of Find, and f's.
func (l *Log) Walk(from, limit int64, f func(Meta, Pos, []byte) error) error {
	for limit = min(limit, l.Next()); from < limit; {
		err := l.with(from, func(v view, h *handle) error {
			start, ok, err := l.find(v, h, from)
			if err != nil {
				return err
			}
			from = v.next
			if !ok {
				return nil
			}
			sc := l.opt.Handles.scan(h.f, l.opt.Codec, v.end, 256<<10)
			defer l.opt.Handles.done(sc)
			prev := start.m.Base - 1
			for at := start.at; at < v.end; {
				m, size, err := sc.next(at, prev, v.next)
				if err != nil {
					return fmt.Errorf("segment %d: %w", v.base, err)
				}
				if m.Last >= limit {
					from = limit
					return nil
				}
				b, err := sc.fill(at, size)
				if err != nil {
					return fmt.Errorf("segment %d: %w", v.base, err)
				}
				if err := f(m, Pos{v.base, at}, b); err != nil {
					return err
				}
				at, prev = at+size, m.Last
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
