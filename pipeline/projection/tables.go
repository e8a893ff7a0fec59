package projection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// maxIdentifier is PostgreSQL's bound of a name; it cuts what is longer without a word.
const maxIdentifier = 63

// ddlLock is the key of PostgreSQL's advisory lock under which tables are made: CREATE …
// IF NOT EXISTS fails when two do it at once.
const ddlLock = 0x6c617474696365 // "lattice"

// makeTables makes what is missing of sets of tables in one tenant's schema.
func (s *Store) makeTables(ctx context.Context, tx sqldb.Tx, schema string, sets []set) error {
	if tx.Dialect() == sqldb.Postgres {
		if err := tx.Query(ctx, func(sqldb.Scan) error { return nil }, "SELECT pg_advisory_xact_lock($1)", int64(ddlLock)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+sqldb.Quote(schema)); err != nil {
			return err
		}
	}
	for _, of := range sets {
		i := slices.IndexFunc(s.app.Tables, func(t *spec.Table) bool { return t.Name == of.name })
		t := s.app.Tables[i]
		if err := makeTable(ctx, tx, schema, of, t, s.app.Projections); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	return nil
}

func makeTable(ctx context.Context, tx sqldb.Tx, schema string, of set, t *spec.Table, projections []*spec.Projection) error {
	d := tx.Dialect()
	have, err := columnsOf(ctx, tx, schema, of.table())
	if err != nil {
		return err
	}
	type column struct{ name, declared string }
	var want []column
	for _, c := range t.Columns {
		want = append(want, column{c.Name, declare(d, c)})
	}
	for _, p := range projections {
		if p.Table == t.Name {
			want = append(want, column{CursorColumn(p.Name), declare(d, spec.Column{Type: spec.BigInt})})
		}
	}
	if len(have.types) == 0 {
		var defs, key []string
		for _, c := range want {
			def := sqldb.Quote(c.name) + " " + c.declared
			if slices.Contains(t.Key, c.name) {
				def += " NOT NULL"
			}
			defs = append(defs, def)
		}
		for _, k := range t.Key {
			key = append(key, sqldb.Quote(k))
		}
		statement := "CREATE TABLE " + d.Table(schema, of.table()) + " (" + strings.Join(defs, ", ") + ", PRIMARY KEY (" + strings.Join(key, ", ") + "))"
		if d == sqldb.SQLite {
			statement += " STRICT, WITHOUT ROWID"
		} else {
			statement += " WITH (fillfactor = 80)" // so that counters are updated in place
		}
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	} else {
		if !slices.Equal(have.key, t.Key) {
			return lattice.E(lattice.Conflict, fmt.Errorf("its primary key is %q in the database and %q in the application: rebuild it (lattice app rebuild), or give the projection a table of another name", have.key, t.Key))
		}
		for _, c := range want {
			was, there := have.types[c.name]
			if is := strings.ToLower(c.declared); there && was != is {
				return lattice.E(lattice.Conflict, fmt.Errorf("column %s is %s in the database and %s in the application: rebuild it (lattice app rebuild), or give the projection a table of another name", c.name, was, is))
			}
			if !there {
				if _, err := tx.Exec(ctx, "ALTER TABLE "+d.Table(schema, of.table())+" ADD COLUMN "+sqldb.Quote(c.name)+" "+c.declared); err != nil {
					return err
				}
			}
		}
	}
	for _, ix := range t.Indexes {
		if _, err := tx.Exec(ctx, indexStatement(d, schema, of, ix)); err != nil {
			return fmt.Errorf("index on %s: %w", strings.Join(ix.Columns, ", "), err)
		}
	}
	return nil
}

// indexStatement makes an index whose name says what it is of, so that another declaration
// is another index. A rebuilt table keeps its own when it is swapped in.
func indexStatement(d sqldb.Dialect, schema string, of set, ix spec.Index) string {
	direction, unique := "", ""
	if ix.Descending {
		direction = " DESC"
	}
	if ix.Unique {
		unique = "UNIQUE "
	}
	var columns []string
	for _, c := range ix.Columns {
		columns = append(columns, sqldb.Quote(c)+direction)
	}
	what := strings.Join(columns, ",") + unique
	if of.generation > 1 {
		what += keyMark + strconv.FormatInt(of.generation, 10)
	}
	name := bounded(of.name+"_", what, true)
	if d == sqldb.SQLite { // names of indexes are the file's
		name = schema + "__" + name
	}
	return "CREATE " + unique + "INDEX IF NOT EXISTS " + sqldb.Quote(name) + " ON " + d.Table(schema, of.table()) + " (" + strings.Join(columns, ", ") + ")"
}

// CursorColumn is the column that holds the cursor of a row's last patch by a projection.
// No declared column has a colon in its name.
func CursorColumn(projection string) string { return bounded("cursor:", projection, false) }

// Columns returns what is selected of a projection's columns, quoted, in the order of
// their declaration, for spec.Column.Read to read.
func Columns(d sqldb.Dialect, p *spec.Projection) []string {
	var columns []string
	for _, c := range p.Columns {
		name := sqldb.Quote(c.Name)
		if d == sqldb.Postgres {
			switch c.Type {
			case spec.JSON, spec.UUID, spec.Timestamp, spec.Decimal: // the driver has types of its own for these
				name += "::text"
			}
		}
		columns = append(columns, name)
	}
	return columns
}

// bounded returns prefix and rest, or, if that is too long or always is set, a hash for rest.
func bounded(prefix, rest string, always bool) string {
	if !always && len(prefix)+len(rest) <= maxIdentifier {
		return prefix + rest
	}
	sum := sha256.Sum256([]byte(prefix + rest))
	return prefix[:min(len(prefix), maxIdentifier-16)] + hex.EncodeToString(sum[:8])
}

// existing is what a table has in the database.
type existing struct {
	types map[string]string // lower-case, without size
	key   []string
}

func columnsOf(ctx context.Context, tx sqldb.Tx, schema, table string) (existing, error) {
	e := existing{types: map[string]string{}}
	each := func(scan sqldb.Scan) error {
		var name, kind string
		var key int64
		if err := scan(&name, &kind, &key); err != nil {
			return err
		}
		e.types[name] = strings.ToLower(kind)
		if key > 0 {
			e.key = append(e.key, name)
		}
		return nil
	}
	if tx.Dialect() == sqldb.SQLite {
		return e, tx.Query(ctx, each, "SELECT name, type, pk FROM pragma_table_info($1) ORDER BY pk, cid", schema+"__"+table)
	}
	return e, tx.Query(ctx, each, `SELECT a.attname::text, format_type(a.atttypid, NULL), COALESCE(array_position(i.indkey::int2[], a.attnum) + 1, 0)::bigint
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 3, a.attnum`, schema, table)
}

// declare returns a column's type as the database declares it. The names are those that
// format_type says. Sizes are not declared: spec checks them, and an application may change them.
func declare(d sqldb.Dialect, c spec.Column) string {
	if d == sqldb.SQLite {
		switch c.Type {
		case spec.SmallInt, spec.Integer, spec.BigInt, spec.Boolean:
			return "INTEGER"
		case spec.Double:
			return "REAL"
		case spec.Bytes:
			return "BLOB"
		}
		return "TEXT"
	}
	switch c.Type {
	case spec.SmallInt:
		return "SMALLINT"
	case spec.Integer:
		return "INTEGER"
	case spec.BigInt:
		return "BIGINT"
	case spec.Double:
		return "DOUBLE PRECISION"
	case spec.Boolean:
		return "BOOLEAN"
	case spec.JSON:
		return "JSONB"
	case spec.UUID:
		return "UUID"
	case spec.Timestamp:
		return "TIMESTAMP WITH TIME ZONE"
	case spec.Decimal:
		return "NUMERIC"
	case spec.Bytes:
		return "BYTEA"
	}
	return "TEXT"
}
