package structs

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// Push puts values at an end of a list, one after the other, and returns its
// length. Wraps ErrWrongType.
func (m *Map) Push(key []byte, left bool, values ...[]byte) (int64, error) {
	v, err := m.write(key, List)
	if err != nil {
		return 0, err
	}
	n := v.Counts[state.Element]
	if len(values) == 0 {
		return n, nil
	}
	var end []byte // the position at that end
	if n > 0 {
		if end, err = m.endOf(v, left); err != nil {
			return 0, err
		}
	}
	tag := m.tag()
	for _, value := range values {
		if left {
			end = state.Between(nil, end, tag)
		} else {
			end = state.Between(end, nil, tag)
		}
		if err := m.put(v, state.Element, end, state.Payload{Bytes: value}, nil); err != nil {
			return 0, err
		}
	}
	return n + int64(len(values)), nil
}

func (m *Map) tag() state.Tag {
	w := m.rows.Writer()
	var named [len(w.Author) + 8]byte
	copy(named[:], w.Author[:])
	binary.BigEndian.PutUint64(named[len(w.Author):], w.Incarnation)
	sum := sha256.Sum256(named[:])
	return state.Tag(sum[:8])
}

func (m *Map) endOf(v view, left bool) (pos []byte, err error) {
	err = m.scan(v, state.Element, nil, !left, func(sub []byte, _ state.Row) bool {
		pos = slices.Clone(sub)
		return false
	})
	return pos, err
}

// LLen returns the number of elements. Wraps ErrWrongType.
func (m *Map) LLen(key []byte) (int64, error) { return m.size(key, List) }

// element is one element of a list where it stands.
type element struct {
	pos []byte
	row state.Row
}

func (e element) value() []byte { return e.row.Last().Payload.Bytes }

// walk yields the elements from one end.
func (m *Map) walk(v view, left bool, yield func(element) bool) error {
	return m.scan(v, state.Element, nil, !left, func(sub []byte, r state.Row) bool {
		return yield(element{slices.Clone(sub), r})
	})
}

// LScan yields the elements in order, from the left or the right. Wraps
// ErrWrongType. Nothing may be written meanwhile.
func (m *Map) LScan(key []byte, left bool, yield func(value []byte) bool) error {
	v, err := m.read(key, List)
	if err != nil || !v.present() {
		return err
	}
	return m.walk(v, left, func(e element) bool { return yield(e.value()) })
}

// Pop removes up to n elements from one end and returns them in the order in
// which they came off; nil when there is no list. Wraps ErrWrongType.
func (m *Map) Pop(key []byte, left bool, n int64) ([][]byte, error) {
	v, err := m.read(key, List)
	if err != nil || !v.present() {
		return nil, err
	}
	out := [][]byte{}
	return out, m.drop(v, left, n, func(value []byte) { out = append(out, slices.Clone(value)) })
}

// drop removes up to n elements from one end.
func (m *Map) drop(v view, left bool, n int64, each func(value []byte)) error {
	var found []element
	if n > 0 {
		err := m.walk(v, left, func(e element) bool {
			found = append(found, e)
			return int64(len(found)) < n
		})
		if err != nil {
			return err
		}
	}
	for _, e := range found {
		if each != nil {
			each(e.value())
		}
	}
	return m.removeElements(v, found)
}

func (m *Map) removeElements(v view, found []element) error {
	for _, e := range found {
		if err := m.remove(v, state.Element, e.pos, e.row); err != nil {
			return err
		}
	}
	if len(found) == 0 {
		return nil
	}
	return m.settle(v.key)
}

// nth finds the element at index, which counts from the right when negative. ok is
// false when there is none.
func (m *Map) nth(v view, index int64) (found element, ok bool, err error) {
	n, err := m.count(v, state.Element)
	if index < 0 {
		index += n
	}
	if err != nil || index < 0 || index >= n {
		return element{}, false, err
	}
	left := index <= n/2 // the nearer end
	if !left {
		index = n - 1 - index
	}
	err = m.walk(v, left, func(e element) bool {
		if index == 0 {
			found, ok = e, true
		}
		index--
		return !ok
	})
	return found, ok, err
}

// LIndex returns the element at index, counted from the right when negative; nil
// when there is none. Wraps ErrWrongType.
func (m *Map) LIndex(key []byte, index int64) ([]byte, bool, error) {
	v, err := m.read(key, List)
	if err != nil || !v.present() {
		return nil, false, err
	}
	e, ok, err := m.nth(v, index)
	if !ok {
		return nil, false, err
	}
	return e.value(), true, err
}

// LSet replaces the element at index. Wraps ErrWrongType, ErrNoKey, ErrIndex.
func (m *Map) LSet(key []byte, index int64, value []byte) error {
	v, err := m.read(key, List)
	if err == nil && !v.present() {
		err = ErrNoKey
	}
	if err != nil {
		return err
	}
	e, ok, err := m.nth(v, index)
	switch {
	case err != nil:
		return err
	case !ok:
		return ErrIndex
	}
	return m.put(v, state.Element, e.pos, state.Payload{Bytes: value}, e.row)
}

// LRange returns the elements of indexes start to stop, both included, which must be
// within 0 and the length. Wraps ErrWrongType.
func (m *Map) LRange(key []byte, start, stop int64) ([][]byte, error) {
	var out [][]byte
	var i int64
	err := m.LScan(key, true, func(value []byte) bool {
		if i >= start && i <= stop {
			out = append(out, slices.Clone(value))
		}
		i++
		return i <= stop
	})
	return out, err
}

// LTrim removes the first left and the last right elements. Wraps ErrWrongType.
func (m *Map) LTrim(key []byte, left, right int64) error {
	v, err := m.read(key, List)
	if err != nil || !v.present() {
		return err
	}
	n, err := m.count(v, state.Element)
	if err != nil {
		return err
	}
	if left+right >= n {
		return m.end(v, state.ScopeKey, 0, nil, v.Seen)
	}
	if err := m.drop(v, true, left, nil); err != nil {
		return err
	}
	return m.drop(v, false, right, nil)
}

// LInsert puts value beside the first element equal to pivot, and returns the
// length: -1 when there is no such element, 0 when there is no list. Wraps
// ErrWrongType.
func (m *Map) LInsert(key []byte, before bool, pivot, value []byte) (int64, error) {
	v, err := m.read(key, List)
	if err != nil || !v.present() {
		return 0, err
	}
	var lo, hi []byte
	found := false
	err = m.walk(v, true, func(e element) bool {
		switch {
		case found: // the one behind the pivot
			hi = e.pos
			return false
		case string(e.value()) != string(pivot):
			lo = e.pos
			return true
		case before:
			found, hi = true, e.pos
			return false
		}
		found, lo = true, e.pos
		return true
	})
	if err != nil || !found {
		return -1, err
	}
	n, err := m.count(v, state.Element)
	if err != nil {
		return 0, err
	}
	return n + 1, m.put(v, state.Element, state.Between(lo, hi, m.tag()), state.Payload{Bytes: value}, nil)
}

// LRem removes up to n elements equal to value, from the left or the right, all of
// them when n is 0, and returns how many. Wraps ErrWrongType.
func (m *Map) LRem(key []byte, left bool, n int64, value []byte) (int64, error) {
	v, err := m.read(key, List)
	if err != nil || !v.present() {
		return 0, err
	}
	var found []element
	err = m.walk(v, left, func(e element) bool {
		if string(e.value()) == string(value) {
			found = append(found, e)
		}
		return n == 0 || int64(len(found)) < n
	})
	if err != nil {
		return 0, err
	}
	return int64(len(found)), m.removeElements(v, found)
}
