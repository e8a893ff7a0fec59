package segment

import (
	"bytes"
	"testing"

	"github.com/lattice-log/lattice/storage/disk"
)

// TestIndexInMemory: however long the file that is written to, few entries of its
// index are in memory, while it grows and after a restart. Every offset and time is
// found all the same, and once the file is sealed its index is as it always was.
func TestIndexInMemory(t *testing.T) {
	fs := disk.NewMem()
	opt := Options{Codec: testCodec{}, IndexBytes: 300, keep: 8}
	m := newModel(t, fs, opt, 3)
	bounded := func() {
		t.Helper()
		x := m.l.act.index
		if len(x.offsets) > 2*opt.keep+1 || len(x.times) > 2*opt.keep+1 {
			t.Fatalf("%d offsets and %d times are in memory", len(x.offsets), len(x.times))
		}
		if total := x.offsetsGone + len(x.offsets); int64(total) < m.l.act.end/2000 {
			t.Fatalf("%d entries in all, for %d bytes", total, m.l.act.end)
		}
	}
	find := func() {
		t.Helper()
		for _, it := range m.items {
			if got, _, err := m.l.Find(it.m.Base); err != nil || got != it.m {
				t.Fatalf("find %d: %+v, %v", it.m.Base, got, err)
			}
			first := it // the first block that is as late
			for _, other := range m.items {
				if other.m.MaxTime >= it.m.MaxTime {
					first = other
					break
				}
			}
			if got, ok, err := m.l.FindTime(it.m.MaxTime); err != nil || !ok || got != first.m {
				t.Fatalf("find time %d: %+v, %v, %v; want %+v", it.m.MaxTime, got, ok, err, first.m)
			}
		}
	}
	for range 100 {
		if err := m.append(5); err != nil {
			t.Fatal(err)
		}
		if err := m.l.FlushIndex(); err != nil {
			t.Fatal(err)
		}
	}
	bounded()
	find()
	end, next := m.l.End()
	if err := m.l.Sync(end); err != nil {
		t.Fatal(err)
	}
	m.head = Resume{Pos: end, Next: next, Term: m.term}
	open := func() {
		t.Helper()
		l, _, err := Open(fs, "/log", opt, m.head, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.l = l
	}
	if err := m.l.Close(); err != nil {
		t.Fatal(err)
	}
	open()
	bounded()
	find()
	if err := m.append(50); err != nil {
		t.Fatal(err)
	}
	if err := m.l.FlushIndex(); err != nil {
		t.Fatal(err)
	}
	bounded()
	find()
	// Sealed, its files are those of an index made anew from the blocks.
	if err := m.l.Roll(); err != nil {
		t.Fatal(err)
	}
	end, _ = m.l.End()
	if err := m.l.Sync(end); err != nil {
		t.Fatal(err)
	}
	find()
	have := m.l.readIndex(0)
	v, _ := m.l.segmentAt(0)
	h, err := m.l.acquire(v.s)
	if err != nil {
		t.Fatal(err)
	}
	x, times, err := m.l.scanIndex(v, h)
	h.release()
	if err != nil {
		t.Fatal(err)
	}
	x.addTime(0, &times)
	if !bytes.Equal(have.offsets, encodeOffsets(x.offsets)) || !bytes.Equal(have.times, encodeTimes(x.times)) {
		t.Error("the sealed file's index is not that of its blocks")
	}
	if err := m.l.Close(); err != nil {
		t.Fatal(err)
	}
}
