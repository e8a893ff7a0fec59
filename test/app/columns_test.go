// Package app runs the roles of an application as a user does: processes of their own,
// against a node of ours and against Apache Kafka, with SQLite and with PostgreSQL. One body
// for all four: only addresses and credentials differ.
//
// LATTICE_APP_ROUNDS says how often each role and the broker are killed (1).
package app

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realkafka"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// broker is a log that can be killed and comes back with what it acknowledged.
type broker struct {
	address string
	kill    func()
	start   func(t testing.TB)
}

func ownNode(t testing.TB, bin string) broker {
	dir, address := t.TempDir(), realnode.FreeAddress(t)
	var n *realnode.Node
	start := func(t testing.TB) {
		n = realnode.Start(t, bin, dir, "--kafka", address, "--redis", "")
	}
	start(t)
	return broker{address, func() { n.Kill() }, start}
}

func apacheKafka(t testing.TB, _ string) broker {
	k := realkafka.Start(t)
	return broker{k.Address, k.Kill, k.Start}
}

// databases are two: the ledger's and the projections'.
type databases func(t testing.TB) (ledger, tables string)

func TestColumns(t *testing.T) {
	bin := realnode.Build(t)
	server := realpostgres.Start(t, "-c", "max_connections=200")
	postgres := func(t testing.TB) (string, string) { return server.Database(t), server.Database(t) }
	sqlite := func(t testing.TB) (string, string) { return sqldbtest.SQLite(t), sqldbtest.SQLite(t) }
	// server belongs to one goroutine, so all that is asked of it is asked before the columns run.
	for _, column := range []struct {
		name   string
		broker func(testing.TB, string) broker
		dbs    databases
	}{
		{"node, SQLite", ownNode, sqlite},
		{"node, PostgreSQL", ownNode, postgres},
		{"Apache Kafka, SQLite", apacheKafka, sqlite},
		{"Apache Kafka, PostgreSQL", apacheKafka, postgres},
	} {
		t.Run(column.name, func(t *testing.T) {
			ledger, tables := column.dbs(t)
			t.Parallel() // they wait for groups to notice who is gone, most of the time
			body(newWorld(t, bin, column.broker(t, bin), ledger, tables))
		})
	}
	t.Run("TLS and SASL", func(t *testing.T) {
		t.Parallel()
		secure(t, bin)
	})
}

func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("LATTICE_APP_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 1
}

// body is what must be so in every column.
func body(w *world) {
	began := time.Now()
	w.startAll()
	w.t.Logf("all started: %.1f s", time.Since(began).Seconds())
	for _, step := range []struct {
		name string
		run  func(w *world)
	}{
		{"one intent, everywhere", oneIntent},
		{"the browser", looked},
		{"intents that are repeated, and that expect", repeated},
		{"poison", poison},
		{"a role is killed", killedRoles},
		{"the broker is down", brokerDown},
		{"publish modes", publishModes},
	} {
		began = time.Now()
		step.run(w)
		ran := time.Now()
		w.audit(step.name)
		w.t.Logf("%s: %.1f s, and %.1f s until all had arrived", step.name, ran.Sub(began).Seconds(), time.Since(ran).Seconds())
	}
}
