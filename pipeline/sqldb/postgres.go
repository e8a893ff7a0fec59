package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	lattice "github.com/lattice-log/lattice"
)

const (
	// attempts bounds how often a transaction that loses against others is done.
	attempts = 10
	// rollbackWithin bounds the goodbye to a server that may be gone.
	rollbackWithin = 5 * time.Second
	// commitWithin bounds the answer to a COMMIT.
	commitWithin = 30 * time.Second
	// connectWithin bounds a connection's start, unless the URL says otherwise.
	connectWithin = 10 * time.Second
)

// postgres is a DB over a pool of pgx.
type postgres struct{ pool *pgxpool.Pool }

func openPostgres(ctx context.Context, where string, o Options) (DB, error) {
	cfg, err := pgxpool.ParseConfig(where)
	if err != nil {
		// pgx's text quotes the URL, without its password.
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("open PostgreSQL: %w", err))
	}
	if !strings.Contains(where, "pool_max_conns") {
		cfg.MaxConns = 10
		if o.Connections > 0 {
			cfg.MaxConns = int32(min(o.Connections, 1000))
		}
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectWithin
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "lattice"
	}
	// A server or role that is set to off would break what Write promises. "on"
	// also waits for standbys that the server is told to wait for.
	if v := cfg.ConnConfig.RuntimeParams["synchronous_commit"]; v == "" || v == "off" {
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL at %s: %w", Redact(where), kinded(err))
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open PostgreSQL at %s: %w", Redact(where), kinded(err))
	}
	return &postgres{pool}, nil
}

func (p *postgres) Dialect() Dialect { return Postgres }

func (p *postgres) Close() error { p.pool.Close(); return nil }

// Write does f again when it lost a deadlock or a race: the server has rolled it
// back by then, so nothing of the earlier attempt is there.
func (p *postgres) Write(ctx context.Context, f func(Tx) error) error {
	for try := 1; ; try++ {
		err := p.run(ctx, pgx.TxOptions{}, f)
		if err == nil || !lost(err) || try == attempts {
			return kinded(err)
		}
		pause := time.Duration(rand.Int64N(int64(time.Millisecond) << min(try, 6)))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return kinded(errors.Join(err, ctx.Err()))
		}
	}
}

func (p *postgres) Read(ctx context.Context, f func(Tx) error) error {
	return kinded(p.run(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, f))
}

func (p *postgres) run(ctx context.Context, o pgx.TxOptions, f func(Tx) error) error {
	tx, err := p.pool.BeginTx(ctx, o)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	done := false
	defer func() {
		if !done { // f failed or panicked. A connection that cannot say goodbye is closed by its pool.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
			defer cancel()
			_ = tx.Rollback(ctx)
		}
	}()
	if err := f(pgTx{tx}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done = true
	// A caller that leaves now must not make the outcome unknown.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWithin)
	defer cancel()
	err = tx.Commit(end)
	var said *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said), errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("commit: %w", err) // the server's own word: it did not happen
	case o.AccessMode == pgx.ReadOnly:
		return fmt.Errorf("commit: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

func (p *postgres) Migrate(ctx context.Context, name string, files fs.FS) error {
	db := stdlib.OpenDBFromPool(p.pool)
	defer db.Close()
	// Several programs may start at once.
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	return migrate(ctx, db, goose.DialectPostgres, Postgres, name, files, goose.WithSessionLocker(locker))
}

// pgTx is a Tx over pgx's.
type pgTx struct{ tx pgx.Tx }

func (pgTx) Dialect() Dialect { return Postgres }

func (t pgTx) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, statement, args...)
	if err != nil {
		return 0, kinded(err)
	}
	return tag.RowsAffected(), nil
}

func (t pgTx) Query(ctx context.Context, each func(Scan) error, statement string, args ...any) error {
	rows, err := t.tx.Query(ctx, statement, args...)
	if err != nil {
		return kinded(err)
	}
	return eachRow(rows, each)
}

func (t pgTx) Lock(ctx context.Context, each func(Scan) error, statement string, args ...any) error {
	return t.Query(ctx, each, statement+" FOR UPDATE", args...)
}

func (t pgTx) Batch(ctx context.Context, statement string, args [][]any, each func(int, Scan) error) error {
	if len(args) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	for _, a := range args {
		b.Queue(statement, a...)
	}
	results := t.tx.SendBatch(ctx, b)
	for i := range args {
		rows, err := results.Query()
		if err == nil {
			err = eachRow(rows, func(scan Scan) error {
				if each == nil {
					return nil
				}
				return each(i, scan)
			})
		}
		if err != nil {
			_ = results.Close() // repeats the error
			return kinded(err)
		}
	}
	return kinded(results.Close())
}

func eachRow(rows pgx.Rows, each func(Scan) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return kinded(rows.Err())
}
