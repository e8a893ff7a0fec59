package ledger

import (
	"cmp"
	"slices"

	"github.com/lattice-log/lattice/pipeline/event"
)

// insert writes the batch: at most four round trips.
func (b *batch) insert() error {
	if len(b.accepted) == 0 {
		return nil
	}
	var events, intents [][]any
	for _, i := range b.accepted {
		p := b.proposals[i]
		k := b.intents[keyOf(p)]
		intents = append(intents, []any{p.TenantSchema, p.ForkID, p.IntentID, k.fingerprint, k.first, k.last})
		for j := range b.results[i].Events {
			e := &b.results[i].Events[j]
			events = append(events, b.eventRow(e))
		}
	}
	var entities [][]any
	for a, r := range b.entities {
		if r.changed {
			entities = append(entities, []any{a.TenantSchema, a.ForkID, a.Stream, a.EntityID, r.Sequence, r.position, text(r.State)})
		}
	}
	// A batch writes the same rows in the same order however the map was walked.
	slices.SortFunc(entities, func(x, y []any) int {
		for i := range 4 {
			if c := cmp.Compare(x[i].(string), y[i].(string)); c != 0 {
				return c
			}
		}
		return 0
	})
	for _, s := range []struct {
		statement string
		rows      [][]any
	}{
		{`INSERT INTO ledger_events (position, tenant_schema, fork_id, stream, entity_id, sequence_number, event_type, ir_version, ts, payload,
			intent_id, intent_type, correlation_id, causation_id, state_patch)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`, events},
		{`INSERT INTO ledger_intents (tenant_schema, fork_id, intent_id, fingerprint, first_position, last_position)
			VALUES ($1, $2, $3, $4, $5, $6)`, intents},
		{`INSERT INTO ledger_entities (tenant_schema, fork_id, stream, entity_id, sequence_number, position, state)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (tenant_schema, fork_id, stream, entity_id) DO UPDATE
			SET sequence_number = excluded.sequence_number, position = excluded.position, state = excluded.state`, entities},
		{`UPDATE ledger_head SET position = $1 WHERE id = 1`, [][]any{{b.head}}},
	} {
		if err := b.tx.Batch(b.ctx, s.statement, s.rows, nil); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) eventRow(e *event.Event) []any {
	return []any{
		e.Position, e.TenantSchema, e.ForkID, e.Stream, e.EntityID, e.SequenceNumber, e.EventType, e.IRVersion, e.TS, string(e.Payload),
		e.IntentID, e.IntentType, e.CorrelationID, e.CausationID, text(b.patches[e]),
	}
}

// text is a JSON value as a column takes it: NULL for none.
func text(v []byte) any {
	if v == nil {
		return nil
	}
	return string(v)
}
