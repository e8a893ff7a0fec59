package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// consumerProtocol is the protocol type of Kafka's consumers: its metadata and
// assignment bytes are ConsumerProtocolSubscription and
// ConsumerProtocolAssignment, which these functions read as far as people and
// the coordinator need. Members write those bytes, so they may be anything.
//
//	subscription: version i16, topics [string], ... (owned partitions, rack)
//	assignment:   version i16, [topic string, partitions [i32]], user data bytes
//
// Later versions only append fields, so every version >= 0 is read as far as
// the fields named here.
const consumerProtocol = "consumer"

var errProtocolBytes = lattice.E(lattice.Invalid, errors.New("not the consumer protocol's bytes"))

// protoReader reads big-endian fields off the front; after the first field that
// is not there, every read returns zero and bad stays set.
type protoReader struct {
	b   []byte
	bad bool
}

func (r *protoReader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *protoReader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *protoReader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *protoReader) string() string { return string(r.take(int(r.int16()))) }

// count reads an array's length and refuses one that the bytes left cannot
// hold, at min bytes an element, before anything is allocated for it. A negative
// length is no array, which here means the same as an empty one.
func (r *protoReader) count(min int) int {
	n := int(r.int32())
	if n > len(r.b)/min {
		r.bad = true
		return 0
	}
	return max(n, 0)
}

// parseSubscription returns the topics that a member subscribed to, sorted and
// each once.
func parseSubscription(b []byte) ([]string, error) {
	r := protoReader{b: b}
	version := r.int16()
	topics := make([]string, r.count(2))
	for i := range topics {
		topics[i] = r.string()
	}
	if r.bad || version < 0 {
		return nil, fmt.Errorf("subscription of %d bytes: %w", len(b), errProtocolBytes)
	}
	slices.Sort(topics)
	return slices.Compact(topics), nil
}

// parseAssignment returns the partitions by topic name, in the order of the
// bytes, with ids left zero. No bytes at all is an empty assignment.
func parseAssignment(b []byte) ([]TopicPartitions, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := protoReader{b: b}
	version := r.int16()
	all := make([]TopicPartitions, r.count(6))
	for i := range all {
		all[i].Name = r.string()
		all[i].Partitions = make([]int32, r.count(4))
		for j := range all[i].Partitions {
			all[i].Partitions[j] = r.int32()
		}
		slices.Sort(all[i].Partitions)
	}
	if r.bad || version < 0 {
		return nil, fmt.Errorf("assignment of %d bytes: %w", len(b), errProtocolBytes)
	}
	return all, nil
}
