package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/internal/tick"
)

// stamps gives out hybrid timestamps, each greater than any before, also over
// restarts: how far the clock may go is durable before it goes there.
type stamps struct {
	wall tick.Clock
	cat  clockBounds

	mu sync.Mutex
	c  clock.Clock
}

// clockBounds keep how far the hybrid clock may go.
type clockBounds interface {
	ClockBound() (uint64, error)
	PutClockBound(bound uint64) error
}

const (
	// stampsAhead is how much of the clock is reserved at a time, and so how far
	// ahead of the wall clock a start finds itself: much less than the drift at which
	// everybody, this node too, refuses an entry.
	stampsAhead = 10 * time.Second
	// stampsMore is what is reserved while the clock is ahead of the wall clock
	// already. Each start would else add its stampsAhead to that of the one before.
	stampsMore = 10 * time.Millisecond
)

func newStamps(wall tick.Clock, cat clockBounds, last uint64) (*stamps, error) {
	bound, err := cat.ClockBound()
	if err != nil {
		return nil, fmt.Errorf("hybrid clock: %w", err)
	}
	s := &stamps{wall: wall, cat: cat, c: clock.Resume(clock.Timestamp(bound))}
	s.c.Last = max(s.c.Last, clock.Timestamp(last))
	return s, nil
}

func (s *stamps) next() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.wall.Now().UnixMilli()
	t, err := s.c.Tick(now, -1)
	if errors.Is(err, clock.ErrBound) {
		ahead := stampsAhead
		if s.c.Last.Milli() > now {
			ahead = stampsMore
		}
		bound, rerr := s.c.Reserve(now, ahead.Milliseconds())
		if rerr != nil {
			return 0, rerr
		}
		if err := s.cat.PutClockBound(uint64(bound)); err != nil {
			return 0, fmt.Errorf("reserve timestamps: %w", err)
		}
		s.c.Extend(bound)
		t, err = s.c.Tick(now, -1)
	}
	return uint64(t), err
}

// observe makes all later timestamps greater than t. Whether to believe t is
// decided before.
func (s *stamps) observe(t uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.Last = max(s.c.Last, clock.Timestamp(t))
}

// newIncarnation numbers a start of this node: 48 bits of milliseconds, 16 of
// chance, above the one before. Two copies of one directory that start at once
// do not get the same number, which a counter would give them.
func newIncarnation(wall tick.Clock, random io.Reader, before uint64) (uint64, error) {
	var r [2]byte
	if _, err := io.ReadFull(random, r[:]); err != nil {
		return 0, fmt.Errorf("new incarnation: %w", err)
	}
	n := uint64(wall.Now().UnixMilli())<<16 | uint64(binary.BigEndian.Uint16(r[:]))
	if n <= before { // the clock was put back
		n = before + 1 + uint64(binary.BigEndian.Uint16(r[:]))
	}
	return n, nil
}

// kafkaNodeID derives a Kafka node id from a key: positive, so that clients take
// it for a broker, and the same wherever the node turns up.
func kafkaNodeID(id lattice.NodeID) int32 {
	h := sha256.Sum256(append([]byte("lattice/kafka-node-id/v1\x00"), id[:]...))
	return int32(binary.BigEndian.Uint32(h[:])%(math.MaxInt32-1)) + 1
}

// KafkaNodeIDOf returns the node id by which Kafka clients know a node of the store:
// this one's is in Info, the others' are derived from their keys.
func (s *Store) KafkaNodeIDOf(id lattice.NodeID) int32 {
	if id == s.info.Node {
		return s.info.KafkaNodeID
	}
	return kafkaNodeID(id)
}

// producerBits is how many low bits of a producer id count up; the others are of
// the hash of key and incarnation, so that nodes that never met give different
// ids.
const producerBits = 24

// producerIDs is how many ids are taken at a time.
const producerIDs = 1000

// producerID makes the id that number n of this node stands for.
func (s *Store) producerID(n uint64) int64 {
	h := sha256.New()
	h.Write([]byte("lattice/producer-id/v1\x00"))
	h.Write(s.info.Node[:])
	var inc [16]byte
	binary.BigEndian.PutUint64(inc[:], s.info.Incarnation)
	binary.BigEndian.PutUint64(inc[8:], n>>producerBits)
	h.Write(inc[:])
	high := binary.BigEndian.Uint64(h.Sum(nil)) >> (producerBits + 1) // 39 bits: the id stays positive
	return int64(high<<producerBits | n&(1<<producerBits-1))
}

// NewProducerID returns an id that this node has never given and no other node
// is likely to.
func (s *Store) NewProducerID(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.pidMu.Lock()
	defer s.pidMu.Unlock()
	if s.nextPID == s.endPID {
		first, err := s.cat.Reserve(producerIDs)
		if err != nil {
			return 0, err
		}
		s.nextPID, s.endPID = first, first+producerIDs
	}
	n := s.nextPID
	s.nextPID++
	return s.producerID(n), nil
}
