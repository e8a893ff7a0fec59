package segment

import (
	"testing"

	"github.com/lattice-log/lattice/storage/disk"
)

// TestKilledInARecycledFile kills the process again and again while it writes over
// dropped files, to which room is added where they are shorter than a segment. What is
// behind the blocks is old blocks and zeros, and never something that was cut off.
func TestKilledInARecycledFile(t *testing.T) {
	m := newModel(t, disk.NewMem(), Options{Codec: testCodec{}, SegmentBytes: 20 << 10, IndexBytes: 700, Handles: NewHandles(3), keep: 2}, 1)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	recycledFiles := 0
	for step := range 4000 {
		must(m.append(1))
		must(m.l.Prepare())
		must(m.sync())
		segs, err := m.l.Segments()
		must(err)
		if len(segs) > 2 {
			must(m.drop(segs[1].Base))
			recycledFiles++
		}
		if m.rng.IntN(90) > 0 { // a segment has about 60 blocks
			continue
		}
		m.saveHead()
		m.reopen(false)
		if m.last.Cut != nil {
			t.Fatalf("step %d: a kill between two blocks cut %+v", step, m.last.Cut)
		}
		m.check()
	}
	if recycledFiles < 10 {
		t.Errorf("%d files were dropped only", recycledFiles)
	}
}
