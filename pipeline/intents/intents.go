// Package intents is the pipeline's write path: an intent comes in by HTTP or
// gRPC, passes the rules of its application, and is committed to the ledger.
//
// # What it promises
//
// An accepted intent is durable when it is answered. An intent id commits once:
// a client that has heard nothing sends the intent again with the same id and
// gets the first answer. A rejection by the rules is an answer like any other
// (HTTP 200), leaves nothing behind, and may turn out otherwise the next time.
// Publishing is no part of a call: a broker that is slow or away changes neither
// its outcome nor its latency.
//
// # Life of an intent
//
//  1. It is read and checked: size, members, names, that the application knows its
//     type, and that the entity is the one that the payload names. Refusals are
//     errors (HTTP 4xx), not rejections.
//  2. It waits for the ledger; its rules run on the entity's state, alone
//     (package ledger says what a crash leaves at each step).
//  3. The commit is durable. The answer leaves. A crash before the client has it
//     is what the intent id is for.
//
// # What it does not do
//
// It knows no users: Authorize is the caller's. Expressions see no clock but the
// intent's own time (event.ts) and nothing random, so what the ledger holds
// explains every decision.
package intents

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/nearest"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/intents/request"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// Request is an intent as it comes in.
type Request = request.Request

// Options say how intents are taken. App and Ledger are required.
type Options struct {
	App    *spec.App
	Ledger *ledger.Ledger
	// Forks lists the forks that intents may name; none: the application's own only.
	Forks []string
	// Authorize returns why the caller may not submit this intent, of kind
	// lattice.Denied. The request's entity and fork are filled in. nil: all may.
	Authorize func(context.Context, Request) error
	// Now is the clock (default: the machine's).
	Now    func() time.Time
	Logger *slog.Logger
}

// Service takes the intents of one application. It is safe for concurrent use.
type Service struct {
	o                           Options
	types                       []string // for errors
	accepted, repeated, refused atomic.Int64
	rejected, failed            atomic.Int64
}

// Stats count intents since the service was made.
type Stats struct {
	Accepted int64 // committed
	Repeated int64 // of which there was a commit already
	Rejected int64 // by rules or an unexpected sequence number
	Refused  int64 // malformed, unknown, denied
	Failed   int64 // the ledger or the application failed
}

// New returns the service of an application.
func New(o Options) (*Service, error) {
	if o.App == nil || o.Ledger == nil {
		return nil, lattice.E(lattice.Invalid, errors.New("intents: App and Ledger are required"))
	}
	if len(o.Forks) == 0 {
		o.Forks = []string{o.App.Fork}
	}
	for _, f := range o.Forks {
		if err := errors.Join(event.CheckName("fork", f), event.CheckSchema(o.App.TenantSchema(f))); err != nil {
			return nil, fmt.Errorf("application %s: %w", o.App.Name, err)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{o: o, types: slices.Sorted(maps.Keys(o.App.Intents))}, nil
}

// Stats returns what was counted so far.
func (s *Service) Stats() Stats {
	return Stats{s.accepted.Load(), s.repeated.Load(), s.rejected.Load(), s.refused.Load(), s.failed.Load()}
}

// Submit decides an intent and commits what comes of it. An error of kind
// Unavailable means: send it again, with the same id.
func (s *Service) Submit(ctx context.Context, r Request) (ledger.Answer, error) {
	p, err := s.proposal(ctx, r)
	if err != nil {
		s.refused.Add(1)
		return ledger.Answer{}, err
	}
	a, err := s.o.Ledger.Commit(ctx, p)
	switch {
	case err != nil:
		s.count(err)
		return ledger.Answer{}, err
	case !a.Accepted():
		s.rejected.Add(1)
	case a.Repeated:
		s.repeated.Add(1)
	default:
		s.accepted.Add(1)
	}
	return a, nil
}

func (s *Service) count(err error) {
	switch lattice.KindOf(err) {
	case lattice.Internal, lattice.Unavailable, lattice.Storage, lattice.Corrupt:
		s.failed.Add(1)
	default:
		s.refused.Add(1)
	}
}

// proposal checks a request and makes of it what the ledger takes.
func (s *Service) proposal(ctx context.Context, r Request) (*ledger.Proposal, error) {
	if err := errors.Join(event.CheckID("intentId", r.IntentID), event.CheckName("intentType", r.IntentType)); err != nil {
		return nil, err
	}
	in := s.o.App.Intents[r.IntentType]
	if in == nil {
		err := fmt.Errorf("application %s has no intent %q", s.o.App.Name, r.IntentType)
		if n, ok := nearest.Name(r.IntentType, s.types); ok {
			err = fmt.Errorf("%w; did you mean %s?", err, n)
		}
		return nil, lattice.E(lattice.NotFound, err)
	}
	if r.ForkID == "" {
		r.ForkID = s.o.App.Fork
	}
	if !slices.Contains(s.o.Forks, r.ForkID) {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("this runtime serves no fork %q; it serves %q", r.ForkID, s.o.Forks))
	}
	if len(r.Payload) == 0 {
		r.Payload = json.RawMessage("{}")
	}
	if err := event.CheckPayload(r.Payload); err != nil {
		return nil, err
	}
	payload, err := spec.Payload(r.Payload)
	if err != nil {
		return nil, err
	}
	entity, err := in.Entity(payload)
	if err != nil {
		return nil, err
	}
	if r.EntityID != "" && r.EntityID != entity {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("entityId is %q, and the payload of %s is about %q: send that, or none", r.EntityID, in.Name, entity))
	}
	if r.StreamID != "" && r.StreamID != in.Stream && r.StreamID != in.State {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("streamId is %q, and %s is of stream %q: send that, or none", r.StreamID, in.Name, in.Stream))
	}
	r.EntityID, r.StreamID = entity, in.Stream
	if s.o.Authorize != nil {
		if err := s.o.Authorize(ctx, r); err != nil {
			return nil, fmt.Errorf("intent %s for %s in fork %s: %w", r.IntentType, entity, r.ForkID, err)
		}
	}
	return s.propose(r, in, payload)
}

// propose makes the proposal of a checked request.
func (s *Service) propose(r Request, in *spec.Intent, payload map[string]any) (*ledger.Proposal, error) {
	// Members in another order, or other space, are the same intent.
	same, err := json.Marshal(payload)
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("payload: %w", err))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %s", r.IntentType, r.StreamID, r.EntityID, same))
	p := &ledger.Proposal{
		Address:  ledger.Address{TenantSchema: s.o.App.TenantSchema(r.ForkID), ForkID: r.ForkID, Stream: r.StreamID, EntityID: r.EntityID},
		IntentID: r.IntentID, IntentType: r.IntentType, Fingerprint: base64.RawURLEncoding.EncodeToString(sum[:]),
		ExpectedSequence: r.ExpectedSequence, CorrelationID: r.CorrelationID, CausationID: r.CausationID,
		IRVersion: s.o.App.Version, TS: s.o.Now().UnixMilli(), Size: 4*len(r.Payload) + 1024,
	}
	p.Decide = func(e ledger.Entity, look ledger.Lookup) (ledger.Decision, error) {
		return s.decide(p, in, payload, e, look)
	}
	return p, nil
}

// decide runs the rules. The ledger calls it while it is locked.
func (s *Service) decide(p *ledger.Proposal, in *spec.Intent, payload map[string]any, e ledger.Entity, look ledger.Lookup) (ledger.Decision, error) {
	state, err := stateOf(e)
	if err != nil {
		return ledger.Decision{}, err
	}
	d, err := in.Decide(spec.Request{
		Payload: payload, EntityID: p.EntityID, State: state, TS: p.TS,
		Lookup: func(name, id string) (map[string]any, bool, error) {
			other := s.o.App.States[name]
			if other == nil {
				return nil, false, lattice.E(lattice.NotFound, fmt.Errorf("application %s has no state %q", s.o.App.Name, name))
			}
			a := p.Address
			a.Stream, a.EntityID = other.Stream, id
			e, err := look(a)
			if err != nil || e.State == nil {
				return nil, false, err
			}
			m, err := stateOf(e)
			return m, err == nil, err
		},
	})
	if err != nil {
		return ledger.Decision{}, err
	}
	if d.Rejection != nil {
		return ledger.Decision{Rejection: &ledger.Rejection{Code: d.Rejection.Code, Message: d.Rejection.Message}}, nil
	}
	var out ledger.Decision
	if len(d.Changes) > 0 {
		if out.State, err = json.Marshal(d.State); err != nil {
			return ledger.Decision{}, fmt.Errorf("the state of %s: %w", p.Address, err)
		}
	}
	for _, emitted := range d.Events {
		payload, err := json.Marshal(emitted.Payload)
		if err != nil {
			return ledger.Decision{}, fmt.Errorf("event %s: %w", emitted.Type, err)
		}
		out.Events = append(out.Events, ledger.NewEvent{EventType: emitted.Type, Stream: emitted.Stream, EntityID: emitted.EntityID, Payload: payload})
	}
	return out, nil
}

func stateOf(e ledger.Entity) (map[string]any, error) {
	if e.State == nil {
		return nil, nil
	}
	m, err := spec.Payload(e.State)
	if err != nil {
		return nil, lattice.E(lattice.Corrupt, fmt.Errorf("the entity's state in the ledger: %w", err))
	}
	return m, nil
}
