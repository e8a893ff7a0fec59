package sqldb_test

import (
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// A server that is killed gives errors that say so, keeps what was committed, and
// serves the same DB when it is back.
func TestPostgresOutage(t *testing.T) {
	server := realpostgres.Start(t)
	url := server.Database(t)
	db := opened(t, url)
	write(t, db, "INSERT INTO thing (id, n) VALUES ('a', 1)")
	insert := func(id string) error {
		return db.Write(t.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO thing (id, n) VALUES ($1, 1)", id)
			return err
		})
	}
	var inside error
	err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		server.Kill()
		_, inside = tx.Exec(t.Context(), "INSERT INTO thing (id, n) VALUES ('b', 1)")
		return inside
	})
	if sqldb.Classify(err) != sqldb.ClassTransient || sqldb.Classify(inside) != sqldb.ClassTransient {
		t.Errorf("killed in a transaction: %v (%v), %v", err, sqldb.Classify(err), inside)
	}
	if err := insert("c"); sqldb.Classify(err) != sqldb.ClassTransient {
		t.Errorf("while it is gone: %v is %q", err, sqldb.Classify(err))
	}
	if _, err := sqldb.Open(t.Context(), url, sqldb.Options{}); sqldb.Classify(err) != sqldb.ClassTransient {
		t.Errorf("open while it is gone: %v is %q", err, sqldb.Classify(err))
	}
	server.Start(t)
	for i := 0; ; i++ { // connections of before are found dead one by one
		err := insert("d")
		if err == nil {
			break
		}
		if sqldb.Classify(err) != sqldb.ClassTransient || i > 20 {
			t.Fatalf("after it is back: %v is %q", err, sqldb.Classify(err))
		}
	}
	if n := count(t, db, "WHERE id IN ('a', 'd')"); n != 2 || count(t, db, "") != 2 {
		t.Errorf("%d rows, want a and d", count(t, db, ""))
	}
	sqldbtest.Open(t, url)
}
