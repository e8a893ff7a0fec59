package intents

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/failure"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
	"github.com/lattice-log/lattice/proto/lattice/app/v1/appv1connect"
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
		return nil, failure.Connect(err, "send the intent again, with the same id")
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
