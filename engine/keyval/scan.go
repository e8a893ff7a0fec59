package keyval

import (
	"encoding/binary"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/kv"
)

// This file walks the state in order: what the fold database holds, merged with
// what it does not hold yet. A name that both have is the table's.

// cursor is one side of a merge: nodes of an ordered list.
type cursor[V any] struct {
	n       *tower[V]
	reverse bool
}

func (c *cursor[V]) next() {
	if c.reverse {
		c.n = c.n.prev
	} else {
		c.n = c.n.next[0]
	}
}

func (o *ordered[V]) cursor(from string, end, reverse bool) cursor[V] {
	if reverse {
		return cursor[V]{o.le(from, end), true}
	}
	return cursor[V]{o.ge(from), false}
}

// stored is the other side: keys of the fold database below a prefix.
type stored struct {
	it      *kv.Iter
	skip    int // length of the prefix
	ok      bool
	reverse bool
}

func (t *table) stored(prefix, from []byte, end, reverse bool) (stored, error) {
	it, err := t.db.Iter(prefix)
	if err != nil {
		return stored{}, err
	}
	s := stored{it: it, skip: len(prefix), reverse: reverse}
	at := append(prefix[:len(prefix):len(prefix)], from...)
	switch {
	case !reverse:
		s.ok = it.SeekGE(at)
	case end:
		s.ok = it.Last()
	default:
		s.ok = it.SeekLE(at)
	}
	return s, nil
}

func (s *stored) name() []byte { return s.it.Key()[s.skip:] }

func (s *stored) next() {
	if s.reverse {
		s.ok = s.it.Prev()
	} else {
		s.ok = s.it.Next()
	}
}

// merge yields the names of both sides in order; inTable says whose it is. A name
// of both is yielded once, as the table's.
func merge[V any](s *stored, c *cursor[V], yield func(name []byte, inTable *tower[V]) (bool, error)) error {
	for s.ok || c.n != nil {
		cmp := 0
		switch {
		case !s.ok:
			cmp = 1
		case c.n == nil:
			cmp = -1
		case string(s.name()) < c.n.key:
			cmp = -1
		case string(s.name()) > c.n.key:
			cmp = 1
		}
		if s.reverse && s.ok && c.n != nil {
			cmp = -cmp
		}
		var more bool
		var err error
		if cmp < 0 {
			more, err = yield(s.name(), nil)
		} else {
			more, err = yield([]byte(c.n.key), c.n)
		}
		if err != nil || !more {
			return err
		}
		if cmp <= 0 {
			s.next()
		}
		if cmp >= 0 {
			c.next()
		}
	}
	return nil
}

// scan yields the rows of a kind of a key; see structs.Rows. end stands for a
// from behind everything, in reverse.
func (t *table) scan(e *entry, k state.Kind, from []byte, reverse, shared bool, yield func(name []byte, r state.Row) bool) error {
	if e.counts[k] == 0 {
		return nil
	}
	if k == state.Register || k == state.Expiry {
		row := e.register
		if k == state.Expiry {
			row = e.expiry
		}
		if reverse || len(from) == 0 {
			yield(nil, row)
		}
		return nil
	}
	if k == state.Element && from == nil && !t.bulk {
		return t.scanEnd(e, reverse, shared, yield)
	}
	return t.walk(e, k, from, reverse, shared, yield)
}

// walk is scan, of rows with subs.
func (t *table) walk(e *entry, k state.Kind, from []byte, reverse, shared bool, yield func(name []byte, r state.Row) bool) (err error) {
	rows := t.scanned(e, k, shared)
	var created *ordered[*sub]
	var s stored
	if rows != nil {
		created = t.createdOf(rows)
	}
	c := created.cursor(string(from), from == nil, reverse)
	if e.stored && (rows == nil || rows.wiped == 0) {
		if s, err = t.stored(rowPrefix(nil, e.inner, k), from, from == nil, reverse); err != nil {
			return err
		}
		defer func() {
			if cerr := s.it.Close(); err == nil {
				err = cerr
			}
		}()
	}
	s.reverse = reverse
	return merge(&s, &c, func(name []byte, n *tower[*sub]) (bool, error) {
		if n != nil {
			return yield(name, n.val.row), nil
		}
		if x := t.peek(e, k, name, shared); x != nil {
			return len(x.row) == 0 || yield(name, x.row), nil
		}
		v, err := s.it.Value()
		if err != nil {
			return false, err
		}
		r, err := t.codec.parseRow(append([]byte(nil), v...))
		if err != nil {
			return false, err
		}
		return yield(name, r), nil
	})
}

// createdOf returns the rows of a kind that the fold database may not hold, in
// order.
func (t *table) createdOf(rows *subRows) *ordered[*sub] {
	if !t.bulk {
		return &rows.created
	}
	var o ordered[*sub]
	for name, s := range rows.rows {
		if s.listing().here {
			o.set(name, s)
		}
	}
	return &o
}

// peek returns a row if it is in the table.
func (t *table) peek(e *entry, k state.Kind, name []byte, shared bool) *sub {
	sh := e.shard
	if shared {
		sh.mu.RLock()
		defer sh.mu.RUnlock()
	}
	if e.subs[k] == nil {
		return nil
	}
	return e.subs[k].rows[string(name)]
}

// scores yields the members of a sorted set by score; see structs.Rows.
func (t *table) scores(e *entry, score state.Score, member []byte, reverse, shared bool, yield func(state.Score, []byte) bool) (err error) {
	if e.counts[state.Scored] == 0 {
		return nil
	}
	rows := t.scanned(e, state.Scored, shared)
	from, end := scoreKey(score, string(member)), false
	if reverse && member == nil { // after all members of that score
		if end = score+1 == 0; !end {
			from = scoreKey(score+1, "")
		}
	}
	var s stored
	var pending *ordered[*sub]
	if rows != nil {
		pending = rows.scores
	}
	c := pending.cursor(from, end, reverse)
	if e.stored && (rows == nil || rows.wiped == 0) {
		if s, err = t.stored(scorePrefix(nil, e.inner), []byte(from), end, reverse); err != nil {
			return err
		}
		defer func() {
			if cerr := s.it.Close(); err == nil {
				err = cerr
			}
		}()
	}
	s.reverse = reverse
	return merge(&s, &c, func(name []byte, n *tower[*sub]) (bool, error) {
		if len(name) < 8 {
			return false, corrupt("a score of key %q", e.name)
		}
		at, m := state.Score(binary.BigEndian.Uint64(name)), name[8:]
		if reverse && member == nil && at > score {
			return true, nil // stands exactly on the first pair after
		}
		if n == nil {
			if x := t.peek(e, state.Scored, m, shared); x != nil && x.dirty != 0 {
				return true, nil // it stands elsewhere, or nowhere
			}
		}
		return yield(at, m), nil
	})
}

// keys yields the keys of a map in order, without putting them into the table.
// view is filled for those that are not there.
func (t *table) keys(m *mapInfo, from []byte, shared bool, yield func(key []byte, k *keyState, version uint64) bool) (err error) {
	prefix := append([]byte{tagKey}, appendInner(nil, m, nil)...)
	s, err := t.stored(prefix, from, false, false)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := s.it.Close(); err == nil {
			err = cerr
		}
	}()
	t.scannedMap(m, shared)
	c := m.created.cursor(string(from), false, false)
	return merge(&s, &c, func(name []byte, n *tower[*entry]) (bool, error) {
		if n != nil {
			return yield(name, &n.val.keyState, n.val.version), nil
		}
		inner := s.it.Key()[1:]
		sh, slot := t.shardOf(inner)
		if shared {
			sh.mu.RLock()
		}
		e, version := sh.keys[string(inner)], sh.versions[slot]
		if shared {
			sh.mu.RUnlock()
		}
		if e != nil {
			return e.absent() || yield(name, &e.keyState, e.version), nil
		}
		v, err := s.it.Value()
		if err != nil {
			return false, err
		}
		k, _, err := t.codec.parseKey(append([]byte(nil), v...))
		if err != nil {
			return false, err
		}
		return yield(name, &k, version), nil
	})
}
