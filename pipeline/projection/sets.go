package projection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// SetInfo is what is known about one generation of a table.
type SetInfo struct {
	TenantSchema string    `json:"tenant_schema"`
	Table        string    `json:"table"`
	Stored       string    `json:"stored_as"` // its name in the database
	Generation   int64     `json:"generation"`
	State        string    `json:"state"`
	Version      string    `json:"version,omitempty"` // of the application that filled it
	Done         int64     `json:"done"`              // of Total, as the rebuild last said
	Total        int64     `json:"total"`
	Started      time.Time `json:"started,omitzero"`
	Changed      time.Time `json:"changed,omitzero"`
	DeadLetters  int64     `json:"dead_letters"` // that wait

	digest string
}

// Sets returns the generations of all tables, the live ones too.
func (s *Store) Sets(ctx context.Context) ([]SetInfo, error) {
	var all []SetInfo
	err := s.db.Read(ctx, func(tx sqldb.Tx) error {
		all = nil
		for _, schema := range s.schemas {
			for _, t := range s.app.Tables {
				live, err := liveSet(ctx, tx, schema, t.Name, "")
				if err != nil {
					return err
				}
				of, err := setsOf(ctx, tx, schema, t.Name)
				if err != nil {
					return err
				}
				if !slices.ContainsFunc(of, func(i SetInfo) bool { return i.Generation == live.generation }) {
					of = append([]SetInfo{{TenantSchema: schema, Table: t.Name, Generation: live.generation, State: SetLive}}, of...)
				}
				for _, i := range of {
					one := set{name: t.Name, generation: i.Generation, live: i.Generation == live.generation}
					i.Stored = one.table()
					for _, p := range t.Projections {
						var n int64
						if _, err := sqldb.One(ctx, tx, []any{&n}, `SELECT count(*) FROM projection_dead_letters WHERE projection = $1 AND tenant_schema = $2 AND state IN ('failed', 'parked')`,
							one.key(p), schema); err != nil {
							return err
						}
						i.DeadLetters += n
					}
					all = append(all, i)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return all, nil
}

// setsOf returns the generations of a table that have a row, in their order.
func setsOf(ctx context.Context, tx sqldb.Tx, schema, table string) ([]SetInfo, error) {
	var all []SetInfo
	err := tx.Query(ctx, func(scan sqldb.Scan) error {
		i := SetInfo{TenantSchema: schema, Table: table}
		var started, changed int64
		if err := scan(&i.Generation, &i.State, &i.digest, &i.Version, &i.Done, &i.Total, &started, &changed); err != nil {
			return err
		}
		i.Started, i.Changed = time.UnixMilli(started).UTC(), time.UnixMilli(changed).UTC()
		all = append(all, i)
		return nil
	}, `SELECT generation, state, digest, version, done, total, started_at, changed_at FROM projection_sets
		WHERE tenant_schema = $1 AND name = $2 ORDER BY generation`, schema, table)
	return all, err
}

// Revert begins to bring back the tables that were swapped out last: they are filled with
// what came since, and swapped in, as in a rebuild. It wants the text of the application
// that filled them, and refuses while a rebuild is under way.
func (s *Store) Revert(ctx context.Context, names []string) (*Rebuild, error) {
	tables, err := s.tablesOf(names)
	if err != nil {
		return nil, err
	}
	r := &Rebuild{s: s}
	for _, p := range s.app.Projections {
		if slices.Contains(tables, p.Table) {
			r.projections = append(r.projections, p)
		}
	}
	err = s.db.Write(ctx, func(tx sqldb.Tx) error {
		r.generations = map[tableID]int64{}
		for _, schema := range s.schemas {
			for _, t := range tables {
				if err := r.revert(ctx, tx, schema, t); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		err = r.loadDiscarded(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("roll back: %w", err)
	}
	return r, nil
}

func (r *Rebuild) revert(ctx context.Context, tx sqldb.Tx, schema, table string) error {
	if _, err := liveSet(ctx, tx, schema, table, forUpdate(tx.Dialect())); err != nil {
		return err
	}
	all, err := setsOf(ctx, tx, schema, table)
	if err != nil {
		return err
	}
	var last *SetInfo
	for i := range all {
		switch {
		case all[i].State == SetBuilding:
			return lattice.E(lattice.Conflict, fmt.Errorf("table %s is being rebuilt: end that first, with lattice app rebuild or lattice app rebuild drop", table))
		case all[i].State == SetStandby && (last == nil || all[i].Changed.After(last.Changed) || all[i].Changed.Equal(last.Changed)):
			last = &all[i]
		}
	}
	if last == nil {
		return lattice.E(lattice.NotFound, fmt.Errorf("table %s has nothing to go back to: no rebuild was swapped in, or what was before it is dropped", table))
	}
	if last.digest != "" && last.digest != r.s.app.Digest {
		return lattice.E(lattice.Conflict, fmt.Errorf("table %s was filled by version %s of the application, and this is another: name the directory of that one", table, last.Version))
	}
	r.generations[tableID{schema, table}] = last.Generation
	_, err = tx.Exec(ctx, "UPDATE projection_sets SET state = $1, digest = $2, changed_at = $3 WHERE tenant_schema = $4 AND name = $5 AND generation = $6",
		SetBuilding, r.s.app.Digest, time.Now().UnixMilli(), schema, table, last.Generation)
	return err
}

// Drop drops all sets of projections' tables that are not live, of none those of all: what
// was swapped out, and what is being filled. It returns which. Dead letters that wait in
// them are settled as superseded.
func (s *Store) Drop(ctx context.Context, names []string) ([]SetInfo, error) {
	tables, err := s.tablesOf(names)
	if err != nil {
		return nil, err
	}
	var dropped []SetInfo
	err = s.db.Write(ctx, func(tx sqldb.Tx) error {
		dropped = nil
		for _, schema := range s.schemas {
			for _, t := range tables {
				live, err := liveSet(ctx, tx, schema, t, forUpdate(tx.Dialect()))
				if err != nil {
					return err
				}
				all, err := setsOf(ctx, tx, schema, t)
				if err != nil {
					return err
				}
				for _, i := range all {
					if i.Generation == live.generation {
						continue
					}
					of := set{name: t, generation: i.Generation}
					if err := s.drop(ctx, tx, schema, of); err != nil {
						return err
					}
					i.Stored = of.table()
					dropped = append(dropped, i)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("drop what is not live: %w", err)
	}
	return dropped, nil
}

// drop takes a set and all that belongs to it out of the database. A rebuild that fills it
// finds its row gone, and ends.
func (s *Store) drop(ctx context.Context, tx sqldb.Tx, schema string, of set) error {
	for _, table := range []string{"projection_sets", "projection_sources"} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE tenant_schema = $1 AND name = $2 AND generation = $3", schema, of.name, of.generation); err != nil {
			return err
		}
	}
	for _, t := range s.app.Tables {
		if t.Name != of.name {
			continue
		}
		for _, p := range t.Projections {
			if _, err := tx.Exec(ctx, "DELETE FROM projection_guards WHERE projection = $1 AND tenant_schema = $2", of.key(p), schema); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE projection_dead_letters SET state = $1, hidden = 0, resolved_at = $2, resolved_by = 'rebuild', reason = $3
				WHERE projection = $4 AND tenant_schema = $5 AND sequence_number > 0 AND state IN ('failed', 'parked')`,
				StateSuperseded, time.Now().UnixMilli(), fmt.Sprintf("its tables, generation %d, were dropped", of.generation), of.key(p), schema); err != nil {
				return err
			}
		}
	}
	_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+tx.Dialect().Table(schema, of.table()))
	return err
}

// Describe says a set in a few words.
func (i SetInfo) Describe() string {
	words := []string{i.TenantSchema + "." + i.Table, fmt.Sprintf("generation %d", i.Generation), i.State}
	return strings.Join(words, ", ")
}

// Live reports whether all of the rebuild's sets are live.
func (r *Rebuild) Live(ctx context.Context) (bool, error) {
	all := true
	err := r.s.db.Read(ctx, func(tx sqldb.Tx) error {
		all = true
		for id, generation := range r.generations {
			live, err := liveSet(ctx, tx, id.schema, id.name, "")
			if err != nil {
				return err
			}
			all = all && live.generation == generation
		}
		return nil
	})
	return all, err
}
