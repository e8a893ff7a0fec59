package sqldb_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// TestBoth is what every implementation of DB must pass.
func TestBoth(t *testing.T) {
	sqldbtest.Run(t,
		sqldbtest.Case{Name: "migrate", Run: testMigrate},
		sqldbtest.Case{Name: "values", Run: testValues},
		sqldbtest.Case{Name: "atomic", Run: testAtomic},
		sqldbtest.Case{Name: "readers", Run: testReaders},
		sqldbtest.Case{Name: "lock", Run: testLock},
		sqldbtest.Case{Name: "batch", Run: testBatch},
		sqldbtest.Case{Name: "classes", Run: testClasses},
		sqldbtest.Case{Name: "contexts", Run: testContexts},
		sqldbtest.Case{Name: "savepoints", Run: testSavepoints},
		sqldbtest.Case{Name: "tenants", Run: testTenants},
	)
}

// opened returns a database with the table thing.
func opened(t *testing.T, url string) sqldb.DB {
	t.Helper()
	db := sqldbtest.Open(t, url)
	if err := db.Migrate(t.Context(), "test", version("v1")); err != nil {
		t.Fatal(err)
	}
	return db
}

func version(v string) fs.FS { return os.DirFS("testdata/" + v) }

func write(t *testing.T, db sqldb.DB, statement string, args ...any) {
	t.Helper()
	if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		_, err := tx.Exec(t.Context(), statement, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, db sqldb.DB, where string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := db.Read(t.Context(), func(tx sqldb.Tx) error {
		_, err := sqldb.One(t.Context(), tx, []any{&n}, "SELECT count(*) FROM thing "+where, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func testMigrate(t *testing.T, url string) {
	ctx := t.Context()
	first, second := sqldbtest.Open(t, url), sqldbtest.Open(t, url)
	var both sync.WaitGroup
	for _, db := range []sqldb.DB{first, second} {
		both.Go(func() {
			if err := db.Migrate(ctx, "test", version("v1")); err != nil {
				t.Errorf("two at once: %v", err)
			}
		})
	}
	both.Wait()
	write(t, first, "INSERT INTO thing (id, n) VALUES ('a', 1)")
	for range 2 { // the second time there is nothing to do
		if err := second.Migrate(ctx, "test", version("v2")); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, first, "WHERE extra IS NULL"); n != 1 {
		t.Errorf("%d rows after the change, want the one from before", n)
	}
	err := first.Migrate(ctx, "test", version("v1"))
	if !errors.Is(err, sqldb.ErrNewer) || lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("an older program: %v, want %v", err, sqldb.ErrNewer)
	}
}

func testValues(t *testing.T, url string) {
	db := opened(t, url)
	for i, c := range []struct {
		n    int64
		note any
		blob any
	}{
		{0, nil, nil},
		{math.MaxInt64, "", []byte{}},
		{7, "αβγ \U0001f600 ' \" \\ ? $1 \n", []byte{0, 255, 1}},
		{8, `{"a":"\u0000"}`, []byte("text")},
		{9, strings.Repeat("x", 2<<20), nil},
	} {
		id := fmt.Sprint(i)
		write(t, db, "INSERT INTO thing (id, n, note, blob_) VALUES ($1, $2, $3, $4)", id, c.n, c.note, c.blob)
		var n int64
		var note *string
		var blob []byte
		if err := db.Read(t.Context(), func(tx sqldb.Tx) error {
			// $1 twice: arguments are numbered.
			found, err := sqldb.One(t.Context(), tx, []any{&n, &note, &blob}, "SELECT n, note, blob_ FROM thing WHERE id = $1 AND id >= $1", id)
			if !found {
				t.Errorf("row %s is not there", id)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if n != c.n || (note == nil) != (c.note == nil) || note != nil && *note != c.note || c.blob != nil && string(blob) != string(c.blob.([]byte)) {
			t.Errorf("row %s reads back as %d, %v, %v", id, n, note, blob)
		}
	}
}

func testAtomic(t *testing.T, url string) {
	db := opened(t, url)
	ctx := t.Context()
	mine := errors.New("mine")
	insert := func(tx sqldb.Tx) {
		if n, err := tx.Exec(ctx, "INSERT INTO thing (id, n) VALUES ('a', 1), ('b', 2)"); err != nil || n != 2 {
			t.Errorf("insert: %d, %v", n, err)
		}
	}
	if err := db.Write(ctx, func(tx sqldb.Tx) error { insert(tx); return mine }); !errors.Is(err, mine) {
		t.Errorf("the function's error came back as %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic was swallowed")
			}
		}()
		_ = db.Write(ctx, func(tx sqldb.Tx) error { insert(tx); panic("mine") })
	}()
	if n := count(t, db, ""); n != 0 {
		t.Fatalf("%d rows of transactions that failed", n)
	}
	if err := db.Write(ctx, func(tx sqldb.Tx) error { insert(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	other := sqldbtest.Open(t, url)
	if n := count(t, other, ""); n != 2 {
		t.Errorf("another connection sees %d rows, want 2", n)
	}
}

func testReaders(t *testing.T, url string) {
	db := opened(t, url)
	ctx := t.Context()
	write(t, db, "INSERT INTO thing (id, n) VALUES ('a', 1)")
	err := db.Read(ctx, func(tx sqldb.Tx) error {
		read := func() (n int64) {
			if _, err := sqldb.One(ctx, tx, []any{&n}, "SELECT n FROM thing WHERE id = 'a'"); err != nil {
				t.Error(err)
			}
			return n
		}
		before := read()
		write(t, db, "UPDATE thing SET n = 2 WHERE id = 'a'") // a reader holds up no writer
		if after := read(); before != 1 || after != 1 {
			t.Errorf("one snapshot shows %d and then %d", before, after)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "WHERE n = 2"); n != 1 {
		t.Error("the write is not there")
	}
	err = db.Read(ctx, func(tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM thing")
		return err
	})
	if err == nil || count(t, db, "") != 1 {
		t.Errorf("a reader may delete: %v", err)
	}
}

// Counting in a row that is locked loses no count, whoever else counts.
func testLock(t *testing.T, url string) {
	first, second := opened(t, url), sqldbtest.Open(t, url)
	write(t, first, "INSERT INTO thing (id, n) VALUES ('a', 0), ('b', 0)")
	const workers, rounds = 4, 10
	var all sync.WaitGroup
	for w := range workers {
		db := []sqldb.DB{first, second}[w%2]
		ids := [][]string{{"a", "b"}, {"b", "a"}}[w/2%2] // in orders that meet in deadlocks
		all.Go(func() {
			for range rounds {
				err := db.Write(t.Context(), func(tx sqldb.Tx) error {
					for _, id := range ids {
						var n int64
						if err := tx.Lock(t.Context(), func(scan sqldb.Scan) error { return scan(&n) }, "SELECT n FROM thing WHERE id = $1", id); err != nil {
							return err
						}
						if _, err := tx.Exec(t.Context(), "UPDATE thing SET n = $1 WHERE id = $2", n+1, id); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("count: %v", err)
				}
			}
		})
	}
	all.Wait()
	if n := count(t, first, "WHERE n = $1", int64(workers*rounds)); n != 2 {
		t.Error("counts were lost")
	}
}

func testBatch(t *testing.T, url string) {
	db := opened(t, url)
	ctx := t.Context()
	var rows, keys [][]any
	for i := range 500 {
		rows = append(rows, []any{fmt.Sprintf("k%03d", i), int64(i)})
		keys = append(keys, []any{fmt.Sprintf("k%03d", 2*i)}) // every other is not there
	}
	if err := db.Write(ctx, func(tx sqldb.Tx) error {
		if err := tx.Batch(ctx, "INSERT INTO thing (id, n) VALUES ($1, $2)", nil, nil); err != nil {
			t.Errorf("of nothing: %v", err)
		}
		return tx.Batch(ctx, "INSERT INTO thing (id, n) VALUES ($1, $2)", rows, nil)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Read(ctx, func(tx sqldb.Tx) error {
		next := 0
		err := tx.Batch(ctx, "SELECT n FROM thing WHERE id = $1", keys, func(i int, scan sqldb.Scan) error {
			var n int64
			if err := scan(&n); err != nil || i != next || n != int64(2*i) {
				t.Fatalf("row %d: index %d, %d, %v", next, i, n, err)
			}
			next++
			return nil
		})
		if next != 250 {
			t.Errorf("%d rows, want 250", next)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	rows[250][0] = "k000"
	for i := range rows {
		rows[i][0] = fmt.Sprint(rows[i][0], "x")
	}
	rows[300][0] = "k000"
	err := db.Write(ctx, func(tx sqldb.Tx) error {
		return tx.Batch(ctx, "INSERT INTO thing (id, n) VALUES ($1, $2)", rows, nil)
	})
	if sqldb.Classify(err) != sqldb.ClassConstraint || count(t, db, "") != 500 {
		t.Errorf("one of many exists: %v, and %d rows", err, count(t, db, ""))
	}
	stop := errors.New("stop")
	err = db.Write(ctx, func(tx sqldb.Tx) error {
		return tx.Batch(ctx, "SELECT n FROM thing WHERE id = $1", keys, func(int, sqldb.Scan) error { return stop })
	})
	if !errors.Is(err, stop) {
		t.Errorf("each's error came back as %v", err)
	}
	if n := count(t, db, ""); n != 500 { // the connection is fit for more
		t.Errorf("%d rows", n)
	}
}

func testClasses(t *testing.T, url string) {
	db := opened(t, url)
	write(t, db, "INSERT INTO thing (id, n) VALUES ('a', 1)")
	for _, c := range []struct {
		statement string
		args      []any
		want      sqldb.Class
	}{
		{"INSERT INTO thing (id, n) VALUES ('a', 1)", nil, sqldb.ClassConstraint},
		{"INSERT INTO thing (id, n) VALUES ('b', -1)", nil, sqldb.ClassConstraint},
		{"INSERT INTO thing (id, n) VALUES ('b', NULL)", nil, sqldb.ClassConstraint},
		{"INSERT INTO thing (id, followed_at) VALUES ('b', 1)", nil, sqldb.ClassSchema},
		{"UPDATE thing SET followed_at = 1", nil, sqldb.ClassSchema},
		{"SELECT followed_at FROM thing", nil, sqldb.ClassSchema},
		{"DELETE FROM missing", nil, sqldb.ClassSchema},
	} {
		err := db.Write(t.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(t.Context(), c.statement, c.args...)
			return err
		})
		if got := sqldb.Classify(err); err == nil || got != c.want {
			t.Errorf("%s: %v is %q, want %q", c.statement, err, got, c.want)
		}
	}
	if c := sqldb.Classify(context.DeadlineExceeded); c != sqldb.ClassTransient {
		t.Errorf("a timeout is %q", c)
	}
	if c := sqldb.Classify(errors.New("mine")); c != sqldb.ClassOther {
		t.Errorf("another's error is %q", c)
	}
}

func testContexts(t *testing.T, url string) {
	db := opened(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Write(ctx, func(tx sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO thing (id, n) VALUES ('a', 1)"); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if err == nil || count(t, db, "") != 0 {
		t.Errorf("a transaction whose context ended: %v, and %d rows", err, count(t, db, ""))
	}
	if err := db.Write(ctx, func(sqldb.Tx) error { t.Error("ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	write(t, db, "INSERT INTO thing (id, n) VALUES ('a', 1)") // it works on
}

// A projector does one projection's work in a savepoint, so that its failure does
// not undo the others'.
func testSavepoints(t *testing.T, url string) {
	db := opened(t, url)
	ctx := t.Context()
	if err := db.Write(ctx, func(tx sqldb.Tx) error {
		for _, s := range []string{"INSERT INTO thing (id, n) VALUES ('a', 1)", "SAVEPOINT one"} {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "INSERT INTO thing (id, n) VALUES ('b', -1)"); sqldb.Classify(err) != sqldb.ClassConstraint {
			t.Errorf("have %v", err)
		}
		for _, s := range []string{"ROLLBACK TO SAVEPOINT one", "RELEASE SAVEPOINT one", "INSERT INTO thing (id, n) VALUES ('c', 1)"} {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, ""); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func testTenants(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	for _, tenant := range []string{"one", "two"} {
		if db.Dialect() == sqldb.Postgres {
			write(t, db, "CREATE SCHEMA "+sqldb.Quote(tenant))
		}
		table := db.Dialect().Table(tenant, `odd " name`)
		write(t, db, "CREATE TABLE "+table+" (id TEXT)")
		write(t, db, "INSERT INTO "+table+" (id) VALUES ($1)", tenant)
	}
	if a, b := sqldb.SQLite.Table("a", "b"), sqldb.Postgres.Table("a", "b"); a != `"a__b"` || b != `"a"."b"` {
		t.Errorf("have %s and %s", a, b)
	}
}

func TestOpenRefuses(t *testing.T) {
	for url, says := range map[string]string{
		"":                           "no address",
		"mysql://h/db":               `"mysql" is not known`,
		"sqlite:":                    "in memory",
		":memory:":                   "in memory",
		"sqlite:/nowhere/at/all.db":  "/nowhere/at/all.db",
		"postgres://u:geheim@h:x/db": "",
		"postgres://u:geheim@/db?host=/nowhere/at/all": "/nowhere/at/all",
	} {
		db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
		if err == nil {
			db.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("open %q: %v, want an error that says %q and no password", url, err, says)
		}
	}
	if s := sqldb.Redact("postgres://u:geheim@h/db?password=geheim&x=1"); strings.Contains(s, "geheim") {
		t.Errorf("the password stays: %s", s)
	}
}
