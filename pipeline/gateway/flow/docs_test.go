package flow

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The frames that docs/protocol/gateway.md shows are those of TestGolden, and its table has every code.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/protocol/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("conn_test.go")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(golden), "` +\n\t\t`", "")
	shown := 0
	for line := range strings.Lines(string(page)) {
		if frame, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    {"); ok {
			shown++
			if !strings.Contains(joined, "{"+frame) {
				t.Errorf("no test has the frame {%s", frame)
			}
		}
	}
	if shown < 8 {
		t.Errorf("%d frames are shown", shown)
	}
	for code, name := range Codes() {
		if !strings.Contains(string(page), fmt.Sprintf("| %d | `%s` |", code, name)) {
			t.Errorf("the page does not explain %d %s", code, name)
		}
	}
}
