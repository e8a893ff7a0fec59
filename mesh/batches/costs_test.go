package batches

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCostsAreTheLimits: what docs/protocol/mesh.md says that a hostile message about
// records costs is what the limits are.
func TestCostsAreTheLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol/mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	c.defaults()
	said := strings.Join(strings.Fields(string(page)), " ")
	for _, says := range []string{
		fmt.Sprintf("that partition is not followed there for %d minutes", c.BarMs/60_000),
		fmt.Sprintf("%d s, then it is followed elsewhere; %d minutes until there again", c.StallMs/1000, c.BarMs/60_000),
		fmt.Sprintf("100 bytes each, at most %d,%03d; the session ends", c.MaxPartitions/1000, c.MaxPartitions%1000),
		fmt.Sprintf("the same budget of %d MiB a second, %d MiB at once", c.Budget>>20, c.Burst>>20),
		fmt.Sprintf("%d MiB at once and %d MiB a second, and %d that are not verified yet", ackBurst>>20, ackTaken>>20, ackUnderway),
		fmt.Sprintf("after %d such things the peer is not let in for %d minutes", maxStrikes, c.BarMs/60_000),
		fmt.Sprintf("in turns of %d KiB a partition", c.Turn>>10),
		fmt.Sprintf("against credit of %d MiB", c.Window>>20),
	} {
		if !strings.Contains(said, says) {
			t.Errorf("the page does not say: %s", says)
		}
	}
}
