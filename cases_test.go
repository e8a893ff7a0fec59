package lattice_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCasesPage: every row of docs/cases.md names tests that exist, or says why there are
// none.
func TestCasesPage(t *testing.T) {
	page, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]map[string]bool{} // package => its tests
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testsOf := func(pkg string) map[string]bool {
		if there[pkg] != nil {
			return there[pkg]
		}
		all := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(pkg), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllSubmatch(b, -1) {
				all[string(m[1])] = true
			}
		}
		there[pkg] = all
		return all
	}
	named := regexp.MustCompile("`([a-z0-9/]+)` (Test\\w+(?:, Test\\w+)*)")
	rows := 0
	for _, line := range strings.Split(string(page), "\n") {
		tests := 0
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			for _, name := range strings.Split(m[2], ", ") {
				if tests++; !testsOf(m[1])[name] {
					t.Errorf("%s has no %s", m[1], name)
				}
			}
		}
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 || cells[0] == "| case" {
			continue
		}
		rows++
		reason := strings.HasPrefix(cells[1], "does not apply: ") || strings.HasPrefix(cells[1], "not yet")
		if (tests == 0) != reason {
			t.Errorf("%s\nnames %d tests; without any it says why", line, tests)
		}
	}
	if rows < 100 { // a table that is not read any more would go unseen
		t.Errorf("%d rows", rows)
	}
}
