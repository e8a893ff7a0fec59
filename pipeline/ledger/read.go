package ledger

import (
	"context"
	"encoding/json"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// MaxRead bounds the rows that one read returns.
const MaxRead = 10000

const eventColumns = `position, tenant_schema, fork_id, stream, entity_id, sequence_number, event_type, ir_version, ts, payload,
	intent_id, intent_type, correlation_id, causation_id`

func eachEvent(ctx context.Context, tx sqldb.Tx, each func(event.Event) error, where string, args ...any) error {
	return tx.Query(ctx, func(scan sqldb.Scan) error {
		var e event.Event
		var payload string
		if err := scan(&e.Position, &e.TenantSchema, &e.ForkID, &e.Stream, &e.EntityID, &e.SequenceNumber, &e.EventType, &e.IRVersion, &e.TS, &payload,
			&e.IntentID, &e.IntentType, &e.CorrelationID, &e.CausationID); err != nil {
			return err
		}
		e.Payload = json.RawMessage(payload)
		return each(e)
	}, "SELECT "+eventColumns+" FROM ledger_events "+where, args...)
}

func (l *Ledger) events(ctx context.Context, where string, args ...any) ([]event.Event, error) {
	var all []event.Event
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		all = nil
		return eachEvent(ctx, tx, func(e event.Event) error {
			all = append(all, e)
			return nil
		}, where, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return all, nil
}

// Head returns the last position; 0: the ledger is empty.
func (l *Ledger) Head(ctx context.Context) (int64, error) {
	var head int64
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		_, err := sqldb.One(ctx, tx, []any{&head}, "SELECT position FROM ledger_head WHERE id = 1")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the ledger's head: %w", err)
	}
	return head, nil
}

// Events returns up to limit events behind a position, in order. The first has
// the position after+1; fewer than limit: there are no more yet.
func (l *Ledger) Events(ctx context.Context, after int64, limit int) ([]event.Event, error) {
	return l.events(ctx, "WHERE position > $1 ORDER BY position LIMIT $2", after, rows(limit))
}

// At returns the event of a position.
func (l *Ledger) At(ctx context.Context, position int64) (event.Event, error) {
	all, err := l.events(ctx, "WHERE position = $1", position)
	if err == nil && len(all) == 0 {
		err = lattice.E(lattice.NotFound, fmt.Errorf("the ledger has no event at position %d", position))
	}
	if err != nil {
		return event.Event{}, err
	}
	return all[0], nil
}

// History returns up to limit events of an entity behind a sequence number, in order.
func (l *Ledger) History(ctx context.Context, a Address, after int64, limit int) ([]event.Event, error) {
	return l.events(ctx, `WHERE tenant_schema = $1 AND fork_id = $2 AND stream = $3 AND entity_id = $4 AND sequence_number > $5
		ORDER BY sequence_number LIMIT $6`, a.TenantSchema, a.ForkID, a.Stream, a.EntityID, after, rows(limit))
}

// Entity returns an entity as it is now. One that was never heard of is zero.
func (l *Ledger) Entity(ctx context.Context, a Address) (Entity, error) {
	var e Entity
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		var state *string
		_, err := sqldb.One(ctx, tx, []any{&e.Sequence, &state}, `SELECT sequence_number, state FROM ledger_entities
			WHERE tenant_schema = $1 AND fork_id = $2 AND stream = $3 AND entity_id = $4`, a.TenantSchema, a.ForkID, a.Stream, a.EntityID)
		if state != nil {
			e.State = json.RawMessage(*state)
		}
		return err
	})
	if err != nil {
		return Entity{}, fmt.Errorf("read entity %s: %w", a, err)
	}
	return e, nil
}

// EntityAt returns an entity as it was once the event of a sequence number was
// committed, with all that its intent set. It reads the changes of the state up
// to there.
func (l *Ledger) EntityAt(ctx context.Context, a Address, sequence int64) (Entity, error) {
	var e Entity
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		e = Entity{}
		return tx.Query(ctx, func(scan sqldb.Scan) error {
			var patch *string
			if err := scan(&e.Sequence, &patch); err != nil || patch == nil {
				return err
			}
			ops, err := event.ParseOperations([]byte(*patch))
			if err == nil {
				e.State, err = event.Apply(e.State, ops)
			}
			if err != nil {
				return lattice.E(lattice.Corrupt, fmt.Errorf("change of the state at sequence %d: %w", e.Sequence, err))
			}
			return nil
		}, `SELECT sequence_number, state_patch FROM ledger_events
			WHERE tenant_schema = $1 AND fork_id = $2 AND stream = $3 AND entity_id = $4 AND sequence_number <= $5
			ORDER BY sequence_number`, a.TenantSchema, a.ForkID, a.Stream, a.EntityID, sequence)
	})
	if err == nil && e.Sequence != max(sequence, 0) {
		err = lattice.E(lattice.NotFound, fmt.Errorf("the last event has the sequence number %d", e.Sequence))
	}
	if err != nil {
		return Entity{}, fmt.Errorf("read entity %s at sequence %d: %w", a, sequence, err)
	}
	return e, nil
}

// Listed is an entity in a list.
type Listed struct {
	EntityID           string
	Sequence, Position int64
}

// Entities returns up to limit entities of a stream whose ids begin with a prefix
// and come behind an id, in the order of their bytes.
func (l *Ledger) Entities(ctx context.Context, tenantSchema, forkID, stream, prefix, after string, limit int) ([]Listed, error) {
	var all []Listed
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		all = nil
		return tx.Query(ctx, func(scan sqldb.Scan) error {
			var e Listed
			if err := scan(&e.EntityID, &e.Sequence, &e.Position); err != nil {
				return err
			}
			all = append(all, e)
			return nil
		}, `SELECT entity_id, sequence_number, position FROM ledger_entities
			WHERE tenant_schema = $1 AND fork_id = $2 AND stream = $3 AND entity_id > $4 AND entity_id >= $5 AND substr(entity_id, 1, $6) = $5
			ORDER BY entity_id LIMIT $7`, tenantSchema, forkID, stream, after, prefix, int64(len([]rune(prefix))), rows(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("list the entities of %s/%s/%s: %w", tenantSchema, forkID, stream, err)
	}
	return all, nil
}

func rows(limit int) int64 {
	if limit <= 0 || limit > MaxRead {
		return MaxRead
	}
	return int64(limit)
}
