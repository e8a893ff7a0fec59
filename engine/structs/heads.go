package structs

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/lattice-log/lattice/core/state"
)

// Head is one current version of a key, or of one item of it.
type Head struct {
	Type   Type
	Item   []byte // field, member or position; empty for a string
	Value  []byte // what it says; of an increment, what it adds
	Order  state.Order
	Winner bool   // a plain read returns it, or what it adds to
	Why    string // for people
}

// Heads returns every live head of a key's data, at most limit of them (0: all),
// the winning type's first, and what a plain read returns before what it does
// not. more is true when there are others. A key that is not there has none.
func (m *Map) Heads(key []byte, limit int) (heads []Head, more bool, err error) {
	v, err := m.look(key)
	if err != nil || !v.present() {
		return nil, false, err
	}
	order := []Type{v.typ}
	for t := range kindOf {
		if t := Type(t); t != None && t != v.typ && v.Counts[kindOf[t]] > 0 {
			order = append(order, t)
		}
	}
	for _, t := range order {
		err := m.scan(v, kindOf[t], nil, false, func(sub []byte, r state.Row) bool {
			heads = append(heads, rowHeads(t, v.typ, sub, r)...)
			return limit == 0 || len(heads) <= limit
		})
		if err != nil {
			return nil, false, err
		}
	}
	if limit > 0 && len(heads) > limit {
		return heads[:limit], true, nil
	}
	return heads, false, nil
}

// rowHeads explains one row.
func rowHeads(t, winning Type, sub []byte, r state.Row) []Head {
	var out []Head
	if t == String || t == Hash {
		for i, c := range r.Resolve() {
			for _, d := range c.Heads {
				h, _ := r.Find(d)
				value := h.Payload.Bytes
				if h.Payload.Sum != nil {
					value = fmt.Appendf(nil, "%+d", h.Payload.Sum.Count)
				}
				out = append(out, Head{t, slices.Clone(sub), slices.Clone(value), h.Order(), i == 0 && t == winning, reason(i == 0, t == winning, len(c.Heads), len(r))})
			}
		}
		return out
	}
	last := r.Last().Dot
	for _, h := range slices.Backward(r) {
		value := h.Payload.Bytes
		if s, err := state.ParseScore(h.Payload); t == SortedSet && err == nil {
			value = strconv.AppendFloat(nil, s.Float(), 'g', -1, 64)
		}
		won := h.Dot == last
		out = append(out, Head{t, slices.Clone(sub), slices.Clone(value), h.Order(), won && t == winning, reason(won, t == winning, 1, len(r))})
	}
	slices.SortStableFunc(out, func(a, b Head) int { return b.Order.Compare(a.Order) })
	return out
}

func reason(won, typeWon bool, parts, all int) string {
	switch {
	case !typeWon:
		return "the key holds another type by a later write; this one stays beside it until a write has seen it"
	case !won:
		return "written apart from the winner, which is later by time and author; the next write replaces both"
	case all == 1:
		return "the only version"
	case parts == all:
		return "counts together with the others"
	}
	return "a read returns it: the latest by time and author"
}

// Last returns the order of the head that decides what a plain read returns, and
// whether versions of the key stand beside each other. ok is false when there is no such key.
func (m *Map) Last(key []byte) (last state.Order, conflicted, ok bool, err error) {
	v, err := m.look(key)
	if err != nil || !v.present() {
		return last, false, false, err
	}
	for t, k := range kindOf {
		conflicted = conflicted || k != 0 && Type(t) != v.typ && v.Counts[k] > 0
	}
	err = m.scan(v, kindOf[v.typ], nil, false, func(_ []byte, r state.Row) bool {
		if v.typ == String || v.typ == Hash {
			c := r.Resolve()
			conflicted = conflicted || len(c) > 1
			if c[0].Order.Compare(last) > 0 {
				last = c[0].Order
			}
		} else if o := r.Last().Order(); o.Compare(last) > 0 {
			last = o
		}
		return true
	})
	return last, conflicted, true, err
}
