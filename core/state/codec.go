package state

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// Numbers are unsigned varints in their shortest form, signed ones zigzag. A dot
// or cite begins with a byte that says whose it is:
//
//	0  the writer of the entry that it stands in
//	1  another: author 32, incarnation u64 big-endian
//	2  no dot at all, where that is allowed
const (
	ownWriter   = 0
	otherWriter = 1
	noDot       = 2
)

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendWriter(b []byte, w, own Writer) []byte {
	if w == own {
		return append(b, ownWriter)
	}
	b = append(append(b, otherWriter), w.Author[:]...)
	return binary.BigEndian.AppendUint64(b, w.Incarnation)
}

func appendDot(b []byte, d Dot, own Writer) []byte {
	if d.IsZero() {
		return append(b, noDot)
	}
	b = binary.AppendUvarint(appendWriter(b, d.Writer, own), d.Seq)
	return binary.AppendUvarint(b, uint64(d.Index))
}

func appendDots(b []byte, dots []Dot, own Writer) []byte {
	b = binary.AppendUvarint(b, uint64(len(dots)))
	for _, d := range dots {
		b = appendDot(b, d, own)
	}
	return b
}

func appendCites(b []byte, c Cites, own Writer) []byte {
	b = binary.AppendUvarint(b, uint64(len(c)))
	for _, x := range c {
		b = appendDot(b, Dot(x), own)
	}
	return b
}

const (
	payloadBytes    = 0
	payloadSubtotal = 1
)

func appendPayload(b []byte, p Payload, own Writer) []byte {
	if p.Sum == nil {
		return appendBytes(append(b, payloadBytes), p.Bytes)
	}
	b = appendDot(append(b, payloadSubtotal), p.Sum.Base, own)
	b = binary.AppendVarint(b, p.Sum.From)
	return binary.AppendVarint(b, p.Sum.Count)
}

// AppendTo appends the canonical encoding of a row, the same on every replica:
//
//	heads uvarint, then each, ascending by dot:
//	  dot | time u64 big-endian | payload
//
// payload: 0, length, bytes; or 1, base dot, from, count.
func (r Row) AppendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r)))
	for _, h := range r {
		b = appendDot(b, h.Dot, Writer{})
		b = binary.BigEndian.AppendUint64(b, h.Time)
		b = appendPayload(b, h.Payload, Writer{})
	}
	return b
}

// ParseRow reads what AppendTo wrote; payloads share memory with b. Wraps ErrMalformed.
func ParseRow(b []byte) (Row, error) {
	r := reader{rest: b}
	n := r.count(1 + 1 + 1 + 8 + 1)
	var row Row
	if n > 0 {
		row = make(Row, 0, n)
	}
	for range n {
		h := Head{Dot: r.dot()}
		h.Time = binary.BigEndian.Uint64(r.take(8))
		h.Payload = r.payload()
		if len(row) > 0 && row[len(row)-1].Dot.Compare(h.Dot) >= 0 {
			r.bad = true
		}
		row = append(row, h)
	}
	if err := r.close(); err != nil {
		return nil, fmt.Errorf("row: %w", err)
	}
	return row, nil
}

// reader takes fields from rest. Once something is missing, or not in its one
// form, bad is set and everything reads as zero.
type reader struct {
	rest   []byte
	own    Writer
	bad    bool
	parser *Parser // takes memory for dots; may be nil
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return make([]byte, min(n, 32)) // fixed fields are no longer
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() uint8 { return r.take(1)[0] }

func (r *reader) uvarint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 && !r.bad { // nearly always
		v := uint64(r.rest[0])
		r.rest = r.rest[1:]
		return v
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 { // cut off, too large, or padded
		r.bad = true
	}
	if r.bad {
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count reads a number of items of at least size bytes each.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.rest)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte { return r.take(r.count(1)) }

// dot reads a dot, which must be one.
func (r *reader) dot() Dot {
	d := r.anyDot()
	if d.IsZero() {
		r.bad = true
	}
	return d
}

func (r *reader) anyDot() Dot {
	var d Dot
	switch r.u8() {
	case ownWriter:
		d.Writer = r.own
	case otherWriter:
		d.Writer.Author = lattice.AuthorID(r.take(32))
		d.Writer.Incarnation = binary.BigEndian.Uint64(r.take(8))
		if d.Writer == r.own {
			r.bad = true // it has a shorter form
		}
	case noDot:
		return Dot{}
	default:
		r.bad = true
	}
	d.Seq = r.uvarint()
	i := r.uvarint()
	if i > 1<<32-1 || d.Seq == 0 {
		r.bad = true
	}
	d.Index = uint32(i)
	return d
}

func (r *reader) dots() []Dot {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	var dots []Dot
	if r.parser != nil {
		dots = r.parser.room(n)
	} else {
		dots = make([]Dot, 0, n)
	}
	for range n {
		d := r.dot()
		if len(dots) > 0 && dots[len(dots)-1].Compare(d) >= 0 {
			r.bad = true
		}
		dots = append(dots, d)
	}
	return dots
}

func (r *reader) cites() Cites {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	cites := make(Cites, 0, n)
	for range n {
		c := CiteOf(r.dot())
		if len(cites) > 0 && cites[len(cites)-1].Writer.Compare(c.Writer) >= 0 {
			r.bad = true
		}
		cites = append(cites, c)
	}
	return cites
}

func (r *reader) payload() Payload {
	switch r.u8() {
	case payloadBytes:
		return Payload{Bytes: r.bytes()}
	case payloadSubtotal:
		return Payload{Sum: &Subtotal{Base: r.anyDot(), From: r.varint(), Count: r.varint()}}
	}
	r.bad = true
	return Payload{}
}

// close reports whether everything was read, and nothing was amiss.
func (r *reader) close() error {
	if r.bad || len(r.rest) != 0 {
		return fmt.Errorf("%w: lengths or forms do not fit", ErrMalformed)
	}
	return nil
}
