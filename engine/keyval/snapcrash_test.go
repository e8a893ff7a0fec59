package keyval

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// cuts collects what a power cut before each changing operation leaves.
type cuts struct {
	mu      sync.Mutex
	rng     *rand.Rand
	moments []moment
	every   int
	step    int
}

func (c *cuts) watch(fs *disk.Mem) {
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if !op.Kind.Changes() {
			return nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.step++; c.step%c.every == 0 {
			c.moments = append(c.moments, moment{step: c.step, op: op, fs: fs.CrashClone([]int{0, 50, 100}[c.rng.IntN(3)], c.rng)})
		}
		return nil
	})
}

// opens starts from what each cut left, twice, the second time without the fold
// database, and fails unless one of the states is there and writes go on.
func (c *cuts) opens(t *testing.T, by byte, clock tick.Clock, states ...string) {
	t.Helper()
	if len(c.moments) < 10 {
		t.Fatalf("only %d power cuts", len(c.moments))
	}
	for _, m := range c.moments {
		was := ""
		for i := range uint64(2) {
			n, err := tryStart(t, options(m.fs, by, 1000+i, clock))
			if err != nil {
				t.Fatalf("power cut at step %d, before %s %s: %v", m.step, m.op.Kind, m.op.Path, err)
			}
			got := n.dump()
			ok := i > 0 && got == was
			for _, s := range states {
				ok = ok || i == 0 && got == s
			}
			if !ok {
				t.Fatalf("power cut at step %d, before %s %s, start %d: it holds\n%s\nwant\n%s", m.step, m.op.Kind, m.op.Path, i+1, got, states)
			}
			n.set("after", fmt.Sprint(i))
			was = n.dump()
			n.close()
			n.must(m.fs.RemoveAll("/store/state"))
		}
	}
}

// TestCrashInPrune: a power cut at any step of taking a snapshot and pruning to it
// leaves the state as it is.
func TestCrashInPrune(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 8))
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	for inc := uint64(2); inc < 5; inc++ {
		n := start(t, options(fs, 0, inc, clock))
		n.changes(rng, 10)
		n.close()
	}
	n := start(t, options(fs, 0, 5, clock))
	n.changes(rng, 10)
	want := n.dump()
	c := &cuts{rng: rng, every: 1}
	c.watch(fs)
	n.prune()
	n.changes(rng, 1)
	after := n.dump()
	n.prune() // onto a base
	fs.SetFault(nil)
	n.close()
	c.opens(t, 0, clock, want, after)
}

// TestCrashInImport: a power cut at any step of an import leaves the state as it was,
// or joined.
func TestCrashInImport(t *testing.T) {
	for _, pruned := range []bool{false, true} {
		rng := rand.New(rand.NewPCG(3, 8))
		a, b, clock := twoNodes(t)
		a.changes(rng, 10)
		b.changes(rng, 10)
		if pruned {
			b.prune()
			b.changes(rng, 5)
		}
		before := b.dump()
		file := a.file(a.snapshot())
		b.must(disk.WriteFile(b.o.FS, "/incoming", file))
		fs := b.o.FS.(*disk.Mem)
		c := &cuts{rng: rng, every: 1}
		c.watch(fs)
		if got, err := b.Import(context.Background(), "/incoming"); err != nil || !got.New {
			t.Fatalf("%+v, %v", got, err)
		}
		fs.SetFault(nil)
		after := b.dump()
		a.close()
		b.close()
		c.opens(t, 1, clock, before, after)
	}
}

// TestFailuresInPrune fails each operation of a pruning once, lost or kept: the state
// stays as it is, and once the disk works again, so does pruning.
func TestFailuresInPrune(t *testing.T) {
	for kept := range 2 {
		for at := 1; ; at++ {
			rng := rand.New(rand.NewPCG(2, 8))
			fs := disk.NewMem()
			clock := tick.NewManual(testEpoch)
			n := start(t, options(fs, 0, 2, clock))
			n.changes(rng, 10)
			n.close()
			n = start(t, options(fs, 0, 3, clock))
			n.changes(rng, 10)
			n.snapshot()
			want := n.dump()
			var mu sync.Mutex
			step, hit := 0, false
			fs.SetFault(func(op disk.Op) *disk.Fault {
				mu.Lock()
				defer mu.Unlock()
				if !op.Kind.Changes() || strings.HasPrefix(op.Path, "/store/state") {
					return nil // pebble ends the process when it cannot write there
				}
				if step++; step != at {
					return nil
				}
				hit = true
				return &disk.Fault{Err: disk.ErrInjected, Kept: kept == 1}
			})
			_, err := n.PruneAnyway(context.Background(), lattice.Hash{})
			fs.SetFault(nil)
			if !hit {
				n.close()
				break
			}
			if got := n.dump(); got != want {
				t.Fatalf("step %d failed (%v): it holds\n%s\nwant\n%s", at, err, got, want)
			}
			n.stop()
			_ = n.Close() // may say again what failed
			if n, err = tryStart(t, options(fs, 0, 4, clock)); err != nil {
				t.Fatalf("step %d failed: the next start: %v", at, err)
			}
			if got := n.dump(); got != want {
				t.Fatalf("step %d failed: after a restart it holds\n%s\nwant\n%s", at, got, want)
			}
			n.prune()
			n.close()
			n.must(fs.RemoveAll("/store/state"))
			n = start(t, options(fs, 0, 5, clock))
			if got := n.dump(); got != want {
				t.Fatalf("step %d failed: made again it holds\n%s\nwant\n%s", at, got, want)
			}
			n.close()
		}
	}
}

// TestPruneLazily: at a level that syncs later, what a base holds stays, though its
// entries were never synced.
func TestPruneLazily(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	o := options(fs, 0, 2, clock)
	o.Durability = signedlog.OS
	n := start(t, o)
	n.changes(rng, 20)
	n.prune()
	want := n.dump()
	crashed := fs.CrashClone(0, rng)
	n.stop()
	n = start(t, options(crashed, 0, 3, clock))
	if got := n.dump(); got != want {
		t.Fatalf("it holds\n%s\nwant\n%s", got, want)
	}
	n.set("goes", "on")
	n.close()
}

// TestBaseMissing: without its base a store that was pruned does not open as another.
func TestBaseMissing(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.set("a", "1")
	n.prune()
	n.set("b", "1")
	n.close()
	path := BasePath(fs, "/store")
	b, err := disk.ReadFile(fs, path)
	n.must(err)
	n.must(fs.Remove(path))
	if _, err := Open(options(fs, 0, 3, clock)); lattice.KindOf(err) != lattice.Storage {
		t.Fatalf("without its base: %v", err)
	}
	bad := append([]byte(nil), b...)
	bad[len(bad)/2] ^= 1
	n.must(disk.WriteFile(fs, path, bad))
	n.must(fs.RemoveAll("/store/state"))
	if _, err := Open(options(fs, 0, 3, clock)); lattice.KindOf(err) != lattice.Storage {
		t.Fatalf("with a damaged base: %v", err)
	}
	n.must(disk.WriteFile(fs, path, b))
	n = start(t, options(fs, 0, 3, clock))
	if n.get("a") != "1" || n.get("b") != "1" {
		t.Fatalf("a=%q b=%q", n.get("a"), n.get("b"))
	}
	n.close()
}
