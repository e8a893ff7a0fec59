package reconcile

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Reason says why something was refused. The numbers are in messages.
type Reason uint8

// The reasons.
const (
	Closing     Reason = iota + 1 // the node stops, or needs the connection for another
	WrongStore                    // the peer speaks of another store
	WrongNode                     // the peer is not whom the connection was made with
	NoVersion                     // no version is spoken by both
	BadMessage                    // bytes that are no message, or one that must not come now
	TooMuch                       // more than the peer's budget, credit or share of logs
	Forged                        // a signature that does not match
	Malformed                     // bytes that are no entry
	Oversize                      // an entry larger than its version allows
	Foreign                       // an entry of another store, author or incarnation than was wanted
	Hole                          // entries before it are missing
	Rewritten                     // it does not follow what is here
	OutOfTime                     // it is not later than the one before it
	Stranger                      // its author is no member, as far as is known
	NotShown                      // what the peer says that it has does not come
	NotAsked                      // it was not wanted
	NotStored                     // the store cannot take it now
	NotEntitled                   // a statement by somebody without the right to it
	Unproven                      // a statement whose proof does not hold, or that needs one that is not here
	NotTaken                      // the store refuses it
)

var reasonNames = [...]string{
	"", "closing", "wrong store", "wrong node", "no common version", "bad message", "too much", "forged", "malformed", "oversize", "foreign",
	"hole", "rewritten", "out of time", "stranger", "not shown", "not asked", "not stored", "not entitled", "unproven", "not taken",
}

// String returns the reason in words.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Wrong reports whether only a peer that breaks the rules gives that reason. Others
// may come from the network, or from what is known where.
func (r Reason) Wrong() bool {
	switch r {
	case Forged, Malformed, Oversize, Foreign, Hole, OutOfTime, NotAsked, NotEntitled, Unproven:
		return true
	}
	return false
}

// reasonOf names what is wrong with an entry.
func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, identity.ErrSignature):
		return Forged
	case errors.Is(err, sigchain.ErrTooLarge):
		return Oversize
	case errors.Is(err, sigchain.ErrForeign):
		return Foreign
	case errors.Is(err, sigchain.ErrGap):
		return Hole
	case errors.Is(err, sigchain.ErrForked):
		return Rewritten
	case errors.Is(err, sigchain.ErrClock):
		return OutOfTime
	case errors.Is(err, sigchain.ErrMalformed), errors.Is(err, sigchain.ErrVersion):
		return Malformed
	}
	switch lattice.KindOf(err) {
	case lattice.Denied:
		return Stranger
	case lattice.Unavailable, lattice.Storage:
		return NotStored
	}
	return NotTaken
}
