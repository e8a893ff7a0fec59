package group

import (
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Value is one committed offset as it is stored and as replicas will merge it.
type Value struct {
	// Reset counts deliberate rewinds; Target is the offset that the latest one
	// went to and ResetID tells concurrent ones apart. All zero: never rewound.
	Reset   uint64
	Target  int64
	ResetID [16]byte

	Offset int64
	// LeaderEpoch is the client's, returned as given; -1: none.
	LeaderEpoch int32
	// Term is the log's term at the commit, if the offset lay within the
	// committed log then; -1: it did not, and the offset is only the client's
	// word. See Manager.FetchOffsets for what it is for.
	Term     int32
	Time     time.Time // of the commit, in whole milliseconds
	Metadata string
}

// AppendTo appends the value's bytes, version 1.
func (v Value) AppendTo(dst []byte) []byte { panic("wip") }

// ParseValue reads what AppendTo wrote. Kind Corrupt.
func ParseValue(b []byte) (Value, error) { panic("wip") }

// AppendTo appends the key's bytes, which begin with GroupPrefix(k.Group).
func (k Key) AppendTo(dst []byte) []byte { panic("wip") }

// ParseKey reads what AppendTo wrote. Kind Corrupt.
func ParseKey(b []byte) (Key, error) { panic("wip") }

// Join returns the greater of two values: the merge of replicas.
func Join(a, b Value) Value { panic("wip") }

var _ lattice.TopicPartition
