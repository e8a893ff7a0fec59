// Package memory is a state in memory that implements structs.Rows, for tests of
// what stands on it. Every transaction is one entry of its writer, applied as it
// goes: there is no way back.
package memory

import (
	"bytes"
	"slices"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
)

// Memory is one writer's replica. Not safe for concurrent use.
type Memory struct {
	State    state.Space
	writer   state.Writer
	seq      uint64
	versions map[string]uint64
}

// New returns an empty replica of a writer.
func New(w state.Writer) *Memory { return &Memory{writer: w, versions: map[string]uint64{}} }

// Begin starts a transaction at nowMs, which is its entry's time as well.
func (m *Memory) Begin(nowMs int64) *Tx {
	m.seq++
	m.State.Pass(m.writer, m.seq)
	return &Tx{m: m, now: nowMs}
}

// Join takes over what another replica has.
func (m *Memory) Join(o *Memory) { m.State = *m.State.Join(&o.State) }

// Tx is a transaction.
type Tx struct {
	m     *Memory
	now   int64
	index uint32
}

var _ structs.Rows = (*Tx)(nil)

// Now returns the transaction's time.
func (t *Tx) Now() int64 { return t.now }

// Writer returns the replica's writer.
func (t *Tx) Writer() state.Writer { return t.m.writer }

// Key implements structs.Rows.
func (t *Tx) Key(m string, key []byte) (structs.Key, error) {
	k := structs.Key{Version: t.m.versions[m+"\x00"+string(key)]}
	for a, r := range t.m.State.Rows {
		if a.Map == m && bytes.Equal(a.Key, key) {
			add(&k, a, r)
		}
	}
	return k, nil
}

func add(k *structs.Key, a state.Address, r state.Row) {
	k.Counts[a.Kind]++
	k.Seen = k.Seen.Join(r.Cites())
	if a.Kind == state.Expiry {
		k.Expiry = r
	}
}

// Row implements structs.Rows.
func (t *Tx) Row(a state.Address) (state.Row, error) { return t.m.State.Row(a), nil }

// Scan implements structs.Rows.
func (t *Tx) Scan(m string, key []byte, k state.Kind, from []byte, reverse bool, yield func([]byte, state.Row) bool) error {
	type found struct {
		sub []byte
		row state.Row
	}
	var all []found
	for a, r := range t.m.State.Rows {
		if a.Map != m || !bytes.Equal(a.Key, key) || a.Kind != k {
			continue
		}
		if c := bytes.Compare(a.Sub, from); !reverse && c >= 0 || reverse && (from == nil || c <= 0) {
			all = append(all, found{a.Sub, r})
		}
	}
	if reverse {
		slices.Reverse(all)
	}
	for _, f := range all {
		if !yield(f.sub, f.row) {
			break
		}
	}
	return nil
}

// Scores implements structs.Rows.
func (t *Tx) Scores(m string, key []byte, score state.Score, member []byte, reverse bool, yield func(state.Score, []byte) bool) error {
	type scored struct {
		s      state.Score
		member []byte
	}
	var all []scored
	err := t.Scan(m, key, state.Scored, nil, false, func(sub []byte, r state.Row) bool {
		s, err := state.ParseScore(r.Last().Payload)
		if err != nil {
			panic(err) // a put checks it
		}
		all = append(all, scored{s, sub})
		return true
	})
	slices.SortStableFunc(all, func(a, b scored) int { return compareScores(a.s, b.s) })
	if reverse {
		slices.Reverse(all)
	}
	for _, x := range all {
		c := compareScores(x.s, score)
		if c == 0 && member != nil {
			c = bytes.Compare(x.member, member)
		}
		if !reverse && c < 0 || reverse && c > 0 {
			continue
		}
		if !yield(x.s, x.member) {
			break
		}
	}
	return err
}

func compareScores(a, b state.Score) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Keys implements structs.Rows.
func (t *Tx) Keys(m string, from []byte, yield func([]byte, structs.Key) bool) error {
	var keys [][]byte
	for a := range t.m.State.Rows {
		if a.Map == m && bytes.Compare(a.Key, from) >= 0 && (len(keys) == 0 || !bytes.Equal(keys[len(keys)-1], a.Key)) {
			keys = append(keys, a.Key)
		}
	}
	for _, key := range keys {
		if k, _ := t.Key(m, key); !yield(key, k) {
			break
		}
	}
	return nil
}

// Len implements structs.Rows.
func (t *Tx) Len(m string) (n int64, err error) {
	err = t.Keys(m, nil, func([]byte, structs.Key) bool { n++; return true })
	return n, err
}

// Put implements structs.Rows.
func (t *Tx) Put(a state.Address, p state.Payload, supersedes []state.Dot, under state.Dot) (state.Dot, error) {
	a.Key, a.Sub, p.Bytes = bytes.Clone(a.Key), bytes.Clone(a.Sub), bytes.Clone(p.Bytes)
	return t.apply(&state.Put{Address: a, Payload: p, Supersedes: supersedes, Under: under})
}

// End implements structs.Rows.
func (t *Tx) End(a state.Address, s state.Scope, cites state.Cites) error {
	_, err := t.apply(&state.End{Address: a, Scope: s, Cites: cites})
	return err
}

// Expire implements structs.Rows.
func (t *Tx) Expire(m string, key []byte, e state.Expiring, supersedes []state.Dot) error {
	_, err := t.apply(&state.Expire{Map: m, Key: bytes.Clone(key), Expiring: e, Supersedes: supersedes})
	return err
}

// apply takes the way over the encoded operation, as a real entry does.
func (t *Tx) apply(op state.Op) (state.Dot, error) {
	enc, err := op.Encode(t.m.writer)
	if err != nil {
		return state.Dot{}, err
	}
	if op, err = state.ParseOp(enc, t.m.writer); err != nil {
		return state.Dot{}, err
	}
	d := state.Dot{Writer: t.m.writer, Seq: t.m.seq, Index: t.index}
	t.index++
	t.m.State.Apply(op, d, uint64(t.now)<<16)
	name, key := op.Target()
	t.m.versions[name+"\x00"+string(key)]++
	return d, nil
}
