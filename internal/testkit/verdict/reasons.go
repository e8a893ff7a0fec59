package verdict

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Reasons says why tests do not pass, by their names. It is written by hand: a
// line is "test: why"; # begins a comment. Why begins with SeveralNodes when the
// test can pass once there are several.
type Reasons map[string]string

// SeveralNodes begins the reason of a test that waits for them.
const SeveralNodes = "several nodes"

// ReasonsFile is where a suite's reasons are.
func ReasonsFile(dir, name string) string { return filepath.Join(dir, "reasons", name+".txt") }

// ReadReasons returns the reasons of a suite, none when there is no file.
func ReadReasons(dir, name string) (Reasons, error) {
	file := ReasonsFile(dir, name)
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reasons of %s: %w", name, err)
	}
	r, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func parse(text []byte) (Reasons, error) {
	r := Reasons{}
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

// Of returns why a test does not pass. The reason of a whole test is one for its
// parts.
func (r Reasons) Of(test string) string {
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

// Faults says where reasons and results do not fit.
func (r Reasons) Faults(got Results) []string {
	var out []string
	needed := map[string]bool{}
	for _, test := range got.Short() {
		if r.Of(test) == "" {
			out = append(out, fmt.Sprintf("%s: %s, and has no reason", test, got.Tests[test]))
		}
		for part := test; !needed[part]; part = part[:max(0, strings.LastIndexByte(part, '/'))] {
			needed[part] = true // and of what it is a part
		}
	}
	for _, test := range slices.Sorted(maps.Keys(r)) {
		if !needed[test] {
			out = append(out, fmt.Sprintf("%s has a reason, and all of it passes", test))
		}
	}
	return out
}
