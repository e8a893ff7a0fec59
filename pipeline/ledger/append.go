package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// Append appends proposals in the caller's transaction, in their order: each is
// decided on what those before it have done. An error is the database's, and the
// caller must roll back; what is wrong with a single proposal is in its result,
// and the others go on. Until the transaction ends, others wait for it.
//
// The callback Committed is not called: only the caller learns of its commit.
func (l *Ledger) Append(ctx context.Context, tx sqldb.Tx, proposals ...*Proposal) ([]Result, error) {
	b := &batch{
		l: l, ctx: ctx, tx: tx, proposals: proposals, results: make([]Result, len(proposals)),
		intents: map[intentKey]known{}, entities: map[Address]*row{},
	}
	// Each step is one round trip, or none.
	for _, step := range []func() error{b.lock, b.readIntents, b.readEntities, b.decide, b.readOthers, b.number, b.insert, b.repeat} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b.results, nil
}

type intentKey struct{ tenant, fork, id string }

func keyOf(p *Proposal) intentKey { return intentKey{p.TenantSchema, p.ForkID, p.IntentID} }

// known is an intent that is in the ledger, or will be with this batch.
type known struct {
	fingerprint string
	first, last int64
	in          int // index of the proposal in this batch; -1: an earlier one
}

// row is an entity during a batch.
type row struct {
	Entity
	position int64
	there    bool
	// changed: the row must be written.
	changed bool
	// pending counts events that are decided and not yet numbered.
	pending int64
}

// now is the entity as the next proposal of the batch finds it.
func (r *row) now() Entity { return Entity{r.Sequence + r.pending, r.State} }

// batch is the work of one Append.
type batch struct {
	l         *Ledger
	ctx       context.Context
	tx        sqldb.Tx
	proposals []*Proposal
	results   []Result

	head     int64
	intents  map[intentKey]known
	entities map[Address]*row
	patches  map[*event.Event]json.RawMessage
	accepted []int // indexes of proposals, in order
	broken   error // of a lookup: the transaction is of no use any more
}

// lock takes the turn.
func (b *batch) lock() error {
	found := false
	err := b.tx.Lock(b.ctx, func(scan sqldb.Scan) error {
		found = true
		return scan(&b.head)
	}, "SELECT position FROM ledger_head WHERE id = 1")
	if err == nil && !found {
		err = lattice.E(lattice.Corrupt, errors.New("ledger_head has lost its row"))
	}
	return err
}

func (b *batch) readIntents() error {
	args := make([][]any, len(b.proposals))
	for i, p := range b.proposals {
		args[i] = []any{p.TenantSchema, p.ForkID, p.IntentID}
	}
	return b.tx.Batch(b.ctx, `SELECT fingerprint, first_position, last_position FROM ledger_intents
		WHERE tenant_schema = $1 AND fork_id = $2 AND intent_id = $3`, args, func(i int, scan sqldb.Scan) error {
		k := known{in: -1}
		if err := scan(&k.fingerprint, &k.first, &k.last); err != nil {
			return err
		}
		b.intents[keyOf(b.proposals[i])] = k
		return nil
	})
}

func (b *batch) readEntities() error {
	var addresses []Address
	for _, p := range b.proposals {
		addresses = append(addresses, p.Address)
	}
	return b.load(addresses)
}

// load reads the entities that are not read yet.
func (b *batch) load(addresses []Address) error {
	var fresh []Address
	var args [][]any
	for _, a := range addresses {
		if b.entities[a] == nil {
			b.entities[a] = &row{}
			fresh = append(fresh, a)
			args = append(args, []any{a.TenantSchema, a.ForkID, a.Stream, a.EntityID})
		}
	}
	return b.tx.Batch(b.ctx, `SELECT sequence_number, position, state FROM ledger_entities
		WHERE tenant_schema = $1 AND fork_id = $2 AND stream = $3 AND entity_id = $4`, args, func(i int, scan sqldb.Scan) error {
		r := b.entities[fresh[i]]
		var state *string
		if err := scan(&r.Sequence, &r.position, &state); err != nil {
			return err
		}
		if state != nil {
			r.State = json.RawMessage(*state)
		}
		r.there = true
		return nil
	})
}

// decide asks each proposal in turn. Events get all but their numbers.
func (b *batch) decide() error {
	b.patches = map[*event.Event]json.RawMessage{}
	for i, p := range b.proposals {
		res := &b.results[i]
		key := keyOf(p)
		if k, there := b.intents[key]; there {
			if k.fingerprint != p.Fingerprint {
				res.Err = fmt.Errorf("intent %q: %w", p.IntentID, ErrReused)
			} else {
				res.Repeated = true
			}
			continue
		}
		r := b.entities[p.Address]
		at := r.now().Sequence
		if p.ExpectedSequence != nil && *p.ExpectedSequence != at {
			res.Rejection = &Rejection{CodeSequence, fmt.Sprintf("the entity is at sequence %d, not at %d", at, *p.ExpectedSequence)}
			continue
		}
		d, err := b.l.decide(p, r.now(), b.lookup)
		if b.broken != nil {
			return b.broken
		}
		if err != nil {
			res.Err = err
			continue
		}
		if d.Rejection != nil {
			res.Rejection = d.Rejection
			continue
		}
		if err := b.accept(i, d); err != nil {
			res.Err = err
		}
	}
	return nil
}

func (b *batch) lookup(a Address) (Entity, error) {
	if err := a.check(); err != nil {
		return Entity{}, err
	}
	if b.broken == nil {
		b.broken = b.load([]Address{a})
	}
	if b.broken != nil {
		return Entity{}, b.broken
	}
	return b.entities[a].now(), nil
}

// accept takes a decision into the batch.
func (b *batch) accept(i int, d Decision) error {
	p, res := b.proposals[i], &b.results[i]
	var ops []event.Operation
	if d.State != nil {
		var err error
		if ops, err = event.Diff(b.entities[p.Address].State, d.State); err != nil {
			return fmt.Errorf("the entity's new state: %w", err)
		}
	}
	own := -1 // the first event of the entity itself, which carries the state's change
	for j := range d.Events {
		e := &d.Events[j]
		if e.Stream == "" {
			e.Stream = p.Stream
		}
		if e.EntityID == "" {
			e.EntityID = p.EntityID
		}
		if own < 0 && e.Stream == p.Stream && e.EntityID == p.EntityID {
			own = j
		}
	}
	var patch json.RawMessage
	if len(ops) > 0 {
		var err error
		if patch, err = json.Marshal(ops); err != nil {
			return fmt.Errorf("the entity's new state: %w", err)
		}
		if own < 0 {
			own = len(d.Events)
			payload := append(append(json.RawMessage(`{"operations":`), patch...), '}')
			if err := event.CheckPayload(payload); err != nil {
				return fmt.Errorf("the change of the entity's state: %w", err)
			}
			d.Events = append(d.Events, NewEvent{StatePatch, p.Stream, p.EntityID, payload})
		}
		b.entities[p.Address].State = d.State
		b.entities[p.Address].changed = true
	}
	res.Events = make([]event.Event, len(d.Events))
	for j, e := range d.Events {
		res.Events[j] = event.Event{
			EventType: e.EventType, EntityID: e.EntityID, ForkID: p.ForkID, TenantSchema: p.TenantSchema, IRVersion: p.IRVersion, TS: p.TS,
			Payload: e.Payload, Stream: e.Stream, IntentID: p.IntentID, IntentType: p.IntentType,
			CorrelationID: p.CorrelationID, CausationID: p.CausationID,
		}
		if r := b.entities[addressOf(&res.Events[j])]; r != nil {
			r.pending++
		}
		if j == own && patch != nil {
			b.patches[&res.Events[j]] = patch
		}
	}
	b.intents[keyOf(p)] = known{fingerprint: p.Fingerprint, in: i}
	b.accepted = append(b.accepted, i)
	return nil
}

// readOthers reads the entities that only events name.
func (b *batch) readOthers() error {
	var addresses []Address
	for _, i := range b.accepted {
		for j := range b.results[i].Events {
			addresses = append(addresses, addressOf(&b.results[i].Events[j]))
		}
	}
	return b.load(addresses)
}

// number gives every event its position and its number in its entity.
func (b *batch) number() error {
	for _, i := range b.accepted {
		res := &b.results[i]
		k := b.intents[keyOf(b.proposals[i])]
		k.first = b.head + 1
		for j := range res.Events {
			e := &res.Events[j]
			r := b.entities[addressOf(e)]
			b.head++
			r.Sequence++
			r.position, r.changed = b.head, true
			e.Position, e.SequenceNumber = b.head, r.Sequence
		}
		k.last = b.head
		res.Cursor = b.head
		b.intents[keyOf(b.proposals[i])] = k
	}
	return nil
}

// repeat answers those whose intent is known already.
func (b *batch) repeat() error {
	for i := range b.results {
		res := &b.results[i]
		if !res.Repeated {
			continue
		}
		k := b.intents[keyOf(b.proposals[i])]
		res.Cursor = k.last
		if k.in >= 0 { // earlier in this batch
			res.Events = b.results[k.in].Events
			continue
		}
		if k.first > k.last {
			continue
		}
		err := eachEvent(b.ctx, b.tx, func(e event.Event) error {
			res.Events = append(res.Events, e)
			return nil
		}, "WHERE position BETWEEN $1 AND $2 ORDER BY position", k.first, k.last)
		if err != nil {
			return err
		}
	}
	return nil
}

func addressOf(e *event.Event) Address {
	return Address{e.TenantSchema, e.ForkID, e.Stream, e.EntityID}
}

func tooLarge(format string, args ...any) error {
	return lattice.E(lattice.TooLarge, fmt.Errorf(format, args...))
}

func migrationFiles() (fs.FS, error) { return fs.Sub(migrations, "migrations") }
