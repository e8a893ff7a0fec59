package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// SQLRows reads the projector's tables: those of the application, each with a column
// for the cursor of a row's last patch by each projection, and projection_head, whose
// position is the last patch's of all that is committed.
type SQLRows struct {
	DB  sqldb.DB
	App *spec.App
}

// Snapshot implements Rows. Rows that only another projection of the same table has
// written are not the projection's.
func (r SQLRows) Snapshot(ctx context.Context, s flow.Selector, each func([]flow.Row) error) (asOf int64, err error) {
	p := r.App.Projection(s.Name)
	if p == nil {
		return 0, lattice.E(lattice.NotFound, fmt.Errorf("the application has no projection %q", s.Name))
	}
	statement, args, err := r.statement(p, s)
	if err != nil {
		return 0, err
	}
	err = r.DB.Read(ctx, func(tx sqldb.Tx) error {
		if _, err := sqldb.One(ctx, tx, []any{&asOf}, "SELECT position FROM projection_head"); err != nil {
			return err
		}
		c := cut{each: each}
		err := tx.Query(ctx, func(scan sqldb.Scan) error {
			row, err := read(p, scan)
			if err != nil {
				return err
			}
			return c.add(row)
		}, statement, args...)
		if err != nil {
			return err
		}
		return c.flush()
	})
	if err != nil {
		// The projector makes the tables when it starts.
		if sqldb.Classify(err) == sqldb.ClassSchema {
			err = lattice.E(lattice.Unavailable, fmt.Errorf("the projection's table is not there yet: %w", err))
		}
		return 0, fmt.Errorf("read the rows of %s: %w", s.Name, err)
	}
	return asOf, nil
}

func (r SQLRows) statement(p *spec.Projection, s flow.Selector) (string, []any, error) {
	d, cursor := r.DB.Dialect(), sqldb.Quote(projection.CursorColumn(p.Name))
	statement := "SELECT " + cursor + ", " + strings.Join(projection.Columns(d, p), ", ") + " FROM " + d.Table(s.Tenant, p.Table) + " WHERE " + cursor + " > 0"
	if s.Entity == "" {
		return statement, nil, nil
	}
	name, ok := r.App.EntityColumn(p)
	if !ok {
		return "", nil, lattice.E(lattice.Unsupported, fmt.Errorf("rows of %s are not of one entity each", p.Name))
	}
	col, _ := p.Column(name)
	v, err := col.Convert(s.Entity)
	if err != nil {
		return "", nil, lattice.E(lattice.Invalid, err)
	}
	return statement + " AND " + sqldb.Quote(name) + " = $1", []any{col.Argument(v)}, nil
}

// read makes a row of what the database answers, as patches write it: columns without
// a value are not there.
func read(p *spec.Projection, scan sqldb.Scan) (flow.Row, error) {
	var row flow.Row
	values := make([]any, len(p.Columns))
	dest := make([]any, 0, len(values)+1)
	dest = append(dest, &row.Cursor)
	for i := range values {
		dest = append(dest, &values[i])
	}
	if err := scan(dest...); err != nil {
		return row, err
	}
	all := make(map[string]any, len(values))
	for i, c := range p.Columns {
		v, err := c.Read(values[i])
		if err != nil {
			return row, lattice.E(lattice.Corrupt, err)
		}
		if v != nil {
			all[c.Name] = c.JSONValue(v)
		}
	}
	key := make(map[string]any, len(p.Key))
	for _, k := range p.Key {
		key[k] = all[k]
	}
	var err error
	if row.Key, err = json.Marshal(key); err == nil {
		row.Row, err = json.Marshal(all)
	}
	return row, err
}
