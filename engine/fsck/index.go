package fsck

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/storage/segment"
)

const (
	offsetEntry = 8
	timeEntry   = 12
)

// indexCheck compares a segment's index files with its blocks as they pass by.
// What is wrong there is only slow: lookups check every entry, and rebuild.
type indexCheck struct {
	p    *partCheck
	base int64

	offsets, times entries
	since          int64 // position of the block of the last offset entry
	sparse         bool  // a block that should have an entry has none
	max            int64 // greatest timestamp so far, -1: none
}

// entries are one index file, read in step with the blocks.
type entries struct {
	name  string
	size  int
	r     *bufio.Reader // nil: no file
	done  func()
	next  [timeEntry]byte
	have  bool
	n     int
	wrong string // why the file is wrong, the first reason
}

func (e *entries) open(c *checker, path, name string, size int) {
	e.name, e.size = name, size
	r, bytes, done, err := c.stream(path)
	if err != nil {
		e.wrong = err.Error()
		return
	}
	e.r, e.done = r, done
	if bytes%int64(size) != 0 {
		e.fail("%d bytes end inside an entry", bytes)
	}
	if r != nil {
		e.advance()
	}
}

func (e *entries) advance() {
	_, err := io.ReadFull(e.r, e.next[:e.size])
	e.have = err == nil
	e.n++
}

func (e *entries) fail(format string, args ...any) {
	if e.wrong == "" {
		e.wrong = fmt.Sprintf(format, args...)
	}
}

// offset returns the next entry of an offset index.
func (e *entries) offset() (last, at int64) {
	return int64(binary.BigEndian.Uint32(e.next[:])), int64(binary.BigEndian.Uint32(e.next[4:]))
}

// time returns the next entry of a time index.
func (e *entries) time() (ms, last int64) {
	return int64(binary.BigEndian.Uint64(e.next[:])), int64(binary.BigEndian.Uint32(e.next[8:]))
}

func (p *partCheck) openIndex(base int64) *indexCheck {
	x := &indexCheck{p: p, base: base, max: -1}
	x.offsets.open(p.checker, p.path(fileName(base, ".index")), fileName(base, ".index"), offsetEntry)
	x.times.open(p.checker, p.path(fileName(base, ".timeindex")), fileName(base, ".timeindex"), timeEntry)
	return x
}

// block takes note of the block at a position.
func (x *indexCheck) block(at int64, h record.Header) {
	rel := h.LastOffset() - x.base
	for x.offsets.have {
		last, pos := x.offsets.offset()
		if pos > at {
			break
		}
		if pos < at || last != rel || at == 0 {
			x.offsets.fail("entry %d points at %d for the block that ends with offset %d; there is none", x.offsets.n, pos, x.base+last)
		} else {
			x.since = at
		}
		x.offsets.advance()
	}
	if at-x.since > segment.DefaultIndexBytes && x.since != at {
		x.sparse = true
	}
	rises := h.MaxTimestamp > x.max
	x.max = max(x.max, h.MaxTimestamp)
	for x.times.have {
		ms, last := x.times.time()
		if last > rel {
			break
		}
		if last < rel || !rises || ms != h.MaxTimestamp {
			x.times.fail("entry %d says that time %d comes first at offset %d", x.times.n, ms, x.base+last)
		}
		x.times.advance()
	}
}

// end reports what is wrong. A sealed file's indexes are complete; those of the
// file that is written to are as far as the last checkpoint found them.
func (x *indexCheck) end(sealed bool) {
	for _, e := range []*entries{&x.offsets, &x.times} {
		if e.have {
			e.fail("entry %d points behind the last block", e.n)
		}
		if e.done != nil {
			e.done()
		}
		if sealed && e.r == nil && e.wrong == "" {
			x.p.note(x.p.path(e.name), "index missing", "it is made again when it is used")
		}
	}
	if sealed && x.sparse && x.offsets.r != nil {
		x.offsets.fail("entries are missing")
	}
	if sealed && x.max >= 0 && x.times.r != nil {
		x.endTimes()
	}
	for _, e := range []*entries{&x.offsets, &x.times} {
		if e.wrong != "" {
			x.p.warn(x.p.path(e.name), "index wrong", "%s; it is made again when it is used", e.wrong)
		}
	}
}

// endTimes checks that the last entry of a sealed file has its greatest time:
// retention goes by it.
func (x *indexCheck) endTimes() {
	if ms, _ := x.times.time(); x.times.n < 2 || ms != x.max {
		x.times.fail("the segment's greatest time, %d, is not in it", x.max)
	}
}
