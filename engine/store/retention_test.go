package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestRetentionByTime(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := tick.NewManual(start)
	f := newFixtureAt(t, disk.NewMem(), clock)
	top := f.topic("t", 1, map[string]string{"retention.ms": "3600000", "segment.bytes": "300"})
	p := f.part(top, 0)
	for i := range 10 {
		if _, err := produce(p, batchOf(clock.Now().UnixMilli(), fmt.Sprint("v", i))); err != nil {
			t.Fatal(err)
		}
		clock.Advance(10 * time.Minute)
	}
	f.Retain(context.Background())
	b := p.Bounds()
	if b.Start == 0 || b.Start > 4 || b.End != 10 {
		t.Fatalf("after 100 minutes with one hour of retention: %+v", b)
	}
	if _, err := p.Read(0, 1); lattice.KindOf(err) != lattice.OutOfRange {
		t.Errorf("read below the start: %v", err)
	}
	if got := values(t, p, b.Start); len(got) != int(10-b.Start) {
		t.Errorf("left: %v", got)
	}
	// Proofs for what remains hold although the beginning of the tree is gone.
	for off := b.Start; off < b.End; off++ {
		pf, err := p.Prove(context.Background(), off)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proof.Verify(pf); err != nil {
			t.Errorf("proof of %d: %v", off, err)
		}
	}
	clock.Advance(2 * time.Hour)
	f.Retain(context.Background())
	if b := p.Bounds(); b.Start != 10 || b.End != 10 {
		t.Errorf("long after: %+v, want an empty log at 10", b)
	}
	f.restart()
	p = f.part(top, 0)
	if r, err := produce(p, batchOf(clock.Now().UnixMilli(), "next")); err != nil || r.Base != 10 {
		t.Errorf("offsets go on: %+v, %v", r, err)
	}
}

func TestRetentionBySize(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 1, map[string]string{"retention.bytes": "1000", "segment.bytes": "250"})
	p := f.part(top, 0)
	for i := range 100 {
		if _, err := produce(p, batchOf(time.Now().UnixMilli(), fmt.Sprint("v", i))); err != nil {
			t.Fatal(err)
		}
	}
	f.Retain(context.Background())
	if n := p.Size(); n < 1000 || n > 1250 {
		t.Errorf("%d bytes are left, want retention.bytes and at most one segment more", n)
	}
}

func TestCompaction(t *testing.T) {
	clock := tick.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	f := newFixtureAt(t, disk.NewMem(), clock)
	top := f.topic("t", 1, map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000",
	})
	p := f.part(top, 0)
	put := func(key string, value []byte) int64 {
		t.Helper()
		b := record.NewBuilder(record.Snappy, 0)
		b.Add(clock.Now().UnixMilli(), []byte(key), value, nil)
		r, err := produce(p, b.Build(nil))
		if err != nil {
			t.Fatal(err)
		}
		return r.Base
	}
	latest := map[string]int64{}
	for i := range 200 {
		k := fmt.Sprint("key", i%7)
		latest[k] = put(k, fmt.Append(nil, "value ", i))
	}
	gone := put("key0", nil)
	for i := range 30 {
		put("filler", fmt.Append(nil, i))
	}
	if _, err := produce(p, func() []byte {
		b := record.NewBuilder(record.None, 0)
		b.Add(1, nil, []byte("x"), nil)
		return b.Build(nil)
	}()); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("a record without key: %v", err)
	}
	clock.Advance(time.Minute)
	before := p.Size()
	f.Retain(context.Background())
	if p.Size() >= before {
		t.Fatalf("%d bytes before and %d after", before, p.Size())
	}
	check := func() {
		t.Helper()
		for k, off := range latest {
			if k == "key0" {
				continue
			}
			s, err := p.Read(off, 1)
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, s.Len())
			n, err := s.NextChunk(buf)
			s.Release()
			if err != nil || n != len(buf) {
				t.Fatal(err)
			}
			rec, ok, err := record.FindOffset(buf, record.Limits{}, off)
			if err != nil || !ok || string(rec.Key) != k {
				t.Errorf("the last record of %s at %d: %q, %v, %v", k, off, rec.Key, ok, err)
			}
		}
	}
	check()
	if got := values(t, p, gone); !slices.Contains(got, "") {
		t.Errorf("the tombstone went at once: %q", got)
	}
	// The second round may drop it: what it deletes is gone.
	for i := range 100 {
		put("filler", fmt.Append(nil, i))
	}
	clock.Advance(time.Minute)
	f.Retain(context.Background())
	if s, err := p.Read(gone, 1); err != nil {
		t.Error(err)
	} else {
		buf := make([]byte, s.Len())
		_, _ = s.NextChunk(buf)
		s.Release()
		if _, ok, _ := record.FindOffset(buf, record.Limits{}, gone); ok {
			t.Error("the tombstone is there after delete.retention.ms")
		}
	}
	check()
	f.restart()
	p = f.part(top, 0)
	check()
	if _, err := p.Prove(context.Background(), 0); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("proof of a compacted record: %v", err)
	}
}
