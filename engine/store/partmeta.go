package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/kv"
)

// partitionMeta is partition.Meta in the local catalogue.
type partitionMeta struct {
	db *kv.DB
	tp lattice.TopicPartition
}

var _ partition.Meta = (*partitionMeta)(nil)

func (l *local) Meta(tp lattice.TopicPartition) partition.Meta { return &partitionMeta{l.db, tp} }

func (m *partitionMeta) key(kind byte) []byte {
	k := append([]byte{kind}, m.tp.Topic[:]...)
	return binary.BigEndian.AppendUint32(k, uint32(m.tp.Partition))
}

func (m *partitionMeta) set(k, v []byte) error {
	b := m.db.Batch()
	b.Set(k, v)
	return m.db.Commit(b, true)
}

func (m *partitionMeta) all(prefix []byte) ([][]byte, error) {
	var out [][]byte
	err := m.db.Iterate(prefix, func(_, v []byte) error {
		out = append(out, append([]byte(nil), v...))
		return nil
	})
	return out, err
}

func (m *partitionMeta) Grants() ([][]byte, error) { return m.all(m.key(keyGrant)) }

func (m *partitionMeta) PutGrant(term int32, signed []byte) error {
	return m.set(binary.BigEndian.AppendUint32(m.key(keyGrant), uint32(term)), signed)
}

func (m *partitionMeta) Lost() ([][]byte, error) { return m.all(m.key(keyLost)) }

func (m *partitionMeta) Switch(line, lost [][]byte) error {
	b := m.db.Batch()
	b.DeletePrefix(m.key(keyGrant))
	b.DeletePrefix(m.key(keyEvidence))
	for _, raw := range line {
		g, evidence, err := grant.Cut(raw)
		if err != nil {
			return err
		}
		b.Set(binary.BigEndian.AppendUint32(m.key(keyGrant), uint32(g.Term)), g.Bytes())
		if len(evidence) > 0 {
			b.Set(m.evidenceKey(g.Term), evidence)
		}
	}
	for _, raw := range lost {
		g, _, err := grant.Cut(raw)
		if err != nil {
			return err
		}
		b.Set(append(m.key(keyLost), g.ID[:]...), raw)
	}
	return m.db.Commit(b, true)
}

// greatestLed returns the greatest incarnation in which a node has begun a term of a
// partition. What cannot be read is for whoever opens that partition.
func (l *local) greatestLed(by lattice.NodeID) (most uint64, err error) {
	for _, kind := range []byte{keyGrant, keyLost} {
		err = errors.Join(err, l.db.Iterate([]byte{kind}, func(_, v []byte) error {
			if g, _, err := grant.Cut(v); err == nil && g.Leader == by {
				most = max(most, g.Incarnation)
			}
			return nil
		}))
	}
	return most, err
}

func (m *partitionMeta) Snapshot() ([]byte, error) { return m.get(m.key(keySnapshot)) }

// get returns nil for a key that is not there.
func (m *partitionMeta) get(k []byte) ([]byte, error) {
	v, _, err := m.db.Get(k)
	return v, err
}

func (m *partitionMeta) PutSnapshot(b []byte) error { return m.set(m.key(keySnapshot), b) }

func (m *partitionMeta) CleanedTo() (int64, error) {
	v, err := m.get(m.key(keyCleaned))
	if err != nil || v == nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: %s is cleaned to %x", m.tp, v))
	}
	return int64(binary.BigEndian.Uint64(v)), nil
}

func (m *partitionMeta) PutCleanedTo(offset int64) error {
	return m.set(m.key(keyCleaned), binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

func (m *partitionMeta) Cosigned() ([]byte, error)   { return m.get(m.key(keyCosigned)) }
func (m *partitionMeta) PutCosigned(b []byte) error  { return m.set(m.key(keyCosigned), b) }
func (m *partitionMeta) Committed() ([]byte, error)  { return m.get(m.key(keyCommitted)) }
func (m *partitionMeta) PutCommitted(b []byte) error { return m.set(m.key(keyCommitted), b) }

func (m *partitionMeta) Promised() ([]byte, error)  { return m.get(m.key(keyPromised)) }
func (m *partitionMeta) PutPromised(b []byte) error { return m.set(m.key(keyPromised), b) }

func (m *partitionMeta) evidenceKey(term int32) []byte {
	return binary.BigEndian.AppendUint32(m.key(keyEvidence), uint32(term))
}

func (m *partitionMeta) Evidence(term int32) ([]byte, error) { return m.get(m.evidenceKey(term)) }

func (m *partitionMeta) PutEvidence(term int32, b []byte) error {
	return m.set(m.evidenceKey(term), b)
}

func (m *partitionMeta) stateKey(base int64) []byte {
	return binary.BigEndian.AppendUint64(m.key(keyState), uint64(base))
}

func (m *partitionMeta) Statements(base int64) ([][]byte, error) { return m.all(m.stateKey(base)) }

// statements yields the numbers of the statements about one file, rising.
func (m *partitionMeta) statements(base int64, yield func(n uint64)) error {
	prefix := m.stateKey(base)
	return m.db.Iterate(prefix, func(k, _ []byte) error {
		if len(k) != len(prefix)+8 {
			return lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: statement key %x", k))
		}
		yield(binary.BigEndian.Uint64(k[len(prefix):]))
		return nil
	})
}

// PutStatement numbers the statements about one file: the newest has the highest.
func (m *partitionMeta) PutStatement(base int64, signed []byte) error {
	next := uint64(0)
	if err := m.statements(base, func(n uint64) { next = n + 1 }); err != nil {
		return err
	}
	return m.set(binary.BigEndian.AppendUint64(m.stateKey(base), next), signed)
}

func (m *partitionMeta) Settle(base int64) error {
	var all []uint64
	if err := m.statements(base, func(n uint64) { all = append(all, n) }); err != nil || len(all) < 2 {
		return err
	}
	b := m.db.Batch()
	for _, n := range all[:len(all)-1] {
		b.Delete(binary.BigEndian.AppendUint64(m.stateKey(base), n))
	}
	return m.db.Commit(b, true)
}

func (m *partitionMeta) DropStatements(before int64) error {
	return m.dropStatements(func(base int64) bool { return base < before })
}

func (m *partitionMeta) DropStatementsFrom(from int64) error {
	return m.dropStatements(func(base int64) bool { return base >= from })
}

func (m *partitionMeta) dropStatements(which func(base int64) bool) error {
	prefix := m.key(keyState)
	b := m.db.Batch()
	err := m.db.Iterate(prefix, func(k, _ []byte) error {
		if len(k) != len(prefix)+16 {
			return lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: statement key %x", k))
		}
		if which(int64(binary.BigEndian.Uint64(k[len(prefix):]))) {
			b.Delete(k)
		}
		return nil
	})
	if err != nil || b.Empty() {
		return err
	}
	return m.db.Commit(b, true)
}
