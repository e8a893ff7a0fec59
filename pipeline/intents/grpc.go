package intents

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
	"github.com/lattice-log/lattice/proto/lattice/app/v1/appv1connect"
	pbv1 "github.com/lattice-log/lattice/proto/lattice/v1"
)

// server is the service as gRPC and Connect see it.
type server struct{ s *Service }

// connect returns the path and the handler of lattice.app.v1.IntentService.
func (s *Service) connect() (string, http.Handler) {
	return appv1connect.NewIntentServiceHandler(server{s}, connect.WithReadMaxBytes(maxBody))
}

// Submit implements appv1connect.IntentServiceHandler.
func (v server) Submit(ctx context.Context, req *pb.IntentServiceSubmitRequest) (*pb.IntentServiceSubmitResponse, error) {
	r := Request{
		IntentID: req.IntentId, IntentType: req.IntentType, StreamID: req.StreamId, EntityID: req.EntityId, ForkID: req.ForkId,
		Payload: req.Payload, ExpectedSequence: req.ExpectedSequence, CorrelationID: req.CorrelationId, CausationID: req.CausationId,
	}
	a, err := v.s.Submit(ctx, r)
	if err != nil {
		v.s.report(ctx, r, err)
		return nil, failure(err)
	}
	out := &pb.IntentServiceSubmitResponse{Accepted: a.Accepted(), Cursor: a.Cursor, Repeated: a.Repeated}
	if !a.Accepted() {
		out.RejectionCode, out.RejectionMessage = a.Rejection.Code, a.Rejection.Message
	}
	for _, e := range a.Events {
		out.Events = append(out.Events, &pb.CommittedEvent{EventType: e.EventType, SequenceNumber: e.SequenceNumber, Stream: e.Stream, EntityId: e.EntityID})
	}
	return out, nil
}

// report logs what the operator should know; a client's mistake is not news.
func (s *Service) report(ctx context.Context, r Request, err error) {
	level := slog.LevelDebug
	switch lattice.KindOf(err) {
	case lattice.Internal, lattice.Corrupt, lattice.Storage:
		level = slog.LevelError
	case lattice.Unavailable:
		level = slog.LevelWarn
	}
	s.o.Logger.Log(ctx, level, "an intent failed", "intent_type", r.IntentType, "intent", r.IntentID, "error", err)
}

// failure turns an error into what Connect sends.
func failure(err error) *connect.Error {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	kind, code, hint := wire(lattice.KindOf(err))
	ce := connect.NewError(code, err)
	if d, err := connect.NewErrorDetail(&pbv1.Failure{Kind: kind, Message: ce.Message(), Hint: hint}); err == nil {
		ce.AddDetail(d)
	}
	return ce
}

// wire maps each kind to how it travels.
func wire(k lattice.Kind) (pbv1.Kind, connect.Code, string) {
	switch k {
	case lattice.Invalid:
		return pbv1.Kind_KIND_INVALID, connect.CodeInvalidArgument, ""
	case lattice.NotFound:
		return pbv1.Kind_KIND_NOT_FOUND, connect.CodeNotFound, ""
	case lattice.Exists:
		return pbv1.Kind_KIND_EXISTS, connect.CodeAlreadyExists, ""
	case lattice.Unavailable:
		return pbv1.Kind_KIND_UNAVAILABLE, connect.CodeUnavailable, "send the intent again, with the same id"
	case lattice.NotLeader:
		return pbv1.Kind_KIND_NOT_LEADER, connect.CodeUnavailable, "send the intent again, with the same id"
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
		return pbv1.Kind_KIND_STORAGE, connect.CodeUnavailable, "make room on the ledger's disk"
	case lattice.Corrupt:
		return pbv1.Kind_KIND_CORRUPT, connect.CodeDataLoss, ""
	case lattice.Denied:
		return pbv1.Kind_KIND_DENIED, connect.CodePermissionDenied, ""
	case lattice.Conflict:
		return pbv1.Kind_KIND_CONFLICT, connect.CodeFailedPrecondition, "give each intent an id of its own"
	case lattice.Unsupported:
		return pbv1.Kind_KIND_UNSUPPORTED, connect.CodeUnimplemented, ""
	}
	return pbv1.Kind_KIND_INTERNAL, connect.CodeInternal, "this is a defect: please report it, with the runtime's log"
}
