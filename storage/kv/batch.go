package kv

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	lattice "github.com/lattice-log/lattice"
)

// Batch is a set of changes that are applied together. It is used by one
// goroutine, and not again after Commit.
type Batch struct {
	b   *pebble.Batch
	err error
}

// Batch returns an empty batch.
func (d *DB) Batch() *Batch { return &Batch{b: d.db.NewBatch()} }

// Set puts a value at key. Keys and values are copied.
func (b *Batch) Set(key, value []byte) {
	if b.check(key) {
		b.err = b.b.Set(key, value, nil)
	}
}

// Delete removes key; a missing one is no error.
func (b *Batch) Delete(key []byte) {
	if b.check(key) {
		b.err = b.b.Delete(key, nil)
	}
}

// DeletePrefix removes all keys that begin with prefix.
func (b *Batch) DeletePrefix(prefix []byte) {
	if !b.check(prefix) {
		return
	}
	end := after(prefix)
	if end == nil {
		b.err = lattice.E(lattice.Invalid, fmt.Errorf("kv: delete all keys that begin with %x", prefix))
		return
	}
	b.err = b.b.DeleteRange(prefix, end, nil)
}

// deleteSingly is how many keys DeleteAll deletes one by one.
const deleteSingly = 64

// DeleteAll puts into a batch what removes all keys that begin with prefix now: one by
// one if they are few, else as DeletePrefix does, which slows down reads and takes memory
// until the tables are merged.
func (d *DB) DeleteAll(b *Batch, prefix []byte) error {
	it, err := d.Iter(prefix)
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok && n <= deleteSingly; ok = it.Next() {
		n++
	}
	if n > deleteSingly {
		b.DeletePrefix(prefix)
		return it.Close()
	}
	for ok := it.First(); ok; ok = it.Next() {
		b.Delete(it.Key())
	}
	return it.Close()
}

// Len returns the batch's size in bytes.
func (b *Batch) Len() int { return b.b.Len() }

// Empty reports whether the batch changes nothing.
func (b *Batch) Empty() bool { return b.b.Empty() }

func (b *Batch) check(key []byte) bool {
	if b.err == nil {
		b.err = checkKey(key)
	}
	return b.err == nil
}

// Commit applies the batch; with sync, it is durable on return. A bad key in the
// batch is an error of Kind Invalid, and nothing is applied. Kind Storage: see the
// package comment.
func (d *DB) Commit(b *Batch, sync bool) error {
	if sync && d.memoryOnly {
		return lattice.E(lattice.Invalid, errors.New("commit: a store without a journal cannot sync a batch"))
	}
	if b.err != nil {
		return fmt.Errorf("commit: %w", b.err)
	}
	if d.closed.Load() {
		return errClosed
	}
	if err := d.room(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return d.commit(b.b, sync)
}

func (d *DB) commit(b *pebble.Batch, sync bool) error {
	if err := d.failed.Load(); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("commit: the store failed before: %w", *err))
	}
	how := pebble.NoSync
	if sync {
		how = pebble.Sync
	}
	if err := guard(func() error { return b.Commit(how) }); err != nil {
		d.failed.CompareAndSwap(nil, &err)
		return lattice.E(lattice.Storage, fmt.Errorf("commit: %w", err))
	}
	if err := b.Close(); err != nil {
		return lattice.E(lattice.Internal, fmt.Errorf("commit: %w", err))
	}
	return nil
}

// room refuses when the disk is nearly full, because pebble cannot go on after a
// write to its log failed.
func (d *DB) room() error {
	if d.reserve == 0 {
		return nil
	}
	u, err := d.fs.GetDiskUsage(d.dir)
	if err == nil && u.AvailBytes < d.reserve {
		return lattice.E(lattice.Storage, fmt.Errorf("%d bytes are free on the disk, less than the %d kept in reserve", u.AvailBytes, d.reserve))
	}
	return nil // a file system that cannot tell is not a full one
}

// Failed returns why commits fail until the store is opened again, nil if they do not.
func (d *DB) Failed() error {
	if err := d.failed.Load(); err != nil {
		return *err
	}
	return nil
}
