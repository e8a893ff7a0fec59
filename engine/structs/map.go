package structs

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
)

var (
	// ErrWrongType means that the key holds another data type. Kind Conflict.
	ErrWrongType = lattice.E(lattice.Conflict, errors.New("the key holds another type of value"))
	// ErrNoKey means that there is no such key. Kind NotFound.
	ErrNoKey = lattice.E(lattice.NotFound, errors.New("no such key"))
	// ErrNotInteger means a value that is no 64-bit integer. Kind Invalid.
	ErrNotInteger = lattice.E(lattice.Invalid, errors.New("value is not an integer or out of range"))
	// ErrNotFloat means a value that is no number. Kind Invalid.
	ErrNotFloat = lattice.E(lattice.Invalid, errors.New("value is not a valid float"))
	// ErrOverflow means an increment beyond the range. Kind Invalid.
	ErrOverflow = lattice.E(lattice.Invalid, errors.New("increment or decrement would overflow"))
	// ErrNotANumber means an increment that ends at NaN or infinity. Kind Invalid.
	ErrNotANumber = lattice.E(lattice.Invalid, errors.New("increment would produce NaN or Infinity"))
	// ErrIndex means an index that no element has. Kind Invalid.
	ErrIndex = lattice.E(lattice.Invalid, errors.New("index out of range"))
	// ErrTooLong means a string beyond MaxString. Kind TooLarge.
	ErrTooLong = lattice.E(lattice.TooLarge, errors.New("string exceeds maximum allowed size"))
)

// Type is the data type of a key, as one sees it.
type Type uint8

const (
	None Type = iota
	String
	Hash
	Set
	SortedSet
	List
)

var typeNames = [...]string{"none", "string", "hash", "set", "zset", "list"}

// String returns Redis's name of the type.
func (t Type) String() string { return typeNames[t] }

var kindOf = [...]state.Kind{String: state.Register, Hash: state.Field, Set: state.Member, SortedSet: state.Scored, List: state.Element}

// Map is one named map of a store within a transaction. Not safe for concurrent use.
type Map struct {
	rows Rows
	name string
	dots []state.Dot // scratch
}

// In returns the map of that name.
func In(r Rows, name string) *Map { return &Map{rows: r, name: name} }

// Become makes m the map of that name, of another transaction maybe.
func (m *Map) Become(r Rows, name string) { m.rows, m.name = r, name }

// Name returns the map's name.
func (m *Map) Name() string { return m.name }

// view is a key as it is at the transaction's time.
type view struct {
	Key
	key  []byte
	typ  Type        // None: as if it were not there
	gone state.Cites // heads that have expired, while others live on
}

// present reports whether anything of the key's data is to be seen.
func (v view) present() bool { return v.typ != None }

// under returns the expiry that a new head of the key stands under.
func (v view) under() state.Dot {
	if len(v.Expiry) == 0 {
		return state.Dot{}
	}
	return v.Expiry.Last().Dot
}

func (m *Map) at(key []byte, k state.Kind, sub []byte) state.Address {
	return state.Address{Map: m.name, Key: key, Kind: k, Sub: sub}
}

// look reads what is known of a key, at the transaction's time.
func (m *Map) look(key []byte) (view, error) {
	k, err := m.rows.Key(m.name, key)
	if err != nil {
		return view{}, fmt.Errorf("key %.64q: %w", key, err)
	}
	v := view{Key: k, key: key}
	gone, err := k.Expiry.Expired(m.rows.Now())
	if err != nil {
		return view{}, fmt.Errorf("key %.64q: %w", key, err)
	}
	switch {
	case gone == nil:
	case gone.CoversAll(k.Seen):
		return v, nil
	default: // a write that had not seen the expiry may live on
		v.gone = gone
	}
	v.typ, err = m.typ(v)
	return v, err
}

// typ finds the type of a key: that of its one kind of rows, or, of several, the
// one with the greatest head.
func (m *Map) typ(v view) (Type, error) {
	found, several := None, false
	for t, k := range kindOf {
		if k != 0 && v.Counts[k] > 0 {
			several = several || found != None
			found = Type(t)
		}
	}
	if !several && v.gone == nil {
		return found, nil
	}
	found = None
	var last state.Order
	for t, k := range kindOf {
		if k == 0 || v.Counts[k] == 0 {
			continue
		}
		err := m.scan(v, k, nil, false, func(_ []byte, r state.Row) bool {
			if o := r.Last().Order(); o.Compare(last) > 0 {
				last, found = o, Type(t)
			}
			return true
		})
		if err != nil {
			return None, err
		}
	}
	return found, nil
}

// scan yields rows as Rows.Scan does, without what has expired.
func (m *Map) scan(v view, k state.Kind, from []byte, reverse bool, yield func(sub []byte, r state.Row) bool) error {
	return m.rows.Scan(m.name, v.key, k, from, reverse, func(sub []byte, r state.Row) bool {
		if v.gone != nil {
			if r, _ = r.End(v.gone); len(r) == 0 {
				return true
			}
		}
		return yield(sub, r)
	})
}

// row reads a row, without what has expired.
func (m *Map) row(v view, k state.Kind, sub []byte) (state.Row, error) {
	if v.Counts[k] == 0 {
		return nil, nil
	}
	r, err := m.rows.Row(m.at(v.key, k, sub))
	if err == nil && v.gone != nil {
		r, _ = r.End(v.gone)
	}
	return r, err
}

// count returns the number of live rows of a kind.
func (m *Map) count(v view, k state.Kind) (int64, error) {
	if v.gone == nil || v.Counts[k] == 0 {
		return v.Counts[k], nil
	}
	var n int64
	err := m.scan(v, k, nil, false, func([]byte, state.Row) bool { n++; return true })
	return n, err
}

// read looks at a key that should be of type t: present reports whether there is
// anything to read. Wraps ErrWrongType.
func (m *Map) read(key []byte, t Type) (view, error) {
	v, err := m.look(key)
	if err == nil && v.present() && v.typ != t {
		err = ErrWrongType
	}
	return v, err
}

// write is read, for a key that is about to be written: what has expired, and
// what a winner of another type hides, is ended first.
func (m *Map) write(key []byte, t Type) (view, error) {
	v, err := m.read(key, t)
	if err != nil {
		return v, err
	}
	switch {
	case !v.present() && len(v.Seen) > 0:
		if err := m.end(v, state.ScopeKey, 0, nil, v.Seen); err != nil {
			return v, err
		}
		return view{key: key}, nil
	case v.gone != nil:
		if err := m.end(v, state.ScopeKey, 0, nil, v.gone); err != nil {
			return v, err
		}
		return m.look(key)
	}
	for _, k := range kindOf {
		if k != 0 && k != kindOf[t] && v.Counts[k] > 0 {
			if err := m.end(v, state.ScopeKind, k, nil, v.Seen); err != nil {
				return v, err
			}
			v.Counts[k] = 0
		}
	}
	return v, nil
}

func (m *Map) end(v view, s state.Scope, k state.Kind, sub []byte, c state.Cites) error {
	return m.rows.End(m.at(v.key, k, sub), s, c)
}

// remove ends one row.
func (m *Map) remove(v view, k state.Kind, sub []byte, r state.Row) error {
	return m.end(v, state.ScopeRow, k, sub, r.Cites())
}

// settle ends a key's expiry when none of its data is left.
func (m *Map) settle(key []byte) error {
	v, err := m.look(key)
	if err != nil || v.present() || len(v.Expiry) == 0 {
		return err
	}
	return m.end(v, state.ScopeKey, 0, nil, v.Seen)
}

// put writes a head that replaces row r.
func (m *Map) put(v view, k state.Kind, sub []byte, p state.Payload, r state.Row) error {
	m.dots = m.dots[:0]
	for i := range r {
		m.dots = append(m.dots, r[i].Dot)
	}
	_, err := m.rows.Put(m.at(v.key, k, sub), p, m.dots, v.under())
	return err
}
