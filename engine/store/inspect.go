package store

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/txn"
)

// What DecodeRecord returns, beside TopicRecord. Byte slices are the caller's.
type (
	// EntryRecord is an entry of this node, its signature checked.
	EntryRecord struct {
		Number uint64
		Entry  sigchain.Signed
	}
	// DroppedRecord marks a topic whose files may still be there.
	DroppedRecord struct{ ID lattice.TopicID }
	// OffsetRecord is a group's committed offset.
	OffsetRecord struct {
		Key   group.Key
		Value group.Value
	}
	// PendingRecord is an offset that waits for the end of a transaction.
	PendingRecord struct {
		Key   group.PendingKey
		Value group.Value
	}
	// TransactionRecord is what is known of a transactional id.
	TransactionRecord struct{ txn.Transaction }
	// ShareRecord is how far a share group is in a partition.
	ShareRecord struct {
		Key   group.Key
		State share.State
	}
	// GroupConfigRecord is what a group is set to.
	GroupConfigRecord struct {
		Name string
		Set  map[string]string
	}
	// CounterRecord is how many producer ids were handed out.
	CounterRecord struct{ Next uint64 }
	// MovedRecord says that topics and offsets are state.
	MovedRecord struct{}
	// JoinedRecord says that another node made the store, and who invited this one, by which invitation.
	JoinedRecord struct {
		Inviter    lattice.NodeID
		Invitation lattice.Hash // its id; zero: not known
	}
	// ClockRecord bounds the hybrid clock.
	ClockRecord struct{ Bound uint64 }
	// GrantRecord is a signed grant, unparsed.
	GrantRecord struct {
		lattice.TopicPartition
		Term  int32
		Bytes []byte
	}
	// LostRecord is a signed grant that another won against, unparsed.
	LostRecord struct {
		lattice.TopicPartition
		ID    lattice.Hash
		Bytes []byte
	}
	// SnapshotRecord is a partition's producer snapshot, unparsed.
	SnapshotRecord struct {
		lattice.TopicPartition
		Bytes []byte
	}
	// CleanedRecord is how far compaction has come.
	CleanedRecord struct {
		lattice.TopicPartition
		Offset int64
	}
	// PromisedRecord is what this node has promised.
	PromisedRecord struct {
		lattice.TopicPartition
		Bound promise.Bound
	}
	// EvidenceRecord are the promises that made the grant of a term.
	EvidenceRecord struct {
		lattice.TopicPartition
		Term     int32
		Promises []byte
	}
	// CosignedRecord is what this node cosigned last.
	CosignedRecord struct {
		lattice.TopicPartition
		Last cosign.Last
	}
	// CommittedRecord is how much is committed, as far as this node knows.
	CommittedRecord struct {
		lattice.TopicPartition
		Mark cosign.Mark
	}
	// BroughtRecord is how far a partition of a fork was brought back: to offset Next; or
	// else records from there on are under way, as those of a producer, behind offset From.
	BroughtRecord struct {
		lattice.TopicPartition
		Next, From, Producer int64
	}
	// StatementRecord is a compaction statement, unparsed.
	StatementRecord struct {
		lattice.TopicPartition
		Base   int64 // of the file
		Number uint64
		Bytes  []byte
	}
)

// DecodeRecord reads one record of a catalogue, for those who check it. Kind
// Corrupt, or Unsupported for a version that is not known here.
func DecodeRecord(key, value []byte) (any, error) {
	if len(key) == 0 {
		return nil, badRecord(key, "an empty key")
	}
	rest, value := key[1:], append([]byte(nil), value...)
	switch key[0] {
	case keyEntry:
		return decodeEntry(rest, value)
	case keyTopic:
		return decodeTopic(rest, value)
	case keyDropped:
		if len(rest) != len(lattice.TopicID{}) || len(value) != 0 {
			return nil, badRecord(key, "no dropped topic")
		}
		return DroppedRecord{lattice.TopicID(rest)}, nil
	case keyOffset:
		k, err := group.ParseKey(rest)
		if err != nil {
			return nil, err
		}
		v, err := group.ParseValue(value)
		return OffsetRecord{k, v}, err
	case keyPending:
		k, err := group.ParsePendingKey(rest)
		if err != nil {
			return nil, err
		}
		v, err := group.ParseValue(value)
		return PendingRecord{k, v}, err
	case keyTxn:
		t, err := txn.Parse(string(rest), value)
		return TransactionRecord{t}, err
	case keyShare:
		k, err := group.ParseKey(rest)
		if err != nil {
			return nil, err
		}
		s, err := share.ParseState(value)
		return ShareRecord{k, s}, err
	case keyGroup:
		set, err := decodeGroupConfig(string(rest), value)
		return GroupConfigRecord{string(rest), set}, err
	case keyScram:
		return decodeScram(rest, value)
	case keyMoved:
		if len(rest) != 0 || len(value) != 0 {
			return nil, badRecord(key, "no mark")
		}
		return MovedRecord{}, nil
	case keyJoined:
		if len(rest) != 0 {
			return nil, badRecord(key, "no joined store")
		}
		return decodeJoined(value)
	case keyCounter, keyClock:
		if len(rest) != 0 || len(value) != 8 {
			return nil, badRecord(key, "no number")
		}
		n := binary.BigEndian.Uint64(value)
		if key[0] == keyClock {
			return ClockRecord{n}, nil
		}
		return CounterRecord{n}, nil
	}
	return decodePartitionRecord(key, value)
}

func decodeEntry(number, value []byte) (any, error) {
	if len(number) != 8 {
		return nil, badRecord(number, "no entry number")
	}
	e, err := sigchain.Parse(value)
	if err == nil {
		err = e.Verify()
	}
	return EntryRecord{binary.BigEndian.Uint64(number), e}, err
}

// decodePartitionRecord reads what belongs to one partition.
func decodePartitionRecord(key, value []byte) (any, error) {
	const idLen = len(lattice.TopicID{})
	if len(key) < 1+idLen+4 {
		return nil, badRecord(key, "nothing known")
	}
	be := binary.BigEndian
	tp := lattice.TopicPartition{Topic: lattice.TopicID(key[1:]), Partition: int32(be.Uint32(key[1+idLen:]))}
	rest := key[1+idLen+4:]
	switch {
	case tp.Partition < 0:
	case key[0] == keyGrant && len(rest) == 4:
		return GrantRecord{tp, int32(be.Uint32(rest)), value}, nil
	case key[0] == keyLost && len(rest) == len(lattice.Hash{}):
		return LostRecord{tp, lattice.Hash(rest), value}, nil
	case key[0] == keySnapshot && len(rest) == 0:
		return SnapshotRecord{tp, value}, nil
	case key[0] == keyCleaned && len(rest) == 0 && len(value) == 8:
		return CleanedRecord{tp, int64(be.Uint64(value))}, nil
	case key[0] == keyCosigned && len(rest) == 0:
		last, err := cosign.ParseLast(value)
		return CosignedRecord{tp, last}, err
	case key[0] == keyCommitted && len(rest) == 0:
		mark, err := cosign.ParseMark(value)
		return CommittedRecord{tp, mark}, err
	case key[0] == keyPromised && len(rest) == 0:
		bound, err := promise.ParseBound(value)
		return PromisedRecord{tp, bound}, err
	case key[0] == keyEvidence && len(rest) == 4:
		return EvidenceRecord{tp, int32(be.Uint32(rest)), value}, nil
	case key[0] == keySynced && len(rest) == 0:
		b, err := parseBrought(value)
		return BroughtRecord{tp, b.next, b.from, b.producer}, err
	case key[0] == keyState && len(rest) == 16:
		return StatementRecord{tp, int64(be.Uint64(rest)), be.Uint64(rest[8:]), value}, nil
	}
	return nil, badRecord(key, "nothing known")
}

func badRecord(key []byte, what string) error {
	return lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: %s at %x", what, key))
}

// PartitionPrefixes returns what the keys of a partition's records begin with, in
// the order grants, producer snapshot, compaction progress, statements, and others.
func PartitionPrefixes(tp lattice.TopicPartition) [][]byte {
	var out [][]byte
	for _, kind := range []byte{keyGrant, keySnapshot, keyCleaned, keyState, keyCosigned, keyCommitted, keyPromised, keyEvidence, keyLost, keySynced} {
		out = append(out, (&partitionMeta{tp: tp}).key(kind))
	}
	return out
}

// CheckTopicConfig reports whether a topic can have these configs; a *ConfigError
// if not.
func CheckTopicConfig(set map[string]string) error {
	_, err := parseConfig(nil, set)
	return err
}

// Follow adds an entry to the chain of a node's entries over all its
// incarnations. Kind Corrupt, or that of the chain's error.
func Follow(c sigchain.Chain, e sigchain.Signed) (sigchain.Chain, error) { return follow(c, e) }
