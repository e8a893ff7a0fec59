package redis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

// suiteSection says what Redis's own test suite comes to, from what its last run
// recorded: test/suites runs it, and fails when less passes than before, or when a
// test does not pass and has no reason.
func suiteSection(t *testing.T) string {
	t.Helper()
	const dir, name = "../../test/suites", "redis"
	results, err := verdict.Read(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := verdict.ReadReasons(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `## Redis's own test suite

The files of tests/unit of Redis %s that are about what is served here, and those of streams, each against a fresh node with
its defaults, by `+"`make test-redis-suite`"+`; last on %s. Left out are the files about replication, RDB and AOF files, modules, scripts,
functions, ACL users, clusters, memory that runs out, client-side caching, geographic indexes and HyperLogLogs.

| file | pass | fail | skip |
|---|---|---|---|
`, results.Version, results.Date)
	files := map[string]map[verdict.Outcome]int{}
	all := map[verdict.Outcome]int{}
	for test, is := range results.Tests {
		file, _, part := strings.Cut(test, "/")
		if files[file] == nil {
			files[file] = map[verdict.Outcome]int{}
		}
		if part {
			files[file][is]++
			all[is]++
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		early := ""
		if results.Tests[file] != verdict.Pass {
			early = ", and does not come to its end"
		}
		n := files[file]
		fmt.Fprintf(&b, "| %s%s | %d | %d | %d |\n", shownFile(file), early, n[verdict.Pass], n[verdict.Fail], n[verdict.Skip])
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d |\n\nWhy the others do not pass:\n\n", all[verdict.Pass], all[verdict.Fail], all[verdict.Skip])
	b.WriteString(whyNot(results, reasons))
	if len(results.Tries) > 0 {
		fmt.Fprintf(&b, "\nPassed at the second try, on a busy machine: `%s`.\n", strings.Join(slices.Sorted(maps.Keys(results.Tries)), "`, `"))
	}
	return b.String()
}

// shownFile is a file's name as the suite has it.
func shownFile(name string) string { return strings.ReplaceAll(name, ".", "/") }

// whyNot lists reasons, the most frequent first, and under each the tests.
func whyNot(results verdict.Results, reasons verdict.Reasons) string {
	type group struct {
		why   string
		tests []string // sorted, "file/test"
	}
	var groups []*group
	for _, test := range results.Short() {
		why := reasons.Of(test)
		i := slices.IndexFunc(groups, func(g *group) bool { return g.why == why })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{why: why})
		}
		groups[i].tests = append(groups[i].tests, test)
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return len(b.tests) - len(a.tests) })
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "- %s (%d)", g.why, len(g.tests))
		last := ""
		for _, test := range g.tests {
			file, part, _ := strings.Cut(test, "/")
			whole := reasons[file] == g.why // the reason is the whole file's
			switch {
			case file != last:
				sep := ";"
				if last == "" {
					sep = ":"
				}
				fmt.Fprintf(&b, "%s %s", sep, shownFile(file))
				if !whole {
					fmt.Fprintf(&b, ": `%s`", part)
				}
			case !whole:
				fmt.Fprintf(&b, ", `%s`", part)
			}
			last = file
		}
		b.WriteString("\n")
	}
	return b.String()
}
