package p2p

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/mesh/forward"
)

// TestCostsAreTheLimits: what docs/protocol/mesh.md says that a hostile message costs is
// what the limits of this package are.
func TestCostsAreTheLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol/mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	var l Limits
	l.defaults()
	mib := func(n int) string { return fmt.Sprintf("%d MiB", n>>20) }
	kib := func(n int) string { return fmt.Sprintf("%d KiB", n>>10) }
	sec := func(d time.Duration) string { return fmt.Sprintf("%d s", d/time.Second) }
	for _, says := range []string{
		fmt.Sprintf("at most %d are connected, %d of one address (IPv6: /56), for %s", l.Strangers, strangersPerAddr, sec(l.StrangerTime)),
		fmt.Sprintf("of %d claims a minute", l.Joins),
		fmt.Sprintf("%d at a time of all who ask", farewellsAtOnce),
		"parsing at most " + mib(MaxNotice),
		fmt.Sprintf("%s and what has come; the session ends after %s and what its length allows at %s/s, or %s", kib(smallRead), sec(l.HelloTime), kib(l.Rate), sec(l.IdleTime)),
		fmt.Sprintf("%s until more has come; %d messages of more than that are on their way at a time", kib(firstPiece), l.Large),
		mib(l.Queue) + "; the session ends, and is counted",
		fmt.Sprintf("%s and one ask (at most %s) under way a stream, then it is not read; %s of all askers, then whoever wants more for %s", mib(leadBytes), mib(forward.MaxBatches), mib(l.Leading), sec(l.HelloTime)),
		fmt.Sprintf("a snapshot that is larger than %d TiB", l.SnapshotBytes>>40),
		fmt.Sprintf("After %s of silence the stream ends", sec(l.IdleTime)),
	} {
		if !strings.Contains(string(page), says) {
			t.Errorf("the page does not say: %s", says)
		}
	}
}
