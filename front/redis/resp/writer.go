package resp

import (
	"math"
	"strconv"
)

// Writer appends replies to a buffer, in the protocol version that the client
// chose. The zero Writer writes RESP2. Not safe for concurrent use.
type Writer struct {
	// Limit, unless 0, is how much the buffer may hold: a string that goes beyond
	// is left out, and Over reports it. What was written is then no reply.
	Limit int

	buf   []byte
	resp3 bool
	over  bool
}

// NewWriter returns a Writer that appends to buf.
func NewWriter(buf []byte, resp3 bool) Writer { return Writer{buf: buf, resp3: resp3} }

// Over reports whether Limit was met since the last call.
func (w *Writer) Over() bool {
	over := w.over
	w.over = false
	return over
}

// room reports whether n bytes fit.
func (w *Writer) room(n int) bool {
	if w.Limit > 0 && len(w.buf)+n > w.Limit {
		w.over = true
	}
	return !w.over
}

// SetRESP3 chooses the version of what follows.
func (w *Writer) SetRESP3(on bool) { w.resp3 = on }

// RESP3 reports whether the client chose version 3.
func (w *Writer) RESP3() bool { return w.resp3 }

// Bytes returns what was written.
func (w *Writer) Bytes() []byte { return w.buf }

// Len returns how much was written, in bytes.
func (w *Writer) Len() int { return len(w.buf) }

// Truncate takes back what was written after the first n bytes.
func (w *Writer) Truncate(n int) { w.buf = w.buf[:n] }

// SetBuffer goes on in another buffer.
func (w *Writer) SetBuffer(buf []byte) { w.buf = buf }

// Raw appends bytes that are a reply, or a part of one, already.
func (w *Writer) Raw(b []byte) { w.buf = append(w.buf, b...) }

// Simple writes a status, which has no line break.
func (w *Writer) Simple(s string) {
	w.buf = append(w.buf, '+')
	w.buf = append(w.buf, s...)
	w.crlf()
}

// Error writes an error with its code ("ERR", "WRONGTYPE"). Line breaks become
// spaces.
func (w *Writer) Error(text string) {
	w.buf = append(w.buf, '-')
	from := len(w.buf)
	w.buf = append(w.buf, text...)
	for i, c := range w.buf[from:] {
		if c == '\r' || c == '\n' {
			w.buf[from+i] = ' '
		}
	}
	w.crlf()
}

// Int writes an integer.
func (w *Writer) Int(n int64) { w.line(':', n) }

// Bulk writes a string of any bytes.
func (w *Writer) Bulk(b []byte) {
	if !w.room(len(b)) {
		return
	}
	w.line('$', int64(len(b)))
	w.buf = append(w.buf, b...)
	w.crlf()
}

// BulkString writes a string of any bytes.
func (w *Writer) BulkString(s string) {
	if !w.room(len(s)) {
		return
	}
	w.line('$', int64(len(s)))
	w.buf = append(w.buf, s...)
	w.crlf()
}

// BulkInt writes an integer as a string.
func (w *Writer) BulkInt(n int64) {
	var tmp [20]byte
	w.Bulk(strconv.AppendInt(tmp[:0], n, 10))
}

// Null writes the value that is not there.
func (w *Writer) Null() {
	if w.resp3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = append(w.buf, "$-1\r\n"...)
}

// NullArray writes the array that is not there.
func (w *Writer) NullArray() {
	if w.resp3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = append(w.buf, "*-1\r\n"...)
}

// Array begins an array of n replies, which follow.
func (w *Writer) Array(n int) { w.line('*', int64(n)) }

// Map begins a map of n pairs, whose 2n replies follow.
func (w *Writer) Map(n int) {
	if w.resp3 {
		w.line('%', int64(n))
		return
	}
	w.line('*', 2*int64(n))
}

// Set begins a set of n replies, which follow.
func (w *Writer) Set(n int) {
	if w.resp3 {
		w.line('~', int64(n))
		return
	}
	w.line('*', int64(n))
}

// Push begins a message of n replies that answers no command.
func (w *Writer) Push(n int) {
	if w.resp3 {
		w.line('>', int64(n))
		return
	}
	w.line('*', int64(n))
}

// Bool writes a truth value.
func (w *Writer) Bool(v bool) {
	switch {
	case w.resp3 && v:
		w.buf = append(w.buf, "#t\r\n"...)
	case w.resp3:
		w.buf = append(w.buf, "#f\r\n"...)
	case v:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// Double writes a number with 17 digits, as Redis does.
func (w *Writer) Double(f float64) {
	var tmp [32]byte
	w.number(',', AppendDouble(tmp[:0], f))
}

// AppendDouble appends f as Redis writes scores: 17 digits, "inf", "-inf".
func AppendDouble(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	return strconv.AppendFloat(b, f, 'g', 17, 64)
}

// DoubleText writes a number that was formatted elsewhere.
func (w *Writer) DoubleText(text []byte) { w.number(',', text) }

// BigNumber writes an integer of any size, given in decimal.
func (w *Writer) BigNumber(digits string) { w.number('(', []byte(digits)) }

// number writes text as RESP3's type, or as a string.
func (w *Writer) number(kind byte, text []byte) {
	if !w.resp3 {
		w.Bulk(text)
		return
	}
	w.buf = append(w.buf, kind)
	w.buf = append(w.buf, text...)
	w.crlf()
}

// Verbatim writes text with its format, three characters ("txt", "mkd").
func (w *Writer) Verbatim(format, text string) {
	if !w.resp3 {
		w.BulkString(text)
		return
	}
	w.line('=', int64(len(text)+4))
	w.buf = append(w.buf, format...)
	w.buf = append(w.buf, ':')
	w.buf = append(w.buf, text...)
	w.crlf()
}

// line writes a type with a number.
func (w *Writer) line(kind byte, n int64) {
	if !w.room(0) {
		return
	}
	w.buf = append(w.buf, kind)
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.crlf()
}

func (w *Writer) crlf() { w.buf = append(w.buf, '\r', '\n') }

// AppendCommand appends a command as clients send it.
func AppendCommand(b []byte, args ...[]byte) []byte {
	w := Writer{buf: b}
	w.Array(len(args))
	for _, a := range args {
		w.Bulk(a)
	}
	return w.buf
}
