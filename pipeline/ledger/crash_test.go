package ledger_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// committing tells a copy of this test program which database to commit to.
const committing = "LATTICE_TEST_COMMIT_TO"

func TestMain(m *testing.M) {
	if url := os.Getenv(committing); url != "" {
		if err := commitForEver(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// commitForEver commits intents from several goroutines and prints the id of each
// that was acknowledged.
func commitForEver(url string) error {
	ctx := context.Background()
	db, err := sqldb.Open(ctx, url, sqldb.Options{})
	if err != nil {
		return err
	}
	l, err := ledger.Open(ctx, db, ledger.Options{})
	if err != nil {
		return err
	}
	start := os.Getenv(committing + "_ROUND")
	var mu sync.Mutex
	errs := make(chan error, 8)
	for w := range 8 {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%s-%d-%d", start, w, n)
				a, err := l.Commit(ctx, crashing(id, n))
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				fmt.Println(id, a.Cursor)
				mu.Unlock()
			}
		}()
	}
	return <-errs
}

// crashing is an intent of three events, two of them on entities of others.
func crashing(id string, n int) *ledger.Proposal {
	p := sets(id, user(fmt.Sprint("e", n%5)), fmt.Sprintf(`{"last":%q}`, id))
	p.Fingerprint = id
	inner := p.Decide
	p.Decide = func(e ledger.Entity, look ledger.Lookup) (ledger.Decision, error) {
		d, err := inner(e, look)
		for i := range 3 {
			d.Events = append(d.Events, ledger.NewEvent{EventType: "E", EntityID: fmt.Sprint("e", (n+i)%5), Payload: json.RawMessage(`{"x":1}`)})
		}
		return d, err
	}
	return p
}

// A process that commits in a loop is killed, again and again. What it said it had
// committed is there, once; nothing has a gap; what it had not heard of yet can be
// sent again.
func TestKillWriter(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		url := sqldbtest.SQLite(t)
		killWriter(t, url, func() {})
	})
	t.Run("postgres", func(t *testing.T) {
		killWriter(t, realpostgres.Start(t).Database(t), func() {})
	})
	// The server goes with the writer, and recovers from its own log.
	t.Run("postgres server", func(t *testing.T) {
		server := realpostgres.Start(t)
		killWriter(t, server.Database(t), func() { server.Kill(); server.Start(t) })
	})
}

func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("LATTICE_CRASH_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 4
}

func killWriter(t *testing.T, url string, also func()) {
	acknowledged := map[string]int64{}
	for round := range rounds() {
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), committing+"="+url, committing+"_ROUND="+fmt.Sprint("r", round))
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		p, err := realnode.Spawn(cmd)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		// Killed after so many lines, in the middle of whatever it does then.
		lines, kill := bufio.NewScanner(out), 50+37*round
		for n := 0; lines.Scan(); n++ {
			id, at, _ := strings.Cut(lines.Text(), " ")
			if acknowledged[id], err = strconv.ParseInt(at, 10, 64); err != nil {
				break // the last line may be torn
			}
			if n == kill {
				go func() {
					time.Sleep(time.Duration(round) * time.Millisecond)
					p.Kill()
				}()
			}
		}
		p.Kill()
		out.Close()
		also()

		db := sqldbtest.Open(t, url)
		l := opened(t, db, ledger.Options{})
		intents := verify(t, l)
		for id, cursor := range acknowledged {
			got := intents[id]
			if len(got) < 3 || got[len(got)-1].Position != cursor {
				t.Fatalf("round %d: intent %s was acknowledged at %d, and the ledger has %s", round, id, cursor, said(got))
			}
		}
		// Who was not told sends it again: the same events, or the first time.
		for id, events := range intents {
			_, n, _ := strings.Cut(id[strings.LastIndexByte(id, '-'):], "-")
			i, _ := strconv.Atoi(n)
			if a := commit(t, l, crashing(id, i)); !a.Repeated || said(a.Events) != said(events) {
				t.Fatalf("round %d: intent %s sent again: %+v", round, id, a)
			}
			if len(acknowledged) > 500 {
				break // a sample will do
			}
		}
		if len(intents) <= kill {
			t.Fatalf("round %d: %d intents only", round, len(intents))
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
