package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	lattice "github.com/lattice-log/lattice"
)

// busyWithin bounds how long a transaction waits for another process's.
const busyWithin = 10 * time.Second

// maxStatements bounds the prepared statements that a connection keeps.
const maxStatements = 256

// lite is a DB over one SQLite file.
type lite struct {
	path string
	// One connection writes, so that writers wait here, in order and without
	// polling, and not in SQLite.
	writer, readers *pool
}

func openSQLite(ctx context.Context, path string, o Options) (DB, error) {
	if path == "" || path == ":memory:" {
		return nil, lattice.E(lattice.Unsupported, errors.New("open SQLite: a database in memory is not durable; want sqlite:PATH"))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	l := &lite{path: path}
	if l.writer, err = openPool(ctx, path, 1, "BEGIN IMMEDIATE", ""); err != nil {
		return nil, fmt.Errorf("open SQLite file %s: %w", path, kinded(err))
	}
	// SQLite syncs the directory when it makes its log, but not when it makes the
	// file itself.
	if err := syncDir(filepath.Dir(path)); err != nil {
		_ = l.Close()
		return nil, lattice.E(lattice.Storage, fmt.Errorf("open SQLite file %s: %w", path, err))
	}
	n := o.Connections
	if n <= 0 {
		n = 4
	}
	if l.readers, err = openPool(ctx, path, n, "BEGIN", "&_pragma=query_only(1)"); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("open SQLite file %s: %w", path, kinded(err))
	}
	return l, nil
}

func (l *lite) Dialect() Dialect { return SQLite }

func (l *lite) Close() error {
	var errs []error
	// The writer goes last: the last connection folds the log into the file.
	for _, p := range []*pool{l.readers, l.writer} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}

func (l *lite) Write(ctx context.Context, f func(Tx) error) error {
	return kinded(l.writer.run(ctx, f))
}

func (l *lite) Read(ctx context.Context, f func(Tx) error) error {
	return kinded(l.readers.run(ctx, f))
}

// Migrate uses a connection of its own, since goose takes a pool of database/sql.
func (l *lite) Migrate(ctx context.Context, name string, files fs.FS) error {
	db, err := sql.Open("sqlite", dsn(l.path, "&_txlock=immediate"))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	defer db.Close()
	err = migrate(ctx, db, goose.DialectSQLite3, SQLite, name, files)
	if err != nil && !errors.Is(err, ErrNewer) {
		// Of two processes that migrate at once one may fail; then the other has done it.
		err = migrate(ctx, db, goose.DialectSQLite3, SQLite, name, files)
	}
	return err
}

// dsn is the driver's address of the file with what every connection needs.
// fullfsync matters on macOS alone, where fsync does not reach the platter.
func dsn(path, extra string) string {
	return (&url.URL{Scheme: "file", Path: path}).String() +
		"?_pragma=busy_timeout(" + strconv.FormatInt(busyWithin.Milliseconds(), 10) + ")" +
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=fullfsync(1)&_pragma=checkpoint_fullfsync(1)&_pragma=foreign_keys(1)" + extra
}

// pool is connections of one kind. Whoever takes one has it alone.
type pool struct {
	db    *sql.DB
	begin string
	free  chan *connection // holds size connections when nobody works
	size  int
}

// connection is a connection with the statements that it has prepared.
type connection struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

func openPool(ctx context.Context, path string, size int, begin, extra string) (*pool, error) {
	db, err := sql.Open("sqlite", dsn(path, extra))
	if err != nil {
		return nil, err
	}
	p := &pool{db: db, begin: begin, free: make(chan *connection, size), size: size}
	for range size {
		c, err := p.connect(ctx)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		p.free <- c
	}
	return p, nil
}

func (p *pool) connect(ctx context.Context) (*connection, error) {
	c, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &connection{c, map[string]*sql.Stmt{}}, nil
}

// close waits for who has a connection.
func (p *pool) close() error {
	for range p.size {
		c := <-p.free
		c.close()
	}
	p.size = 0
	return p.db.Close()
}

func (c *connection) close() {
	for _, s := range c.statements {
		_ = s.Close()
	}
	_ = c.conn.Close()
}

// run is one transaction.
func (p *pool) run(ctx context.Context, f func(Tx) error) (err error) {
	var c *connection
	select {
	case c = <-p.free:
	case <-ctx.Done():
		return fmt.Errorf("wait for a connection: %w", ctx.Err())
	}
	// What ends a transaction is not interrupted half way.
	end := context.WithoutCancel(ctx)
	open := false
	defer func() {
		if open { // f failed or panicked, or COMMIT left the transaction open, as on a full disk
			if _, rerr := c.exec(end, "ROLLBACK"); rerr != nil && !noTransaction(rerr) {
				err = errors.Join(err, fmt.Errorf("roll back: %w", rerr), p.replace(end, &c))
			}
		}
		p.free <- c
	}()
	if _, err := c.exec(ctx, p.begin); err != nil {
		open = true // it may have begun all the same
		return fmt.Errorf("begin: %w", err)
	}
	open = true
	if err := f(liteTx{c}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := c.exec(end, "COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	open = false
	return nil
}

// noTransaction reports that there is nothing to roll back: some errors, a full
// disk for one, make SQLite do it by itself.
func noTransaction(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active")
}

// replace puts a new connection in the place of one that is in an unknown state.
func (p *pool) replace(ctx context.Context, c **connection) error {
	(*c).close()
	fresh, err := p.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect again: %w", err)
	}
	*c = fresh
	return nil
}

// prepare returns a statement that stays prepared, since preparing costs more
// than running. Behind the bound all are let go: a program that has so many
// makes their texts.
func (c *connection) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s := c.statements[text]; s != nil {
		return s, nil
	}
	s, err := c.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if len(c.statements) >= maxStatements {
		for text, s := range c.statements {
			_ = s.Close()
			delete(c.statements, text)
		}
	}
	c.statements[text] = s
	return s, nil
}

func (c *connection) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	s, err := c.prepare(ctx, statement)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// liteTx is a Tx over one connection.
type liteTx struct{ c *connection }

func (liteTx) Dialect() Dialect { return SQLite }

func (t liteTx) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	n, err := t.c.exec(ctx, statement, args...)
	return n, kinded(err)
}

func (t liteTx) Query(ctx context.Context, each func(Scan) error, statement string, args ...any) error {
	s, err := t.c.prepare(ctx, statement)
	if err != nil {
		return kinded(err)
	}
	return query(ctx, s, each, args)
}

// Lock is Query: a transaction that can write is alone.
func (t liteTx) Lock(ctx context.Context, each func(Scan) error, statement string, args ...any) error {
	return t.Query(ctx, each, statement, args...)
}

func (t liteTx) Batch(ctx context.Context, statement string, args [][]any, each func(int, Scan) error) error {
	s, err := t.c.prepare(ctx, statement)
	if err != nil {
		return kinded(err)
	}
	for i, a := range args {
		if each == nil {
			_, err = s.ExecContext(ctx, a...)
		} else {
			err = query(ctx, s, func(scan Scan) error { return each(i, scan) }, a)
		}
		if err != nil {
			return kinded(err)
		}
	}
	return nil
}

func query(ctx context.Context, s *sql.Stmt, each func(Scan) error, args []any) error {
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return kinded(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return kinded(rows.Err())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
