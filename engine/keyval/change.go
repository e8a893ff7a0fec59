package keyval

import (
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
)

// This file changes the table. Whoever calls it holds DB.mu alone.

// undo is what a transaction changed, to be put back if it fails.
type undo struct {
	id      uint64
	entries []savedEntry
	subs    []savedSub
}

type savedEntry struct {
	e     *entry
	k     keyState
	subs  [state.Kinds]*subRows
	wiped [state.Kinds]uint64
	group uint64
	dirty uint64
}

type savedSub struct {
	s     *sub
	row   state.Row
	dirty uint64
}

// apply applies one operation, which has dot d, of an entry of that time.
func (t *table) apply(op state.Op, d state.Dot, time, group uint64) error {
	name, key := op.Target()
	m := t.mapOf(name, true)
	var buf [128]byte
	inner := appendInner(buf[:0], m, key)
	e, err := t.find(m, inner, len(inner)-len(key), false)
	if err != nil {
		return err
	}
	return t.change(e, op, d, time, group)
}

// change is apply, for an operation on e.
func (t *table) change(e *entry, op state.Op, d state.Dot, time, group uint64) error {
	switch op := op.(type) {
	case *state.Put:
		return t.put(e, op.Address.Kind, op.Address.Sub, op.Head(d, time), op.Supersedes, op.Under, group)
	case *state.Expire:
		t.save(e)
		old := e.size()
		e.expiry = e.expiry.Put(op.Head(d, time), op.Supersedes)
		e.counts[state.Expiry] = 1
		t.touch(e, d, old, group)
		return nil
	case *state.End:
		return t.end(e, op, group)
	}
	panic(lattice.E(lattice.Internal, fmt.Errorf("operation %T", op)))
}

// put makes a head in a row of e.
func (t *table) put(e *entry, k state.Kind, name []byte, h state.Head, supersedes []state.Dot, under state.Dot, group uint64) error {
	var s *sub
	if k != state.Register {
		var err error
		if s, err = t.findSub(e, k, name, false); err != nil {
			return err
		}
	}
	t.save(e)
	old := e.size()
	switch {
	case s == nil && e.lone(supersedes): // nearly always
		e.register, e.seen = loneRegister(h)
		e.counts[k] = 1
	case s == nil:
		h.Payload.Bytes = keep(h.Payload.Bytes)
		e.register = e.register.Put(h, supersedes)
		e.counts[k] = 1
	case ended(s.row, supersedes): // nearly always
		t.setRow(s, loneRow(h))
	default:
		h.Payload.Bytes = keep(h.Payload.Bytes)
		t.setRow(s, s.row.Put(h, supersedes))
	}
	if !under.IsZero() {
		if x, changed, err := e.expiry.Under(under, h.Dot); err == nil && changed {
			e.expiry = x
		}
	}
	t.touch(e, h.Dot, old, group)
	return nil
}

// lone reports whether a register will be all that there is of the key, and with
// one head, after a put that names supersedes.
func (e *entry) lone(supersedes []state.Dot) bool {
	for k, n := range e.counts {
		if n != 0 && state.Kind(k) != state.Register {
			return false
		}
	}
	return ended(e.register, supersedes)
}

// ended reports whether a put that names supersedes leaves nothing of a row.
func ended(r state.Row, supersedes []state.Dot) bool {
	for i := range r {
		if !slices.Contains(supersedes, r[i].Dot) {
			return false
		}
	}
	return true
}

// smallValue is how long a value is at most that stands in one piece of memory with
// its head.
const smallValue = 16

// keep copies a value that a row is to hold: it must not keep a whole entry, or
// what a client sent.
func keep(b []byte) []byte { return append([]byte(nil), b...) }

// keepIn is keep, into room if it fits there.
func keepIn(room, b []byte) []byte {
	if n := len(b); n > 0 && n <= len(room) {
		return room[:copy(room, b):n]
	}
	return keep(b)
}

// loneRow makes a row of one head.
func loneRow(h state.Head) state.Row {
	x := &struct {
		row  [1]state.Head
		room [smallValue]byte
	}{}
	h.Payload.Bytes = keepIn(x.room[:], h.Payload.Bytes)
	x.row[0] = h
	return x.row[:]
}

// loneRegister is loneRow for a key that holds nothing else, with what to cite.
func loneRegister(h state.Head) (state.Row, state.Cites) {
	x := &struct {
		row  [1]state.Head
		seen [1]state.Cite
		room [smallValue]byte
	}{}
	h.Payload.Bytes = keepIn(x.room[:], h.Payload.Bytes)
	x.row[0], x.seen[0] = h, state.CiteOf(h.Dot)
	return x.row[:], x.seen[:]
}

// end ends what op covers.
func (t *table) end(e *entry, op *state.End, group uint64) error {
	if e.absent() {
		return nil
	}
	t.save(e)
	old := e.size()
	var err error
	changed := false
	each := func(k state.Kind, f func(state.Kind) (bool, error)) {
		if err == nil && e.counts[k] > 0 {
			var c bool
			c, err = f(k)
			changed = changed || c
		}
	}
	all := op.Cites.CoversAll(e.seen)
	wide := func(k state.Kind) (bool, error) {
		switch {
		case k == state.Register || k == state.Expiry:
			return t.endPlain(e, k, op.Cites), nil
		case all:
			t.wipe(e, k)
			return true, nil
		}
		return t.endEach(e, k, op.Cites)
	}
	switch op.Scope {
	case state.ScopeKey:
		for k := state.Register; k < state.Kinds; k++ {
			each(k, wide)
		}
	case state.ScopeKind:
		each(op.Address.Kind, wide)
	case state.ScopeRow:
		each(op.Address.Kind, func(k state.Kind) (bool, error) {
			if k == state.Register || k == state.Expiry {
				return t.endPlain(e, k, op.Cites), nil
			}
			s, err := t.findSub(e, k, op.Address.Sub, false)
			if err != nil {
				return false, err
			}
			r, c := s.row.End(op.Cites)
			if c {
				t.setRow(s, r)
			}
			return c, nil
		})
	}
	if changed {
		t.touch(e, state.Dot{}, old, group)
	}
	return err
}

func (t *table) endPlain(e *entry, k state.Kind, c state.Cites) bool {
	row := &e.register
	if k == state.Expiry {
		row = &e.expiry
	}
	r, changed := row.End(c)
	*row = r
	if len(r) == 0 {
		e.counts[k] = 0
	}
	return changed
}

// endEach ends what c covers in every row of a kind, one by one: for ends that
// had not seen all of it.
func (t *table) endEach(e *entry, k state.Kind, c state.Cites) (bool, error) {
	var names []string
	err := t.scan(e, k, nil, false, false, func(name []byte, r state.Row) bool {
		if _, hit := r.End(c); hit {
			names = append(names, string(name))
		}
		return true
	})
	if err != nil {
		return false, err
	}
	for _, name := range names {
		s, err := t.findSub(e, k, []byte(name), false)
		if err != nil {
			return true, err
		}
		r, _ := s.row.End(c)
		t.setRow(s, r)
	}
	return len(names) > 0, nil
}

// wipe ends every row of a kind, at the cost of those in the table.
func (t *table) wipe(e *entry, k state.Kind) {
	old := e.subs[k]
	fresh := &subRows{rows: map[string]*sub{}}
	if k == state.Scored {
		fresh.scores = &ordered[*sub]{}
	}
	if e.stored || e.taken != 0 || old != nil && old.wiped != 0 {
		fresh.wiped = t.round
	}
	if old != nil && len(old.rows) > 0 {
		t.wiped = append(t.wiped, old.rows)
	}
	e.subs[k] = fresh
	e.counts[k] = 0
	if k == state.Element {
		e.ends = nil
	}
	e.live = nil // whose the rows were is not known
}

// setRow replaces a row with a sub.
func (t *table) setRow(s *sub, r state.Row) {
	e := s.e
	if t.undo != nil {
		t.undo.subs = append(t.undo.subs, savedSub{s, s.row, s.dirty})
	}
	e.replaced(s.row, r)
	if was, is := len(s.row) > 0, len(r) > 0; was != is {
		if s.kind == state.Element {
			t.element(e, s.name, is)
		}
		if is {
			e.counts[s.kind]++
		} else {
			e.counts[s.kind]--
		}
	}
	before := s.size()
	s.row = r
	t.grew(e, s.size()-before)
	if s.dirty != t.round {
		s.dirty = t.round
		t.dirty = append(t.dirty, item{e, s})
		before = 0
	}
	t.relist(s)
	t.bytes += s.size() - before
}

// save notes what e is, before the first change by a transaction.
func (t *table) save(e *entry) {
	u := t.undo
	if u == nil || e.saved == u.id {
		return
	}
	e.saved = u.id
	s := savedEntry{e: e, k: e.keyState, subs: e.subs, group: e.group, dirty: e.dirty}
	for k, r := range e.subs {
		if r != nil {
			s.wiped[k] = r.wiped
		}
	}
	u.entries = append(u.entries, s)
}

// touch ends a change of e: old is its size before, d the dot of a new head, zero
// if there is none.
func (t *table) touch(e *entry, d state.Dot, old int64, group uint64) {
	e.settle(d)
	e.version = t.version.Add(1)
	e.group = group
	size := e.size()
	t.grew(e, size-old)
	if e.dirty != t.round {
		e.dirty = t.round
		t.dirty = append(t.dirty, item{e: e})
		old = 0
	}
	t.bytes += size - old
	t.present(e)
}

// present keeps a map's length, and its list of new keys, in step with e.
func (t *table) present(e *entry) {
	is := !e.absent()
	if is == e.counted {
		return
	}
	e.counted = is
	if is {
		e.m.len++
	} else {
		e.m.len--
	}
	e.m.dirty = t.round
	// Also when the fold database holds it: a round under way may delete it there.
	t.relistKey(e)
}

func (t *table) grew(e *entry, n int64) { t.weigh(e.shard, n) }

// errFailed stands in for a transaction that panicked.
var errFailed = lattice.E(lattice.Internal, errors.New("keyval: the transaction did not end"))

// begin starts to note changes; rollback puts back what was noted, in reverse.
func (t *table) begin(u *undo, id uint64) {
	u.id, u.entries, u.subs = id, u.entries[:0], u.subs[:0]
	t.undo = u
}

func (t *table) rollback() {
	u := t.undo
	t.undo = nil
	for i := len(u.entries) - 1; i >= 0; i-- {
		x := u.entries[i]
		e := x.e
		before := e.size()
		e.subs = x.subs
		for k, r := range e.subs {
			if r != nil {
				r.wiped = x.wiped[k]
			}
		}
		e.keyState, e.group, e.dirty = x.k, x.group, x.dirty
		e.ends = nil                 // they are found again
		e.version = t.version.Add(1) // somebody may have seen the other one
		t.present(e)
		if e.dirty == 0 {
			t.relistKey(e)
		}
		t.grew(e, e.size()-before)
	}
	for i := len(u.subs) - 1; i >= 0; i-- {
		x := u.subs[i]
		before := x.s.size()
		x.s.row, x.s.dirty = x.row, x.dirty
		t.relist(x.s)
		t.grew(x.s.e, x.s.size()-before)
	}
}
