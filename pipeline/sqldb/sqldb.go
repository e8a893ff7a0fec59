// Package sqldb is SQLite and PostgreSQL behind one small surface: transactions,
// statements that run once for each of many rows, migrations, and what an error
// means. Its users write one SQL for both; where the two differ they ask the
// Dialect.
//
// # What both promise
//
//   - Write runs a function in a transaction. If it returns nil and Write returns
//     nil, all of it is durable: after kill -9, and after a power cut. If Write
//     returns an error, nothing of it is there, but for ErrUnknown.
//   - Read runs a function on one snapshot of the data. It cannot write.
//   - Rows that a transaction locked with Tx.Lock stay as they are until it ends.
//
// # What SQLite does
//
// One file in WAL mode, synchronous FULL: a commit is an fsync of the log. One
// connection writes; transactions of Write take turns, and so every one of them
// is alone (serialisable). Others read the last commit meanwhile.
//
//	crash before COMMIT's frame is written   nothing of the transaction is there
//	crash between that and the fsync         all of it or nothing; nobody was told
//	crash after                              all of it is there
//
// # What PostgreSQL does
//
// A pool of connections; READ COMMITTED, so a transaction must lock what it bases
// a decision on. synchronous_commit is set to on for every connection, whatever
// the server's default is. A transaction that loses a deadlock or a race is done
// again from the start, a few times.
//
// # What it does not do
//
// It builds no SQL, maps no types, and keeps no connection alive for a caller. It
// speaks to one server: which one that is after a failover is the URL's business.
package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	lattice "github.com/lattice-log/lattice"
)

// DB is one database. It is safe for concurrent use.
//
// The implementer MUST pass TestBoth.
type DB interface {
	Dialect() Dialect
	// Write runs f in a transaction and commits it if f returns nil. f MUST be
	// fit to run more than once, MUST NOT keep tx, and MUST NOT call Write. It
	// MUST return an error that tx gave it: a failed statement ends the
	// transaction in PostgreSQL.
	//
	// Errors of f come back as they are. ErrUnknown: the connection broke in the
	// commit; ask what became of it by a key of your own.
	Write(ctx context.Context, f func(tx Tx) error) error
	// Read runs f on one snapshot. Statements that write fail.
	Read(ctx context.Context, f func(tx Tx) error) error
	// Migrate brings the tables that are known by name to the newest version in
	// files, which holds one folder of numbered .sql files for each dialect. It
	// refuses a database that a newer program has migrated further.
	Migrate(ctx context.Context, name string, files fs.FS) error
	// Close waits for transactions that run.
	Close() error
}

// Tx is a transaction. It belongs to one goroutine.
//
// Statements use $1, $2, … for their arguments. Those are nil, bool, int64,
// float64, string, []byte, and pointers to them.
type Tx interface {
	Dialect() Dialect
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, statement string, args ...any) (int64, error)
	// Query calls each for every row. A scan copies the row's columns; a NULL
	// goes into a pointer to a pointer.
	Query(ctx context.Context, each func(scan Scan) error, statement string, args ...any) error
	// Batch runs one statement for each of many rows of arguments, in one round
	// trip where there are round trips. each, if not nil, is called for every row
	// of results with the index of its arguments, in order.
	Batch(ctx context.Context, statement string, args [][]any, each func(i int, scan Scan) error) error
	// Lock is a query whose rows no other transaction changes or locks before
	// this one ends. The statement must be a plain SELECT from one table.
	Lock(ctx context.Context, each func(scan Scan) error, statement string, args ...any) error
}

// Scan copies the columns of a row to where dest points.
type Scan func(dest ...any) error

// Dialect is the SQL that a database speaks.
type Dialect string

// Dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

// Quote returns a name as an identifier. It holds any name that has no NUL.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Table returns the identifier of a table in a tenant's schema. SQLite has no
// schemas within one file: there it is a prefix, so that one transaction covers
// the tables of all tenants. A schema must have no "__" for that to be unique.
func (d Dialect) Table(schema, table string) string {
	if d == Postgres {
		return Quote(schema) + "." + Quote(table)
	}
	return Quote(schema + "__" + table)
}

// Options are what a database is opened with.
type Options struct {
	// Connections bounds the open connections: of PostgreSQL all (default 10),
	// of SQLite the readers (default 4). A pool_max_conns in the URL wins.
	Connections int
}

// Open opens the database that a URL names: sqlite:PATH, a plain path, or
// postgres://… as libpq takes it. SQLite's file is made if it is not there; a
// PostgreSQL database must be. It connects once, to fail here and not later.
func Open(ctx context.Context, where string, o Options) (DB, error) {
	switch {
	case strings.HasPrefix(where, "postgres://"), strings.HasPrefix(where, "postgresql://"):
		return openPostgres(ctx, where, o)
	case strings.HasPrefix(where, "sqlite:"):
		return openSQLite(ctx, strings.TrimPrefix(strings.TrimPrefix(where, "sqlite:"), "//"), o)
	case strings.Contains(where, "://"):
		scheme, _, _ := strings.Cut(where, "://")
		return nil, lattice.E(lattice.Unsupported, fmt.Errorf("open a database: scheme %q is not known: want sqlite:PATH or postgres://USER@HOST/DATABASE", scheme))
	case where == "":
		return nil, lattice.E(lattice.Invalid, errors.New("open a database: no address: want sqlite:PATH or postgres://USER@HOST/DATABASE"))
	}
	return openSQLite(ctx, where, o)
}

// Redact returns the URL without its password, for logs and errors.
func Redact(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		scheme, _, _ := strings.Cut(where, ":")
		return scheme + ":…"
	}
	if u.Query().Has("password") {
		q := u.Query()
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// One reads the single row of a query into dest and reports whether there was one.
func One(ctx context.Context, tx Tx, dest []any, statement string, args ...any) (bool, error) {
	found := false
	err := tx.Query(ctx, func(scan Scan) error {
		if found {
			return lattice.E(lattice.Internal, fmt.Errorf("more than one row for: %s", statement))
		}
		found = true
		return scan(dest...)
	}, statement, args...)
	return found, err
}
