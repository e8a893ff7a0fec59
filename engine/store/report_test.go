package store

import "testing"

// TestReporting: a burst is reported when it is over, one that does not end now and then,
// and nothing when nothing has come.
func TestReporting(t *testing.T) {
	var r reporting
	entries := uint64(5)
	looks := func(n int, grows uint64) (due int) {
		for range n {
			entries += grows
			if r.look(entries) {
				due++
			}
		}
		return due
	}
	r.seen = entries
	if n := looks(100, 0); n != 0 {
		t.Errorf("nothing has come, and it is time %d times", n)
	}
	if n := looks(3, 10); n != 0 {
		t.Errorf("in a burst it is time %d times", n)
	}
	if n := looks(100, 0); n != 1 {
		t.Errorf("after a burst it is time %d times", n)
	}
	if n := looks(10*(reportLate+1), 1); n != 10 {
		t.Errorf("in a burst that does not end it is time %d times", n)
	}
	r.again()
	if n := looks(10, 0); n != 1 {
		t.Errorf("after a failure it is time %d times", n)
	}
}
