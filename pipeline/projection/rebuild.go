package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// filledCursor is the cursor of rows that a rebuild filled: no patch made them, and the
// next one says that this was before it. Positions of patches behind the swap are greater.
const filledCursor = 1

// States of a set of tables.
const (
	SetBuilding = "building" // a rebuild fills it
	SetLive     = "live"
	SetStandby  = "standby" // swapped out; it is as it was then
)

// Rebuild is another generation of the tables of some projections, on its way to take the
// place of the live one. The table is the unit: all projections that write it belong to it.
//
// # Life of a rebuild
//
//  1. Begin makes the tables, empty, and the rows that name them, in one transaction. A
//     crash before its commit leaves nothing; behind it a set that Begin finds again.
//  2. Apply and Bury fill it from the topic or the ledger, each call a transaction with
//     guards of the set's own. The live set is neither read nor locked. A crash loses what
//     is not committed; what comes twice is a duplicate.
//  3. SetRead says how far the source is read. A crash before that reads some of it again.
//  4. Swap, in one transaction: waits until nobody writes the live set, and holds it;
//     applies what the live one has and this one lacks; counts; renames; puts a reset into
//     the outbox. A crash leaves all or nothing of that. Projectors wait meanwhile, and go
//     on with the new set's guards: what they deliver again is a duplicate there.
//
// A set that is not being filled any more (another process swapped or dropped it) is
// refused with lattice.Fenced. Two processes that fill one set do each other no harm: it is
// the guards that count.
//
// Events that somebody discarded from the live set are passed over. An event that cannot be
// applied becomes a dead letter of this set, with its entity parked behind it; nobody sees
// it (Filter.Rebuilding does) until the swap, when the set's dead letters take the place of
// those of the one before it.
type Rebuild struct {
	s           *Store
	generations map[tableID]int64
	projections []*spec.Projection
	gone        map[letterID]bool // discarded
	// Resumed says that all of it was begun earlier.
	Resumed bool
}

type letterID struct {
	projection string
	of         ledger.Address
	sequence   int64
}

// Begin begins a rebuild of projections, or finds the one that was begun with this text of
// the application; one of another text is dropped and begun anew. No names are all. Those
// that write the same tables are rebuilt, too.
func (s *Store) Begin(ctx context.Context, names []string) (*Rebuild, error) {
	r := &Rebuild{s: s}
	tables, err := s.tablesOf(names)
	if err != nil {
		return nil, err
	}
	for _, p := range s.app.Projections {
		if slices.Contains(tables, p.Table) {
			r.projections = append(r.projections, p)
		}
	}
	err = s.db.Write(ctx, func(tx sqldb.Tx) error {
		r.generations, r.Resumed = map[tableID]int64{}, true
		for _, schema := range s.schemas {
			var begun []set
			for _, t := range tables {
				of, err := r.begin(ctx, tx, schema, t)
				if err != nil {
					return err
				}
				begun = append(begun, of)
			}
			if err := s.makeTables(ctx, tx, schema, begun); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = r.loadDiscarded(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("begin to rebuild: %w", err)
	}
	return r, nil
}

// tablesOf returns the tables of projections, in order; of none those of all.
func (s *Store) tablesOf(names []string) ([]string, error) {
	var tables []string
	for _, name := range names {
		p := s.app.Projection(name)
		if p == nil {
			return nil, lattice.E(lattice.NotFound, fmt.Errorf("application %s has no projection %q", s.app.Name, name))
		}
		tables = append(tables, p.Table)
	}
	if len(names) == 0 {
		for _, t := range s.app.Tables {
			tables = append(tables, t.Name)
		}
	}
	if len(tables) == 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("application %s has no projection", s.app.Name))
	}
	slices.Sort(tables)
	return slices.Compact(tables), nil
}

// begin finds or makes the row of one table's next generation.
func (r *Rebuild) begin(ctx context.Context, tx sqldb.Tx, schema, table string) (set, error) {
	live, err := liveSet(ctx, tx, schema, table, forUpdate(tx.Dialect()))
	if err != nil {
		return set{}, err
	}
	all, err := setsOf(ctx, tx, schema, table)
	if err != nil {
		return set{}, err
	}
	newest := live.generation
	for _, i := range all {
		newest = max(newest, i.Generation)
		if i.State != SetBuilding {
			continue
		}
		if i.digest == r.s.app.Digest {
			r.generations[tableID{schema, table}] = i.Generation
			return set{name: table, generation: i.Generation}, nil
		}
		if err := r.s.drop(ctx, tx, schema, set{name: table, generation: i.Generation}); err != nil {
			return set{}, err
		}
	}
	r.Resumed = false
	of := set{name: table, generation: newest + 1}
	r.generations[tableID{schema, table}] = of.generation
	now := time.Now().UnixMilli()
	_, err = tx.Exec(ctx, `INSERT INTO projection_sets (tenant_schema, name, generation, state, digest, version, done, total, started_at, changed_at)
		VALUES ($1, $2, $3, $4, $5, $6, 0, 0, $7, $7)`, schema, table, of.generation, SetBuilding, r.s.app.Digest, r.s.app.Version, now)
	return of, err
}

// building checks that a set is still the rebuild's to fill, and holds that.
func (r *Rebuild) building(ctx context.Context, tx sqldb.Tx, schema string, of set, hold string) error {
	state := ""
	_, err := sqldb.One(ctx, tx, []any{&state}, "SELECT state FROM projection_sets WHERE tenant_schema = $1 AND name = $2 AND generation = $3"+hold, schema, of.name, of.generation)
	if err == nil && state != SetBuilding {
		err = ErrEnded
	}
	return err
}

// ErrEnded means that somebody else swapped or dropped what a rebuild fills.
var ErrEnded = lattice.E(lattice.Fenced, errors.New("this rebuild was ended by another process: see lattice app rebuild status"))

// Projections returns what is rebuilt, in order of their names.
func (r *Rebuild) Projections() []*spec.Projection { return r.projections }

// loadDiscarded reads which events somebody said are not to be applied.
func (r *Rebuild) loadDiscarded(ctx context.Context) error {
	gone := map[letterID]bool{}
	err := r.s.db.Read(ctx, func(tx sqldb.Tx) error {
		clear(gone)
		return tx.Query(ctx, func(scan sqldb.Scan) error {
			var id letterID
			if err := scan(&id.projection, &id.of.TenantSchema, &id.of.ForkID, &id.of.Stream, &id.of.EntityID, &id.sequence); err != nil {
				return err
			}
			id.projection = nameOfKey(id.projection)
			gone[id] = true
			return nil
		}, `SELECT projection, tenant_schema, fork_id, stream, entity_id, sequence_number FROM projection_dead_letters WHERE state = 'discarded' AND sequence_number > 0`)
	})
	if err == nil {
		r.gone = gone
	}
	return err
}

func (r *Rebuild) discarded(projection string, a ledger.Address, sequence int64) bool {
	return r.gone[letterID{projection, a, sequence}]
}

// Apply is Store.Apply to the set that is being filled. There are no patches.
func (r *Rebuild) Apply(ctx context.Context, p *spec.Projection, events []Event) (Applied, error) {
	var out Applied
	err := r.s.db.Write(ctx, func(tx sqldb.Tx) (err error) {
		b := r.s.batch(p, tx)
		b.filling = r
		out, err = b.all(ctx, events)
		return err
	})
	if err != nil {
		return Applied{}, fmt.Errorf("rebuild %s: %w", p.Name, err)
	}
	return out, nil
}

// Bury is Store.Bury in the set that is being filled.
func (r *Rebuild) Bury(ctx context.Context, p *spec.Projection, e Event, why Failure) error {
	err := r.s.db.Write(ctx, func(tx sqldb.Tx) error {
		b := r.s.batch(p, tx)
		b.filling = r
		return b.bury(ctx, e, why)
	})
	if err != nil {
		return fmt.Errorf("rebuild %s: bury an event: %w", p.Name, err)
	}
	return nil
}

// Read returns how far a source was read: the next of each part that is not in the tables.
// What all of the rebuild's tables have counts.
func (r *Rebuild) Read(ctx context.Context, source string) (map[int64]int64, error) {
	next, tables := map[int64]int64{}, map[int64]int{}
	err := r.s.db.Read(ctx, func(tx sqldb.Tx) error {
		clear(next)
		clear(tables)
		for id, generation := range r.generations {
			if err := tx.Query(ctx, func(scan sqldb.Scan) error {
				var part, at int64
				if err := scan(&part, &at); err != nil {
					return err
				}
				if was, there := next[part]; !there || at < was {
					next[part] = at
				}
				tables[part]++
				return nil
			}, "SELECT part, next FROM projection_sources WHERE tenant_schema = $1 AND name = $2 AND generation = $3 AND source = $4", id.schema, id.name, generation, source); err != nil {
				return err
			}
		}
		return nil
	})
	for part, n := range tables {
		if n < len(r.generations) { // some of the tables have nothing of it yet
			delete(next, part)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read how far the rebuild is: %w", err)
	}
	return next, nil
}

// SetRead notes how far a source is read, when all before it is in the tables, and for
// those who look how much of the whole that is.
func (r *Rebuild) SetRead(ctx context.Context, source string, next map[int64]int64, done, total int64) error {
	err := r.s.db.Write(ctx, func(tx sqldb.Tx) error {
		var args [][]any
		for _, id := range r.ids() {
			generation := r.generations[id]
			if err := r.building(ctx, tx, id.schema, set{name: id.name, generation: generation}, forUpdate(tx.Dialect())); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE projection_sets SET done = $1, total = $2, changed_at = $3 WHERE tenant_schema = $4 AND name = $5 AND generation = $6",
				done, total, time.Now().UnixMilli(), id.schema, id.name, generation); err != nil {
				return err
			}
			for part, at := range next {
				args = append(args, []any{id.schema, id.name, generation, source, part, at})
			}
		}
		return tx.Batch(ctx, `INSERT INTO projection_sources (tenant_schema, name, generation, source, part, next) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (tenant_schema, name, generation, source, part) DO UPDATE SET next = excluded.next`, args, nil)
	})
	if err != nil {
		return fmt.Errorf("note how far the rebuild is: %w", err)
	}
	return nil
}

// ids returns the tables in the order in which they are locked.
func (r *Rebuild) ids() []tableID {
	var all []tableID
	for id := range r.generations {
		all = append(all, id)
	}
	slices.SortFunc(all, func(a, b tableID) int {
		return compareAddresses(ledger.Address{TenantSchema: a.schema, Stream: a.name}, ledger.Address{TenantSchema: b.schema, Stream: b.name})
	})
	return all
}
