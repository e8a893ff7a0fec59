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
		x := &struct {
			row  [1]state.Head
			seen [1]state.Cite
		}{[1]state.Head{h}, [1]state.Cite{state.CiteOf(h.Dot)}}
		e.register, e.seen, e.counts[k] = x.row[:], x.seen[:], 1
	case s == nil:
		e.register = e.register.Put(h, supersedes)
		e.counts[k] = 1
	default:
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
	for i := range e.register {
		if !slices.Contains(supersedes, e.register[i].Dot) {
			return false
		}
	}
	return true
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
}

// setRow replaces a row with a sub.
func (t *table) setRow(s *sub, r state.Row) {
	e := s.e
	if t.undo != nil {
		t.undo.subs = append(t.undo.subs, savedSub{s, s.row, s.dirty})
	}
	if len(s.row) == 0 && len(r) > 0 {
		e.counts[s.kind]++
	} else if len(s.row) > 0 && len(r) == 0 {
		e.counts[s.kind]--
	}
	before, was := s.size(), s.listing()
	s.row = r
	t.grew(e, s.size()-before)
	if s.dirty != t.round {
		s.dirty = t.round
		t.dirty = append(t.dirty, item{e, s})
		before = 0
	}
	t.relist(s, was)
	t.bytes += s.size() - before
}

// listing says how a row stands among those that the fold database may not hold.
type listing struct {
	here   bool // a dirty row that is present
	scored bool // likewise, with a score
	score  state.Score
}

func (s *sub) listing() (l listing) {
	if l.here = s.dirty != 0 && len(s.row) > 0; l.here {
		l.score, l.scored = scoreOf(s.kind, s.row)
	}
	return l
}

// relist puts a row where it belongs among the rows that scans find in the table;
// was is how it stood before.
func (t *table) relist(s *sub, was listing) {
	if t.bulk {
		return
	}
	is := s.listing()
	if is == was || !s.attached() {
		return
	}
	r := s.e.subs[s.kind]
	if is.here && !was.here {
		r.created.set(s.name, s)
	} else if was.here && !is.here {
		r.created.remove(s.name)
	}
	if was.scored {
		r.scores.remove(scoreKey(was.score, s.name))
	}
	if is.scored {
		r.scores.set(scoreKey(is.score, s.name), s)
	}
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
	if e.counts[state.Field]|e.counts[state.Member]|e.counts[state.Scored]|e.counts[state.Element] == 0 {
		if len(e.register) != 1 || len(e.expiry) > 0 || len(e.seen) != 1 || e.seen[0] != state.CiteOf(e.register[0].Dot) {
			e.seen = plainSeen(e.register, e.expiry)
		}
	} else if !d.IsZero() {
		e.seen = e.seen.Raise(d)
	}
	t.present(e)
	e.version = t.version.Add(1)
	e.group = group
	t.grew(e, e.size()-old)
	if e.dirty != t.round {
		e.dirty = t.round
		t.dirty = append(t.dirty, item{e: e})
		old = 0
	}
	t.bytes += e.size() - old
}

// present keeps a map's length, and the order of its new keys, in step with e.
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
	if t.bulk {
		return
	}
	// Also when the fold database holds it: a round under way may delete it there.
	if is {
		e.m.created.set(e.name, e)
	} else {
		e.m.created.remove(e.name)
	}
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
		e.version = t.version.Add(1) // somebody may have seen the other one
		t.present(e)
		if e.dirty == 0 {
			e.m.created.remove(e.name)
		}
		t.grew(e, e.size()-before)
	}
	for i := len(u.subs) - 1; i >= 0; i-- {
		x := u.subs[i]
		before, was := x.s.size(), x.s.listing()
		x.s.row, x.s.dirty = x.row, x.dirty
		t.relist(x.s, was)
		t.grew(x.s.e, x.s.size()-before)
	}
}
