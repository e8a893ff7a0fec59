// Package projection keeps the rows of an application's projections in SQLite or
// PostgreSQL: their tables, what one event does to them, the guards that make it do that
// once, dead letters, and the outbox of patches.
//
// # One transaction
//
// Store.Apply takes events of one projection and does, in one transaction, in this order:
//
//  1. lock the guards of their entities, in the order of the keys, and Judge each event:
//     a duplicate is passed over, one whose entity is parked becomes a dead letter behind
//     the others, one that comes early is preceded by what the ledger has before it;
//  2. lock the rows that they touch, in the order of the keys. Of a row that is not there
//     nothing can be locked, so PostgreSQL gets its key first;
//  3. apply the events in order, in memory;
//  4. take positions from projection_head, which locks that row;
//  5. write rows, guards, dead letters and outbox.
//
// A crash before the commit leaves nothing of it. A crash after leaves all of it: what is
// delivered again is a duplicate. Kafka's offsets follow the commit and so never say more
// than the database. It is the guard that fences: of two processes that believe they own a
// partition the second finds the guard of the first, however slow either is.
//
// Locks are taken guards first, then rows, then the head. Two transactions that wait for
// each other all the same (a bulk update locks what it finds) are PostgreSQL's to break
// and sqldb's to repeat.
//
// # Positions
//
// Patches and dead letters are numbered in the order of the commits, since the head is
// locked until then: whoever has read the outbox up to a position has missed nothing. A
// patch's cursor is its position. Each row holds the cursor of its last patch by each
// projection in a column "cursor:PROJECTION", which queries pass over; it goes with the
// row, so that the chain of a new row begins with 0.
//
// # Tables
//
// PostgreSQL: "tenant_schema"."table". SQLite: "tenant_schema__table". Open makes what is
// not there, tables, columns and indexes, and takes nothing away. A column of another type
// or another primary key is refused: that wants a rebuild (Rebuild), which fills another
// generation of the tables, "table~2", and swaps the names.
//
// # What it does not do
//
// It reads no topic and writes none, retries nothing but lost races, and starts no
// goroutine. A Store is safe for concurrent use.
package projection

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

//go:embed migrations
var migrations embed.FS

// Options say whose rows a Store keeps.
type Options struct {
	App *spec.App
	// Forks are the forks whose tables are kept; none: the application's own.
	Forks []string
	// Ledger fills gaps, and answers lookups; nil: neither. With no ledger an event that
	// comes behind a later one of its entity is a duplicate, and its effects are missing.
	Ledger *ledger.Ledger
	// Rebuild leaves the live tables as they are: a rebuild makes others, which may have
	// other columns.
	Rebuild bool
}

// Store is the projections of one application in one database.
type Store struct {
	db      sqldb.DB
	app     *spec.App
	ledger  *ledger.Ledger
	schemas []string
	opened  map[tableID]int64 // the generations that were live when it was opened
}

// tableID names a table of the application in a tenant's schema.
type tableID struct{ schema, name string }

// Open makes the tables that are not there and adds columns that are missing. The database
// and the ledger stay the caller's to close.
func Open(ctx context.Context, db sqldb.DB, o Options) (*Store, error) {
	s := &Store{db: db, app: o.App, ledger: o.Ledger, opened: map[tableID]int64{}}
	forks := o.Forks
	if len(forks) == 0 {
		forks = []string{""}
	}
	for _, f := range forks {
		schema := o.App.TenantSchema(f)
		if err := event.CheckSchema(schema); err != nil {
			return nil, fmt.Errorf("open the projections: %w", err)
		}
		if !slices.Contains(s.schemas, schema) {
			s.schemas = append(s.schemas, schema)
		}
	}
	for _, p := range o.App.Projections {
		if p.ReadsOthers() && o.Ledger == nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("open the projections: %s reads the state of entities, which is in the ledger: name the ledger's database", p.Name))
		}
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, "projection", files); err != nil {
		return nil, fmt.Errorf("open the projections: %w", err)
	}
	for _, schema := range s.schemas {
		if err := db.Write(ctx, func(tx sqldb.Tx) error { return s.openTables(ctx, tx, schema, !o.Rebuild) }); err != nil {
			return nil, fmt.Errorf("make the tables of %s: %w", schema, err)
		}
	}
	return s, nil
}

// openTables notes which sets of a tenant's tables are live and, if it is told to, makes
// what is missing of them.
func (s *Store) openTables(ctx context.Context, tx sqldb.Tx, schema string, missing bool) error {
	live := make([]set, len(s.app.Tables))
	for i, t := range s.app.Tables {
		if _, err := tx.Exec(ctx, `INSERT INTO projection_tables (tenant_schema, name, generation, epoch, digest) VALUES ($1, $2, 1, 1, '') ON CONFLICT DO NOTHING`, schema, t.Name); err != nil {
			return err
		}
		var err error
		if live[i], err = liveSet(ctx, tx, schema, t.Name, forShare(tx.Dialect())); err != nil {
			return err
		}
		s.opened[tableID{schema, t.Name}] = live[i].generation
	}
	if !missing {
		return nil
	}
	return s.makeTables(ctx, tx, schema, live)
}

// App returns the application.
func (s *Store) App() *spec.App { return s.app }

// Serves reports whether the store keeps the rows of a tenant schema.
func (s *Store) Serves(tenantSchema string) bool { return slices.Contains(s.schemas, tenantSchema) }

// Event is an event on its way into a projection.
type Event struct {
	event.Projection
	Source Source
	// Follows says that the event before it, of the same entity, was on the topic before
	// it: then there is no gap to look for.
	Follows bool
}

// Source is the record that an event came in.
type Source struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
}

// Address returns whose event it is, or an error for a type that the application does not
// know: messages do not name their stream.
func (s *Store) Address(e *event.Projection) (ledger.Address, error) {
	kind := s.app.Events[e.EventType]
	if kind == nil {
		return ledger.Address{}, lattice.E(lattice.NotFound, fmt.Errorf("the application has no event %q", e.EventType))
	}
	return ledger.Address{TenantSchema: e.TenantSchema, ForkID: e.ForkID, Stream: kind.Stream, EntityID: e.EntityID}, nil
}

// step evaluates what an event does to a projection. Errors say in which step they arose.
func (s *Store) step(ctx context.Context, p *spec.Projection, e *event.Projection) (*spec.Step, error) {
	payload, err := spec.Payload(e.Payload)
	if err == nil {
		payload, err = s.app.Events[e.EventType].Current(e.IRVersion, payload)
	}
	if err != nil {
		return nil, &stageError{event.ClassData, err}
	}
	step, err := p.Step(spec.Message{
		Type: e.EventType, EntityID: e.EntityID, TS: e.TS, IRVersion: e.IRVersion, Payload: payload, Lookup: s.lookup(ctx, e),
	})
	if err != nil && lattice.KindOf(err) == lattice.Invalid {
		err = &stageError{event.ClassExpression, err}
	}
	return step, err
}

// lookup reads other entities in the ledger.
func (s *Store) lookup(ctx context.Context, e *event.Projection) spec.Lookup {
	if s.ledger == nil {
		return nil
	}
	return func(state, id string) (map[string]any, bool, error) {
		other := s.app.States[state]
		if other == nil {
			return nil, false, lattice.E(lattice.NotFound, fmt.Errorf("the application has no state %q", state))
		}
		found, err := s.ledger.Entity(ctx, ledger.Address{TenantSchema: e.TenantSchema, ForkID: e.ForkID, Stream: other.Stream, EntityID: id})
		if err != nil || found.State == nil {
			return nil, false, err
		}
		m, err := spec.Payload(found.State)
		return m, err == nil, err
	}
}

// stageError is an error of an event itself with the class that its dead letter names.
type stageError struct {
	class string
	err   error
}

func (e *stageError) Error() string { return e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

// ClassOf returns the class that a dead letter names for an error.
func ClassOf(err error) string {
	var stage *stageError
	switch {
	case errors.As(err, &stage):
		return stage.class
	case sqldb.Classify(err) == sqldb.ClassData:
		return event.ClassData
	case sqldb.Classify(err) == sqldb.ClassConstraint:
		return event.ClassConstraint
	case lattice.KindOf(err) == lattice.Invalid:
		return event.ClassExpression
	}
	return event.ClassInternal
}
