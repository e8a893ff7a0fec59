package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	lattice "github.com/lattice-log/lattice"
)

// ErrNewer means that a newer program has migrated the database.
var ErrNewer = lattice.E(lattice.Unsupported, errors.New("the database was migrated by a newer version of lattice: use that, or a copy made before"))

// migrate applies what is missing. Each file is one transaction together with
// its row in the version table, so a crash leaves it done or not begun.
func migrate(ctx context.Context, db *sql.DB, kind goose.Dialect, d Dialect, name string, files fs.FS, options ...goose.ProviderOption) error {
	sub, err := fs.Sub(files, string(d))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	store, err := database.NewStore(kind, name+"_version")
	if err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, sub, append(options, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrate %s: read the version: %w", name, kinded(err))
	}
	if have > known {
		return fmt.Errorf("migrate %s: version %d, this program knows %d: %w", name, have, known, ErrNewer)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s from version %d to %d: %w", name, have, known, kinded(err))
	}
	return nil
}
