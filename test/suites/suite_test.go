// Package suites has no code of its own. Its tests run the test suites that
// other projects wrote for their clients, against nodes that are processes.
//
// A plain "go test" does not: it only checks that docs/protocol/suites.md is
// what the recorded results say, and that each test that does not pass has a
// reason (internal/testkit/verdict). Redis's own suite is shown on the page of its
// protocol. The flag -suites, which scripts/test-suites.sh gives, names the suites
// to run, or all; that needs their modules from the network, compilers and most of
// an hour.
//
//	suite_test.go     what a suite is, and which there are
//	run_test.go       build them, run each test beside a fresh node
//	page_test.go      docs/protocol/suites.md
//	byhand_test.go    suites that are run by hand, since only a repository has them
//	gosuite_test.go   suites that are the tests of a Go module
//	NAME_test.go      one suite
//
// To add one: a type that is a suite, a line in roster, a run, and a reason for
// each test that does not pass. To move to another version of one: change it,
// delete its results, run it, and read the diff.
package suites

import (
	"flag"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

var chosen = flag.String("suites", "", "suites to build and run, by name with commas, or all")

// suite is a set of tests for servers, written elsewhere.
type suite interface {
	about() about

	// build makes everything in dir that list and command need. It may use the
	// network, and finds what it made before.
	build(t *testing.T, dir string)

	// list names the tests. A name is that of a file, too.
	list(t *testing.T, dir string) []string

	// command starts one test. It must not need the network.
	command(t *testing.T, at place) *exec.Cmd

	// read says what a test came to, from what it printed and how it ended. A
	// slash in a name is a part of the test before it. A listed test that is not
	// in the answer has failed.
	read(test string, printed []byte, ended error) map[string]verdict.Outcome
}

// about is what the page says of a suite, and how it is to be run.
type about struct {
	name    string // in -suites, and of its files
	program string // the name of another suite that builds the same; "": none
	title   string
	version string
	how     string   // how it is run here, in a sentence or two
	node    []string // arguments of "lattice up"
	// nodeFor are more of them, for single tests.
	nodeFor map[string][]string
	limit   time.Duration // for one test
	// elsewhere: another page than docs/protocol/suites.md shows it.
	elsewhere bool
	// alone: its tests use the same addresses, so they run one at a time.
	alone bool
}

// place is where a test runs: what build made, and a node with nothing in it.
type place struct {
	dir  string
	bin  string // the command lattice
	test string
	node *realnode.Node
}

// roster is every suite, in the order of the page.
func roster() []suite {
	return []suite{franzGo(), sarama(), kafkaGo(), confluent(), confluent848(), librdkafka(), librdkafka848(), redis()}
}

// selected returns the suites that the flag names, or skips the test.
func selected(t *testing.T) []suite {
	t.Helper()
	switch *chosen {
	case "":
		t.Skip("no -suites; scripts/test-suites.sh runs them")
	case "all":
		return roster()
	}
	var out []suite
	for name := range strings.SplitSeq(*chosen, ",") {
		all := roster()
		i := slices.IndexFunc(all, func(s suite) bool { return s.about().name == name })
		if i < 0 {
			t.Fatalf("there is no suite %q", name)
		}
		out = append(out, all[i])
	}
	return out
}
