package partition

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/storage/segment"
)

// Slice is a run of whole stored batches that were found but not read yet. It
// keeps files open: Release must be called once. Not safe for concurrent use.
type Slice struct {
	p     *Partition
	spans []segment.Span
	size  int
	from  int64
	// aborted are the aborted transactions that have something in spans, as Read
	// found them; of ReadStable only.
	aborted []Aborted

	span int   // index of the span being read
	at   int64 // position in it
	crc  checker
}

// Read returns the batches from the one that contains offset from, about max
// bytes, at least one whole batch when there is one, never beyond the committed
// offset. An empty slice means that nothing is at from so far.
// Errors by Kind: OutOfRange (below the start), NotYet (above the committed
// offset), Corrupt, Storage, Unavailable (closed).
func (p *Partition) Read(from int64, max int) (*Slice, error) { return p.read(from, max, false) }

// ReadStable is Read, but never beyond the last stable offset: at it and above,
// up to the committed offset, there is nothing so far. The batches of aborted
// transactions are among what is read; Slice.Aborted tells which they are.
func (p *Partition) ReadStable(from int64, max int) (*Slice, error) { return p.read(from, max, true) }

func (p *Partition) read(from int64, max int, stable bool) (*Slice, error) {
	start, committed, end := p.visible()
	limit := committed
	if stable {
		limit = p.stable(start, committed)
	}
	switch {
	case from < start:
		return nil, lattice.E(lattice.OutOfRange, fmt.Errorf("read %s at %d: the log starts at %d", p.id, from, start))
	case from > committed && from <= end: // it is here, and not committed: it was, perhaps, and a restart knows of less
		return p.nothing()
	case from > committed:
		return nil, lattice.E(lattice.NotYet, fmt.Errorf("read %s at %d: committed up to %d", p.id, from, committed))
	case from >= limit:
		return p.nothing()
	}
	if err := p.log.Readable(from); err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", p.id, from, err)
	}
	s := &Slice{p: p, from: from}
	for again := true; again; {
		s.Release()
		forgets := p.forgets.Load()
		var err error
		if s.spans, err = p.log.Spans(from, p.log.Sound(from, limit), max); err != nil {
			return nil, fmt.Errorf("read %s at %d: %w", p.id, from, err)
		}
		again = stable && !s.findAborted(forgets)
	}
	for i := range s.spans {
		s.size += int(s.spans[i].Len)
	}
	s.crc.begin()
	return s, nil
}

// nothing is what is read where nothing is so far.
func (p *Partition) nothing() (*Slice, error) {
	if _, closed := p.waiters.total(); closed {
		return nil, ErrClosed // else a reader at the end would wait, be woken at once, and spin
	}
	return &Slice{p: p}, nil
}

// findAborted finds the aborted transactions of a slice that was found after
// p.forgets was read. false: some that it may have batches of were forgotten since,
// with the file that it has open.
func (s *Slice) findAborted(forgets uint64) bool {
	if len(s.spans) == 0 {
		return true
	}
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	s.aborted = p.producers.txns.within(s.bounds())
	return p.forgets.Load() == forgets
}

// bounds returns what offsets the slice is about; it must not be empty.
func (s *Slice) bounds() (from, to int64) {
	return min(s.from, s.spans[0].First), s.spans[len(s.spans)-1].Last + 1
}

// Len returns the length in bytes.
func (s *Slice) Len() int { return s.size }

// Headers returns the headers of the slice's batches, in order, without opening or
// checking one: only their places are sure. It can be called before any NextChunk.
func (s *Slice) Headers() ([]record.Header, error) {
	var all []record.Header
	var buf [headerStep]byte
	for i := range s.spans {
		sp := &s.spans[i]
		from, n := int64(0), 0 // what buf holds
		for at := int64(0); at < sp.Len; {
			if at < from || at+record.HeaderSize > from+int64(n) {
				var err error
				if from, n, err = at, 0, nil; at+record.HeaderSize <= sp.Len {
					n, err = sp.ReadAt(buf[:min(sp.Len-at, headerStep)], at)
				}
				if err != nil && err != io.EOF {
					return nil, lattice.E(lattice.Storage, fmt.Errorf("read %s: %w", s.p.id, err))
				}
			}
			h, err := record.ParseHeader(buf[at-from : n])
			if err != nil || int64(h.Size()) > sp.Len-at {
				return nil, lattice.E(lattice.Storage, fmt.Errorf("read %s after offset %d: %w", s.p.id, sp.First, errors.Join(errOrder, err)))
			}
			all = append(all, h)
			at += int64(h.Size())
		}
	}
	return all, nil
}

// headerStep is how much is read at a time for headers: small batches share a read,
// and of large ones little is read in vain.
const headerStep = 4 << 10

// Cut leaves keep bytes after the first skip ones, both whole batches. It must be
// called before any NextChunk.
func (s *Slice) Cut(skip, keep int) {
	kept := s.spans[:0]
	s.size = 0
	for _, sp := range s.spans {
		over := min(int64(skip), sp.Len)
		skip -= int(over)
		sp.At, sp.Len = sp.At+over, min(sp.Len-over, int64(keep-s.size))
		if sp.Len == 0 {
			sp.Release()
			continue
		}
		s.size += int(sp.Len)
		kept = append(kept, sp)
	}
	clear(s.spans[len(kept):])
	s.spans = kept
}

// Rewind makes NextChunk begin again with the first byte.
func (s *Slice) Rewind() {
	s.span, s.at, s.crc = 0, 0, checker{}
	s.crc.begin()
}

// Aborted returns the aborted transactions that have batches, or their marker, in
// the slice, by their first offset: what a reader who wants committed records only
// must know. It is for slices of ReadStable.
func (s *Slice) Aborted() []Aborted {
	if len(s.spans) == 0 {
		return nil
	}
	from, to := s.bounds() // after a Cut less than at first
	outside := func(a Aborted) bool { return a.Marker < from || a.First >= to }
	if !slices.ContainsFunc(s.aborted, outside) {
		return s.aborted
	}
	return slices.DeleteFunc(slices.Clone(s.aborted), outside) // s may be asked again
}

// NextChunk reads the next bytes, in order, into buf and returns how many; io.EOF
// after the last. Every batch's CRC is checked no later than with the batch's
// last byte: an error of Kind Storage (damaged) means that nothing of this chunk,
// and nothing more of the slice, may be sent. The partition remembers the damage.
func (s *Slice) NextChunk(buf []byte) (int, error) {
	n := 0
	for n < len(buf) && s.span < len(s.spans) {
		sp := &s.spans[s.span]
		want := min(int64(len(buf)-n), int64(sp.Len)-s.at)
		if want == 0 {
			s.span, s.at = s.span+1, 0
			continue
		}
		if _, err := sp.ReadAt(buf[n:n+int(want)], s.at); err != nil {
			return 0, lattice.E(lattice.Storage, fmt.Errorf("read %s: %w", s.p.id, err))
		}
		if h, err := s.crc.feed(buf[n : n+int(want)]); err != nil {
			from := max(h.BaseOffset, sp.First)
			s.p.log.Damage(from, max(h.NextOffset(), from+1), err)
			return 0, lattice.E(lattice.Storage, fmt.Errorf("read %s at %d: %w", s.p.id, from, err))
		}
		s.at += want
		n += int(want)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Release lets go of the files under the slice.
func (s *Slice) Release() {
	for i := range s.spans {
		s.spans[i].Release()
	}
	s.spans = nil
}

// checker verifies batches that pass by in pieces.
type checker struct {
	table *crc32.Table
	head  [record.HeaderSize]byte
	have  int // header bytes collected
	h     record.Header
	left  int // bytes of the batch to come; meaningful once the header is complete
	sum   uint32
}

// crcFrom is where the part of a batch begins that its CRC covers (attributes).
const crcFrom = 21

var errOrder = lattice.E(lattice.Corrupt, errors.New("stored batch has no valid header"))

func (c *checker) begin() { c.table = castagnoli() }

// feed takes the next bytes. On an error it returns what is known of the batch.
func (c *checker) feed(b []byte) (record.Header, error) {
	for len(b) > 0 {
		if c.have < len(c.head) {
			n := copy(c.head[c.have:], b)
			c.have += n
			b = b[n:]
			if c.have < len(c.head) {
				return c.h, nil
			}
			h, err := record.ParseHeader(c.head[:])
			if err != nil {
				return c.h, errors.Join(errOrder, err)
			}
			c.h, c.left = h, h.Size()-len(c.head)
			c.sum = crc32.Update(0, c.table, c.head[crcFrom:])
		}
		n := min(len(b), c.left)
		c.sum = crc32.Update(c.sum, c.table, b[:n])
		c.left -= n
		b = b[n:]
		if c.left > 0 {
			return c.h, nil
		}
		if c.sum != c.h.CRC {
			return c.h, record.ErrCRC
		}
		c.have = 0
	}
	return c.h, nil
}
