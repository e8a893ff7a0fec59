package structs

import (
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// SAdd adds members, and returns how many are new. Wraps ErrWrongType.
func (m *Map) SAdd(key []byte, members ...[]byte) (int, error) {
	v, err := m.write(key, Set)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, member := range members {
		// Not by m.row, which knows of no member before the first.
		r, err := m.rows.Row(m.at(key, state.Member, member))
		if err != nil {
			return n, err
		}
		if len(r) > 0 {
			continue
		}
		if err := m.put(v, state.Member, member, state.Payload{}, nil); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// SRem removes members and returns how many there were. Wraps ErrWrongType.
func (m *Map) SRem(key []byte, members ...[]byte) (int, error) {
	return m.removeAll(key, Set, members)
}

// SHas reports whether member is in the set. Wraps ErrWrongType.
func (m *Map) SHas(key, member []byte) (bool, error) {
	v, err := m.read(key, Set)
	if err != nil || !v.present() {
		return false, err
	}
	r, err := m.row(v, state.Member, member)
	return len(r) > 0, err
}

// SLen returns the number of members. Wraps ErrWrongType.
func (m *Map) SLen(key []byte) (int64, error) { return m.size(key, Set) }

// SScan yields members, ascending, from the first at or after from. Wraps
// ErrWrongType. Nothing may be written meanwhile.
func (m *Map) SScan(key, from []byte, yield func(member []byte) bool) error {
	v, err := m.read(key, Set)
	if err != nil || !v.present() {
		return err
	}
	return m.scan(v, state.Member, from, false, func(sub []byte, _ state.Row) bool { return yield(sub) })
}

// SMembers returns all members, ascending. Wraps ErrWrongType.
func (m *Map) SMembers(key []byte) ([][]byte, error) {
	var out [][]byte
	err := m.SScan(key, nil, func(member []byte) bool {
		out = append(out, slices.Clone(member))
		return true
	})
	return out, err
}

// SAt returns the members at the given ranks, which must ascend. Wraps ErrWrongType.
func (m *Map) SAt(key []byte, ranks []int64) ([][]byte, error) {
	var out [][]byte
	var i int64
	if len(ranks) == 0 {
		return nil, nil
	}
	err := m.SScan(key, nil, func(member []byte) bool {
		for len(out) < len(ranks) && ranks[len(out)] == i {
			out = append(out, slices.Clone(member))
		}
		i++
		return len(out) < len(ranks)
	})
	return out, err
}
