package keyval

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
)

// The first byte of a key of the fold database says what it is. See the package
// comment for the drawing.
const (
	tagVersion = 'v'
	tagWriter  = 'w'
	tagMap     = 'n'
	tagKey     = 'k'
	tagRow     = 'r'
	tagScore   = 's'
	tagExpiry  = 'x'
	tagFold    = 'f'

	// layoutVersion 2 counts whose rows a key has (flagCounted). 1 is read, too.
	layoutVersion = 2
)

// inlineMax is the longest register row, encoded, that stands in the key's record.
const inlineMax = 512

// Flags of a key's record.
const (
	flagRegister = 1 << iota // the register's row is in the record
	flagApart                // it is in a record of its own
	flagExpiry               // the expiry's row is in the record
	flagSubs                 // the key has rows of other kinds
	flagCounted              // how many of them have a head of each writer that is cited
)

// subKinds are the kinds whose rows have subs, and records of their own.
var subKinds = [...]state.Kind{state.Field, state.Member, state.Scored, state.Element}

func corrupt(format string, args ...any) error {
	return lattice.E(lattice.Corrupt, fmt.Errorf("fold database: "+format, args...))
}

// inner is a key's name inside the fold database: the number of its map, and
// its bytes.
func appendInner(b []byte, m *mapInfo, key []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(m.id)), key...)
}

func recordKey(b []byte, inner string) []byte { return append(append(b, tagKey), inner...) }

// rowPrefix is in front of all rows of a kind of a key; kind 0: of the key.
func rowPrefix(b []byte, inner string, k state.Kind) []byte {
	b = append(binary.AppendUvarint(append(b, tagRow), uint64(len(inner))), inner...)
	if k != 0 {
		b = append(b, byte(k))
	}
	return b
}

// rowKey is where the row of a sub is.
func rowKey(b []byte, s *sub) []byte { return append(rowPrefix(b, s.e.inner, s.kind), s.name...) }

func scorePrefix(b []byte, inner string) []byte {
	return append(binary.AppendUvarint(append(b, tagScore), uint64(len(inner))), inner...)
}

// scoreKey is where a member stands among a sorted set's by score.
func scoreKey(s state.Score, member string) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(member)), uint64(s))
	return string(append(b, member...))
}

func expiryKey(b []byte, at int64, inner string) []byte {
	b = binary.BigEndian.AppendUint64(append(b, tagExpiry), uint64(at)^1<<63)
	return append(b, inner...)
}

func writerKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte{tagWriter}, id) }

func appendWriter(b []byte, w state.Writer) []byte {
	return binary.BigEndian.AppendUint64(append(b, w.Author[:]...), w.Incarnation)
}

func parseWriter(k, v []byte) (uint32, state.Writer, error) {
	if len(k) != 5 || len(v) != 32+8 {
		return 0, state.Writer{}, corrupt("writer %x", k)
	}
	return binary.BigEndian.Uint32(k[1:]), state.Writer{Author: lattice.AuthorID(v[:32]), Incarnation: binary.BigEndian.Uint64(v[32:])}, nil
}

func (m *mapInfo) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(m.id))
	return binary.AppendUvarint(b, uint64(m.len))
}

// codec encodes rows with the numbers that writers have in this fold database.
type codec struct{ w *writers }

func (c codec) appendDot(b []byte, d state.Dot) []byte {
	b = binary.AppendUvarint(b, uint64(c.w.number(d.Writer)))
	b = binary.AppendUvarint(b, d.Seq)
	return binary.AppendUvarint(b, uint64(d.Index))
}

func (c codec) appendRow(b []byte, r state.Row) []byte {
	b = binary.AppendUvarint(b, uint64(len(r)))
	for _, h := range r {
		b = c.appendDot(b, h.Dot)
		b = binary.BigEndian.AppendUint64(b, h.Time)
		b = c.appendPayload(b, h.Payload)
	}
	return b
}

func (c codec) appendPayload(b []byte, p state.Payload) []byte {
	s := p.Sum
	switch {
	case s == nil:
		b = binary.AppendUvarint(append(b, 0), uint64(len(p.Bytes)))
		return append(b, p.Bytes...)
	case s.Base.IsZero():
		b = append(b, 1)
	default:
		b = c.appendDot(append(b, 2), s.Base)
	}
	b = binary.AppendVarint(b, s.From)
	return binary.AppendVarint(b, s.Count)
}

// appendKey appends a key's record, without a register that stands apart.
func (c codec) appendKey(b []byte, k *keyState) []byte {
	flags := byte(0)
	at := len(b)
	b = append(b, 0)
	if k.counts[state.Field]|k.counts[state.Member]|k.counts[state.Scored]|k.counts[state.Element] != 0 {
		flags |= flagSubs
		for _, kind := range subKinds {
			b = binary.AppendUvarint(b, uint64(k.counts[kind]))
		}
	}
	if k.apart() {
		flags |= flagApart
	}
	if flags != 0 {
		b = binary.AppendUvarint(b, uint64(len(k.seen)))
		for _, x := range k.seen {
			b = c.appendDot(b, state.Dot(x))
		}
	}
	if len(k.live) > 0 {
		flags |= flagCounted
		for _, n := range k.live {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	if len(k.expiry) > 0 {
		flags |= flagExpiry
		b = c.appendRow(b, k.expiry)
	}
	if len(k.register) > 0 && flags&flagApart == 0 {
		flags |= flagRegister
		b = c.appendRow(b, k.register)
	}
	b[at] = flags
	return b
}

// apart reports whether the register's row is too large for the key's record.
func (k *keyState) apart() bool {
	n := 0
	for _, h := range k.register {
		n += 32 + len(h.Payload.Bytes)
	}
	return n > inlineMax
}

// reader takes fields; once something is wrong, bad is set and all reads as zero.
type reader struct {
	rest []byte
	w    *writers
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return make([]byte, min(n, 32))
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.rest)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) dot() state.Dot {
	w, ok := r.w.writer(r.uvarint())
	seq, index := r.uvarint(), r.uvarint()
	d := state.Dot{Writer: w, Seq: seq, Index: uint32(index)}
	if !ok || index > math.MaxUint32 {
		r.bad = true
	}
	return d
}

func (r *reader) row() state.Row {
	n := r.count(3 + 8 + 2)
	if n == 0 {
		return nil
	}
	row := make(state.Row, n)
	for i := range row {
		row[i] = state.Head{Dot: r.dot(), Time: binary.BigEndian.Uint64(r.take(8))}
		p := &row[i].Payload
		switch tag := r.take(1)[0]; tag {
		case 0:
			p.Bytes = r.take(r.count(1))
		case 1, 2:
			p.Sum = &state.Subtotal{}
			if tag == 2 {
				p.Sum.Base = r.dot()
			}
			p.Sum.From, p.Sum.Count = r.varint(), r.varint()
		default:
			r.bad = true
		}
	}
	return row
}

// live reads in how many rows each of n writers has a head.
func (r *reader) live(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		v := r.uvarint()
		out[i] = int64(v)
		r.bad = r.bad || v > math.MaxInt64
	}
	r.bad = r.bad || n < 2
	return out
}

// parseRow reads a row's record, which it goes on using.
func (c codec) parseRow(b []byte) (state.Row, error) {
	r := reader{rest: b, w: c.w}
	row := r.row()
	if r.bad || len(r.rest) > 0 || len(row) == 0 {
		return nil, corrupt("a row of %d bytes", len(b))
	}
	return row, nil
}

// parseKey reads a key's record, which it goes on using. apart means that the
// register's row is elsewhere.
func (c codec) parseKey(b []byte) (k keyState, apart bool, err error) {
	r := reader{rest: b, w: c.w}
	flags := r.take(1)[0]
	if flags&flagSubs != 0 {
		all := uint64(0)
		for _, kind := range subKinds {
			n := r.uvarint()
			k.counts[kind] = int64(n)
			r.bad = r.bad || n > math.MaxInt64
			all |= n
		}
		r.bad = r.bad || all == 0
	}
	if flags&(flagSubs|flagApart) != 0 {
		k.seen = make(state.Cites, r.count(3))
		for i := range k.seen {
			k.seen[i] = state.CiteOf(r.dot())
		}
	}
	if flags&flagCounted != 0 {
		k.live = r.live(len(k.seen))
		r.bad = r.bad || flags&flagSubs == 0
	}
	if flags&flagExpiry != 0 {
		k.expiry = r.row()
		k.counts[state.Expiry] = 1
		r.bad = r.bad || len(k.expiry) == 0
	}
	if flags&flagRegister != 0 {
		k.register = r.row()
		r.bad = r.bad || len(k.register) == 0
	}
	if flags&(flagRegister|flagApart) != 0 {
		k.counts[state.Register] = 1
	}
	if r.bad || len(r.rest) > 0 || flags >= flagCounted<<1 {
		return keyState{}, false, corrupt("a key's record of %d bytes", len(b))
	}
	if flags&(flagSubs|flagApart) == 0 {
		k.seen = plainSeen(k.register, k.expiry)
	}
	return k, flags&flagApart != 0, nil
}

// plainSeen covers the heads of a key that has no rows with subs.
func plainSeen(register, expiry state.Row) state.Cites {
	if len(register) == 1 && len(expiry) == 0 { // nearly always
		return state.Cites{state.CiteOf(register[0].Dot)}
	}
	var c state.Cites
	for _, r := range [...]state.Row{register, expiry} {
		for _, h := range r {
			c = c.Raise(h.Dot)
		}
	}
	return slices.Clip(c)
}
