package intents

import (
	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/failure"
	pbv1 "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Mapped returns how an error travels.
func Mapped(err error) (int, pbv1.Kind, connect.Code) {
	kind, code, _ := failure.Wire(lattice.KindOf(err), "")
	return status(err), kind, code
}
