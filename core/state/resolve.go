package state

import (
	"math"
	"slices"
	"strconv"
)

// Candidate is one value that a register or field could be read as: a head's,
// or a base's with what was added to it.
type Candidate struct {
	Order Order // the greatest of its heads
	Value []byte
	Heads []Dot // whose value it is, ascending
	Base  Dot   // what an increment on this candidate adds to; zero: to nothing
	From  int64 // the integer in Base
}

// Resolve returns the candidates of a register's or field's row, the one that a
// plain read returns first. The key is in conflict there when there are several.
func (r Row) Resolve() []Candidate {
	if len(r) == 1 && r[0].Payload.Sum == nil { // nearly always
		h := r[0]
		return []Candidate{{Order: h.Order(), Value: h.Payload.Bytes, Heads: []Dot{h.Dot}, Base: h.Dot, From: integer(h.Payload.Bytes)}}
	}
	if len(r) == 1 { // a counter that one writer added to, and nobody set
		h, s := r[0], r[0].Payload.Sum
		total := AddSaturating(s.From, s.Count)
		return []Candidate{{Order: h.Order(), Value: strconv.AppendInt(nil, total, 10), Heads: []Dot{h.Dot}, Base: s.Base, From: s.From}}
	}
	sums := map[Dot]*Candidate{}
	var out []Candidate
	for _, h := range r {
		if h.Payload.Sum == nil {
			continue
		}
		s := *h.Payload.Sum
		c := sums[s.Base]
		if c == nil {
			c = &Candidate{Base: s.Base}
			sums[s.Base] = c
		}
		c.Heads = append(c.Heads, h.Dot)
		if h.Order().Compare(c.Order) > 0 {
			c.Order, c.From = h.Order(), s.From
		}
	}
	for _, h := range r {
		if h.Payload.Sum != nil {
			continue
		}
		c := sums[h.Dot]
		if c == nil {
			out = append(out, Candidate{Order: h.Order(), Value: h.Payload.Bytes, Heads: []Dot{h.Dot}, Base: h.Dot, From: integer(h.Payload.Bytes)})
			continue
		}
		c.From = integer(h.Payload.Bytes)
		c.Heads = append(c.Heads, h.Dot)
		if h.Order().Compare(c.Order) > 0 {
			c.Order = h.Order()
		}
	}
	for _, c := range sums {
		total := c.From
		for _, h := range r { // in the order of dots: saturation depends on it
			if h.Payload.Sum != nil && h.Payload.Sum.Base == c.Base {
				total = AddSaturating(total, h.Payload.Sum.Count)
			}
		}
		c.Value = strconv.AppendInt(nil, total, 10)
		slices.SortFunc(c.Heads, Dot.Compare)
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Candidate) int { return b.Order.Compare(a.Order) })
	return out
}

// integer reads a value as Redis reads an integer; 0 when it is none.
func integer(b []byte) int64 {
	n, _ := Integer(b)
	return n
}

// maybeInteger tells most values that are none at a glance.
func maybeInteger(b []byte) bool {
	return len(b) > 0 && len(b) <= len("-9223372036854775808") && (b[0] == '-' || b[0] >= '0' && b[0] <= '9')
}

// Integer reads a value as Redis reads an integer: decimal, no sign but a minus,
// no leading zeros or spaces, 64 bits.
func Integer(b []byte) (int64, bool) {
	if !maybeInteger(b) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || string(strconv.AppendInt(make([]byte, 0, 20), n, 10)) != string(b) {
		return 0, false
	}
	return n, true
}

// AddSaturating adds, and stays at the ends of the range.
func AddSaturating(a, b int64) int64 {
	switch c := a + b; {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	default:
		return c
	}
}
