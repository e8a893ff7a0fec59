package api

import (
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// wire is how a kind travels.
type wire struct {
	kind pb.Kind
	code connect.Code
	hint string // unless the error brings a better one
}

// wireOf maps each kind once.
func wireOf(k lattice.Kind) (wire, bool) {
	switch k {
	case lattice.Internal:
		return wire{pb.Kind_KIND_INTERNAL, connect.CodeInternal, "this is a defect: please report it, with the node's log"}, true
	case lattice.Invalid:
		return wire{pb.Kind_KIND_INVALID, connect.CodeInvalidArgument, ""}, true
	case lattice.NotFound:
		return wire{pb.Kind_KIND_NOT_FOUND, connect.CodeNotFound, ""}, true
	case lattice.Exists:
		return wire{pb.Kind_KIND_EXISTS, connect.CodeAlreadyExists, "choose another name, or use the one that is there"}, true
	case lattice.Unavailable:
		return wire{pb.Kind_KIND_UNAVAILABLE, connect.CodeUnavailable, "try again"}, true
	case lattice.NotLeader:
		return wire{pb.Kind_KIND_NOT_LEADER, connect.CodeFailedPrecondition, "send it to the partition's leader, see lattice topic describe"}, true
	case lattice.Fenced:
		return wire{pb.Kind_KIND_FENCED, connect.CodeAborted, "start over with a fresh producer or group member"}, true
	case lattice.OutOfRange:
		return wire{pb.Kind_KIND_OUT_OF_RANGE, connect.CodeOutOfRange, "use an offset between start and end, see lattice topic describe"}, true
	case lattice.NotYet:
		return wire{pb.Kind_KIND_NOT_YET, connect.CodeOutOfRange, "use an offset between start and end, see lattice topic describe, or wait"}, true
	case lattice.Diverged:
		return wire{pb.Kind_KIND_DIVERGED, connect.CodeAborted, "read again from a known offset"}, true
	case lattice.TooLarge:
		return wire{pb.Kind_KIND_TOO_LARGE, connect.CodeResourceExhausted, "send less at once, or raise the limit that the message names"}, true
	case lattice.Storage:
		return wire{pb.Kind_KIND_STORAGE, connect.CodeUnavailable, "make room on the node's disk; reads go on meanwhile"}, true
	case lattice.Corrupt:
		return wire{pb.Kind_KIND_CORRUPT, connect.CodeDataLoss, "check the node's data with lattice verify --data DIR"}, true
	case lattice.Denied:
		return wire{pb.Kind_KIND_DENIED, connect.CodePermissionDenied, ""}, true
	case lattice.Conflict:
		return wire{pb.Kind_KIND_CONFLICT, connect.CodeFailedPrecondition, ""}, true
	case lattice.Unsupported:
		return wire{pb.Kind_KIND_UNSUPPORTED, connect.CodeUnimplemented, ""}, true
	}
	return wire{pb.Kind_KIND_INTERNAL, connect.CodeInternal, ""}, false
}

// hintError is an error with a way out.
type hintError struct {
	error
	hint string
}

func (h *hintError) Unwrap() error { return h.error }

func hinted(err error, hint string) error { return &hintError{err, hint} }

// detail describes an error for the wire.
func detail(err error) (*pb.Failure, connect.Code) {
	w, _ := wireOf(lattice.KindOf(err))
	f := &pb.Failure{Kind: w.kind, Message: err.Error(), Hint: w.hint}
	var h *hintError
	if errors.As(err, &h) {
		f.Hint = h.hint
	}
	return f, w.code
}

// failure turns an error into what Connect sends.
func failure(err error) *connect.Error {
	var ce *connect.Error
	switch {
	case errors.As(err, &ce):
		return ce // Connect's own: a broken message, a caller that went away
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	f, code := detail(err)
	ce = connect.NewError(code, err)
	if d, err := connect.NewErrorDetail(f); err == nil {
		ce.AddDetail(d)
	}
	return ce
}

// failures is the interceptor that every call's error passes.
type failures struct{ logger *slog.Logger }

func (f failures) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, f.out(ctx, req.Spec(), err)
	}
}

func (failures) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (f failures) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return f.out(ctx, conn.Spec(), next(ctx, conn))
	}
}

func (f failures) out(ctx context.Context, spec connect.Spec, err error) error {
	if err == nil {
		return nil
	}
	ce := failure(err)
	level := slog.LevelDebug
	switch ce.Code() {
	case connect.CodeInternal, connect.CodeDataLoss, connect.CodeUnknown:
		level = slog.LevelError
	}
	f.logger.Log(ctx, level, "api call failed", "procedure", spec.Procedure, "code", ce.Code().String(), "error", err)
	return ce
}
