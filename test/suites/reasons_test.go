package suites

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reasons says why tests do not pass: reasons/NAME.txt, written by hand. A line
// is "test: why"; # begins a comment. Why begins with severalNodes when the test
// can pass once there are several.
type reasons map[string]string

const severalNodes = "several nodes"

func reasonsFile(name string) string { return filepath.Join("reasons", name+".txt") }

func readReasons(t *testing.T, name string) reasons {
	t.Helper()
	b, err := os.ReadFile(reasonsFile(name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	r, err := parseReasons(b)
	if err != nil {
		t.Fatalf("%s: %v", reasonsFile(name), err)
	}
	return r
}

func parseReasons(text []byte) (reasons, error) {
	r := reasons{}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		test, why, _ := strings.Cut(line, ": ")
		if why = strings.TrimSpace(why); why == "" {
			return nil, fmt.Errorf("%q: want \"test: why\"", line)
		}
		if r[test] != "" {
			return nil, fmt.Errorf("%s has two reasons", test)
		}
		r[test] = why
	}
	return r, nil
}

// of returns why a test does not pass. The reason of a whole test is one for its
// parts.
func (r reasons) of(test string) string {
	for {
		if why := r[test]; why != "" {
			return why
		}
		i := strings.LastIndexByte(test, '/')
		if i < 0 {
			return ""
		}
		test = test[:i]
	}
}

// faults says where reasons and results do not fit.
func (r reasons) faults(got results) []string {
	var out []string
	needed := map[string]bool{}
	for _, test := range got.short() {
		if r.of(test) == "" {
			out = append(out, fmt.Sprintf("%s: %s, and has no reason", test, got.Tests[test]))
		}
		needed[test] = true
	}
	for _, test := range slices.Sorted(maps.Keys(r)) {
		if !needed[test] {
			out = append(out, fmt.Sprintf("%s has a reason, and is not among those that do not pass", test))
		}
	}
	return out
}

func TestReasons(t *testing.T) {
	r, err := parseReasons([]byte("# c\n\nA: because\nB/x: several nodes: two: really\nC: stale\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.of("B/x/y"); got != "several nodes: two: really" {
		t.Errorf("reason of a part: %q", got)
	}
	got := r.faults(results{Tests: map[string]outcome{"A": fails, "B": passes, "B/x": skips, "C": passes, "D": fails}})
	want := []string{"D: fail, and has no reason", "C has a reason, and is not among those that do not pass"}
	if !slices.Equal(got, want) {
		t.Errorf("faults: %q, want %q", got, want)
	}
	for _, bad := range []string{"A", "A:", "A: x\nA: y"} {
		if _, err := parseReasons([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
