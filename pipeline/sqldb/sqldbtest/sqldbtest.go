// Package sqldbtest runs tests on both databases: SQLite in a file and a real
// PostgreSQL that is started once for all of them.
package sqldbtest

import (
	"path/filepath"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// Case is a test that must pass on both.
type Case struct {
	Name string
	Run  func(t *testing.T, url string) // url: of an empty database
}

// Run runs each case on each database.
func Run(t *testing.T, cases ...Case) {
	t.Run("sqlite", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, SQLite(t)) })
		}
	})
	t.Run("postgres", func(t *testing.T) {
		server := realpostgres.Start(t)
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, server.Database(t)) })
		}
	})
}

// RunSlow is Run for what takes long: with -short it is on SQLite alone.
func RunSlow(t *testing.T, cases ...Case) {
	if !testing.Short() {
		Run(t, cases...)
		return
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, SQLite(t)) })
	}
}

// SQLite returns the URL of a file that is not there yet.
func SQLite(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "test.db") }

// Open opens a database for the time of a test.
func Open(t testing.TB, url string) sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}
