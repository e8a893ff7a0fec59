package kv

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	lattice "github.com/lattice-log/lattice"
)

// Iter walks the keys that begin with a prefix, both ways, as they were when it
// was made. It stands nowhere until the first move; each move reports whether it
// stands on a key. Not safe for concurrent use. Close it soon: it keeps old data
// alive.
type Iter struct {
	it     *pebble.Iterator
	prefix []byte
}

// Iter returns an iterator over the keys that begin with prefix.
func (d *DB) Iter(prefix []byte) (*Iter, error) {
	if err := checkKey(prefix); err != nil {
		return nil, err
	}
	if d.closed.Load() {
		return nil, errClosed
	}
	lower := append([]byte(nil), prefix...)
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(prefix)})
	if err != nil {
		return nil, lattice.E(kindOf(err), fmt.Errorf("iterate over %x: %w", prefix, err))
	}
	return &Iter{it: it, prefix: lower}, nil
}

// First moves to the first key.
func (i *Iter) First() bool { return i.it.First() }

// Last moves to the last key.
func (i *Iter) Last() bool { return i.it.Last() }

// SeekGE moves to the first key that is not before key.
func (i *Iter) SeekGE(key []byte) bool { return i.it.SeekGE(key) }

// SeekLE moves to the last key that is not after key.
func (i *Iter) SeekLE(key []byte) bool {
	return i.it.SeekLT(append(append(make([]byte, 0, len(key)+1), key...), 0))
}

// Next moves to the key after.
func (i *Iter) Next() bool { return i.it.Next() }

// Prev moves to the key before.
func (i *Iter) Prev() bool { return i.it.Prev() }

// Valid reports whether it stands on a key.
func (i *Iter) Valid() bool { return i.it.Valid() }

// Key returns the key that it stands on, good until the next move.
func (i *Iter) Key() []byte { return i.it.Key() }

// Value returns the key's value, good until the next move.
func (i *Iter) Value() ([]byte, error) {
	v, err := i.it.ValueAndErr()
	if err != nil {
		return nil, lattice.E(kindOf(err), fmt.Errorf("value of %x: %w", i.it.Key(), err))
	}
	return v, nil
}

// Close ends it, and returns what went wrong on the way, if anything did.
func (i *Iter) Close() error {
	err := i.it.Error()
	if cerr := i.it.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return lattice.E(kindOf(err), fmt.Errorf("iterate over %x: %w", i.prefix, err))
	}
	return nil
}
