package resp

import (
	"bytes"
	"fmt"
)

// ProtocolError is a mistake in the protocol. Its text is Redis's; the
// connection ends after it was sent.
type ProtocolError struct{ Text string }

func (e *ProtocolError) Error() string { return "Protocol error: " + e.Text }

// maxLine is the longest line: an inline command, or the length of an array or
// string (PROTO_INLINE_MAX_SIZE).
const maxLine = 64 << 10

// Limits bound what a Parser takes.
type Limits struct {
	// Args is the most arguments of one command.
	Args int
	// Bulk is the longest argument, in bytes.
	Bulk int
}

// Parser cuts commands out of bytes. The caller reads from the connection into
// Free, says how much came with Filled, and takes commands with Next until there
// is none. The zero Parser with Limits is ready to use. Not safe for concurrent use.
type Parser struct {
	Limits Limits

	buf  []byte // what was received
	base int    // where the first command that was not taken begins
	pos  int    // how far that one was parsed

	// The command that is being read; its arguments lie relative to base.
	missing int // strings of its array that did not begin yet or are incomplete
	bulk    int // length of the incomplete one; -1 when that was not read yet
	spans   []span
}

// span is an argument's place in the buffer.
type span struct{ from, to int }

// Free returns room for the next read. It is empty when the buffer is full of an
// incomplete command: then Grow. It ends the life of arguments handed out.
func (p *Parser) Free() []byte {
	if p.base > 0 && (p.base == len(p.buf) || len(p.buf) == cap(p.buf)) {
		p.compact(p.buf[:cap(p.buf)])
	}
	return p.buf[len(p.buf):cap(p.buf)]
}

// compact moves what was not taken to the beginning of to.
func (p *Parser) compact(to []byte) {
	n := copy(to, p.buf[p.base:])
	p.buf, p.pos, p.base = to[:n], p.pos-p.base, 0
}

// Filled says that n bytes were read into Free.
func (p *Parser) Filled(n int) { p.buf = p.buf[:len(p.buf)+n] }

// Size returns the buffer's capacity in bytes, with the places of arguments.
func (p *Parser) Size() int { return cap(p.buf) + 16*cap(p.spans) }

// Buffered returns how many bytes were received and not taken.
func (p *Parser) Buffered() int { return len(p.buf) - p.base }

// Want returns the capacity that would take the whole of the argument that is
// being read, as far as it is known, or else twice the present one: a hint for Grow.
func (p *Parser) Want() int {
	want := 2 * cap(p.buf)
	if p.missing > 0 && p.bulk >= 0 {
		// Its end, and the next string's length. A large claim is not believed
		// before half of it has come.
		if end := p.pos - p.base + p.bulk + 64; end < want {
			want = max(end, cap(p.buf)+512)
		}
	}
	return want
}

// Grow makes the buffer hold n bytes. It ends the life of arguments handed out.
func (p *Parser) Grow(n int) {
	if n > cap(p.buf) {
		p.compact(make([]byte, n))
	}
}

// Shrink gives memory back, down to n bytes, if nothing is held in it.
func (p *Parser) Shrink(n int) {
	if p.base == len(p.buf) && cap(p.buf) > n {
		p.buf, p.base, p.pos, p.spans = make([]byte, 0, n), 0, 0, nil
	}
}

// Mark names the place where the next command begins, until Free, Grow or Shrink.
func (p *Parser) Mark() int { return p.base }

// Rewind goes back to a place that Mark named: what was taken since then comes again.
func (p *Parser) Rewind(mark int) {
	p.base, p.pos, p.missing, p.spans = mark, mark, 0, p.spans[:0]
}

// Next appends the arguments of the next command to args; none when the command
// is not whole yet. The error is a *ProtocolError and final.
func (p *Parser) Next(args [][]byte) ([][]byte, error) {
	for p.pos < len(p.buf) || p.missing > 0 {
		if p.missing == 0 && p.buf[p.pos] != '*' {
			n := len(args)
			args, done, err := p.inline(args)
			if !done || len(args) > n || err != nil {
				return args, err
			}
			continue // an empty line
		}
		whole, err := p.array()
		if err != nil || !whole {
			return args, err
		}
		if len(p.spans) == 0 {
			p.base = p.pos
			continue // an empty array
		}
		for _, s := range p.spans {
			args = append(args, p.buf[p.base+s.from:p.base+s.to:p.base+s.to])
		}
		p.base, p.spans = p.pos, p.spans[:0]
		return args, nil
	}
	return args, nil
}

// array goes on with an array, and reports whether it is whole.
func (p *Parser) array() (bool, error) {
	if p.missing == 0 {
		n, ok, err := p.length("mbulk count", "multibulk length", p.Limits.Args)
		if err != nil || !ok {
			return false, err
		}
		if n <= 0 {
			return true, nil
		}
		p.missing, p.bulk = n, -1
	}
	for ; p.missing > 0; p.missing-- {
		if p.bulk < 0 {
			if p.pos < len(p.buf) && p.buf[p.pos] != '$' && bytes.IndexByte(p.buf[p.pos:], '\r') >= 0 {
				return false, &ProtocolError{fmt.Sprintf("expected '$', got '%s'", p.buf[p.pos:p.pos+1])}
			}
			n, ok, err := p.length("bulk count", "bulk length", p.Limits.Bulk)
			if err != nil || !ok {
				return false, err
			}
			if n < 0 {
				return false, &ProtocolError{"invalid bulk length"}
			}
			p.bulk = n
		}
		if len(p.buf)-p.pos < p.bulk+2 {
			return false, nil
		}
		from := p.pos - p.base
		p.spans = append(p.spans, span{from, from + p.bulk})
		p.pos += p.bulk + 2 // what the two bytes are, Redis does not look at either
		p.bulk = -1
	}
	return true, nil
}

// length reads a line with a number, behind its first byte. ok is false when the
// line is not whole.
func (p *Parser) length(line, what string, most int) (n int, ok bool, err error) {
	rest := p.buf[p.pos:]
	end := bytes.IndexByte(rest, '\r')
	switch {
	case end < 0 && len(rest) > maxLine:
		return 0, false, &ProtocolError{"too big " + line + " string"}
	case end < 0 || end+1 >= len(rest):
		return 0, false, nil
	}
	v, good := Int(rest[1:max(1, end)])
	if !good || v > int64(most) {
		return 0, false, &ProtocolError{"invalid " + what}
	}
	p.pos += end + 2
	return int(max(v, -1)), true, nil
}

// inline reads a line of words; done is false when it is not whole.
func (p *Parser) inline(args [][]byte) (_ [][]byte, done bool, err error) {
	rest := p.buf[p.pos:]
	end := bytes.IndexByte(rest, '\n')
	if end < 0 {
		if len(rest) > maxLine {
			return args, false, &ProtocolError{"too big inline request"}
		}
		return args, false, nil
	}
	line := bytes.TrimSuffix(rest[:end], []byte{'\r'})
	args, ok := Split(args, line)
	if !ok {
		return args, false, &ProtocolError{"unbalanced quotes in request"}
	}
	p.pos += end + 1
	p.base = p.pos
	return args, true, nil
}

// Int reads a decimal integer as Redis does everywhere: no space, no plus, no
// leading zero, 64 bits.
func Int(b []byte) (int64, bool) {
	if len(b) == 1 && '0' <= b[0] && b[0] <= '9' {
		return int64(b[0] - '0'), true
	}
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	if negative {
		return -int64(n), n <= 1<<63
	}
	return int64(n), n < 1<<63
}
