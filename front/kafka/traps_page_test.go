package kafka

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTrapsPage: every row of docs/protocol/traps.md names tests, each of which exists,
// and every TestTrap is in the row of its number.
func TestTrapsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol/traps.md")
	if err != nil {
		t.Fatal(err)
	}
	there := testsOf(t, "../..")
	named := map[string][]int{} // test => the rows that name it
	row, test := regexp.MustCompile(`(?m)^\| (\d+) \|.*\| ([^|]*) \|$`), regexp.MustCompile(`Test\w+`)
	var numbers []int
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
		tests := test.FindAllString(m[2], -1)
		if len(tests) == 0 {
			t.Errorf("trap %d names no test", n)
		}
		for _, name := range tests {
			named[name] = append(named[name], n)
			if !there[name] {
				t.Errorf("trap %d names %s, which does not exist", n, name)
			}
		}
	}
	// Known from public reports; a row that goes would go unseen otherwise.
	if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 18, 19, 20, 21, 22, 23, 24, 25, 27}; !slices.Equal(numbers, want) {
		t.Errorf("rows %v, want %v", numbers, want)
	}
	for name := range there {
		number, ok := strings.CutPrefix(name, "TestTrap")
		if !ok || len(number) < 2 {
			continue
		}
		n, err := strconv.Atoi(number[:2])
		if err == nil && !slices.Contains(named[name], n) {
			t.Errorf("%s is not in the row of trap %d", name, n)
		}
	}
}

// testsOf returns the names of the test functions of the module.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "target" || d.Name() == ".venv" || d.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			all[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
