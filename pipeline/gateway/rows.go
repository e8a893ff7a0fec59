package gateway

import (
	"context"
	"fmt"

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
			row, err := projection.ReadRow(p, scan)
			if err != nil {
				return err
			}
			return c.add(flow.Row{Key: row.Key, Row: row.Row, Cursor: row.Cursor})
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
	statement := "SELECT " + projection.Selection(d, p) + " FROM " + d.Table(s.Tenant, p.Table) + " WHERE " + cursor + " > 0"
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
