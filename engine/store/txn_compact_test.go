package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// markers counts the transactions' ends that are in the log.
func markers(n *enginetest.Node, p *partition.Partition) (count int) {
	for _, r := range n.Read(p, p.Bounds().Start) {
		if len(r.Key) == 4 && r.Key[0] == 0 {
			count++
		}
	}
	return count
}

// TestCompactionAndTransactions: what was aborted replaces nothing, what is open is
// left alone, and the markers stay, over restarts.
func TestCompactionAndTransactions(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("t", 1, "cleanup.policy=compact", "segment.bytes=160", "min.cleanable.dirty.ratio=0")
	log := n.Part(top, 0)
	good, bad, open := n.Producer("good"), n.Producer("bad"), n.Producer("open")
	put := func(p *enginetest.Producer, values ...string) {
		t.Helper()
		if _, err := p.Put(top, 0, values...); err != nil {
			t.Fatal(err)
		}
	}
	end := func(p *enginetest.Producer, commit bool) {
		t.Helper()
		if err := p.End(commit); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (keys []string) {
		for _, r := range n.ReadCommitted(log) {
			keys = append(keys, fmt.Sprint(r.Offset, string(r.Key)))
		}
		return keys
	}
	put(good, "a", "b") // 0, 1
	end(good, true)     // 2
	put(bad, "a", "b")  // 3, 4: never were
	end(bad, false)     // 5
	put(good, "b")      // 6
	end(good, true)     // 7
	put(open, "a", "o") // 8, 9: nothing from here on may be compacted
	for i := range 8 {  // 10 ...
		put(good, fmt.Sprint("k", i%2))
		end(good, true)
	}
	for range 3 {
		n.Clock.Advance(time.Hour)
		if err := log.Retain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"0a", "6b"}
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if got := markers(n, log); got != 11 {
		t.Errorf("%d markers, want 11", got)
	}
	end(open, false)
	n.Put(log, record.None, "last=1")
	if err := log.Retain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := read()
		if !slices.Contains(got, "0a") || !slices.Contains(got, "6b") || slices.Contains(got, "8a") || slices.Contains(got, "9o") {
			t.Errorf("read %q", got)
		}
		if got := markers(n, log); got != 12 {
			t.Errorf("%d markers, want 12", got)
		}
		n.Restart()
		log = n.Part(top, 0)
	}
	n.Stop()
	fsck.MustBeClean(t, fs, enginetest.Dir)
}

// TestProofsOfTransactions: only committed records are proven.
func TestProofsOfTransactions(t *testing.T) {
	n := enginetest.New(t, disk.NewMem())
	top := n.Topic("t", 1)
	log := n.Part(top, 0)
	good, bad, open := n.Producer("good"), n.Producer("bad"), n.Producer("open")
	for _, p := range []*enginetest.Producer{good, bad, open} {
		if _, err := p.Put(top, 0, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := good.End(true); err != nil {
		t.Fatal(err)
	}
	if err := bad.End(false); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]lattice.Kind{1: lattice.Conflict, 2: lattice.NotYet, 3: lattice.Conflict, 4: lattice.Conflict} {
		if _, err := log.Prove(context.Background(), offset); lattice.KindOf(err) != want {
			t.Errorf("offset %d: %v, want kind %v", offset, err, want)
		}
	}
	if _, err := log.Prove(context.Background(), 0); err != nil {
		t.Error(err)
	}
}

// TestAbortedAreForgotten: once a compaction or a truncation has taken all batches of an
// aborted transaction, it is not remembered. Who began to read before is told of it all
// the same.
func TestAbortedAreForgotten(t *testing.T) {
	n := enginetest.New(t, disk.NewMem())
	top := n.Topic("t", 1, "cleanup.policy=compact", "segment.bytes=160", "min.cleanable.dirty.ratio=0")
	log := n.Part(top, 0)
	bad := n.Producer("bad")
	const aborted = 10
	for i := range aborted {
		if _, err := bad.Put(top, 0, fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
		if err := bad.End(false); err != nil {
			t.Fatal(err)
		}
	}
	slice := func() *partition.Slice {
		t.Helper()
		s, err := log.ReadStable(0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := func(when string, s *partition.Slice, want int) {
		t.Helper()
		got := len(s.Aborted())
		s.Release()
		if got != want {
			t.Errorf("%s: told of %d aborted transactions, want %d", when, got, want)
		}
	}
	before := slice()
	for range 2 {
		n.Clock.Advance(8 * 24 * time.Hour) // the last file is old enough to be sealed
		if err := log.Retain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	told("read before the compaction", before, aborted)
	told("read after it", slice(), 0)
	n.Restart()
	log = n.Part(top, 0)
	told("after a restart", slice(), 0)

	bad = n.Producer("bad") // it was away for so long that it is forgotten
	if _, err := bad.Put(top, 0, "again"); err != nil {
		t.Fatal(err)
	}
	if err := bad.End(false); err != nil {
		t.Fatal(err)
	}
	before = slice()
	if _, err := log.Truncate(context.Background(), -1); err != nil {
		t.Fatal(err)
	}
	told("read before the truncation", before, 1)
}
