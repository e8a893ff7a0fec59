package authorlog

import (
	"bytes"
	"math/rand/v2"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestReadSpan: any part of a log of several files comes as Read gives it, about as
// many bytes as asked, and never what is not acknowledged yet.
func TestReadSpan(t *testing.T) {
	fs := disk.NewMem()
	o := options(fs, 7)
	set := DefaultSettings()
	set.SegmentBytes = 9000
	l, err := Open(o, set)
	if err != nil {
		t.Fatal(err)
	}
	var all []sigchain.Signed
	rng := rand.New(rand.NewPCG(8, 8))
	tip := sigchain.Link{}
	for range 120 {
		next := chainOf(t, tip, 1, rng.IntN(900))
		all, tip = append(all, next...), next[0].Link()
		if err := l.Append(next...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.ReadSpan(0, 10, 100); lattice.KindOf(err) != lattice.NotYet {
		t.Fatalf("what is not durable: %v", err)
	}
	if at, _, err := l.DurableTip(); err != nil || !at.IsZero() {
		t.Fatalf("durable is %v, %v", at, err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	more := chainOf(t, tip, 1, 10)
	if err := l.Append(more...); err != nil {
		t.Fatal(err)
	}
	if at, time, err := l.DurableTip(); err != nil || at != tip || time != all[119].Time {
		t.Fatalf("durable is %v, %v", at, err)
	}
	if segs := l.State().Segments; len(segs) < 4 {
		t.Fatalf("%d files", len(segs))
	}
	for range 500 {
		after := uint64(rng.IntN(120))
		upto, limit := after+1+uint64(rng.IntN(130)), rng.IntN(20_000)
		got, err := l.ReadSpan(after, upto, limit)
		if err != nil || len(got) == 0 || after+uint64(len(got)) > min(upto, 120) {
			t.Fatalf("behind %d up to %d: %d entries, %v", after, upto, len(got), err)
		}
		size := 0
		for i, b := range got {
			if size += len(b); !bytes.Equal(b, all[after+uint64(i)].Bytes()) {
				t.Fatalf("entry %d is another one", after+1+uint64(i))
			}
		}
		if size > limit && len(got) > 1 {
			t.Fatalf("%d bytes of %d entries, want %d", size, len(got), limit)
		}
	}
	if err := l.Prune(60); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadSpan(10, 70, 100); lattice.KindOf(err) != lattice.OutOfRange {
		t.Errorf("what was pruned: %v", err)
	}
	if got, err := l.ReadSpan(59, 70, 1); err != nil || len(got) != 1 {
		t.Errorf("the first that is there: %d, %v", len(got), err)
	}
	c, last, ok := l.Seal(59, 70) // this node is the author
	if !ok || last != 70 || c.Size < 120 {
		t.Fatalf("%v, up to %d of %d", ok, last, c.Size)
	}
	if _, _, err := l.Extend(59, 70, c); err != nil {
		t.Errorf("a proof beside what was pruned: %v", err)
	}
}

// TestReadSpanDamaged: what stands before a damaged entry is returned, that entry
// never, and the log says that it needs repair.
func TestReadSpanDamaged(t *testing.T) {
	fs := disk.NewMem()
	l := open(t, fs)
	all := chainOf(t, sigchain.Link{}, 20, 100)
	if err := l.Append(all...); err != nil {
		t.Fatal(err)
	}
	certify(t, l, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	name := fs.PathJoin(l.Start().Dir(fs, "/authors"), "00000000000000000000.log")
	b, err := disk.ReadFile(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, s := range all[:9] {
		at += sigchain.FrameSize(s)
	}
	b[at+200] ^= 4 // in the tenth
	if err := disk.WriteFile(fs, name, b); err != nil {
		t.Fatal(err)
	}
	l = open(t, fs)
	if got, err := l.ReadSpan(0, 20, 1<<20); err != nil || len(got) != 9 {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if got, err := l.ReadSpan(9, 20, 1<<20); lattice.KindOf(err) != lattice.Corrupt || len(got) != 0 {
		t.Errorf("the damaged one: %d, %v", len(got), err)
	}
	if got, err := l.ReadSpan(10, 20, 1<<20); err != nil || len(got) != 10 {
		t.Errorf("behind it: %d, %v", len(got), err)
	}
	if l.Failed() == "" {
		t.Error("the log does not say that it is damaged")
	}
}
