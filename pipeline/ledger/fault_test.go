package ledger_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

func TestFaults(t *testing.T) {
	sqldbtest.Run(t,
		sqldbtest.Case{Name: "steps", Run: testSteps},
		sqldbtest.Case{Name: "poison", Run: testPoison},
	)
}

var errInjected = lattice.E(lattice.Unavailable, errors.New("injected"))

// faulty is a database of which one operation fails: the failing-th statement of
// the next transaction, or its commit, lost or kept.
type faulty struct {
	sqldb.DB
	failing int // counts down with each statement; 0: nothing fails
	commit  string
	ran     int
}

func (f *faulty) Write(ctx context.Context, do func(sqldb.Tx) error) error {
	f.ran = 0
	err := f.DB.Write(ctx, func(tx sqldb.Tx) error {
		if err := do(&faultyTx{tx, f}); err != nil {
			return err
		}
		if f.commit == "lost" {
			return sqldb.ErrUnknown
		}
		return nil
	})
	if err == nil && f.commit == "kept" {
		return sqldb.ErrUnknown
	}
	return err
}

type faultyTx struct {
	sqldb.Tx
	f *faulty
}

func (t *faultyTx) fails() bool { t.f.ran++; return t.f.ran == t.f.failing }

func (t *faultyTx) Exec(ctx context.Context, s string, args ...any) (int64, error) {
	if t.fails() {
		return 0, errInjected
	}
	return t.Tx.Exec(ctx, s, args...)
}

func (t *faultyTx) Query(ctx context.Context, each func(sqldb.Scan) error, s string, args ...any) error {
	if t.fails() {
		return errInjected
	}
	return t.Tx.Query(ctx, each, s, args...)
}

func (t *faultyTx) Lock(ctx context.Context, each func(sqldb.Scan) error, s string, args ...any) error {
	if t.fails() {
		return errInjected
	}
	return t.Tx.Lock(ctx, each, s, args...)
}

func (t *faultyTx) Batch(ctx context.Context, s string, args [][]any, each func(int, sqldb.Scan) error) error {
	if t.fails() {
		return errInjected
	}
	return t.Tx.Batch(ctx, s, args, each)
}

// Each statement of a commit fails once, and its COMMIT fails lost and kept. After
// each the ledger is whole, the intent is there once or not at all, and sent again
// it is there once.
func testSteps(t *testing.T, url string) {
	f := &faulty{DB: sqldbtest.Open(t, url)}
	told := map[int64]bool{}
	l := opened(t, f, ledger.Options{Committed: func(events []event.Event) {
		for _, e := range events {
			told[e.Position] = true
		}
	}})
	check := func(step string, kept bool) {
		t.Helper()
		p := crashing(step, 1)
		_, err := l.Commit(t.Context(), p)
		if lattice.KindOf(err) != lattice.Unavailable {
			t.Fatalf("%s: %v", step, err)
		}
		before := verify(t, l)
		if (len(before[step]) > 0) != kept {
			t.Fatalf("%s: the ledger has %s", step, said(before[step]))
		}
		f.failing, f.commit = 0, ""
		a := commit(t, l, p)
		if a.Repeated != kept || said(a.Events) != said(verify(t, l)[step]) || len(a.Events) < 3 {
			t.Fatalf("%s: sent again: %+v", step, a)
		}
		// What was kept and not heard of is for the publisher to find.
		if told[a.Cursor] == kept {
			t.Errorf("%s: the callback was told: %v", step, told[a.Cursor])
		}
	}
	commit(t, l, crashing("first", 1))
	statements := f.ran
	if statements < 6 {
		t.Fatalf("a commit has %d statements only", statements)
	}
	for n := 1; n <= statements; n++ {
		f.failing = n
		check(fmt.Sprint("statement", n), false)
	}
	f.commit = "lost"
	check("commit lost", false)
	f.commit = "kept"
	check("commit kept", true)
}

// A row that the database refuses is one intent's fault: the others of its batch
// are committed.
func testPoison(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	l := opened(t, db, ledger.Options{})
	statement := `CREATE TRIGGER poison BEFORE INSERT ON ledger_events WHEN NEW.event_type = 'POISON' BEGIN SELECT RAISE(ABORT, 'poison'); END`
	if db.Dialect() == sqldb.Postgres {
		statement = `ALTER TABLE ledger_events ADD CONSTRAINT poison CHECK (event_type <> 'POISON')`
	}
	if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		_, err := tx.Exec(t.Context(), statement)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// The first holds the ledger until all others wait: they share a transaction.
	const others = 9
	inside, release := make(chan struct{}), make(chan struct{})
	slow := emits("slow", user("a"), "A")
	inner := slow.Decide
	var once sync.Once
	slow.Decide = func(e ledger.Entity, look ledger.Lookup) (ledger.Decision, error) {
		once.Do(func() { close(inside); <-release })
		return inner(e, look)
	}
	var all sync.WaitGroup
	all.Go(func() { commit(t, l, slow) })
	<-inside
	errs := make([]error, others)
	for i := range others {
		typ := "A"
		if i == 4 {
			typ = "POISON"
		}
		all.Go(func() { _, errs[i] = l.Commit(t.Context(), emits(fmt.Sprint("i", i), user("a"), typ)) })
	}
	ledger.AwaitWaiting(l, others)
	close(release)
	all.Wait()
	for i, err := range errs {
		if (err != nil) != (i == 4) || err != nil && !strings.Contains(err.Error(), "poison") {
			t.Errorf("intent %d: %v", i, err)
		}
	}
	if n := len(verify(t, l)); n != others {
		t.Errorf("%d intents, want %d", n, others)
	}
}

// A migration that was ever released keeps its bytes: another change is another file.
func TestMigrationsStay(t *testing.T) {
	want := map[string]string{
		"sqlite/00001_ledger.sql":   "3a624c78910a0bd7",
		"postgres/00001_ledger.sql": "1de5c24435e2192d",
	}
	for _, d := range []string{"sqlite", "postgres"} {
		files, err := filepath.Glob("migrations/" + d + "/*.sql")
		if err != nil || len(files) == 0 {
			t.Fatalf("no migrations of %s: %v", d, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(b)
			name := strings.TrimPrefix(f, "migrations/")
			if have := hex.EncodeToString(sum[:8]); want[name] != have {
				t.Errorf("%s is %s, want %s", name, have, want[name])
			}
		}
	}
}
