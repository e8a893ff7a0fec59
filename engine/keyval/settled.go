package keyval

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/kv"
)

// settled is the state as it is in the fold database at one moment, decided and
// between two entries of each log. It does not change, and holds up nobody. Release
// it soon.
type settled struct {
	db       *DB
	snap     *kv.Snapshot
	codec    codec
	maps     []string          // names by number
	numbers  map[string]uint32 // of maps
	frontier state.Frontier
	err      error // there is none
}

func (s *settled) release() {
	_ = s.snap.Close() // it only lets go
	s.db.using.RUnlock()
}

// request is somebody's wait for the state as it is.
type request struct {
	mu    sync.Mutex
	gone  bool // nobody waits any more
	state *settled
	done  chan struct{}
}

// give ends the wait.
func (r *request) give(s *settled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone && s.err == nil {
		s.release()
	}
	r.state = s
	close(r.done)
}

// leave stops waiting.
func (r *request) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	if r.state != nil && r.state.err == nil {
		r.state.release()
	}
}

// settledNow returns the state as it is now, once all that has been begun is
// decided and written.
func (db *DB) settledNow(ctx context.Context) (*settled, error) {
	r := &request{done: make(chan struct{})}
	if err := db.ask(r); err != nil {
		return nil, err
	}
	db.kick()
	select {
	case <-r.done:
		return r.state, r.state.err
	case <-ctx.Done():
		r.leave()
		return nil, ctx.Err()
	}
}

func (db *DB) ask(r *request) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case db.closed || db.stopped:
		return ErrClosed
	case db.broken != nil:
		return db.broken
	case !db.running && db.building == nil && len(db.queue) == 0:
		return db.answerHere(r)
	}
	db.wanted = append(db.wanted, r)
	return nil
}

// answerHere answers when nothing is undecided and Run has not begun, and may never:
// the directory of a stopped node is read that way. db.mu is held.
func (db *DB) answerHere(r *request) error {
	if err := db.writeRest(); err != nil {
		return err
	}
	db.answer([]*request{r}, db.t.mapNames(), db.machine.Frontier(), nil)
	return nil
}

// answer gives the fold database as it is to those who wait for it. What it holds
// is the state at frontier; with an error there is none.
func (db *DB) answer(wanted []*request, maps []string, frontier state.Frontier, err error) {
	for _, r := range wanted {
		s := &settled{db: db, codec: codec{db.writers}, maps: maps, numbers: map[string]uint32{}, frontier: frontier, err: err}
		for i, name := range maps {
			s.numbers[name] = uint32(i)
		}
		if s.err == nil {
			db.using.RLock()
			if s.snap, s.err = db.kv.Snapshot(); s.err != nil {
				db.using.RUnlock()
			}
		}
		r.give(s)
	}
}

func (t *table) mapNames() []string {
	names := make([]string, len(t.byID))
	for i, m := range t.byID {
		names[i] = m.name
	}
	return names
}

// inner returns a key's name inside the fold database; false when its map is not
// there.
func (s *settled) inner(m string, key []byte) (string, bool) {
	n, ok := s.numbers[m]
	if !ok {
		return "", false
	}
	return string(append(binary.AppendUvarint(nil, uint64(n)), key...)), true
}

// row returns a row, nil when there is none.
func (s *settled) row(a state.Address) (state.Row, error) {
	inner, ok := s.inner(a.Map, a.Key)
	if !ok {
		return nil, nil
	}
	if a.Kind == state.Register || a.Kind == state.Expiry {
		k, err := s.key(inner)
		if err != nil || a.Kind == state.Expiry {
			return k.expiry, err
		}
		return k.register, nil
	}
	v, ok, err := s.snap.Get(append(rowPrefix(nil, inner, a.Kind), a.Sub...))
	if err != nil || !ok {
		return nil, err
	}
	return s.codec.parseRow(v)
}

// key returns a key's record, with its register.
func (s *settled) key(inner string) (keyState, error) {
	v, ok, err := s.snap.Get(recordKey(nil, inner))
	if err != nil || !ok {
		return keyState{}, err
	}
	return s.parse(inner, v)
}

func (s *settled) parse(inner string, record []byte) (keyState, error) {
	k, apart, err := s.codec.parseKey(record)
	if err != nil || !apart {
		return k, err
	}
	v, ok, err := s.snap.Get(rowPrefix(nil, inner, state.Register))
	if err == nil && !ok {
		err = corrupt("the register of key %q is missing", inner)
	}
	if err == nil {
		k.register, err = s.codec.parseRow(v)
	}
	return k, err
}

// rows yields the rows of a key, by kind and sub.
func (s *settled) rows(m string, key []byte, yield func(state.Address, state.Row) error) error {
	inner, ok := s.inner(m, key)
	if !ok {
		return nil
	}
	k, err := s.key(inner)
	if err != nil {
		return err
	}
	return s.rowsOf(m, key, inner, k, yield)
}

func (s *settled) rowsOf(m string, key []byte, inner string, k keyState, yield func(state.Address, state.Row) error) error {
	if len(k.register) > 0 {
		if err := yield(state.Address{Map: m, Key: key, Kind: state.Register}, k.register); err != nil {
			return err
		}
	}
	for _, kind := range subKinds {
		if k.counts[kind] == 0 {
			continue
		}
		prefix := rowPrefix(nil, inner, kind)
		err := s.snap.Iterate(prefix, func(name, v []byte) error {
			r, err := s.codec.parseRow(append([]byte(nil), v...))
			if err != nil {
				return err
			}
			return yield(state.Address{Map: m, Key: key, Kind: kind, Sub: append([]byte(nil), name[len(prefix):]...)}, r)
		})
		if err != nil {
			return err
		}
	}
	if len(k.expiry) > 0 {
		return yield(state.Address{Map: m, Key: key, Kind: state.Expiry}, k.expiry)
	}
	return nil
}

// all yields every row, by number of the map, key, kind and sub.
func (s *settled) all(yield func(state.Address, state.Row) error) error {
	return s.snap.Iterate([]byte{tagKey}, func(k, v []byte) error {
		inner := string(k[1:])
		n, size := binary.Uvarint(k[1:])
		if size <= 0 || n >= uint64(len(s.maps)) {
			return corrupt("key %x", k)
		}
		st, err := s.parse(inner, append([]byte(nil), v...))
		if err != nil {
			return err
		}
		return s.rowsOf(s.maps[n], []byte(inner[size:]), inner, st, yield)
	})
}
