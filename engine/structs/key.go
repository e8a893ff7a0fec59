package structs

import (
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// Type returns the type of a key, None when there is none.
func (m *Map) Type(key []byte) (Type, error) {
	v, err := m.look(key)
	return v.typ, err
}

// Version changes whenever the key does. It is this node's own.
func (m *Map) Version(key []byte) (uint64, error) {
	k, err := m.rows.Key(m.name, key)
	return k.Version, err
}

// Delete ends all that has been seen of a key, and reports whether it was there.
func (m *Map) Delete(key []byte) (bool, error) {
	v, err := m.look(key)
	if err != nil || len(v.Seen) == 0 {
		return false, err
	}
	return v.present(), m.end(v, state.ScopeKey, 0, nil, v.Seen)
}

// Clear deletes every key of the map.
func (m *Map) Clear() error {
	var keys [][]byte
	err := m.rows.Keys(m.name, nil, func(key []byte, _ Key) bool {
		keys = append(keys, slices.Clone(key))
		return true
	})
	for _, key := range keys {
		if err == nil {
			_, err = m.Delete(key)
		}
	}
	return err
}

// Keys yields the keys that are there, ascending, from the first at or after from, with
// their types. Nothing may be written meanwhile.
func (m *Map) Keys(from []byte, yield func(key []byte, t Type) bool) error {
	var failed error
	err := m.rows.Keys(m.name, from, func(key []byte, _ Key) bool {
		v, err := m.look(key)
		if err != nil {
			failed = err
			return false
		}
		return !v.present() || yield(key, v.typ)
	})
	if err == nil {
		err = failed
	}
	return err
}

// Len returns the number of keys, those included that have expired and were not
// yet removed.
func (m *Map) Len() (int64, error) { return m.rows.Len(m.name) }

// Rename gives a key's value and expiry to another key, which loses its own.
// Wraps ErrNoKey.
func (m *Map) Rename(from, to []byte) error {
	if v, err := m.look(from); err != nil || !v.present() || slices.Equal(from, to) {
		if err == nil && !v.present() {
			err = ErrNoKey
		}
		return err
	}
	if _, err := m.CopyTo(m, from, to); err != nil {
		return err
	}
	_, err := m.Delete(from)
	return err
}

// CopyTo makes a key of another map (or this one) equal to key, whatever it was,
// and reports whether there was something to copy. Of values in conflict the winner is copied.
func (m *Map) CopyTo(dst *Map, key, to []byte) (bool, error) {
	v, err := m.look(key)
	if err != nil || !v.present() {
		return false, err
	}
	type item struct {
		sub []byte
		p   state.Payload
	}
	var items []item
	k := kindOf[v.typ]
	err = m.scan(v, k, nil, false, func(sub []byte, r state.Row) bool {
		p := r.Last().Payload
		if k == state.Register || k == state.Field {
			val, _ := valueOf(r)
			p = state.Payload{Bytes: val.Bytes}
		}
		items = append(items, item{slices.Clone(sub), p})
		return true
	})
	if err != nil {
		return false, err
	}
	at, err := expiresAt(v)
	if err != nil {
		return false, err
	}
	if _, err := dst.Delete(to); err != nil {
		return false, err
	}
	for _, it := range items {
		if err := dst.put(view{key: to}, k, it.sub, it.p, nil); err != nil {
			return false, err
		}
	}
	if at != 0 {
		_, err = dst.ExpireAt(to, at)
	}
	return true, err
}
