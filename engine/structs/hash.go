package structs

import "github.com/lattice-log/lattice/core/state"

// HGet reads a field; ok is false when there is none. Wraps ErrWrongType.
func (m *Map) HGet(key, field []byte) (Value, bool, error) {
	v, err := m.read(key, Hash)
	if err != nil || !v.present() {
		return Value{}, false, err
	}
	r, err := m.row(v, state.Field, field)
	val, ok := valueOf(r)
	return val, ok, err
}

// HSet writes a field, and reports whether it is new. Wraps ErrWrongType.
func (m *Map) HSet(key, field, value []byte) (bool, error) {
	v, err := m.write(key, Hash)
	if err != nil {
		return false, err
	}
	r, err := m.row(v, state.Field, field)
	if err != nil {
		return false, err
	}
	return len(r) == 0, m.put(v, state.Field, field, state.Payload{Bytes: value}, r)
}

// HDel removes fields and returns how many there were. Wraps ErrWrongType.
func (m *Map) HDel(key []byte, fields ...[]byte) (int, error) {
	return m.removeAll(key, Hash, fields)
}

// removeAll ends rows of a collection, and the key's expiry with the last.
func (m *Map) removeAll(key []byte, t Type, subs [][]byte) (int, error) {
	v, err := m.read(key, t)
	if err != nil || !v.present() {
		return 0, err
	}
	n := 0
	for _, sub := range subs {
		r, err := m.row(v, kindOf[t], sub)
		if err != nil {
			return n, err
		}
		if len(r) == 0 {
			continue
		}
		if err := m.remove(v, kindOf[t], sub, r); err != nil {
			return n, err
		}
		n++
	}
	return n, m.settle(key)
}

// HLen returns the number of fields. Wraps ErrWrongType.
func (m *Map) HLen(key []byte) (int64, error) { return m.size(key, Hash) }

// size returns the number of items of a collection.
func (m *Map) size(key []byte, t Type) (int64, error) {
	v, err := m.read(key, t)
	if err != nil || !v.present() {
		return 0, err
	}
	return m.count(v, kindOf[t])
}

// HScan yields fields, ascending, from the first at or after from. Wraps
// ErrWrongType. Nothing may be written meanwhile.
func (m *Map) HScan(key, from []byte, yield func(field, value []byte) bool) error {
	v, err := m.read(key, Hash)
	if err != nil || !v.present() {
		return err
	}
	return m.scan(v, state.Field, from, false, func(sub []byte, r state.Row) bool {
		val, _ := valueOf(r)
		return yield(sub, val.Bytes)
	})
}

// HIncr adds to an integer field; see Incr. Wraps ErrWrongType, ErrNotInteger,
// ErrOverflow.
func (m *Map) HIncr(key, field []byte, delta int64) (int64, error) {
	v, err := m.write(key, Hash)
	if err != nil {
		return 0, err
	}
	return m.add(v, state.Field, field, delta)
}

// HIncrFloat adds to a number; see IncrFloat. Wraps ErrWrongType, ErrNotFloat,
// ErrNotANumber.
func (m *Map) HIncrFloat(key, field []byte, delta Number) ([]byte, error) {
	v, err := m.write(key, Hash)
	if err != nil {
		return nil, err
	}
	r, err := m.row(v, state.Field, field)
	if err != nil {
		return nil, err
	}
	old, _ := valueOf(r)
	value, err := addNumber(old.Bytes, delta)
	if err != nil {
		return nil, err
	}
	return value, m.put(v, state.Field, field, state.Payload{Bytes: value}, r)
}
