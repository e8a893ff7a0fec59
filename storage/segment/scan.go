package segment

import (
	"bytes"
	"errors"
	"io"

	lattice "github.com/lattice-log/lattice"
)

// scanner reads blocks of one file in order, in large reads.
type scanner struct {
	f     io.ReaderAt
	codec Codec
	end   int64 // nothing is read beyond
	ahead int64 // bytes read at a time

	buf []byte
	off int64 // position of buf[0]
	n   int64 // bytes valid in buf
}

// scan returns a scanner with a pooled buffer; give it back with done.
func (hs *Handles) scan(f io.ReaderAt, c Codec, end, ahead int64) *scanner {
	b := hs.bufs.Get().(*[]byte)
	return &scanner{f: f, codec: c, end: end, ahead: ahead, buf: *b}
}

// keptScan is the largest buffer that is kept: room for a block of a megabyte, the
// largest that producers make by default, and what fill adds to it.
const keptScan = 2 << 20

func (hs *Handles) done(s *scanner) {
	if cap(s.buf) <= keptScan {
		hs.bufs.Put(&s.buf)
	}
}

// fill makes [at, at+n) available and returns it. A file that ends before is
// Corrupt, a failed read is Storage.
func (s *scanner) fill(at, n int64) ([]byte, error) {
	if at+n > s.end {
		return nil, corrupt("a block of %d bytes at %d crosses the end at %d", n, at, s.end)
	}
	if at >= s.off && at+n <= s.off+s.n {
		return s.buf[at-s.off : at-s.off+n], nil
	}
	want := min(max(n, s.ahead), s.end-at)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want+want/4)
	}
	s.buf = s.buf[:cap(s.buf)]
	got, err := s.f.ReadAt(s.buf[:want], at)
	s.off, s.n = at, int64(got)
	if s.n >= n {
		return s.buf[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, corrupt("the file ends at %d, inside a block of %d bytes at %d", at+s.n, n, at)
	}
	return nil, storage("read %d bytes at %d: %w", want, at, err)
}

// header returns the meta and size of the block at a position. The size is
// within the scanner's end.
func (s *scanner) header(at int64) (Meta, int64, error) {
	b, err := s.fill(at, int64(s.codec.HeaderLen()))
	if err != nil {
		return Meta{}, 0, err
	}
	m, size, err := s.codec.Header(b)
	if err != nil {
		return Meta{}, 0, lattice.E(lattice.Corrupt, err)
	}
	switch n := int64(size); {
	case size < s.codec.HeaderLen() || m.Last < m.Base || m.Base < 0:
		return Meta{}, 0, corrupt("no block at %d: offsets %d to %d in %d bytes", at, m.Base, m.Last, size)
	case n > s.end-at:
		return Meta{}, 0, corrupt("a block of %d bytes at %d crosses the end at %d", size, at, s.end)
	default:
		return m, n, nil
	}
}

// block returns the whole block at a position; the bytes are valid until the
// next call.
func (s *scanner) block(at int64) (Meta, []byte, error) {
	m, size, err := s.header(at)
	if err != nil {
		return m, nil, err
	}
	b, err := s.fill(at, size)
	return m, b, err
}

// next is header for the block that must follow others: it begins after
// offset prev and ends before offset limit.
func (s *scanner) next(at, prev, limit int64) (Meta, int64, error) {
	m, size, err := s.header(at)
	if err == nil && (m.Base <= prev || m.Last >= limit) {
		err = corrupt("the block at %d covers offsets %d to %d, but belongs after %d and before %d", at, m.Base, m.Last, prev, limit)
	}
	return m, size, err
}

// rest reports the position behind the last non-zero byte in [at, end), at
// when there is none.
func rest(f io.ReaderAt, at, end int64, buf []byte) (int64, error) {
	var zeros [4 << 10]byte
	last := at
	for at < end {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		data := buf[:n]
		for len(data) >= len(zeros) && bytes.Equal(data[len(data)-len(zeros):], zeros[:]) {
			data = data[:len(data)-len(zeros)]
		}
		if data = bytes.TrimRight(data, "\x00"); len(data) > 0 {
			last = at + int64(len(data))
		}
		at += int64(n)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				return last, nil
			}
			return last, storage("read at %d: %w", at, err)
		}
	}
	return last, nil
}
