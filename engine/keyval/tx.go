package keyval

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
)

// Tx is one transaction's view of the state. It is good until the function that
// it was given to returns, and for that function's goroutine alone.
type Tx struct {
	db     *DB
	now    int64
	shared bool // others are reading too; it cannot write
	done   bool

	group uint64   // the newest group whose effects it saw
	wrote int      // operations
	m     *mapInfo // the last one
	ops   int      // of the group when it began
	bytes int      // likewise
	inner []byte   // scratch
	last  *entry   // that was looked at
	put   state.Put
}

var _ structs.Rows = (*Tx)(nil)

var (
	// ErrReadOnly means a write in a View. Kind Invalid.
	ErrReadOnly = lattice.E(lattice.Invalid, errors.New("keyval: a view cannot write"))
	// ErrEnded means that a Tx was used after its function returned. Kind Invalid.
	ErrEnded = lattice.E(lattice.Invalid, errors.New("keyval: the transaction has ended"))
	// ErrTooLarge means that an Update's operations are more than MaxUpdate bytes.
	// Kind TooLarge.
	ErrTooLarge = lattice.E(lattice.TooLarge, fmt.Errorf("keyval: the operations of one update are larger than %d bytes, which is what fits a signed entry: write less at once", MaxUpdate))
)

// Now returns the wall clock in ms since 1970, fixed for the transaction.
func (tx *Tx) Now() int64 { return tx.now }

// Writer returns whose dots Put gives: this node's, in this incarnation.
func (tx *Tx) Writer() state.Writer { return tx.db.own }

// entry finds a key. nil: its map does not exist.
func (tx *Tx) entry(name string, key []byte) (*entry, error) {
	if tx.done {
		return nil, ErrEnded
	}
	m := tx.m
	if m == nil || m.name != name {
		if m = tx.db.t.mapOf(name, false); m == nil {
			return nil, nil
		}
		tx.m = m
	}
	e, err := tx.find(m, key)
	if err == nil {
		tx.group = max(tx.group, e.group)
	}
	return e, err
}

// find finds a key of a map. Neighbouring calls are mostly about one key.
func (tx *Tx) find(m *mapInfo, key []byte) (*entry, error) {
	// While others read, what the table has forgotten is as good as what it has.
	if e := tx.last; e != nil && e.m == m && e.name == string(key) && (tx.shared || !e.gone) {
		return e, nil
	}
	tx.inner = appendInner(tx.inner[:0], m, key)
	e, err := tx.db.t.find(m, tx.inner, len(tx.inner)-len(key), tx.shared)
	if err == nil {
		tx.last = e
	}
	return e, err
}

// Key returns what is known of a key; see structs.Rows.
func (tx *Tx) Key(m string, key []byte) (structs.Key, error) {
	e, err := tx.entry(m, key)
	if e == nil || err != nil {
		return structs.Key{}, err
	}
	return e.key(e.version), nil
}

func (k *keyState) key(version uint64) structs.Key {
	return structs.Key{Counts: k.counts, Seen: k.seen, Expiry: k.expiry, Version: version}
}

// Row returns the row at a; see structs.Rows.
func (tx *Tx) Row(a state.Address) (state.Row, error) {
	e, err := tx.entry(a.Map, a.Key)
	if e == nil || err != nil || a.Kind >= state.Kinds || e.counts[a.Kind] == 0 {
		return nil, err
	}
	switch a.Kind {
	case state.Register:
		return e.register, nil
	case state.Expiry:
		return e.expiry, nil
	}
	s, err := tx.db.t.findSub(e, a.Kind, a.Sub, tx.shared)
	if err != nil {
		return nil, err
	}
	return s.row, nil
}

// Scan yields the rows of one kind of a key in order; see structs.Rows.
func (tx *Tx) Scan(m string, key []byte, k state.Kind, from []byte, reverse bool, yield func(sub []byte, r state.Row) bool) error {
	e, err := tx.entry(m, key)
	if e == nil || err != nil || k >= state.Kinds {
		return err
	}
	return tx.db.t.scan(e, k, from, reverse, tx.shared, yield)
}

// Scores yields a sorted set's members by score; see structs.Rows.
func (tx *Tx) Scores(m string, key []byte, score state.Score, member []byte, reverse bool, yield func(s state.Score, member []byte) bool) error {
	e, err := tx.entry(m, key)
	if e == nil || err != nil {
		return err
	}
	return tx.db.t.scores(e, score, member, reverse, tx.shared, yield)
}

// Keys yields the keys of a map in order; see structs.Rows.
func (tx *Tx) Keys(m string, from []byte, yield func(key []byte, k structs.Key) bool) error {
	if tx.done {
		return ErrEnded
	}
	info := tx.db.t.mapOf(m, false)
	if info == nil {
		return nil
	}
	tx.group = max(tx.group, tx.db.lastGroup) // what is not there was perhaps only just deleted
	return tx.db.t.keys(info, from, tx.shared, func(key []byte, k *keyState, version uint64) bool {
		return yield(key, k.key(version))
	})
}

// Len returns the number of keys of a map; see structs.Rows.
func (tx *Tx) Len(m string) (int64, error) {
	if tx.done {
		return 0, ErrEnded
	}
	info := tx.db.t.mapOf(m, false)
	if info == nil {
		return 0, nil
	}
	tx.group = max(tx.group, tx.db.lastGroup)
	return info.len, nil
}

// Put makes a head and returns its dot; see structs.Rows.
func (tx *Tx) Put(a state.Address, p state.Payload, supersedes []state.Dot, under state.Dot) (state.Dot, error) {
	tx.put = state.Put{Address: a, Payload: p, Supersedes: supersedes, Under: under}
	if tx.done || tx.shared {
		return tx.add(sigchain.Op{}, nil)
	}
	db := tx.db
	if need := 64 + len(a.Map) + len(a.Key) + len(a.Sub) + len(p.Bytes); cap(db.bodies)-len(db.bodies) < need {
		db.bodies = make([]byte, 0, max(need, bodyRoom))
	}
	n := len(db.bodies)
	body, err := tx.put.AppendBody(db.bodies[n:], db.own)
	if err != nil {
		return state.Dot{}, err
	}
	if n+len(body) <= cap(db.bodies) { // else it did not fit, and has memory of its own
		db.bodies = db.bodies[:n+len(body)]
	}
	return tx.add(sigchain.Op{Kind: state.KindPut, Body: body[:len(body):len(body)]}, &tx.put)
}

// End ends what cites cover in a scope; see structs.Rows.
func (tx *Tx) End(a state.Address, s state.Scope, cites state.Cites) error {
	_, err := tx.issue(&state.End{Address: a, Scope: s, Cites: cites})
	return err
}

// Expire makes the head of an expiry; see structs.Rows.
func (tx *Tx) Expire(m string, key []byte, x state.Expiring, supersedes []state.Dot) error {
	_, err := tx.issue(&state.Expire{Map: m, Key: key, Expiring: x, Supersedes: supersedes})
	return err
}

// Append adds an operation of another kind than state's to the entry: of the
// roster, say. It has its effect when the entry is decided.
func (tx *Tx) Append(op sigchain.Op) error {
	if state.IsOp(op.Kind) {
		return lattice.E(lattice.Invalid, fmt.Errorf("keyval: an operation of kind %d is state's", op.Kind))
	}
	_, err := tx.add(op, nil)
	return err
}

// issue adds an operation to the group, and applies it.
func (tx *Tx) issue(op state.Op) (state.Dot, error) {
	enc, err := op.Encode(tx.db.own)
	if err != nil {
		return state.Dot{}, err
	}
	return tx.add(enc, op)
}

func (tx *Tx) add(enc sigchain.Op, op state.Op) (state.Dot, error) {
	switch {
	case tx.done:
		return state.Dot{}, ErrEnded
	case tx.shared:
		return state.Dot{}, ErrReadOnly
	}
	db := tx.db
	size := opOverhead + len(enc.Body)
	if tx.wrote == 0 {
		if size > MaxUpdate { // before there is a group, which nobody would decide
			return state.Dot{}, ErrTooLarge
		}
		if err := db.openGroup(roster.Writer); err != nil {
			return state.Dot{}, err
		}
		tx.ops, tx.bytes = len(db.building.ops), db.building.bytes
	}
	g := db.building
	if g.bytes+size-tx.bytes > MaxUpdate {
		return state.Dot{}, ErrTooLarge
	}
	d := state.Dot{Writer: db.own, Seq: g.seq, Index: uint32(len(g.ops))}
	tx.wrote++
	g.foreign = g.foreign || op == nil
	if op != nil {
		name, key := op.Target()
		if tx.m == nil || tx.m.name != name {
			tx.m = db.t.mapOf(name, true)
		}
		e, err := tx.find(tx.m, key)
		if err == nil {
			err = db.t.change(e, op, d, g.time, g.id)
		}
		if err != nil {
			return state.Dot{}, fmt.Errorf("apply an operation: %w", err)
		}
	}
	g.ops = append(g.ops, enc)
	g.bytes += size
	return d, nil
}

// bodyRoom is how much memory is taken at a time for bodies of operations, which
// live until their group is written.
const bodyRoom = 16 << 10

// opOverhead is what an operation takes in an entry besides its body.
const opOverhead = 6

// MaxUpdate is the most that one Update's operations may take, in bytes: an
// entry's limit, less what the group before it in the same entry may take, and
// room for parents.
const MaxUpdate = sigchain.MaxSize - groupBytes - parentRoom
