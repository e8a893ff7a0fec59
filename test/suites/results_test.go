package suites

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// results is what the last run of a suite came to: results/NAME.json.
type results struct {
	Version string             `json:"version"`
	Date    string             `json:"date"` // of the run, YYYY-MM-DD
	Tests   map[string]outcome `json:"tests"`
	// Tries says which try it was, for those that did not pass at the first.
	Tries map[string]int `json:"tries,omitempty"`
}

func resultsFile(name string) string { return filepath.Join("results", name+".json") }

// recorded returns the results of a suite, none when it was never run.
func recorded(t *testing.T, name string) results {
	t.Helper()
	b, err := os.ReadFile(resultsFile(name))
	if os.IsNotExist(err) {
		return results{}
	}
	var r results
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatalf("results of %s: %v", name, err)
	}
	return r
}

func (r results) write(t *testing.T, file string) {
	t.Helper()
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatalf("write results: %v", err)
	}
}

// count counts the tests that came to o. Parts of tests count apart.
func (r results) count(o outcome) (tests, parts int) {
	for name, is := range r.Tests {
		switch {
		case is != o:
		case strings.Contains(name, "/"):
			parts++
		default:
			tests++
		}
	}
	return tests, parts
}

// worse names what passed in r and does not in now.
func (r results) worse(now results) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Tests)) {
		if is := now.Tests[name]; r.Tests[name] == passes && is != passes {
			if is == "" {
				is = "gone"
			}
			out = append(out, fmt.Sprintf("%s passed on %s, now: %s", name, r.Date, is))
		}
	}
	return out
}

// short names, sorted, the tests and parts that do not pass.
func (r results) short() []string {
	var out []string
	for name, is := range r.Tests {
		if is != passes {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func TestWorse(t *testing.T) {
	before := results{Date: "then", Tests: map[string]outcome{"A": passes, "B": passes, "C": passes, "D": fails, "E": skips}}
	now := results{Tests: map[string]outcome{"A": passes, "B": skips, "D": fails, "E": passes, "F": fails}}
	want := []string{"B passed on then, now: skip", "C passed on then, now: gone"}
	if got := before.worse(now); !slices.Equal(got, want) {
		t.Errorf("worse: %q, want %q", got, want)
	}
	if got := (results{}).worse(now); got != nil {
		t.Errorf("worse than nothing: %q", got)
	}
}
