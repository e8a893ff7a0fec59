// Package failure says how the errors of the pipeline's services travel over gRPC and
// Connect: each kind as a code, with a lattice.v1.Failure beside it.
package failure

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	pbv1 "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Connect turns an error into what Connect sends. again is the advice for an error that
// passes.
func Connect(err error, again string) *connect.Error {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	kind, code, hint := Wire(lattice.KindOf(err), again)
	ce := connect.NewError(code, err)
	if d, err := connect.NewErrorDetail(&pbv1.Failure{Kind: kind, Message: ce.Message(), Hint: hint}); err == nil {
		ce.AddDetail(d)
	}
	return ce
}

// Wire maps each kind to how it travels, with a hint.
func Wire(k lattice.Kind, again string) (pbv1.Kind, connect.Code, string) {
	switch k {
	case lattice.Invalid:
		return pbv1.Kind_KIND_INVALID, connect.CodeInvalidArgument, ""
	case lattice.NotFound:
		return pbv1.Kind_KIND_NOT_FOUND, connect.CodeNotFound, ""
	case lattice.Exists:
		return pbv1.Kind_KIND_EXISTS, connect.CodeAlreadyExists, ""
	case lattice.Unavailable:
		return pbv1.Kind_KIND_UNAVAILABLE, connect.CodeUnavailable, again
	case lattice.NotLeader:
		return pbv1.Kind_KIND_NOT_LEADER, connect.CodeUnavailable, again
	case lattice.Fenced:
		return pbv1.Kind_KIND_FENCED, connect.CodeAborted, ""
	case lattice.OutOfRange:
		return pbv1.Kind_KIND_OUT_OF_RANGE, connect.CodeOutOfRange, ""
	case lattice.NotYet:
		return pbv1.Kind_KIND_NOT_YET, connect.CodeOutOfRange, ""
	case lattice.Diverged:
		return pbv1.Kind_KIND_DIVERGED, connect.CodeAborted, ""
	case lattice.TooLarge:
		return pbv1.Kind_KIND_TOO_LARGE, connect.CodeResourceExhausted, "send less at once"
	case lattice.Storage:
		return pbv1.Kind_KIND_STORAGE, connect.CodeUnavailable, "make room on the database's disk"
	case lattice.Corrupt:
		return pbv1.Kind_KIND_CORRUPT, connect.CodeDataLoss, ""
	case lattice.Denied:
		return pbv1.Kind_KIND_DENIED, connect.CodePermissionDenied, ""
	case lattice.Conflict:
		return pbv1.Kind_KIND_CONFLICT, connect.CodeFailedPrecondition, ""
	case lattice.Unsupported:
		return pbv1.Kind_KIND_UNSUPPORTED, connect.CodeUnimplemented, ""
	}
	return pbv1.Kind_KIND_INTERNAL, connect.CodeInternal, "this is a defect: please report it, with the log"
}
