package projection

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// Applied says what came of events.
type Applied struct {
	Fresh      int // applied, those from the ledger included
	Duplicates int // passed over: their effects were there
	Parked     int // waiting behind a dead letter of their entity
	Healed     int // taken from the ledger, since the topic did not have them
	Patches    int // rows that changed, for the outbox
}

// Apply applies events to a projection in one transaction, in order. All must be of types
// that the projection takes and of tenant schemas that the store serves.
//
// An error leaves nothing. Its kind says whose fault it is (projector.Classify); of a data
// error nobody knows which event it was unless there is only one. ErrUnknown is transient:
// what did happen is a duplicate when it is tried again.
func (s *Store) Apply(ctx context.Context, p *spec.Projection, events []Event) (Applied, error) {
	var out Applied
	err := s.db.Write(ctx, func(tx sqldb.Tx) (err error) {
		out, err = s.batch(p, tx).all(ctx, events)
		return err
	})
	if err != nil {
		return Applied{}, fmt.Errorf("apply to %s: %w", p.Name, err)
	}
	return out, nil
}

// all is the whole work of a transaction on events.
func (b *batch) all(ctx context.Context, events []Event) (Applied, error) {
	for i := range events {
		if err := b.know(&events[i]); err != nil {
			return Applied{}, err
		}
	}
	if err := b.lockGuards(ctx); err != nil {
		return Applied{}, err
	}
	for i := range events {
		if err := b.admit(ctx, &events[i]); err != nil {
			return Applied{}, err
		}
	}
	err := b.finish(ctx)
	return b.out, err
}

// batch is one transaction's work on one projection.
type batch struct {
	s   *Store
	p   *spec.Projection
	tx  sqldb.Tx
	out Applied

	// filling, if set, is the rebuild that the transaction is of: then its sets are written,
	// and nothing is published.
	filling *Rebuild
	// generation, if not 0, is the generation whose dead letters are settled.
	generation int64

	sets    map[string]set // by tenant schema
	guards  map[ledger.Address]*guard
	work    []work
	rows    map[string]*row // by rowName
	patches []patch
	letters []letter
}

// work is one event that is applied.
type work struct {
	event *Event
	to    ledger.Address
	step  *spec.Step
}

// patch is one change of one row.
type patch struct {
	row    *row
	delete bool
	work   *work
	key    json.RawMessage
	ops    []event.Operation
}

func (s *Store) batch(p *spec.Projection, tx sqldb.Tx) *batch {
	return &batch{s: s, p: p, tx: tx, sets: map[string]set{}, guards: map[ledger.Address]*guard{}, rows: map[string]*row{}}
}

// know notes whose guard is needed.
func (b *batch) know(e *Event) error {
	a, err := b.s.Address(&e.Projection)
	if err == nil && b.guards[a] == nil {
		b.guards[a] = &guard{}
	}
	return err
}

// admit judges an event. What is fresh is evaluated.
func (b *batch) admit(ctx context.Context, e *Event) error {
	a, err := b.s.Address(&e.Projection)
	if err != nil {
		return err
	}
	g := b.guards[a]
	early, err := b.early(ctx, g, a, e)
	if err != nil {
		return err
	}
	for i := range early {
		b.out.Healed++
		if err := b.judged(ctx, g, a, &early[i]); err != nil {
			return err
		}
	}
	return b.judged(ctx, g, a, e)
}

// early returns the events that the ledger has before this one, that the projection takes,
// and that did not come.
func (b *batch) early(ctx context.Context, g *guard, a ledger.Address, e *Event) ([]Event, error) {
	known := max(g.Applied, g.Parked)
	if e.Follows || b.s.ledger == nil || e.SequenceNumber <= known+1 {
		return nil, nil
	}
	var missing []Event
	for after := known; after < e.SequenceNumber-1; {
		found, err := b.s.ledger.History(ctx, a, after, 500)
		if err != nil {
			return nil, fmt.Errorf("look for what is missing before sequence %d of %s: %w", e.SequenceNumber, a, err)
		}
		if len(found) == 0 {
			break // another program's events: the ledger does not have them
		}
		for i := range found {
			if after = found[i].SequenceNumber; after >= e.SequenceNumber {
				break
			}
			if slices.Contains(b.p.Sources, found[i].EventType) {
				missing = append(missing, Event{Projection: found[i].Projection(), Source: e.Source, Follows: true})
			}
		}
	}
	if len(missing) == 0 || Judge(g.Guard, e.SequenceNumber, missing[len(missing)-1].SequenceNumber) != Early {
		return nil, nil
	}
	return missing, nil
}

func (b *batch) judged(ctx context.Context, g *guard, a ledger.Address, e *Event) error {
	switch Judge(g.Guard, e.SequenceNumber, -1) {
	case Duplicate:
		b.out.Duplicates++
		return nil
	case Behind:
		b.out.Parked++
		b.park(g, a, e, parkedFailure())
		return nil
	}
	var step *spec.Step
	if b.filling == nil || !b.filling.discarded(b.p.Name, a, e.SequenceNumber) {
		var err error
		if step, err = b.s.step(ctx, b.p, &e.Projection); err != nil {
			return err
		}
	}
	g.Applied, g.changed = e.SequenceNumber, true
	b.out.Fresh++
	if step != nil {
		b.work = append(b.work, work{e, a, step})
	}
	return nil
}

// finish does what was admitted.
func (b *batch) finish(ctx context.Context) error {
	if err := b.lockRows(ctx); err != nil {
		return err
	}
	for i := range b.work {
		if err := b.do(ctx, &b.work[i]); err != nil {
			return err
		}
	}
	b.out.Patches = len(b.patches)
	return b.write(ctx)
}

// do applies one event to the rows in memory.
func (b *batch) do(ctx context.Context, w *work) error {
	var r *row
	var old map[string]any
	if w.step.Key != nil {
		r = b.rows[rowName(w.to.TenantSchema, w.step.Key)]
		old = r.values
	}
	ops, err := w.step.Apply(old)
	if err != nil {
		return &stageError{event.ClassExpression, err}
	}
	for _, op := range ops {
		if op.Kind == spec.UpdateWhere {
			if err := b.bulk(ctx, w, op); err != nil {
				return err
			}
			continue
		}
		if err := b.change(w, r, op); err != nil {
			return err
		}
	}
	return nil
}

// bulk changes all rows that fit. Those that the transaction has in memory count as they
// are there, all others as the database has them.
func (b *batch) bulk(ctx context.Context, w *work, op spec.RowOp) error {
	if err := b.lockWhere(ctx, w.to.TenantSchema, op.Where); err != nil {
		return err
	}
	for _, name := range sortedNames(b.rows) {
		r := b.rows[name]
		if r.values == nil || r.schema != w.to.TenantSchema || !b.fits(r, op.Where) {
			continue
		}
		one, changed, err := b.p.Of(op, r.values)
		if err != nil {
			return err
		}
		if changed {
			if err := b.change(w, r, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// change does one operation to a row in memory and makes its patch.
func (b *batch) change(w *work, r *row, op spec.RowOp) error {
	there := r.values != nil
	r.do(op)
	if !b.sets[r.schema].live {
		// Nobody follows it yet. Whoever reads the row when it is live sees that it is this
		// projection's.
		if r.cursor = max(r.cursor, filledCursor); op.Kind == spec.Delete {
			r.cursor = 0
		}
		return nil
	}
	said := op
	if there && r.cursor == 0 && !r.patched && op.Kind == spec.Update {
		// Another projection made the row: whoever follows this one has nothing of it yet.
		said = r.whole(b.p)
	}
	key, ops, err := Operations(b.p, said)
	if err != nil {
		return err
	}
	r.patched = op.Kind != spec.Delete
	b.patches = append(b.patches, patch{r, op.Kind == spec.Delete, w, key, ops})
	return nil
}
