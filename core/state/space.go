package state

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Space is a whole state in memory: the fold at its plainest, against which
// others are checked. The zero Space is the empty state. Not safe for concurrent use.
type Space struct {
	rows     map[slot]Row
	Frontier Frontier
}

// slot is an Address that can be compared.
type slot struct {
	m, key string
	kind   Kind
	sub    string
}

func slotOf(a Address) slot { return slot{a.Map, string(a.Key), a.Kind, string(a.Sub)} }

func (s slot) address() Address { return Address{s.m, []byte(s.key), s.kind, []byte(s.sub)} }

// Compare orders addresses by map, key, kind and sub.
func (a Address) Compare(o Address) int {
	return cmp.Or(cmp.Compare(a.Map, o.Map), bytes.Compare(a.Key, o.Key), cmp.Compare(a.Kind, o.Kind), bytes.Compare(a.Sub, o.Sub))
}

// Row returns the row at a, nil when there is none.
func (s *Space) Row(a Address) Row { return s.rows[slotOf(a)] }

// Rows yields every row, ascending by address.
func (s *Space) Rows(yield func(Address, Row) bool) {
	for _, at := range slices.SortedFunc(maps.Keys(s.rows), func(a, b slot) int { return a.address().Compare(b.address()) }) {
		if !yield(at.address(), s.rows[at]) {
			return
		}
	}
}

// Fold applies the operations on state of an entry that comes next, all or none.
// What to do with an entry, and when, is for others to decide. Operations of
// other kinds are passed over. Wraps ErrMalformed.
func (s *Space) Fold(e sigchain.Signed) error {
	w := Writer{e.Author, e.Incarnation}
	ops := make([]Op, len(e.Ops))
	for i, op := range e.Ops {
		if !IsOp(op.Kind) {
			continue
		}
		var err error
		if ops[i], err = ParseOp(op, w); err != nil {
			return fmt.Errorf("entry %s, operation %d: %w", e.ID.Short(), i, err)
		}
	}
	for i, op := range ops {
		if op != nil {
			s.Apply(op, Dot{w, e.Seq, uint32(i)}, e.Time)
		}
	}
	s.Pass(w, e.Seq)
	return nil
}

// Pass moves the frontier over an entry, with or without effect.
func (s *Space) Pass(w Writer, seq uint64) {
	if s.Frontier == nil {
		s.Frontier = Frontier{}
	}
	s.Frontier[w] = seq
}

// Apply applies one operation, which has dot d, of an entry of that time.
func (s *Space) Apply(op Op, d Dot, time uint64) {
	switch op := op.(type) {
	case *Put:
		s.set(op.Address, s.Row(op.Address).Put(op.Head(d, time), op.Supersedes))
		at := Address{Map: op.Address.Map, Key: op.Address.Key, Kind: Expiry}
		if r, changed, err := s.Row(at).Under(op.Under, d); err == nil && changed {
			s.set(at, r)
		}
	case *Expire:
		at := Address{Map: op.Map, Key: op.Key, Kind: Expiry}
		s.set(at, s.Row(at).Put(op.Head(d, time), op.Supersedes))
	case *End:
		s.end(op)
	default:
		panic(lattice.E(lattice.Internal, fmt.Errorf("operation %T", op)))
	}
}

func (s *Space) end(e *End) {
	if e.Scope == ScopeRow {
		s.endRow(e.Address, e.Cites)
		return
	}
	for at := range s.rows {
		if at.m == e.Address.Map && at.key == string(e.Address.Key) && (e.Scope == ScopeKey || at.kind == e.Address.Kind) {
			s.endRow(at.address(), e.Cites)
		}
	}
}

func (s *Space) endRow(a Address, c Cites) {
	if r, changed := s.Row(a).End(c); changed {
		s.set(a, r)
	}
}

// Set puts a row in the place of what is at an address; an empty row takes that out.
func (s *Space) Set(a Address, r Row) { s.set(a, r) }

func (s *Space) set(a Address, r Row) {
	if len(r) == 0 {
		delete(s.rows, slotOf(a))
		return
	}
	if s.rows == nil {
		s.rows = map[slot]Row{}
	}
	s.rows[slotOf(a)] = r
}

// Join returns the state that has folded what s or o has. Neither is changed.
func (s *Space) Join(o *Space) *Space {
	out := &Space{Frontier: s.Frontier.Join(o.Frontier)}
	for at, r := range s.rows {
		out.set(at.address(), Join(at.kind, r, s.Frontier, o.rows[at], o.Frontier))
	}
	for at, r := range o.rows {
		if _, both := s.rows[at]; !both {
			out.set(at.address(), Join(at.kind, nil, s.Frontier, r, o.Frontier))
		}
	}
	return out
}
