package main

import (
	"slices"
	"testing"

	"github.com/lattice-log/lattice/client"
)

// TestChosen: members by the beginnings of their ids; this node is always one.
func TestChosen(t *testing.T) {
	members := []client.Member{{Node: "aa01", Self: true}, {Node: "ab02"}, {Node: "ac03"}, {Node: "ad04", RemovedBy: "aa01"}}
	got, err := chosen([]string{"ac", "AB02", "aa"}, members)
	if err != nil || !slices.Equal(got, []string{"aa01", "ac03", "ab02"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"a", "ad", "", "x"} {
		if got, err := chosen([]string{bad}, members); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
