package projection

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// MaxRows bounds the rows that one read returns.
const MaxRows = 10000

// Row is one row, as patches write it: columns without a value are not there.
type Row struct {
	Key, Row json.RawMessage
	Cursor   int64 // of its last patch by the projection
}

// Selection returns what ReadRow reads: the projection's columns behind its cursor.
func Selection(d sqldb.Dialect, p *spec.Projection) string {
	return sqldb.Quote(CursorColumn(p.Name)) + ", " + strings.Join(Columns(d, p), ", ")
}

// ReadRow makes a row of what the database answers to Selection.
func ReadRow(p *spec.Projection, scan sqldb.Scan) (Row, error) {
	var row Row
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

// List returns up to limit rows of a projection in the order of their primary key: those
// whose columns have the values of key, some columns of the primary key, and that come
// behind the primary key after. Both may be nil. Rows that only another projection of the
// same table has written are not the projection's.
func (s *Store) List(ctx context.Context, projection, tenantSchema string, key, after map[string]any, limit int) ([]Row, error) {
	p := s.app.Projection(projection)
	if p == nil {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("the application has no projection %q", projection))
	}
	if !s.Serves(tenantSchema) {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("there are no tables of %q", tenantSchema))
	}
	if limit <= 0 || limit > MaxRows {
		limit = MaxRows
	}
	d, cursor := s.db.Dialect(), sqldb.Quote(CursorColumn(p.Name))
	statement := "SELECT " + Selection(d, p) + " FROM " + d.Table(tenantSchema, p.Table) + " WHERE " + cursor + " > 0"
	var args []any
	for _, name := range slices.Sorted(maps.Keys(key)) {
		v, err := keyArgument(p, name, key[name])
		if err != nil {
			return nil, err
		}
		args = append(args, v)
		statement += fmt.Sprintf(" AND %s = $%d", sqldb.Quote(name), len(args))
	}
	var columns, holders []string
	for _, name := range p.Key {
		columns = append(columns, sqldb.Quote(name))
		if after != nil {
			v, err := keyArgument(p, name, after[name])
			if err != nil {
				return nil, err
			}
			args = append(args, v)
			holders = append(holders, fmt.Sprintf("$%d", len(args)))
		}
	}
	order := strings.Join(columns, ", ")
	if after != nil {
		statement += " AND (" + order + ") > (" + strings.Join(holders, ", ") + ")"
	}
	args = append(args, int64(limit))
	statement += fmt.Sprintf(" ORDER BY %s LIMIT $%d", order, len(args))
	var all []Row
	err := s.db.Read(ctx, func(tx sqldb.Tx) error {
		all = nil
		return tx.Query(ctx, func(scan sqldb.Scan) error {
			row, err := ReadRow(p, scan)
			all = append(all, row)
			return err
		}, statement, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("list the rows of %s: %w", projection, err)
	}
	return all, nil
}

// keyArgument returns the value of a column of the primary key as the database wants it.
func keyArgument(p *spec.Projection, name string, value any) (any, error) {
	col, ok := p.Column(name)
	if !ok || !slices.Contains(p.Key, name) {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("%s has no column %q in its primary key, which is %q", p.Name, name, p.Key))
	}
	v, err := col.Convert(value)
	if err == nil && v == nil {
		err = fmt.Errorf("column %s of a key cannot be null", name)
	}
	if err != nil {
		return nil, lattice.E(lattice.Invalid, err)
	}
	return col.Argument(v), nil
}
