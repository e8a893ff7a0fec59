package suites

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

var rewrite = flag.Bool("rewrite", false, "write docs/protocol/suites.md from the recorded results")

const page = "../../docs/protocol/suites.md"

// TestPage fails when the page is not what was recorded, when a suite was not
// run in its present version, and when a test does not pass for no reason.
func TestPage(t *testing.T) {
	if *rewrite {
		if err := os.WriteFile(page, []byte(render(t)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != render(t) {
		t.Errorf("%s is stale: make rewrite PKG=./test/suites", page)
	}
	for _, a := range everything() {
		got := recorded(t, a.name)
		if got.Version != a.version || len(got.Tests) == 0 {
			t.Errorf("%s %s: the results are of version %q; make test-suites SUITES=%s", a.name, a.version, got.Version, a.name)
		}
		for _, fault := range readReasons(t, a.name).Faults(got) {
			t.Errorf("%s: %s", a.name, fault)
		}
	}
}

// render makes the page.
func render(t *testing.T) string {
	var w strings.Builder
	w.WriteString(`# The peers' own test suites

What projects that write Kafka clients test them with, run against real nodes by ` + "`make test-suites`" + `: each test is a process
of its own beside a fresh node. Those that no package registry serves were run by hand. Made from ` + "`test/suites/results`" + ` and
` + "`test/suites/reasons`" + `; a run fails when a test that passed does not any more, and when one that does not pass has no reason here.

| suite | version | run on | tests | pass | fail | skip |
|---|---|---|---|---|---|---|
`)
	for _, a := range onPage() {
		r := recorded(t, a.name)
		pass, parts := r.Count(verdict.Pass)
		fail, _ := r.Count(verdict.Fail)
		skip, _ := r.Count(verdict.Skip)
		more := ""
		if parts > 0 {
			more = fmt.Sprintf(" (and %d parts of them)", parts)
		}
		fmt.Fprintf(&w, "| %s | %s | %s | %d | %d%s | %d | %d |\n", a.title, a.version, r.Date, pass+fail+skip, pass, more, fail, skip)
	}
	for _, a := range onPage() {
		section(t, &w, a)
	}
	return w.String()
}

// section lists what does not pass in a suite, and why.
func section(t *testing.T, w *strings.Builder, a about) {
	r, why := recorded(t, a.name), readReasons(t, a.name)
	fmt.Fprintf(w, "\n## %s\n\n%s\n", a.title, a.how)
	list := func(title string, several bool) {
		for _, test := range r.Short() {
			reason := why.Of(test)
			if why[test] == "" || strings.HasPrefix(reason, verdict.SeveralNodes) != several {
				continue // a part of a test that is listed, or the other list's
			}
			if title != "" {
				fmt.Fprintf(w, "\n%s\n\n", title)
				title = ""
			}
			if several {
				reason = strings.TrimPrefix(strings.TrimPrefix(reason, verdict.SeveralNodes), ": ")
			}
			if reason != "" {
				reason = ": " + reason
			}
			fmt.Fprintf(w, "- `%s` %ss%s\n", test, r.Tests[test], reason)
		}
	}
	list("What does not pass:", false)
	list("What waits for stores on several nodes:", true)
	if len(r.Short()) == 0 {
		w.WriteString("\nAll pass.\n")
	}
	later(w, r)
}

// later names what passed, but not at once.
func later(w *strings.Builder, r verdict.Results) {
	for try, at := range []string{2: "second", 3: "third"} {
		var names []string
		for _, test := range slices.Sorted(maps.Keys(r.Tries)) {
			if r.Tries[test] == try {
				names = append(names, test)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(w, "\nPassed at the %s try: `%s`.\n", at, strings.Join(names, "`, `"))
		}
	}
}

// recorded returns the results of a suite.
func recorded(t *testing.T, name string) verdict.Results {
	t.Helper()
	r, err := verdict.Read(".", name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readReasons returns why tests of a suite do not pass.
func readReasons(t *testing.T, name string) verdict.Reasons {
	t.Helper()
	r, err := verdict.ReadReasons(".", name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
