// Package verdict keeps what test suites of other projects came to on our
// servers: which of their tests pass, in DIR/results/NAME.json, and why each of the
// others does not, in DIR/reasons/NAME.txt. Pages are made from both.
package verdict

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Outcome is what a test came to.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

// Results is what the last run of a suite came to.
type Results struct {
	Version string `json:"version"`
	Date    string `json:"date"` // of the run, YYYY-MM-DD
	// Tests has an outcome for each test. A slash in a name is a part of the test
	// before it.
	Tests map[string]Outcome `json:"tests"`
	// Tries says which try it was, for those that did not pass at the first.
	Tries map[string]int `json:"tries,omitempty"`
}

// ResultsFile is where a suite's results are.
func ResultsFile(dir, name string) string { return filepath.Join(dir, "results", name+".json") }

// Read returns the results of a suite, none when it was never run.
func Read(dir, name string) (Results, error) {
	var r Results
	b, err := os.ReadFile(ResultsFile(dir, name))
	if os.IsNotExist(err) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("results of %s: %w", name, err)
	}
	return r, nil
}

// Write writes the results to a file.
func (r Results) Write(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// Count counts the tests that came to o. Parts of tests count apart.
func (r Results) Count(o Outcome) (tests, parts int) {
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

// Worse names what passed in r and does not in now.
func (r Results) Worse(now Results) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Tests)) {
		if is := now.Tests[name]; r.Tests[name] == Pass && is != Pass {
			if is == "" {
				is = "gone"
			}
			out = append(out, fmt.Sprintf("%s passed on %s, now: %s", name, r.Date, is))
		}
	}
	return out
}

// Short names, sorted, the tests and parts that do not pass.
func (r Results) Short() []string {
	var out []string
	for name, is := range r.Tests {
		if is != Pass {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
