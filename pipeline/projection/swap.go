package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// maxBehind bounds the entities that are caught up with while projectors wait.
const maxBehind = 1000

// Counted is how many rows a table has before and after a swap.
type Counted struct {
	TenantSchema string `json:"tenant_schema"`
	Table        string `json:"table"`
	Generation   int64  `json:"generation"`
	Live         int64  `json:"live"`    // in the table that was live
	Rebuilt      int64  `json:"rebuilt"` // in the one that takes its place
}

// errMuchBehind means that the live set has much that this one lacks: read on.
var errMuchBehind = lattice.E(lattice.NotYet, errors.New("the live tables have more than a swap can wait for"))

// ErrCounts means that the rebuilt tables have other numbers of rows than the live ones.
var ErrCounts = lattice.E(lattice.Conflict, errors.New("the rebuilt tables do not have as many rows as the live ones"))

// ErrAhead means that the numbers of rows differ, and that the live tables do not have all
// yet that the rebuilt ones have.
var ErrAhead = lattice.E(lattice.NotYet, errors.New("the live tables do not have as many rows as the rebuilt ones, and are behind: wait for their projector, or is none running?"))

// Missing is an entity of which the live set has more than the rebuilt one.
type Missing struct {
	Projection string
	ledger.Address
	Have, Want int64 // sequence numbers
}

// BehindError says of which entities the live set has what no source offered.
type BehindError struct{ Some []Missing }

func (e *BehindError) Error() string {
	b := e.Some[0]
	return fmt.Sprintf("%s has event %d of %s, and the rebuilt one came to %d: its source lacks some (%d entities)", b.Projection, b.Want, b.Address, b.Have, len(e.Some))
}

// Swap makes the sets that were filled the live ones. See Rebuild for what happens when.
//
// What the live set has and this one lacks is taken from the ledger, and then from more,
// which returns what the source has next, or nothing when it knows of no more. It is asked
// for the i-th since the Swap began: the transaction may be done again. With much or
// something still missing the error has the kind lattice.NotYet, and a BehindError says what
// it is: apply what more returned, for nothing of it is there, fill on, and swap again.
//
// Unless unequal is set, tables with unequal numbers of rows are not swapped: ErrCounts, or
// ErrAhead, of kind NotYet, if that may be since the live ones are late. The numbers are
// returned then, too.
func (r *Rebuild) Swap(ctx context.Context, unequal bool, more func(ctx context.Context, i int) ([]Event, error)) ([]Counted, error) {
	if err := r.settle(ctx); err != nil {
		return nil, fmt.Errorf("swap: %w", err)
	}
	var counts []Counted
	err := r.s.db.Write(ctx, func(tx sqldb.Tx) error {
		counts = nil
		if tx.Dialect() == sqldb.Postgres {
			// Who reads the tables for long must not make others wait behind the swap.
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
				return err
			}
		}
		live := map[tableID]set{}
		for _, id := range r.ids() {
			l, err := liveSet(ctx, tx, id.schema, id.name, forUpdate(tx.Dialect()))
			if err != nil {
				return err
			}
			live[id] = l
		}
		for _, id := range r.ids() {
			if err := r.building(ctx, tx, id.schema, r.set(id), forUpdate(tx.Dialect())); err != nil {
				return err
			}
		}
		if err := r.catchUp(ctx, tx, live, more); err != nil {
			return err
		}
		different := false
		for _, id := range r.ids() {
			c, err := r.count(ctx, tx, id, live[id])
			if err != nil {
				return err
			}
			counts, different = append(counts, c), different || c.Live != c.Rebuilt
		}
		if different && !unequal {
			// Numbers compare when the live tables have what these have.
			if ahead, err := r.compare(ctx, tx, live, true); err != nil || len(ahead) == 0 {
				return errors.Join(err, ErrCounts)
			}
			return ErrAhead
		}
		for _, id := range r.ids() {
			if err := r.swap(ctx, tx, id, live[id]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return counts, fmt.Errorf("swap: %w", err)
	}
	return counts, nil
}

func (r *Rebuild) set(id tableID) set { return set{name: id.name, generation: r.generations[id]} }

// catchUp applies what the live sets have and the rebuilt ones lack. Nobody writes either.
func (r *Rebuild) catchUp(ctx context.Context, tx sqldb.Tx, live map[tableID]set, more func(ctx context.Context, i int) ([]Event, error)) error {
	behind, err := r.compare(ctx, tx, live, false)
	if err != nil || len(behind) == 0 {
		return err
	}
	if len(behind) > maxBehind {
		return errMuchBehind
	}
	if r.s.ledger != nil {
		for _, b := range behind {
			if err := r.catchUpFromLedger(ctx, tx, b); err != nil {
				return err
			}
		}
		if behind, err = r.compare(ctx, tx, live, false); err != nil {
			return err
		}
	}
	for i := 0; len(behind) > 0; i++ {
		events, err := more(ctx, i)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return lattice.E(lattice.NotYet, &BehindError{behind})
		}
		for _, p := range r.projections {
			if err := r.applyIn(ctx, tx, p, events); err != nil {
				return err
			}
		}
		if behind, err = r.compare(ctx, tx, live, false); err != nil {
			return err
		}
	}
	return nil
}

// applyIn applies the events that a projection takes in a transaction that is under way.
func (r *Rebuild) applyIn(ctx context.Context, tx sqldb.Tx, p *spec.Projection, events []Event) error {
	b := r.s.batch(p, tx)
	b.filling = r
	var taken []Event
	for _, e := range events {
		if slices.Contains(p.Sources, e.EventType) {
			taken = append(taken, e)
		}
	}
	_, err := b.all(ctx, taken)
	return err
}

func (r *Rebuild) catchUpFromLedger(ctx context.Context, tx sqldb.Tx, b Missing) error {
	p := r.s.app.Projection(b.Projection)
	for after := b.Have; after < b.Want; {
		found, err := r.s.ledger.History(ctx, b.Address, after, 500)
		if err != nil || len(found) == 0 {
			return err
		}
		var events []Event
		for i := range found {
			if after = found[i].SequenceNumber; after > b.Want {
				break
			}
			events = append(events, Event{Projection: found[i].Projection(), Follows: true})
		}
		if err := r.applyIn(ctx, tx, p, events); err != nil {
			return err
		}
	}
	return nil
}

// compare returns of which entities the live sets have more than the rebuilt ones, or,
// reversed, the rebuilt ones than the live.
func (r *Rebuild) compare(ctx context.Context, tx sqldb.Tx, live map[tableID]set, reversed bool) ([]Missing, error) {
	var all []Missing
	for _, p := range r.projections {
		for _, id := range r.ids() {
			if id.name != p.Table {
				continue
			}
			have, want := r.set(id).key(p.Name), live[id].key(p.Name)
			if reversed {
				have, want = want, have
			}
			if err := tx.Query(ctx, func(scan sqldb.Scan) error {
				b := Missing{Projection: p.Name}
				if err := scan(&b.TenantSchema, &b.ForkID, &b.Stream, &b.EntityID, &b.Want, &b.Have); err != nil {
					return err
				}
				all = append(all, b)
				return nil
			}, `SELECT tenant_schema, fork_id, stream, entity_id, want, have FROM (
				SELECT l.tenant_schema, l.fork_id, l.stream, l.entity_id, CASE WHEN l.applied > l.parked THEN l.applied ELSE l.parked END AS want,
					COALESCE(CASE WHEN n.applied > n.parked THEN n.applied ELSE n.parked END, 0) AS have
				FROM projection_guards l LEFT JOIN projection_guards n ON n.projection = $1 AND n.tenant_schema = l.tenant_schema AND n.fork_id = l.fork_id
					AND n.stream = l.stream AND n.entity_id = l.entity_id
				WHERE l.projection = $2 AND l.tenant_schema = $3) compared WHERE want > have LIMIT $4`,
				have, want, id.schema, int64(maxBehind+1)); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (r *Rebuild) count(ctx context.Context, tx sqldb.Tx, id tableID, live set) (Counted, error) {
	c := Counted{TenantSchema: id.schema, Table: id.name, Generation: r.generations[id]}
	have, err := columnsOf(ctx, tx, id.schema, live.table())
	if err == nil && len(have.types) > 0 {
		_, err = sqldb.One(ctx, tx, []any{&c.Live}, "SELECT count(*) FROM "+tx.Dialect().Table(id.schema, live.table()))
	} else {
		c.Live = -1 // it was never made
	}
	if err == nil {
		_, err = sqldb.One(ctx, tx, []any{&c.Rebuilt}, "SELECT count(*) FROM "+tx.Dialect().Table(id.schema, r.set(id).table()))
	}
	if c.Live < 0 {
		c.Live = c.Rebuilt
	}
	return c, err
}

// swap makes one table's set the live one.
func (r *Rebuild) swap(ctx context.Context, tx sqldb.Tx, id tableID, live set) error {
	next, now := r.set(id), time.Now().UnixMilli()
	old := live
	old.live = false
	have, err := columnsOf(ctx, tx, id.schema, live.table())
	if err != nil {
		return err
	}
	todo := statements{}
	if len(have.types) > 0 {
		todo.add(rename(tx.Dialect(), id.schema, live.table(), old.table()), []any{})
	}
	todo.add(rename(tx.Dialect(), id.schema, next.table(), id.name), []any{})
	todo.add(`INSERT INTO projection_sets (tenant_schema, name, generation, state, digest, version, done, total, started_at, changed_at)
		VALUES ($1, $2, $3, $4, $5, '', 0, 0, $6, $6) ON CONFLICT (tenant_schema, name, generation) DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at`,
		[]any{id.schema, id.name, old.generation, SetStandby, live.digest, now})
	todo.add("UPDATE projection_sets SET state = $1, changed_at = $2 WHERE tenant_schema = $3 AND name = $4 AND generation = $5",
		[]any{SetLive, now, id.schema, id.name, next.generation})
	todo.add("UPDATE projection_tables SET generation = $1, epoch = epoch + 1, digest = (SELECT s.digest FROM projection_sets s WHERE s.tenant_schema = $2 AND s.name = $3 AND s.generation = $1) WHERE tenant_schema = $2 AND name = $3",
		[]any{next.generation, id.schema, id.name})
	for _, p := range r.projections {
		if p.Table == id.name {
			hide := "UPDATE projection_dead_letters SET hidden = $1 WHERE projection = $2 AND tenant_schema = $3 AND state IN ('failed', 'parked')"
			todo.add(hide, []any{int64(1), old.key(p.Name), id.schema})
			todo.add(hide, []any{int64(0), next.key(p.Name), id.schema})
		}
	}
	if err := todo.run(ctx, tx); err != nil {
		return err
	}
	return r.resets(ctx, tx, id, next, live)
}

func rename(d sqldb.Dialect, schema, from, to string) string {
	if d == sqldb.SQLite {
		return "ALTER TABLE " + d.Table(schema, from) + " RENAME TO " + sqldb.Quote(schema+"__"+to)
	}
	return "ALTER TABLE " + d.Table(schema, from) + " RENAME TO " + sqldb.Quote(to)
}

// resets tells those who follow a table's projections to read them anew: one message for
// each projection and fork.
func (r *Rebuild) resets(ctx context.Context, tx sqldb.Tx, id tableID, next, live set) error {
	var boxed [][]any
	for _, p := range r.projections {
		if p.Table != id.name {
			continue
		}
		var forks []string
		if err := tx.Query(ctx, func(scan sqldb.Scan) error {
			var fork string
			err := scan(&fork)
			forks = append(forks, fork)
			return err
		}, "SELECT DISTINCT fork_id FROM projection_guards WHERE projection IN ($1, $2) AND tenant_schema = $3 ORDER BY fork_id", next.key(p.Name), live.key(p.Name), id.schema); err != nil {
			return err
		}
		for _, fork := range forks {
			position, err := (&batch{tx: tx}).positions(ctx, 1)
			if err != nil {
				return err
			}
			message, err := event.Patch{Projection: p.Name, TenantSchema: id.schema, ForkID: fork, Reset: true, Cursor: position, Epoch: live.epoch + 1, TS: time.Now().UnixMilli()}.Encode()
			if err != nil {
				return err
			}
			boxed = append(boxed, []any{position, KindPatch, []byte{}, message})
		}
	}
	return tx.Batch(ctx, "INSERT INTO projection_outbox (position, kind, key, message) VALUES ($1, $2, $3, $4)", boxed, nil)
}

// settle discards from the rebuilt sets what was discarded from live ones since, and
// applies what waited behind it.
func (r *Rebuild) settle(ctx context.Context) error {
	if err := r.loadDiscarded(ctx); err != nil {
		return err
	}
	waiting, err := r.s.Letters(ctx, Filter{State: StateWaiting, Rebuilding: true})
	if err != nil {
		return err
	}
	for _, l := range waiting {
		if r.generations[r.tableOf(&l)] != generationOfKey(l.key) || !r.discarded(l.Projection, l.Address, l.Sequence) {
			continue
		}
		if _, err := r.s.Discard(ctx, l.ID, "rebuild", "it was discarded from the live table"); err != nil {
			return err
		}
		for _, behind := range waiting {
			if behind.key == l.key && behind.Address == l.Address && behind.Sequence > l.Sequence {
				if _, err := r.s.Retry(ctx, behind.ID, "rebuild"); err != nil && lattice.KindOf(err) == lattice.Unavailable {
					return err
				}
				break // it goes on to the end, or until one fails, which then waits
			}
		}
	}
	return nil
}

func (r *Rebuild) tableOf(l *Letter) tableID {
	if p := r.s.app.Projection(l.Projection); p != nil {
		return tableID{l.TenantSchema, p.Table}
	}
	return tableID{}
}
