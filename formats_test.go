package lattice_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFormatsHaveTheirOwnMagic reads the registry of formats: bytes that outlive a process
// begin as no others do. What travels on a stream of its own is known by the stream.
func TestFormatsHaveTheirOwnMagic(t *testing.T) {
	const page = "docs/format/README.md"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	magic := regexp.MustCompile("`(L[A-Za-z0-9])`")
	seen := map[string]string{}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.Contains(cells[1], "on a stream") {
			continue
		}
		for _, m := range magic.FindAllStringSubmatch(cells[1], -1) {
			if before, twice := seen[m[1]]; twice {
				t.Errorf("%s: %s begins both %s and %s", page, m[1], before, strings.TrimSpace(cells[3]))
			}
			seen[m[1]] = strings.TrimSpace(cells[3])
		}
	}
	if len(seen) < 20 {
		t.Errorf("%s: %d formats were found", page, len(seen))
	}
}
