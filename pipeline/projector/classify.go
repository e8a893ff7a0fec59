package projector

import (
	"errors"

	lattice "github.com/lattice-log/lattice"
)

// ErrFenced is the error of a transaction that found another owner in its guard.
var ErrFenced = lattice.E(lattice.Fenced, errors.New("another instance owns this partition"))

// Classify says what can be done about an error of applying an event. Databases' errors
// have their kinds from pipeline/sqldb, those of expressions and values from pipeline/spec.
// What nobody classified is taken for the event's fault: it is tried again and then
// buried, and a defect of ours that fails every event pauses the lane as a flood.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	switch lattice.KindOf(err) {
	case lattice.Unavailable, lattice.Storage, lattice.NotLeader, lattice.NotYet:
		return Transient
	case lattice.Fenced:
		return Fenced
	case lattice.Unsupported, lattice.Denied:
		return Schema
	}
	return Data
}
