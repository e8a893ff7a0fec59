package structs

import "github.com/lattice-log/lattice/core/state"

// ExpireAt sets when a key ends, in milliseconds since 1970, and reports whether
// there is such a key. A time that has passed deletes it.
func (m *Map) ExpireAt(key []byte, ms int64) (bool, error) {
	v, err := m.look(key)
	if err != nil || !v.present() {
		return false, err
	}
	if ms <= m.rows.Now() {
		return true, m.end(v, state.ScopeKey, 0, nil, v.Seen)
	}
	return true, m.rows.Expire(m.name, key, state.Expiring{At: ms, Cover: v.Seen}, v.Expiry.Dots())
}

// ExpiresAt returns when a key ends, in milliseconds since 1970; 0 when it does
// not. ok is false when there is no such key.
func (m *Map) ExpiresAt(key []byte) (ms int64, ok bool, err error) {
	v, err := m.look(key)
	if err != nil || !v.present() {
		return 0, false, err
	}
	ms, err = expiresAt(v)
	return ms, true, err
}

func expiresAt(v view) (int64, error) {
	if len(v.Expiry) == 0 || v.gone != nil { // what lives on after an expiry has none
		return 0, nil
	}
	e, err := state.ParseExpiring(v.Expiry.Last().Payload)
	return e.At, err
}

// Persist takes a key's expiry away, and reports whether it had one.
func (m *Map) Persist(key []byte) (bool, error) {
	v, err := m.look(key)
	if err != nil || !v.present() {
		return false, err
	}
	at, err := expiresAt(v)
	if err != nil || at == 0 {
		return false, err
	}
	return true, m.remove(v, state.Expiry, nil, v.Expiry)
}

// Reap ends what has expired of a key, and reports whether that was all of it.
func (m *Map) Reap(key []byte) (bool, error) {
	v, err := m.look(key)
	switch {
	case err != nil:
		return false, err
	case v.gone != nil:
		return false, m.end(v, state.ScopeKey, 0, nil, v.gone)
	case v.present() || len(v.Seen) == 0:
		return false, nil
	}
	return true, m.end(v, state.ScopeKey, 0, nil, v.Seen)
}
