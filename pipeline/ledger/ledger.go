// Package ledger is the source of truth of the pipeline: an append-only table of
// events in SQLite or PostgreSQL, with the state of each entity beside it.
//
// # What it promises
//
//   - Sequence numbers: the events of one (tenant schema, fork, stream, entity)
//     are numbered 1, 2, 3, … without gaps.
//   - Positions: all events of the ledger are numbered 1, 2, 3, … without gaps, in
//     the order of their commits. Whoever has read up to a position has missed
//     nothing below it: no transaction that began earlier shows up there later.
//     The events of one commit are neighbours.
//   - Idempotence: an intent id, within its tenant schema and fork, commits once.
//     A repetition gets the first one's answer; the same id with another content
//     is refused. A rejected intent leaves nothing, so it may be sent again and
//     fare better.
//   - Nothing is changed or deleted. The database refuses it, too (triggers).
//
// # How
//
// One row, ledger_head, holds the last position. Who appends locks it first, so
// appends take turns, in SQLite as in PostgreSQL, among any number of processes:
// what is decided on an entity's state is decided alone, and deadlocks between
// appends do not exist. To make turns cheap, Commit gathers what waits into one
// transaction (group commit): one fsync and a fixed number of round trips,
// however many intents share them.
//
// # Life of a commit
//
//  1. A proposal waits for its turn. A crash here leaves nothing.
//  2. ledger_head is locked; the intent id is looked up, the entity's state read,
//     and Decide called. Its answer may be a rejection. A crash leaves nothing.
//  3. Rows are inserted: events, the intent, the entity's state and number, and
//     the new head. A crash leaves nothing: the database rolls back.
//  4. COMMIT. A crash before it is durable leaves all or nothing of the batch.
//     Nobody was told: callers send their intents again, with the same ids, and get
//     the first answer if it did happen. The same holds for a connection that
//     breaks here (sqldb.ErrUnknown).
//  5. The callback Committed is told, then the callers are. A crash here leaves
//     events that nobody was told of and that no publisher has in memory: the
//     publisher reads on from its cursor, callers repeat.
//
// # What it does not do
//
// It runs no rules (Decide does), publishes nothing, and knows no topics. It
// starts no goroutine: the first caller that finds nobody at work commits for all
// who wait.
package ledger

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

//go:embed migrations
var migrations embed.FS

// Bounds.
const (
	MaxEvents = 1000    // events of one commit
	MaxState  = 1 << 20 // bytes of one entity's state
)

// ErrReused means that an intent id was used for another intent.
var ErrReused = lattice.E(lattice.Conflict, errors.New("this intent id was used for another intent: give each intent an id of its own"))

// ErrBusy means that too many proposals wait.
var ErrBusy = lattice.E(lattice.Unavailable, errors.New("too many intents wait for the ledger: send it again, with the same id"))

// Options say how a ledger works.
type Options struct {
	// MaxBatch bounds the proposals of one transaction (default 256), MaxBytes
	// their Size (default 8 MiB), MaxWaiting those that wait (default 10000).
	MaxBatch, MaxBytes, MaxWaiting int
	// CommitWithin bounds one transaction (default 30 s).
	CommitWithin time.Duration
	// Committed is called with the events of each transaction of Commit after it
	// is durable, in order of their positions, before any caller is told. It must
	// not block, and must not change them.
	Committed func([]event.Event)
	Logger    *slog.Logger
}

// Ledger is one ledger. It is safe for concurrent use.
type Ledger struct {
	db sqldb.DB
	o  Options

	mu      sync.Mutex
	waiting []*waiter // in the order of their arrival
	leading bool      // somebody commits, or was told to
}

// Open makes the ledger's tables if they are not there and brings older ones up
// to date. The database stays the caller's to close.
func Open(ctx context.Context, db sqldb.DB, o Options) (*Ledger, error) {
	if o.MaxBatch <= 0 {
		o.MaxBatch = 256
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 10000
	}
	if o.CommitWithin <= 0 {
		o.CommitWithin = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	files, err := migrationFiles()
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, "ledger", files); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &Ledger{db: db, o: o}, nil
}

// Address names an entity.
type Address struct{ TenantSchema, ForkID, Stream, EntityID string }

// String returns the address for people.
func (a Address) String() string {
	return a.TenantSchema + "/" + a.ForkID + "/" + a.Stream + ":" + a.EntityID
}

func (a Address) check() error {
	return errors.Join(event.CheckSchema(a.TenantSchema), event.CheckName("forkId", a.ForkID),
		event.CheckName("stream", a.Stream), event.CheckID("entityId", a.EntityID))
}

// Entity is an entity as the ledger has it.
type Entity struct {
	// Sequence is the number of its last event; 0: it has none.
	Sequence int64
	// State is a JSON object; nil: nothing was ever set.
	State json.RawMessage
}

// Proposal is an intent that wants to become a commit.
type Proposal struct {
	Address    // the entity that Decide is about
	IntentID   string
	IntentType string
	// Fingerprint stands for all that was asked: two intents of one id with
	// different ones are different intents.
	Fingerprint string
	// ExpectedSequence rejects the intent if the entity's Sequence is another.
	ExpectedSequence           *int64
	CorrelationID, CausationID string
	IRVersion                  string
	TS                         int64 // of the events; milliseconds since 1970
	Size                       int   // about how many bytes it needs
	// Decide says what becomes of the intent. It is called with the entity as it
	// is, and can look at others, while the ledger is locked: it must be quick,
	// depend on nothing else, and be fit to be called more than once.
	Decide func(e Entity, lookup Lookup) (Decision, error)
}

// Lookup reads another entity of the ledger; one that was never heard of is zero.
type Lookup func(Address) (Entity, error)

// Decision is what an intent leads to.
type Decision struct {
	// Rejection, if set, is all: nothing is written.
	Rejection *Rejection
	Events    []NewEvent
	// State is the entity's new state, a JSON object; nil: as it was.
	State json.RawMessage
}

// Rejection is a refusal by the rules of the application.
type Rejection struct{ Code, Message string }

// CodeSequence is the code of a rejection for an unexpected sequence number.
const CodeSequence = "SEQUENCE_CONFLICT"

// NewEvent is an event that has no numbers yet.
type NewEvent struct {
	EventType string
	// Stream and EntityID are the event's entity: empty ones are the proposal's.
	Stream, EntityID string
	Payload          json.RawMessage
}

// StatePatch is the type of the event that carries a change of an entity's state
// when the intent emitted no event of that entity. Its payload is
// {"operations":[…]}. Projectors know no such type and pass over it.
const StatePatch = "STATE_PATCH"

// Answer is what became of a proposal.
type Answer struct {
	// Rejection, if set, is all.
	Rejection *Rejection
	// Cursor is the position of the commit's last event. Of a commit with no
	// events it is the last position before it.
	Cursor int64
	Events []event.Event
	// Repeated: the intent was committed earlier, and this is what came of it.
	Repeated bool
}

// Accepted reports whether the intent is in the ledger.
func (a *Answer) Accepted() bool { return a.Rejection == nil }

// Result is the answer of one of several proposals, or why there is none.
type Result struct {
	Answer
	Err error
}

func (p *Proposal) check() error {
	if err := p.Address.check(); err != nil {
		return err
	}
	if p.ExpectedSequence != nil && *p.ExpectedSequence < 0 {
		return lattice.E(lattice.Invalid, fmt.Errorf("expectedSequence %d: want 0 (no event yet) or more", *p.ExpectedSequence))
	}
	if p.Decide == nil {
		return lattice.E(lattice.Internal, errors.New("a proposal that decides nothing"))
	}
	errs := []error{event.CheckID("intentId", p.IntentID)}
	for what, text := range map[string]string{"intentType": p.IntentType, "irVersion": p.IRVersion} {
		if text != "" {
			errs = append(errs, event.CheckName(what, text))
		}
	}
	for what, text := range map[string]string{"correlationId": p.CorrelationID, "causationId": p.CausationID, "fingerprint": p.Fingerprint} {
		if text != "" {
			errs = append(errs, event.CheckID(what, text))
		}
	}
	return errors.Join(errs...)
}
