package browser

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
)

// Republish implements appv1connect.BrowserServiceHandler.
//
// All events are read and checked before the first is published. A crash, or a broker that
// goes away, may leave some published and not others: ask again, which does no harm.
func (s server) Republish(ctx context.Context, req *pb.BrowserServiceRepublishRequest) (*pb.BrowserServiceRepublishResponse, error) {
	if s.b.o.Republish == nil {
		return nil, lattice.E(lattice.Unsupported, errors.New("this browser reads only: it was started without Kafka"))
	}
	for what, text := range map[string]string{"actor": req.Actor, "reason": req.Reason} {
		if text == "" || len(text) > event.MaxID || !utf8.ValidString(text) {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("%s: say it, in 1 to %d bytes: it goes into the log", what, event.MaxID))
		}
	}
	events, err := s.chosen(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, lattice.E(lattice.NotFound, errors.New("there are no such events"))
	}
	out := &pb.BrowserServiceRepublishResponse{Events: int32(len(events)), First: events[0].Position, Last: events[len(events)-1].Position}
	err = s.b.o.Republish(ctx, events...)
	s.b.o.Logger.InfoContext(ctx, "events were published again by hand", "actor", req.Actor, "reason", req.Reason,
		"events", out.Events, "first", out.First, "last", out.Last, "error", err)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// chosen reads the events that a request means.
func (s server) chosen(ctx context.Context, req *pb.BrowserServiceRepublishRequest) ([]event.Event, error) {
	ways := 0
	for _, given := range []bool{len(req.Positions) > 0, req.Range != nil, req.Entity != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, lattice.E(lattice.Invalid, errors.New("which events? Give positions, range or entity, and one of them only"))
	}
	if req.Entity != nil {
		return s.ofEntity(ctx, req)
	}
	fork, schema, err := s.b.fork(req.ForkId)
	if err != nil {
		return nil, err
	}
	c := chosen{}
	if req.Range != nil {
		err = s.ofRange(ctx, req.Range, &c)
	} else {
		err = s.ofPositions(ctx, req.Positions, &c)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range c.events {
		if e.TenantSchema != schema || e.ForkID != fork {
			return nil, lattice.E(lattice.NotFound, fmt.Errorf("the event at position %d is not of fork %q", e.Position, fork))
		}
	}
	return c.events, nil
}

// chosen collects events, and refuses too many.
type chosen struct {
	events []event.Event
	size   int
}

func (c *chosen) add(events ...event.Event) error {
	for _, e := range events {
		c.size += len(e.Payload)
		if len(c.events) == maxAgain || c.size > maxAgainSize {
			return lattice.E(lattice.TooLarge, fmt.Errorf("more than %d events or %d bytes at once: ask for fewer, several times", maxAgain, maxAgainSize))
		}
		c.events = append(c.events, e)
	}
	return nil
}

func (s server) ofPositions(ctx context.Context, positions []int64, c *chosen) error {
	last := int64(0)
	for _, p := range positions {
		if p <= last {
			return lattice.E(lattice.Invalid, fmt.Errorf("position %d: want rising positions, from 1 on: events of an entity are published in their order", p))
		}
		last = p
		e, err := s.b.o.Ledger.At(ctx, p)
		if err != nil {
			return err
		}
		if err := c.add(e); err != nil {
			return err
		}
	}
	return nil
}

func (s server) ofRange(ctx context.Context, r *pb.PositionRange, c *chosen) error {
	if r.First < 1 || r.Last < r.First {
		return lattice.E(lattice.Invalid, fmt.Errorf("range %d to %d: want positions from 1 on, the first first", r.First, r.Last))
	}
	for at := r.First; at <= r.Last; {
		found, err := s.b.o.Ledger.Events(ctx, at-1, 16)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, e := range found {
			if at = e.Position + 1; e.Position > r.Last {
				break
			}
			if err := c.add(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s server) ofEntity(ctx context.Context, req *pb.BrowserServiceRepublishRequest) ([]event.Event, error) {
	a, err := s.b.address(req.Entity)
	if err != nil {
		return nil, err
	}
	if req.FirstSequence < 0 || req.LastSequence < 0 || req.LastSequence > 0 && req.LastSequence < req.FirstSequence {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("sequence numbers %d to %d: want the first first", req.FirstSequence, req.LastSequence))
	}
	c := chosen{}
	for after := max(req.FirstSequence, 1) - 1; ; {
		found, err := s.b.o.Ledger.History(ctx, a, after, 16)
		if err != nil || len(found) == 0 {
			return c.events, err
		}
		for _, e := range found {
			if req.LastSequence > 0 && e.SequenceNumber > req.LastSequence {
				return c.events, nil
			}
			if err := c.add(e); err != nil {
				return nil, err
			}
			after = e.SequenceNumber
		}
	}
}
