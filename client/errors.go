package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Error is a failed call. Its kind is found with lattice.KindOf.
type Error struct {
	// Message names the thing and the reason.
	Message string
	// Hint says what to do next; it may be empty.
	Hint  string
	cause error
}

// Error returns the message, without the hint.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what was behind it, such as context.Canceled.
func (e *Error) Unwrap() error { return e.cause }

// Hint returns the hint of the outermost *Error in err's chain, or "".
func Hint(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

// kindOf maps the wire's kinds to ours.
func kindOf(k pb.Kind) lattice.Kind {
	switch k {
	case pb.Kind_KIND_INVALID:
		return lattice.Invalid
	case pb.Kind_KIND_NOT_FOUND:
		return lattice.NotFound
	case pb.Kind_KIND_EXISTS:
		return lattice.Exists
	case pb.Kind_KIND_UNAVAILABLE:
		return lattice.Unavailable
	case pb.Kind_KIND_NOT_LEADER:
		return lattice.NotLeader
	case pb.Kind_KIND_FENCED:
		return lattice.Fenced
	case pb.Kind_KIND_OUT_OF_RANGE:
		return lattice.OutOfRange
	case pb.Kind_KIND_NOT_YET:
		return lattice.NotYet
	case pb.Kind_KIND_DIVERGED:
		return lattice.Diverged
	case pb.Kind_KIND_TOO_LARGE:
		return lattice.TooLarge
	case pb.Kind_KIND_STORAGE:
		return lattice.Storage
	case pb.Kind_KIND_CORRUPT:
		return lattice.Corrupt
	case pb.Kind_KIND_DENIED:
		return lattice.Denied
	case pb.Kind_KIND_CONFLICT:
		return lattice.Conflict
	case pb.Kind_KIND_UNSUPPORTED:
		return lattice.Unsupported
	default:
		return lattice.Internal
	}
}

// kindOfCode serves for errors that come from something between us and the
// node, such as a proxy, and so carry no detail.
func kindOfCode(code connect.Code) lattice.Kind {
	switch code {
	case connect.CodeInvalidArgument:
		return lattice.Invalid
	case connect.CodeNotFound:
		return lattice.NotFound
	case connect.CodeAlreadyExists:
		return lattice.Exists
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return lattice.Unavailable
	case connect.CodeAborted:
		return lattice.Fenced
	case connect.CodeOutOfRange:
		return lattice.OutOfRange
	case connect.CodeResourceExhausted:
		return lattice.TooLarge
	case connect.CodeDataLoss:
		return lattice.Corrupt
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return lattice.Denied
	case connect.CodeFailedPrecondition:
		return lattice.Conflict
	case connect.CodeUnimplemented:
		return lattice.Unsupported
	default:
		return lattice.Internal
	}
}

// refused turns the detail of a failed call into an error.
func refused(f *pb.Failure, cause error) error {
	return lattice.E(kindOf(f.Kind), &Error{Message: f.Message, Hint: f.Hint, cause: cause})
}

// failure turns any error of a call into one with a kind and a hint.
func (c *Client) failure(err error) error {
	var ce *connect.Error
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return err
	case !errors.As(err, &ce):
		return err
	}
	for _, d := range ce.Details() {
		if v, valueErr := d.Value(); valueErr == nil {
			if f, ok := v.(*pb.Failure); ok {
				return refused(f, nil)
			}
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return lattice.E(lattice.Unavailable, &Error{Message: "the call was cancelled", cause: context.Canceled})
	case ce.Code() == connect.CodeDeadlineExceeded:
		return lattice.E(lattice.Unavailable, &Error{Message: "no answer in time", Hint: "try again, or give it more time", cause: context.DeadlineExceeded})
	case unreachable(err) && c.dataDir != "":
		return noNode(c.dataDir, err)
	case unreachable(err):
		return lattice.E(lattice.Unavailable, &Error{
			Message: fmt.Sprintf("no node answers at %s: %s", c.where, ce.Message()),
			Hint:    "check the address, or start a node with lattice up",
			cause:   err,
		})
	case broken(ce):
		return lattice.E(lattice.Unavailable, &Error{Message: "the connection to the node broke: " + ce.Message(), Hint: "try again", cause: err})
	}
	return lattice.E(kindOfCode(ce.Code()), &Error{Message: ce.Message(), cause: err})
}

// broken reports that the connection ended in the middle: the node did not send
// this error, and it is none that another try would meet again.
func broken(ce *connect.Error) bool {
	if connect.IsWireError(ce) {
		return ce.Code() == connect.CodeCanceled // it stopped
	}
	switch ce.Code() {
	case connect.CodeResourceExhausted, connect.CodeUnimplemented, connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return false
	}
	return true
}

// unreachable reports that nobody listens there.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// failures is the interceptor that turns each call's error into ours.
type failures struct{ c *Client }

func (f failures) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, f.c.failure(err)
	}
}

// Streams report errors on each operation; their users call failure themselves.
func (failures) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (failures) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
