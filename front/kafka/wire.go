package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	lattice "github.com/lattice-log/lattice"
)

// errMalformed means that a request does not parse. The connection closes.
var errMalformed = lattice.E(lattice.Invalid, errors.New("malformed request"))

// maxRequestParts bounds the partitions of one Produce or Fetch request, whose
// decoded form is many times larger than its bytes. keptParts is how many are
// kept for the next request.
const (
	maxRequestParts = 100_000
	keptParts       = 1 << 10
)

var errTooManyParts = fmt.Errorf("more than %d partitions in a request: %w", maxRequestParts, errLimit)

// decoder reads Kafka's primitive types off the front of b. After the first
// thing that does not fit, bad is set and everything reads as zero. What it
// returns aliases b. flexible selects the compact forms of KIP-482.
type decoder struct {
	b        []byte
	flexible bool
	bad      bool
}

func (d *decoder) span(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.b, d.bad = nil, true
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

func (d *decoder) int8() int8 {
	if s := d.span(1); s != nil {
		return int8(s[0])
	}
	return 0
}

func (d *decoder) int16() int16 {
	if s := d.span(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (d *decoder) int32() int32 {
	if s := d.span(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if s := d.span(8); s != nil {
		return int64(binary.BigEndian.Uint64(s))
	}
	return 0
}

func (d *decoder) id() (id lattice.TopicID) {
	copy(id[:], d.span(len(id)))
	return id
}

func (d *decoder) uvarint() uint32 {
	v, n := binary.Uvarint(d.b[:min(len(d.b), 5)])
	if n <= 0 || v > 1<<32-1 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return uint32(v)
}

// length reads the length of bytes; -1 is null.
func (d *decoder) length() int {
	if d.flexible {
		return int(d.uvarint()) - 1
	}
	return int(d.int32())
}

// string reads a nullable string; null and empty are both empty.
func (d *decoder) string() []byte {
	n := -1
	if d.flexible {
		n = int(d.uvarint()) - 1
	} else {
		n = int(d.int16())
	}
	if n == -1 {
		return nil
	}
	return d.span(n)
}

// bytes reads nullable bytes; nil is null.
func (d *decoder) bytes() []byte {
	n := d.length()
	if n == -1 {
		return nil
	}
	return d.span(n)
}

// array reads the length of an array whose elements are at least size bytes
// long; null counts as empty. A length that cannot be is bad: what the caller
// allocates is in proportion to what was received.
func (d *decoder) array(size int) int {
	n := d.length()
	if n < -1 || n > len(d.b)/size {
		d.b, d.bad = nil, true
		return 0
	}
	return max(n, 0)
}

// tags skips tagged fields.
func (d *decoder) tags() {
	if !d.flexible {
		return
	}
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		d.uvarint()
		d.span(int(d.uvarint()))
	}
}

// err is errMalformed if anything did not fit. Bytes after the end are allowed,
// as Kafka allows them.
func (d *decoder) err() error {
	if d.bad {
		return errMalformed
	}
	return nil
}

// view returns b as a string without a copy. It lives no longer than b's frame,
// so it may be looked up by but not kept.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func appendLength(b []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(b, uint64(n)+1)
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendString(b []byte, s string, flexible bool) []byte {
	if flexible {
		b = binary.AppendUvarint(b, uint64(len(s))+1)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	}
	return append(b, s...)
}

// appendNullable encodes "" as null.
func appendNullable(b []byte, s string, flexible bool) []byte {
	switch {
	case s != "":
		return appendString(b, s, flexible)
	case flexible:
		return append(b, 0)
	}
	return append(b, 0xff, 0xff)
}

func appendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }
func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// appendNoTags ends a structure of a flexible version.
func appendNoTags(b []byte, flexible bool) []byte {
	if flexible {
		return append(b, 0)
	}
	return b
}
