package api

import (
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// TestOnlyHere: the sentence about what the other nodes have, and what exists on this one only.
func TestOnlyHere(t *testing.T) {
	now := time.UnixMilli(1e12)
	peer := func(id byte, known bool, ahead int64, ago time.Duration) Peer {
		return Peer{Node: lattice.NodeID{id}, Known: known, Ahead: ahead, AheadSince: now.Add(-ago)}
	}
	has, asleep := peer(1, true, 0, 0), Peer{Node: lattice.NodeID{9}, Dormant: true}
	late := peer(2, true, 7, 2*time.Hour+time.Minute)
	for _, x := range []struct {
		peers            []Peer
		records, entries int64
		want             string
	}{
		{nil, 0, 0, "; no other node has a copy."},
		{[]Peer{asleep}, 0, 0, "; no other node has a copy."},
		{[]Peer{has, asleep}, 0, 0, ". All 2 replicas have what is here."},
		{[]Peer{has, late}, 412, 0, ". 1 of 3 replicas is 2 h behind: 412 records exist on this node only."},
		{[]Peer{has, late}, 0, 0, ". 1 of 3 replicas is 2 h behind: nothing exists on this node only."},
		{[]Peer{peer(1, true, 1, time.Second), late}, 1, 0, ". 2 of 3 replicas are up to 2 h behind: 1 record exists on this node only."},
		{[]Peer{late}, 2, 1, ". 1 of 2 replicas is 2 h behind: 2 records and 1 entry of keys exist on this node only."},
		{[]Peer{peer(1, false, 0, 0)}, 0, 0, ". What 1 of 2 replicas has is not known: it was not reached since this node started."},
		{[]Peer{has, peer(2, false, 0, 0)}, 0, 0, ". 2 of 3 replicas have what is here. What 1 of them has is not known: it was not reached since this node started."},
		{[]Peer{late, peer(3, false, 0, 0), peer(4, false, 0, 0)}, 5, 0,
			". 1 of 4 replicas is 2 h behind: 5 records exist on this node only. What 2 of them have is not known: they were not reached since this node started."},
	} {
		o := newOnlyHere(x.peers, now)
		o.records, o.entries = x.records, x.entries
		if got := o.sentence(); got != x.want {
			t.Errorf("%q\nwant %q", got, x.want)
		}
	}
	o := newOnlyHere([]Peer{late}, now)
	o.records, o.atLeast = 3, true
	if got, want := o.sentence(), ". 1 of 2 replicas is 2 h behind: at least 3 records exist on this node only."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
