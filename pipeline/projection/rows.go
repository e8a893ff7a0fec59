package projection

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// row is one row that a transaction has locked, or will make.
type row struct {
	schema string
	key    []spec.Cell
	values map[string]any // by column, as spec wants them; nil: there is none
	stored bool           // the database has it
	cursor int64          // of its last patch by this projection; 0: none
	// patched says that a patch of this transaction made or changed it since it was made.
	patched bool
	changed map[string]bool // columns to be written
	deleted bool            // and perhaps made again: then all columns are to be written
	dirty   bool
}

// rowName names a row among those of a transaction, and gives their order.
func rowName(schema string, key []spec.Cell) string {
	var b strings.Builder
	b.WriteString(schema)
	for _, c := range key {
		switch v := c.Value.(type) {
		case time.Time:
			fmt.Fprintf(&b, "\x00%020d", v.UnixMicro())
		default:
			fmt.Fprintf(&b, "\x00%v", v)
		}
	}
	return b.String()
}

func sortedNames(rows map[string]*row) []string {
	names := make([]string, 0, len(rows))
	for name := range rows {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// do does one operation to the row in memory.
func (r *row) do(op spec.RowOp) {
	r.dirty = true
	if op.Kind == spec.Delete {
		r.values, r.deleted = nil, true
		return
	}
	if r.changed == nil {
		r.changed = map[string]bool{}
	}
	if op.Kind == spec.Insert {
		r.values = map[string]any{}
		for _, c := range r.key {
			r.values[c.Column] = c.Value
		}
	}
	for _, c := range op.Set {
		r.values[c.Column], r.changed[c.Column] = c.Value, true
	}
}

// whole returns all that the row has as an insert.
func (r *row) whole(p *spec.Projection) spec.RowOp {
	op := spec.RowOp{Kind: spec.Insert, Table: p.Table, Key: r.key}
	for _, col := range p.Columns {
		if slices.Contains(p.Key, col.Name) {
			continue
		}
		if v, err := col.Read(r.values[col.Name]); err == nil && v != nil {
			op.Set = append(op.Set, spec.Cell{Column: col.Name, Value: v})
		}
	}
	return op
}

// lockRows reads and locks the rows of all steps, in the order of their names. In
// PostgreSQL a row that will be made is made now, with its key alone, so that another who
// wants to make it waits.
func (b *batch) lockRows(ctx context.Context) error {
	for i := range b.work {
		w := &b.work[i]
		if w.step.Key == nil {
			continue
		}
		name := rowName(w.to.TenantSchema, w.step.Key)
		if b.rows[name] == nil {
			b.rows[name] = &row{schema: w.to.TenantSchema, key: w.step.Key}
		}
	}
	names := sortedNames(b.rows)
	if err := b.readRows(ctx, names); err != nil || b.tx.Dialect() == sqldb.SQLite {
		return err
	}
	if names = b.tobe(names); len(names) == 0 {
		return nil
	}
	var lost []string
	err := b.eachSchema(names, func(schema string, names []string) error {
		made := make([]bool, len(names))
		var columns, holders []string
		for i, k := range b.p.Key {
			columns, holders = append(columns, sqldb.Quote(k)), append(holders, fmt.Sprintf("$%d", i+1))
		}
		statement := "INSERT INTO " + b.table(schema) + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(holders, ", ") +
			") ON CONFLICT DO NOTHING RETURNING 1"
		if err := b.tx.Batch(ctx, statement, b.keys(names), func(i int, scan sqldb.Scan) error { made[i] = true; return nil }); err != nil {
			return err
		}
		for i, name := range names {
			if made[i] {
				b.rows[name].stored = true // and not there, for all that reads it
			} else {
				lost = append(lost, name)
			}
		}
		return nil
	})
	if err != nil || len(lost) == 0 {
		return err
	}
	// Another was first, and has committed.
	if err := b.readRows(ctx, lost); err != nil {
		return err
	}
	for _, name := range lost {
		if !b.rows[name].stored {
			return lattice.E(lattice.Unavailable, fmt.Errorf("a row of %s came and went", b.p.Table))
		}
	}
	return nil
}

// tobe returns which of the rows that are not there an event would make.
func (b *batch) tobe(names []string) []string {
	makes := map[string]bool{}
	for i := range b.work {
		w := &b.work[i]
		if w.step.Key == nil {
			continue
		}
		name := rowName(w.to.TenantSchema, w.step.Key)
		if b.rows[name].stored || makes[name] {
			continue
		}
		ops, err := w.step.Apply(nil)
		makes[name] = err == nil && len(ops) > 0 && ops[0].Kind == spec.Insert
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !makes[name] })
}

// eachSchema calls f for the names of each tenant's rows, which are neighbours.
func (b *batch) eachSchema(names []string, f func(schema string, names []string) error) error {
	for len(names) > 0 {
		schema, n := b.rows[names[0]].schema, 0
		for n < len(names) && b.rows[names[n]].schema == schema {
			n++
		}
		if err := f(schema, names[:n]); err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}

// keys returns the arguments that name rows.
func (b *batch) keys(names []string) [][]any {
	args := make([][]any, len(names))
	for i, name := range names {
		args[i] = b.args(b.rows[name].key)
	}
	return args
}

func (b *batch) args(cells []spec.Cell) []any {
	args := make([]any, len(cells))
	for i, c := range cells {
		col, _ := b.p.Column(c.Column)
		args[i] = col.Argument(c.Value)
	}
	return args
}

// selection returns what is read of a row: all columns, and the cursor.
func (b *batch) selection(schema string) string {
	return "SELECT " + strings.Join(Columns(b.tx.Dialect(), b.p), ", ") + ", COALESCE(" + sqldb.Quote(CursorColumn(b.p.Name)) + ", 0) FROM " + b.table(schema)
}

// where returns a condition on columns, whose arguments begin with $first.
func where(columns []string, first int) string {
	var all []string
	for i, c := range columns {
		all = append(all, fmt.Sprintf("%s = $%d", sqldb.Quote(c), first+i))
	}
	return " WHERE " + strings.Join(all, " AND ")
}

// forUpdate is what makes a SELECT lock what it reads.
func forUpdate(d sqldb.Dialect) string {
	if d == sqldb.Postgres {
		return " FOR UPDATE"
	}
	return "" // a transaction that writes is alone
}

func (b *batch) readRows(ctx context.Context, names []string) error {
	return b.eachSchema(names, func(schema string, names []string) error {
		statement := b.selection(schema) + where(b.p.Key, 1) + forUpdate(b.tx.Dialect())
		return b.tx.Batch(ctx, statement, b.keys(names), func(i int, scan sqldb.Scan) error {
			return b.scan(scan, b.rows[names[i]])
		})
	})
}

func (b *batch) scan(scan sqldb.Scan, r *row) error {
	dest := make([]any, len(b.p.Columns)+1)
	values := make([]any, len(b.p.Columns))
	for i := range values {
		dest[i] = &values[i]
	}
	dest[len(values)] = &r.cursor
	if err := scan(dest...); err != nil {
		return err
	}
	r.stored, r.values = true, make(map[string]any, len(values))
	for i, c := range b.p.Columns {
		r.values[c.Name] = values[i]
	}
	return nil
}

// lockWhere reads and locks all rows of the database that fit and are not in memory yet.
func (b *batch) lockWhere(ctx context.Context, schema string, cells []spec.Cell) error {
	var columns []string
	for _, c := range cells {
		columns = append(columns, c.Column)
	}
	return b.tx.Lock(ctx, func(scan sqldb.Scan) error {
		r := &row{schema: schema}
		if err := b.scan(scan, r); err != nil {
			return err
		}
		for _, name := range b.p.Key {
			col, _ := b.p.Column(name)
			v, err := col.Read(r.values[name])
			if err != nil {
				return err
			}
			r.key = append(r.key, spec.Cell{Column: name, Value: v})
		}
		if name := rowName(schema, r.key); b.rows[name] == nil {
			b.rows[name] = r
		}
		return nil
	}, b.selection(schema)+where(columns, 1), b.args(cells)...)
}

// fits reports whether a row in memory has the values.
func (b *batch) fits(r *row, cells []spec.Cell) bool {
	return !slices.ContainsFunc(cells, func(c spec.Cell) bool {
		col, _ := b.p.Column(c.Column)
		v, err := col.Read(r.values[c.Column])
		return err != nil || !equal(v, c.Value)
	})
}

func equal(a, b any) bool {
	switch x := a.(type) {
	case time.Time:
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	case []byte:
		y, ok := b.([]byte)
		return ok && bytes.Equal(x, y)
	}
	return a != nil && a == b
}

// statements are what is to be run, each once for several rows of arguments.
type statements struct {
	order []string
	args  map[string][][]any
}

func (s *statements) add(statement string, args []any) {
	if s.args == nil {
		s.args = map[string][][]any{}
	}
	if s.args[statement] == nil {
		s.order = append(s.order, statement)
	}
	s.args[statement] = append(s.args[statement], args)
}

func (s *statements) run(ctx context.Context, tx sqldb.Tx) error {
	for _, statement := range s.order {
		if err := tx.Batch(ctx, statement, s.args[statement], nil); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes each row that changed once, however many events changed it.
func (b *batch) writeRows(ctx context.Context) error {
	var todo statements
	cursor := sqldb.Quote(CursorColumn(b.p.Name))
	for _, name := range sortedNames(b.rows) {
		r := b.rows[name]
		table := b.table(r.schema)
		switch {
		case r.values == nil && r.stored: // deleted, or made for its lock and not needed
			todo.add("DELETE FROM "+table+where(b.p.Key, 1), b.args(r.key))
		case !r.dirty || r.values == nil:
		case r.stored:
			set, cells := []string{cursor + " = $1"}, []spec.Cell(nil)
			for _, c := range b.p.Columns {
				if r.changed[c.Name] || r.deleted && !slices.Contains(b.p.Key, c.Name) {
					cells = append(cells, spec.Cell{Column: c.Name, Value: r.values[c.Name]})
					set = append(set, fmt.Sprintf("%s = $%d", sqldb.Quote(c.Name), len(cells)+1))
				}
			}
			args := append([]any{r.cursor}, b.args(append(cells, r.key...))...)
			todo.add("UPDATE "+table+" SET "+strings.Join(set, ", ")+where(b.p.Key, len(cells)+2), args)
		default:
			columns, holders, args := []string{cursor}, []string{"$1"}, []any{r.cursor}
			for _, c := range b.p.Columns {
				columns, holders = append(columns, sqldb.Quote(c.Name)), append(holders, fmt.Sprintf("$%d", len(args)+1))
				args = append(args, c.Argument(r.values[c.Name]))
			}
			todo.add("INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(holders, ", ")+")", args)
		}
	}
	return todo.run(ctx, b.tx)
}
