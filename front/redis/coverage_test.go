package redis

import (
	"flag"
	"os"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite generated files")

func TestCoverageIsCurrent(t *testing.T) {
	const file = "../../docs/protocol/redis.md"
	var differences []string
	for _, d := range knownDifferences() {
		differences = append(differences, d.why)
	}
	want := Coverage(differences, suiteSection(t))
	if *rewrite {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is stale: go generate ./front/redis", file)
	}
}

// TestTableIsWhole: every row can be shown and executed.
func TestTableIsWhole(t *testing.T) {
	var check func(c *command)
	check = func(c *command) {
		if c.about == "" || c.since == "" || c.arity == 0 {
			t.Errorf("%s: about %q, since %q, arity %d", c.fullName(), c.about, c.since, c.arity)
		}
		if c.do == nil && len(c.sub) == 0 {
			t.Errorf("%s does nothing", c.fullName())
		}
		if len(c.name) > longestName {
			t.Errorf("%s is too long to be found", c.name)
		}
		for i := range c.sub {
			check(&c.sub[i])
		}
	}
	for _, c := range newTable().rows {
		check(c)
	}
}
