package reconcile

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCostsAreTheLimits: what docs/protocol/mesh.md says that a hostile message about
// entries costs is what the limits are, and it lists all reasons.
func TestCostsAreTheLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol/mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	c.defaults()
	said := strings.Join(strings.Fields(string(page)), " ")
	for _, says := range []string{
		fmt.Sprintf("not wanted from the peer for %d minutes", c.BarMs/60_000),
		fmt.Sprintf("at most %d,%03d logs a peer; after %d s without an entry", c.MaxLogs/1000, c.MaxLogs%1000, c.StallMs/1000),
		fmt.Sprintf("at most %d,%03d are remembered", maxStrange/1000, maxStrange%1000),
		fmt.Sprintf("a budget of %d MiB a second, %d MiB at once", c.Budget>>20, c.Burst>>20),
		fmt.Sprintf("more than %d things that are wrong by themselves", maxStrikes),
		fmt.Sprintf("in turns of %d KiB a log", c.Turn>>10),
		fmt.Sprintf("Memory follows the window: %d MiB a peer and store", c.Window>>20),
		"Every refusal has one of these reasons, is counted, and is shown: " + strings.Join(reasonNames[1:], ", "),
	} {
		if !strings.Contains(said, says) {
			t.Errorf("the page does not say: %s", says)
		}
	}
}
