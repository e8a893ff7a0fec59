package structs

import (
	"math"
	"slices"
	"strconv"

	"github.com/lattice-log/lattice/core/state"
)

// MaxString bounds what Append and SetRange make of a string, in bytes. An entry
// bounds what is written at once, lower.
const MaxString = 512 << 20

// Value is what a plain read of a register returns.
type Value struct {
	Bytes      []byte
	Conflicted bool
	Head       state.Order // the winner's
}

// Get reads a string; ok is false when there is none. Wraps ErrWrongType.
func (m *Map) Get(key []byte) (Value, bool, error) {
	v, err := m.read(key, String)
	if err != nil || !v.present() {
		return Value{}, false, err
	}
	r, err := m.row(v, state.Register, nil)
	val, ok := valueOf(r)
	return val, ok, err
}

func valueOf(r state.Row) (Value, bool) {
	if len(r) == 1 && r[0].Payload.Sum == nil { // nearly always; as Resolve, at no cost
		v := Value{Bytes: r[0].Payload.Bytes, Head: r[0].Order()}
		if v.Bytes == nil {
			v.Bytes = []byte{}
		}
		return v, true
	}
	c := r.Resolve()
	if len(c) == 0 {
		return Value{}, false
	}
	v := Value{c[0].Value, len(c) > 1, c[0].Order}
	if v.Bytes == nil {
		v.Bytes = []byte{} // nil is for what is not there
	}
	return v, true
}

// Set makes the key a string, whatever it was. Its expiry goes, unless keepTTL.
func (m *Map) Set(key, value []byte, keepTTL bool) error {
	v, err := m.look(key)
	if err != nil {
		return err
	}
	p := state.Payload{Bytes: value}
	only := v.Counts == [state.Kinds]int64{state.Register: v.Counts[state.Register]} // no other rows, no expiry
	switch {
	case v.present() && keepTTL:
		if v, err = m.write(key, v.typ); err != nil {
			return err
		}
		if v.typ != String {
			if err := m.end(v, state.ScopeKind, kindOf[v.typ], nil, v.Seen); err != nil {
				return err
			}
			return m.put(v, state.Register, nil, p, nil)
		}
	case !only:
		if err := m.end(v, state.ScopeKey, 0, nil, v.Seen); err != nil {
			return err
		}
		return m.put(view{key: key}, state.Register, nil, p, nil)
	case v.Counts[state.Register] == 0:
		return m.put(v, state.Register, nil, p, nil)
	}
	r, err := m.rows.Row(m.at(key, state.Register, nil))
	if err != nil {
		return err
	}
	return m.put(v, state.Register, nil, p, r)
}

// rewrite changes a string and keeps its expiry. change gets nil when there is
// no string, and returns nil to leave things alone.
func (m *Map) rewrite(key []byte, change func(old []byte) ([]byte, error)) ([]byte, error) {
	v, err := m.write(key, String)
	if err != nil {
		return nil, err
	}
	r, err := m.row(v, state.Register, nil)
	if err != nil {
		return nil, err
	}
	old, _ := valueOf(r)
	value, err := change(old.Bytes)
	if err != nil || value == nil {
		return old.Bytes, err
	}
	return value, m.put(v, state.Register, nil, state.Payload{Bytes: value}, r)
}

// Append puts value behind the string and returns the new length. Wraps
// ErrWrongType, ErrTooLong.
func (m *Map) Append(key, value []byte) (int, error) {
	b, err := m.rewrite(key, func(old []byte) ([]byte, error) {
		if len(old)+len(value) > MaxString {
			return nil, ErrTooLong
		}
		return append(append(make([]byte, 0, len(old)+len(value)), old...), value...), nil
	})
	return len(b), err
}

// SetRange writes value at offset, which fills up with zero bytes, and returns the
// new length. An empty value changes nothing. Wraps ErrWrongType, ErrTooLong.
func (m *Map) SetRange(key []byte, offset int, value []byte) (int, error) {
	if len(value) == 0 {
		v, _, err := m.Get(key)
		return len(v.Bytes), err
	}
	b, err := m.rewrite(key, func(old []byte) ([]byte, error) {
		if offset > MaxString-len(value) {
			return nil, ErrTooLong
		}
		out := make([]byte, max(len(old), offset+len(value)))
		copy(out, old)
		copy(out[offset:], value)
		return out, nil
	})
	return len(b), err
}

// Incr adds to an integer and returns the sum. Increments of nodes that had not
// met all count. Wraps ErrWrongType, ErrNotInteger, ErrOverflow.
func (m *Map) Incr(key []byte, delta int64) (int64, error) {
	v, err := m.write(key, String)
	if err != nil {
		return 0, err
	}
	return m.add(v, state.Register, nil, delta)
}

// add increments the row of a register or field.
func (m *Map) add(v view, k state.Kind, sub []byte, delta int64) (int64, error) {
	r, err := m.row(v, k, sub)
	if err != nil {
		return 0, err
	}
	if len(r) == 1 && r[0].Payload.Sum != nil && r[0].Dot.Writer == m.rows.Writer() { // nearly always; as below, at less cost
		old := *r[0].Payload.Sum
		total, count := state.AddSaturating(old.From, old.Count), state.AddSaturating(old.Count, delta)
		switch {
		case overflows(total, delta):
			return 0, ErrOverflow
		case count-delta == old.Count:
			old.Count = count
			m.dots = append(m.dots[:0], r[0].Dot)
			_, err = m.rows.Put(m.at(v.key, k, sub), state.Payload{Sum: &old}, m.dots, v.under())
			return total + delta, err
		}
	}
	sum := state.Subtotal{Count: delta}
	var total int64
	var supersedes []state.Dot
	if c := r.Resolve(); len(c) > 0 {
		var ok bool
		if total, ok = state.Integer(c[0].Value); !ok {
			return 0, ErrNotInteger
		}
		sum.Base, sum.From = c[0].Base, c[0].From
		for _, other := range c[1:] { // seen now, so it loses for good
			supersedes = append(supersedes, other.Heads...)
		}
	}
	if overflows(total, delta) {
		return 0, ErrOverflow
	}
	for _, h := range r {
		if s := h.Payload.Sum; s != nil && s.Base == sum.Base && h.Dot.Writer == m.rows.Writer() {
			supersedes = append(supersedes, h.Dot)
			if added := state.AddSaturating(s.Count, delta); added-delta == s.Count {
				sum.Count = added
				continue
			}
			// All that was ever added does not fit, but the sum does: begin anew.
			return total + delta, m.put(v, k, sub, state.Payload{Bytes: strconv.AppendInt(nil, total+delta, 10)}, r)
		}
	}
	slices.SortFunc(supersedes, state.Dot.Compare)
	_, err = m.rows.Put(m.at(v.key, k, sub), state.Payload{Sum: &sum}, supersedes, v.under())
	return total + delta, err
}

func overflows(total, delta int64) bool {
	return delta > 0 && total > math.MaxInt64-delta || delta < 0 && total < math.MinInt64-delta
}

// IncrFloat adds to a number, writes the sum as a value, and returns it. Unlike
// integers, sums of nodes that had not met are values in conflict. Wraps ErrWrongType,
// ErrNotFloat, ErrNotANumber.
func (m *Map) IncrFloat(key []byte, delta Number) ([]byte, error) {
	return m.rewrite(key, func(old []byte) ([]byte, error) { return addNumber(old, delta) })
}

// Float reads a number as Redis does: no spaces, no hexadecimal, no NaN.
func Float(b []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsNaN(f) || slices.ContainsFunc(b, func(c byte) bool { return c == '_' || c == 'x' || c == 'X' || c == 'p' || c == 'P' }) {
		return 0, false
	}
	return f, true
}
