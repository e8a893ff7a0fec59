package state

import (
	"encoding/binary"
	"fmt"
	"math"

	lattice "github.com/lattice-log/lattice"
)

// Score is the score of a sorted set's member, as a number that orders as the
// floating point number does: -inf first, +inf last, and one zero.
type Score uint64

// ScoreOf returns the score of f. NaN has no place in the order: Kind Invalid.
func ScoreOf(f float64) (Score, error) {
	if math.IsNaN(f) {
		return 0, lattice.E(lattice.Invalid, fmt.Errorf("a score that is not a number"))
	}
	if f == 0 {
		f = 0 // not minus zero
	}
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		return Score(^bits), nil
	}
	return Score(bits | 1<<63), nil
}

// Float returns the number.
func (s Score) Float() float64 {
	if s>>63 == 1 {
		return math.Float64frombits(uint64(s) &^ (1 << 63))
	}
	return math.Float64frombits(^uint64(s))
}

// Payload encodes s.
func (s Score) Payload() Payload {
	return Payload{Bytes: binary.BigEndian.AppendUint64(nil, uint64(s))}
}

// ParseScore reads the payload of a scored member. Wraps ErrMalformed.
func ParseScore(p Payload) (Score, error) {
	if p.Sum != nil || len(p.Bytes) != 8 {
		return 0, fmt.Errorf("%w: a score of %d bytes", ErrMalformed, len(p.Bytes))
	}
	s := Score(binary.BigEndian.Uint64(p.Bytes))
	if back, err := ScoreOf(s.Float()); err != nil || back != s {
		return 0, fmt.Errorf("%w: score %x", ErrMalformed, uint64(s))
	}
	return s, nil
}
