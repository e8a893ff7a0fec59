package api

import (
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// TestOnlyHere: the sentence about what exists on this node only.
func TestOnlyHere(t *testing.T) {
	of := map[lattice.NodeID]bool{{1}: true, {2}: true, {3}: true}
	for _, x := range []struct {
		o    onlyHere
		want string
	}{
		{onlyHere{}, ""},
		{onlyHere{of: of}, " All 3 other replicas have what topics with replicas hold."},
		{onlyHere{of: of, records: 412, behind: map[lattice.NodeID]time.Duration{{1}: 2*time.Hour + time.Minute}},
			" 1 of 3 other replicas behind, by up to 2 h: 412 records of topics with replicas exist on this node only."},
		{onlyHere{of: of, records: 1}, " 1 record of topics with replicas exists on this node only."},
	} {
		if got := x.o.sentence(); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}
