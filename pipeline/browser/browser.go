// Package browser looks into an application: its ledger, the history and the state of
// entities, the rows of projections. And it publishes chosen events of the ledger again.
//
// # What it promises
//
// It writes nothing but what Republish puts on the topics, which is what they had already:
// projectors pass over an event that they have applied (the guard in projection), so that it
// can be repeated. Who did it and why is in the log.
//
// A read that wants "at least" a sequence number sees it, or fails with lattice.NotYet when
// the time that it was given is over.
//
// # Bounds
//
// A page has at most 1000 entries and about 4 MiB; a call waits at most 30 s; at most 64 run at
// once. Requests have at most 64 KiB.
//
// # What it does not do
//
// It knows no users: who may call is the door's business. It sees the forks that it was
// given, and nothing of other applications in the same ledger.
package browser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/failure"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/spec"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
	"github.com/lattice-log/lattice/proto/lattice/app/v1/appv1connect"
)

// Bounds.
const (
	maxPage      = 1000
	defaultPage  = 100
	maxPageBytes = 4 << 20
	maxWait      = 30 * time.Second
	maxCalls     = 64
	maxRequest   = 64 << 10
	maxAgain     = 1000
	maxAgainSize = 32 << 20
)

// Options say what is looked into. App, Ledger and Store are required.
type Options struct {
	App    *spec.App
	Forks  []string // none: the application's own
	Ledger *ledger.Ledger
	Store  *projection.Store
	// Republish publishes events again and returns when they are acknowledged; nil: it is
	// refused.
	Republish func(context.Context, ...event.Event) error
	Logger    *slog.Logger
}

// Browser serves one application. It is safe for concurrent use.
type Browser struct {
	o     Options
	calls chan struct{} // bounds what runs at once
}

// New checks the options.
func New(o Options) (*Browser, error) {
	if o.App == nil || o.Ledger == nil || o.Store == nil {
		return nil, lattice.E(lattice.Invalid, errors.New("browser: App, Ledger and Store are required"))
	}
	if len(o.Forks) == 0 {
		o.Forks = []string{o.App.Fork}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Browser{o: o, calls: make(chan struct{}, maxCalls)}, nil
}

// Path is where Handler wants to be asked.
const Path = "/" + appv1connect.BrowserServiceName + "/"

// Handler serves lattice.app.v1.BrowserService: gRPC, gRPC-Web, and JSON by POST.
func (b *Browser) Handler() http.Handler {
	_, h := appv1connect.NewBrowserServiceHandler(server{b}, connect.WithReadMaxBytes(maxRequest), connect.WithInterceptors(b.bounded()))
	// A page of another site must not ask with the user's address.
	return http.NewCrossOriginProtection().Handler(h)
}

// bounded lets so many calls run at once, and says how errors travel.
func (b *Browser) bounded() connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			select {
			case b.calls <- struct{}{}:
				defer func() { <-b.calls }()
			default:
				return nil, failure.Connect(lattice.E(lattice.Unavailable, fmt.Errorf("%d calls run already", maxCalls)), "ask again")
			}
			ctx, cancel := context.WithTimeout(ctx, 2*maxWait)
			defer cancel()
			resp, err := next(ctx, req)
			if err == nil {
				return resp, nil
			}
			if kind := lattice.KindOf(err); kind == lattice.Internal || kind == lattice.Corrupt || kind == lattice.Storage {
				b.o.Logger.ErrorContext(ctx, "a look into the application failed", "call", req.Spec().Procedure, "error", err)
			}
			return nil, failure.Connect(err, "ask again")
		}
	}
}

// fork returns the fork that a request means, and its tenant schema.
func (b *Browser) fork(name string) (fork, schema string, err error) {
	if name == "" {
		name = b.o.Forks[0]
	}
	if !slices.Contains(b.o.Forks, name) {
		return "", "", lattice.E(lattice.NotFound, fmt.Errorf("fork %q is not served here; %q are", name, b.o.Forks))
	}
	return name, b.o.App.TenantSchema(name), nil
}

// stream returns the stream that a request means: it may name the state instead.
func (b *Browser) stream(name string) (string, error) {
	if name == "" && len(b.o.App.States) != 1 {
		return "", lattice.E(lattice.Invalid, errors.New("the application has several streams: name one"))
	}
	for state, s := range b.o.App.States {
		if name == "" || name == state || name == s.Stream {
			return s.Stream, nil
		}
	}
	return "", lattice.E(lattice.NotFound, fmt.Errorf("the application has no stream %q", name))
}

// address returns the entity that a request means.
func (b *Browser) address(a *pb.EntityAddress) (ledger.Address, error) {
	var to ledger.Address
	if a == nil {
		return to, lattice.E(lattice.Invalid, errors.New("entity is missing: whose?"))
	}
	var err error
	if to.ForkID, to.TenantSchema, err = b.fork(a.ForkId); err != nil {
		return to, err
	}
	if to.Stream, err = b.stream(a.Stream); err != nil {
		return to, err
	}
	to.EntityID = a.EntityId
	return to, event.CheckID("entity_id", a.EntityId)
}

// page returns how many entries a request means.
func page(limit int32) (int, error) {
	switch {
	case limit < 0 || limit > maxPage:
		return 0, lattice.E(lattice.Invalid, fmt.Errorf("limit %d: want 0 (%d) to %d", limit, defaultPage, maxPage))
	case limit == 0:
		return defaultPage, nil
	}
	return int(limit), nil
}

// patience returns a context that ends when a request has waited enough.
func patience(ctx context.Context, waitMS int32) (context.Context, context.CancelFunc, error) {
	wait := time.Duration(waitMS) * time.Millisecond
	if wait < 0 || wait > maxWait {
		return nil, nil, lattice.E(lattice.Invalid, fmt.Errorf("wait_ms %d: want 0 to %d", waitMS, maxWait.Milliseconds()))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	return ctx, cancel, nil
}

// await waits until an entity has come to a sequence number.
func (b *Browser) await(ctx context.Context, a ledger.Address, atLeast int64, waitMS int32) error {
	if atLeast <= 0 {
		return nil
	}
	soon, cancel, err := patience(ctx, waitMS)
	if err != nil {
		return err
	}
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		e, err := b.o.Ledger.Entity(ctx, a)
		if err != nil || e.Sequence >= atLeast {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-soon.Done():
			t.Stop()
			return lattice.E(lattice.NotYet, fmt.Errorf("%s is at sequence %d, not yet at %d: ask again, or wait longer", a, e.Sequence, atLeast))
		}
	}
}
