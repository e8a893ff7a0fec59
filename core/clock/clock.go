// Package clock is hybrid logical time: timestamps that follow the wall clock
// when it moves and count when it does not, so that what happens later on a node,
// or after something that the node has seen, has the greater timestamp.
//
// A timestamp is a uint64: 48 bits of milliseconds since 1970 and 16 bits of
// counter, so it orders as a number and is good until the year 10889.
//
//	63             16 15       0
//	+----------------+---------+
//	| ms since 1970  | counter |
//	+----------------+---------+
//
// When 65,536 timestamps fall in one millisecond the counter carries into the
// next one: time runs ahead of the wall clock, and never back.
//
// # Across restarts
//
// A Clock issues timestamps below Bound only. The caller of Tick must
//
//  1. when Tick reports ErrBound, Reserve a later bound,
//  2. make that bound durable, then
//  3. Extend the clock to it, and tick again.
//
// After a restart Resume starts at the durable bound, so that no timestamp is
// issued twice, whatever the wall clock says. Extending before the bound is
// durable would let a crash issue timestamps twice.
//
// # A wrong clock elsewhere
//
// Observe never follows a timestamp that is further ahead of the local wall
// clock than max drift: Held reports it, and the entry that carries it waits. A
// timestamp in the past is fine.
package clock

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

const (
	counterBits = 16
	// MaxMilli is the latest millisecond that a timestamp can hold.
	MaxMilli int64 = 1<<(64-counterBits) - 1
	// MaxTimestamp is the last timestamp.
	MaxTimestamp Timestamp = 1<<64 - 1
)

var (
	// ErrBound means that the next timestamp lies at or beyond the bound that was
	// reserved: reserve, persist, extend. Kind Unavailable.
	ErrBound = lattice.E(lattice.Unavailable, errors.New("clock: no reserved timestamp is left"))
	// ErrDrift means that this node's next timestamp would itself be held: the
	// wall clock was set back by more than max drift. Kind Conflict.
	ErrDrift = lattice.E(lattice.Conflict, errors.New("clock: ahead of the wall clock by more than the allowed drift"))
	// ErrExhausted means that there is no later timestamp. Kind Conflict.
	ErrExhausted = lattice.E(lattice.Conflict, errors.New("clock: no later timestamp exists"))
)

// Timestamp is a hybrid logical timestamp. See the package comment.
type Timestamp uint64

// At returns the timestamp of a millisecond and counter. A millisecond before
// 1970 counts as 1970, one after MaxMilli as MaxMilli.
func At(ms int64, counter uint16) Timestamp {
	return Timestamp(clamp(ms))<<counterBits | Timestamp(counter)
}

// Milli returns the milliseconds since 1970.
func (t Timestamp) Milli() int64 { return int64(t >> counterBits) }

// Counter returns the counter within the millisecond.
func (t Timestamp) Counter() uint16 { return uint16(t) }

// String returns "milliseconds.counter".
func (t Timestamp) String() string { return fmt.Sprintf("%d.%d", t.Milli(), t.Counter()) }

func clamp(ms int64) int64 { return min(max(ms, 0), MaxMilli) }

// Held reports whether t is further ahead of the wall clock nowMs than maxDriftMs.
func Held(t Timestamp, nowMs, maxDriftMs int64) bool {
	return t.Milli()-clamp(nowMs) > maxDriftMs
}

// Clock issues timestamps. It is a value: a copy is another clock. Not safe for
// concurrent use. The zero Clock has nothing reserved: the first Tick says so.
type Clock struct {
	// Last is the greatest timestamp issued or observed. Invariant: every
	// timestamp issued from now on is greater.
	Last Timestamp
	// Bound is durable: timestamps below it may be issued. Invariant: after a
	// restart Last is at least Bound-1.
	Bound Timestamp
}

// Resume returns the clock of a node that had made bound durable before it
// stopped: all it issues is at or above bound.
func Resume(bound Timestamp) Clock {
	if bound == 0 {
		return Clock{}
	}
	return Clock{Last: bound - 1, Bound: bound}
}

// Tick issues the next timestamp: that of the wall clock nowMs, in milliseconds
// since 1970, or the one after Last when that is greater. With a maxDriftMs >= 0
// it refuses one that others would hold, by ErrDrift. Other errors: ErrBound,
// ErrExhausted. On an error the clock is as before.
func (c *Clock) Tick(nowMs, maxDriftMs int64) (Timestamp, error) {
	t, err := c.next(nowMs)
	switch {
	case err != nil:
		return 0, err
	case maxDriftMs >= 0 && Held(t, nowMs, maxDriftMs):
		return 0, fmt.Errorf("%w: %d ms", ErrDrift, t.Milli()-clamp(nowMs))
	case t >= c.Bound:
		return 0, ErrBound
	}
	c.Last = t
	return t, nil
}

func (c *Clock) next(nowMs int64) (Timestamp, error) {
	if c.Last == MaxTimestamp {
		return 0, ErrExhausted
	}
	return max(At(nowMs, 0), c.Last+1), nil
}

// Reserve returns the bound to make durable now: aheadMs milliseconds beyond the
// next timestamp, so that the next bound is needed that much later.
func (c *Clock) Reserve(nowMs, aheadMs int64) (Timestamp, error) {
	t, err := c.next(nowMs)
	if err != nil {
		return 0, err
	}
	ahead := Timestamp(clamp(max(aheadMs, 1))) << counterBits
	if t > MaxTimestamp-ahead {
		return MaxTimestamp, nil
	}
	return t + ahead, nil
}

// Extend lets the clock issue timestamps below bound, which must be durable. A
// lower bound than before changes nothing.
func (c *Clock) Extend(bound Timestamp) { c.Bound = max(c.Bound, bound) }

// Observe makes all later timestamps greater than t, and reports true; unless t
// is Held, which changes nothing, and reports false.
func (c *Clock) Observe(t Timestamp, nowMs, maxDriftMs int64) bool {
	if Held(t, nowMs, maxDriftMs) {
		return false
	}
	c.Last = max(c.Last, t)
	return true
}
