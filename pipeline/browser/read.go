package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/spec"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
)

// server is the browser as gRPC and Connect see it.
type server struct{ b *Browser }

// ListEvents implements appv1connect.BrowserServiceHandler.
func (s server) ListEvents(ctx context.Context, req *pb.BrowserServiceListEventsRequest) (*pb.BrowserServiceListEventsResponse, error) {
	q := ledger.Query{EntityID: req.EntityId, EventType: req.EventType, Since: req.Since, Until: req.Until}
	limit, err := page(req.Limit)
	if err != nil {
		return nil, err
	}
	if q.ForkID, q.TenantSchema, err = s.b.fork(req.ForkId); err != nil {
		return nil, err
	}
	if req.Stream != "" {
		if q.Stream, err = s.b.stream(req.Stream); err != nil {
			return nil, err
		}
	}
	if req.After < 0 || req.Since < 0 || req.Until < 0 {
		return nil, lattice.E(lattice.Invalid, errors.New("after, since and until: want 0 or more"))
	}
	if req.EventType != "" && s.b.o.App.Events[req.EventType] == nil && req.EventType != ledger.StatePatch {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("the application has no event %q", req.EventType))
	}
	head, err := s.b.o.Ledger.Head(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.BrowserServiceListEventsResponse{Next: req.After, Head: head}
	// In small steps: events can be large, and the page is full then.
	for size := 0; len(out.Events) < limit; {
		want := min(limit-len(out.Events), 16)
		found, next, err := s.b.o.Ledger.Find(ctx, q, out.Next, want)
		if err != nil {
			return nil, err
		}
		var full bool
		if out.Events, full = fill(out.Events, found, &size); full {
			out.Next = out.Events[len(out.Events)-1].Position
			break
		}
		if out.Next = next; len(found) < want {
			break
		}
	}
	return out, nil
}

// fill adds events to a page until it is full.
func fill(to []*pb.LedgerEvent, found []event.Event, size *int) ([]*pb.LedgerEvent, bool) {
	for i := range found {
		to = append(to, message(&found[i]))
		if *size += len(found[i].Payload) + 512; *size > maxPageBytes {
			return to, true
		}
	}
	return to, false
}

func message(e *event.Event) *pb.LedgerEvent {
	return &pb.LedgerEvent{
		Position: e.Position, EventType: e.EventType, ForkId: e.ForkID, TenantSchema: e.TenantSchema, Stream: e.Stream, EntityId: e.EntityID,
		SequenceNumber: e.SequenceNumber, IrVersion: e.IRVersion, Ts: e.TS, Payload: string(e.Payload),
		IntentId: e.IntentID, IntentType: e.IntentType, CorrelationId: e.CorrelationID, CausationId: e.CausationID,
	}
}

// History implements appv1connect.BrowserServiceHandler.
func (s server) History(ctx context.Context, req *pb.BrowserServiceHistoryRequest) (*pb.BrowserServiceHistoryResponse, error) {
	a, err := s.b.address(req.Entity)
	if err != nil {
		return nil, err
	}
	limit, err := page(req.Limit)
	if err != nil {
		return nil, err
	}
	if err := s.b.await(ctx, a, req.AtLeast, req.WaitMs); err != nil {
		return nil, err
	}
	e, err := s.b.o.Ledger.Entity(ctx, a)
	if err != nil {
		return nil, err
	}
	out := &pb.BrowserServiceHistoryResponse{Next: req.After, Last: e.Sequence}
	for size := 0; len(out.Events) < limit; {
		want := min(limit-len(out.Events), 16)
		found, err := s.b.o.Ledger.History(ctx, a, out.Next, want)
		if err != nil {
			return nil, err
		}
		var full bool
		out.Events, full = fill(out.Events, found, &size)
		if n := len(out.Events); n > 0 {
			out.Next = out.Events[n-1].SequenceNumber
		}
		if full || len(found) < want {
			break
		}
	}
	return out, nil
}

// State implements appv1connect.BrowserServiceHandler.
func (s server) State(ctx context.Context, req *pb.BrowserServiceStateRequest) (*pb.BrowserServiceStateResponse, error) {
	a, err := s.b.address(req.Entity)
	if err != nil {
		return nil, err
	}
	if err := s.b.await(ctx, a, req.AtLeast, req.WaitMs); err != nil {
		return nil, err
	}
	var e ledger.Entity
	if req.Sequence == nil {
		e, err = s.b.o.Ledger.Entity(ctx, a)
	} else {
		e, err = s.b.o.Ledger.EntityAt(ctx, a, *req.Sequence)
	}
	if err != nil {
		return nil, err
	}
	return &pb.BrowserServiceStateResponse{Sequence: e.Sequence, State: string(e.State)}, nil
}

// ListRows implements appv1connect.BrowserServiceHandler.
func (s server) ListRows(ctx context.Context, req *pb.BrowserServiceListRowsRequest) (*pb.BrowserServiceListRowsResponse, error) {
	limit, err := page(req.Limit)
	if err != nil {
		return nil, err
	}
	_, schema, err := s.b.fork(req.ForkId)
	if err != nil {
		return nil, err
	}
	key, err := object("key", req.Key)
	if err != nil {
		return nil, err
	}
	after, err := object("after", req.After)
	if err != nil {
		return nil, err
	}
	if err := s.awaitRows(ctx, req); err != nil {
		return nil, err
	}
	out := &pb.BrowserServiceListRowsResponse{}
	for size := 0; len(out.Rows) < limit; {
		want := min(limit-len(out.Rows), 16)
		found, err := s.b.o.Store.List(ctx, req.Projection, schema, key, after, want)
		if err != nil {
			return nil, err
		}
		out.Next = ""
		for _, r := range found {
			out.Rows = append(out.Rows, &pb.ProjectionRow{Key: string(r.Key), Row: string(r.Row), Cursor: r.Cursor})
			if size += len(r.Row) + len(r.Key); size > maxPageBytes {
				out.Next = string(r.Key)
				return out, nil
			}
		}
		if len(found) < want {
			break
		}
		out.Next = string(found[want-1].Key)
		if after, err = object("key", out.Next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// awaitRows waits until the projection has what the request wants at least.
func (s server) awaitRows(ctx context.Context, req *pb.BrowserServiceListRowsRequest) error {
	if req.AtLeast <= 0 {
		return nil
	}
	a, err := s.b.address(req.Entity)
	if err != nil {
		return err
	}
	soon, cancel, err := patience(ctx, req.WaitMs)
	if err != nil {
		return err
	}
	defer cancel()
	// The ledger first: of an event that it does not have the projection knows nothing, and
	// would not be waited for.
	if err := s.b.await(ctx, a, req.AtLeast, req.WaitMs); err != nil {
		return err
	}
	err = s.b.o.Store.Await(soon, req.Projection, a, req.AtLeast)
	if soon.Err() != nil && ctx.Err() == nil && !errors.Is(err, projection.ErrBehind) && err != nil {
		err = fmt.Errorf("%s: %w", req.Projection, projection.ErrBehind)
	}
	return err
}

// object reads a JSON object; empty text is none.
func object(what, text string) (map[string]any, error) {
	if text == "" {
		return nil, nil
	}
	m, err := spec.Payload(json.RawMessage(text))
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("%s: want a JSON object of columns: %w", what, err))
	}
	return m, nil
}
