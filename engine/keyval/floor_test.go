package keyval

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestGoldenSince pins the note of when the base became the base.
func TestGoldenSince(t *testing.T) {
	sum := lattice.Hash{1, 2, 3}
	at := time.UnixMilli(1_767_225_600_123).UTC()
	want := "4c4401" + // LD, version
		"0102030000000000000000000000000000000000000000000000000000000000" + // sum
		"0000019b76daa87b" + // ms since 1970
		"0c356601" // CRC-32C
	got := appendSince(nil, sum, at)
	if hex.EncodeToString(got) != want {
		t.Errorf("now %x, frozen %s", got, want)
	}
	if s, when, ok := parseSince(got); !ok || s != sum || !when.Equal(at) {
		t.Errorf("it comes back as %s, %s, %v", s, when, ok)
	}
}

// FuzzSince checks, for any bytes: no panic, and what is taken is a note to the bit.
func FuzzSince(f *testing.F) {
	f.Add(appendSince(nil, lattice.Hash{9}, testEpoch))
	f.Fuzz(func(t *testing.T, b []byte) {
		if sum, at, ok := parseSince(b); ok && string(appendSince(nil, sum, at)) != string(b) {
			t.Errorf("%x is taken", b)
		}
	})
}

// TestFloor: what was pruned is told with the snapshot that stands for it and when that
// was; also after a restart, without the fold database, and without the note.
func TestFloor(t *testing.T) {
	fs, clock := disk.NewMem(), tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.set("a", "1")
	if f, ok := n.Floor(); ok {
		t.Fatalf("before anything was pruned: %+v", f)
	}
	written := n.Frontier()
	clock.Advance(time.Hour)
	k := n.snapshot()
	clock.Advance(time.Hour)
	n.set("a", "2")
	_, err := n.PruneAnyway(context.Background(), k.ID)
	n.must(err)
	check := func(n *node, pruned time.Time) {
		t.Helper()
		f, ok := n.Floor()
		if !ok || f.Snapshot != k.ID || !f.Frontier.Within(written) || !written.Within(f.Frontier) {
			t.Errorf("the floor is %+v, %v; pruned to %s at %v", f, ok, k.ID, written)
		}
		if !f.Through.Equal(testEpoch) || !f.Pruned.Equal(pruned) {
			t.Errorf("pruned on %s through %s, want %s, %s", f.Pruned, f.Through, pruned, testEpoch)
		}
	}
	check(n, testEpoch.Add(2*time.Hour))
	for i := range 2 {
		n.close()
		if i == 1 {
			n.must(fs.RemoveAll("/store/state"))
		}
		n = start(t, options(fs, 0, 3+uint64(i), clock))
		check(n, testEpoch.Add(2*time.Hour))
	}
	n.must(fs.Remove("/store/snapshots/base.since"))
	check(n, time.Time{})
	n.close()
}

// TestPruneFreesFiles: pruning frees the file that is being written to, though entries
// come on while the snapshot is taken, and the one of another writer.
func TestPruneFreesFiles(t *testing.T) {
	n, other, _ := twoNodes(t)
	rng := rand.New(rand.NewPCG(1, 2))
	exchange := func() {
		n.receive(rng, other.entries())
		other.receive(rng, n.entries())
	}
	big := strings.Repeat("x", 10_000)
	for range 20 {
		n.set("mine", big)
		other.set("theirs", big)
	}
	exchange()
	k := n.snapshot()
	n.set("later", "1")
	other.set("theirs", "2")
	exchange()
	p, err := n.PruneAnyway(context.Background(), k.ID)
	n.must(err)
	if p.Bytes < 2*20*10_000 {
		t.Errorf("%d bytes were freed", p.Bytes)
	}
	if s := n.Status(); s.PrunedEntries != p.Entries || s.PrunedBytes != uint64(p.Bytes) {
		t.Errorf("%+v counts %+v", s, p)
	}
	for key, want := range map[string]string{"mine": big, "theirs": "2", "later": "1"} {
		if n.get(key) != want {
			t.Errorf("%s is %.10q", key, n.get(key))
		}
	}
	n.close()
	other.close()
}
