package store

import (
	"encoding/binary"
	"fmt"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// local is the records in the store's own ordered store. Topics, offsets and
// entries after the genesis are in those of older versions only: see folded.
type local struct {
	db *kv.DB

	mu sync.Mutex // held while numbers are given out
}

func openLocal(fs disk.FS, dir string, o kv.Options) (*local, error) {
	db, err := kv.Open(fs, dir, o)
	if err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	return &local{db: db}, nil
}

func (l *local) Close() error { return l.db.Close() }

func entryKey(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{keyEntry}, n) }

func (l *local) Entries(yield func(sigchain.Signed) error) error {
	return l.db.Iterate([]byte{keyEntry}, func(_, v []byte) error {
		s, err := sigchain.Parse(append([]byte(nil), v...))
		if err == nil {
			err = s.Verify()
		}
		if err != nil {
			return fmt.Errorf("catalogue: entry: %w", err)
		}
		return yield(s)
	})
}

func (l *local) Topics(yield func(TopicRecord) error) error {
	return l.db.Iterate([]byte{keyTopic}, func(k, v []byte) error {
		t, err := decodeTopic(k[1:], v)
		if err != nil {
			return err
		}
		return yield(t)
	})
}

// putGenesis writes the entry that founds the store.
func (l *local) putGenesis(s sigchain.Signed) error {
	b := l.db.Batch()
	b.Set(entryKey(0), s.Bytes())
	if err := l.db.Commit(b, true); err != nil {
		return fmt.Errorf("save entry %s: %w", s.ID.Short(), err)
	}
	return nil
}

// moved reports whether topics and offsets are state already.
func (l *local) moved() (bool, error) {
	_, ok, err := l.db.Get([]byte{keyMoved})
	return ok, err
}

// forgetMoved removes topics and offsets, which are state now, in one step.
func (l *local) forgetMoved() error {
	b := l.db.Batch()
	b.DeletePrefix([]byte{keyTopic})
	b.DeletePrefix([]byte{keyOffset})
	b.Set([]byte{keyMoved}, []byte{})
	return l.db.Commit(b, true)
}

// MarkDropped marks a topic's files for deletion.
func (l *local) MarkDropped(id lattice.TopicID) error {
	b := l.db.Batch()
	b.Set(append([]byte{keyDropped}, id[:]...), []byte{})
	if err := l.db.Commit(b, true); err != nil {
		return fmt.Errorf("drop topic %s: %w", id, err)
	}
	return nil
}

func (l *local) unmarkDropped(id lattice.TopicID) error {
	b := l.db.Batch()
	b.Delete(append([]byte{keyDropped}, id[:]...))
	return l.db.Commit(b, true)
}

func (l *local) Dropped(yield func(lattice.TopicID) error) error {
	return l.db.Iterate([]byte{keyDropped}, func(k, _ []byte) error {
		var id lattice.TopicID
		if copy(id[:], k[1:]) != len(id) || len(k) != 1+len(id) {
			return lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: dropped topic %x", k))
		}
		return yield(id)
	})
}

func (l *local) Forget(id lattice.TopicID) error {
	b := l.db.Batch()
	for _, k := range []byte{keyGrant, keyLost, keySnapshot, keyCleaned, keyState, keyCosigned, keyCommitted, keyPromised, keyEvidence, keySynced} {
		if err := l.db.DeleteAll(b, append([]byte{k}, id[:]...)); err != nil {
			return fmt.Errorf("forget topic %s: %w", id, err)
		}
	}
	b.Delete(append([]byte{keyDropped}, id[:]...))
	return l.db.Commit(b, true)
}

// Reserve is kept ahead: a crash skips numbers, it never repeats one.
func (l *local) Reserve(n uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first uint64
	v, ok, err := l.db.Get([]byte{keyCounter})
	if err == nil && ok && len(v) != 8 {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("counter of %d bytes", len(v)))
	}
	if err != nil {
		return 0, fmt.Errorf("reserve producer ids: %w", err)
	}
	if ok {
		first = binary.BigEndian.Uint64(v)
	}
	b := l.db.Batch()
	b.Set([]byte{keyCounter}, binary.BigEndian.AppendUint64(nil, first+n))
	return first, l.db.Commit(b, true)
}

// ClockBound and PutClockBound keep how far the hybrid clock may go.

func (l *local) ClockBound() (uint64, error) {
	v, ok, err := l.db.Get([]byte{keyClock})
	if err == nil && ok && len(v) != 8 {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("bound of %d bytes", len(v)))
	}
	if err != nil || !ok {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

func (l *local) PutClockBound(bound uint64) error {
	b := l.db.Batch()
	b.Set([]byte{keyClock}, binary.BigEndian.AppendUint64(nil, bound))
	return l.db.Commit(b, true)
}

// LoadTransactions and PutTransactions are txn.Records.

func (l *local) LoadTransactions(yield func(txn.Transaction) error) error {
	return l.db.Iterate([]byte{keyTxn}, func(k, v []byte) error {
		t, err := txn.Parse(string(k[1:]), v)
		if err != nil {
			return fmt.Errorf("catalogue: %w", err)
		}
		return yield(t)
	})
}

func (l *local) PutTransactions(put []txn.Transaction, gone []string, sync bool) error {
	b := l.db.Batch()
	for _, t := range put {
		b.Set(append([]byte{keyTxn}, t.ID...), t.AppendTo(nil))
	}
	for _, id := range gone {
		b.Delete(append([]byte{keyTxn}, id...))
	}
	return l.db.Commit(b, sync)
}

// Load, LoadPending and Apply are group.Offsets.

func (l *local) Load(yield func(group.Key, group.Value, bool) error) error {
	return l.db.Iterate([]byte{keyOffset}, func(k, v []byte) error {
		key, err := group.ParseKey(k[1:])
		if err != nil {
			return err
		}
		val, err := group.ParseValue(v)
		if err != nil {
			return fmt.Errorf("offset of group %q, %s: %w", key.Group, key.TopicPartition, err)
		}
		return yield(key, val, true)
	})
}

// read returns one committed offset.
func (l *local) read(k group.Key) (v group.Value, ok bool, err error) {
	b, ok, err := l.db.Get(k.AppendTo([]byte{keyOffset}))
	if err == nil && ok {
		v, err = group.ParseValue(b)
	}
	return v, ok, err
}

func (l *local) LoadPending(yield func(group.PendingKey, group.Value) error) error {
	return l.db.Iterate([]byte{keyPending}, func(k, v []byte) error {
		key, err := group.ParsePendingKey(k[1:])
		if err != nil {
			return err
		}
		val, err := group.ParseValue(v)
		if err != nil {
			return fmt.Errorf("offset of group %q, %s, in a transaction: %w", key.Group, key.TopicPartition, err)
		}
		return yield(key, val)
	})
}

func (l *local) Apply(changes []group.Change) error {
	b := l.db.Batch()
	for _, c := range changes {
		k := c.Key.AppendTo([]byte{keyOffset})
		if c.Pending {
			k = group.PendingKey{Key: c.Key, Producer: c.Producer}.AppendTo([]byte{keyPending})
		}
		if c.Value == nil {
			b.Delete(k)
			continue
		}
		b.Set(k, c.Value.AppendTo(nil))
	}
	return l.db.Commit(b, true)
}
