package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

func open(t testing.TB, fs disk.FS) *DB {
	t.Helper()
	d, err := Open(fs, "/kv", Options{ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func set(t testing.TB, d *DB, sync bool, kv ...string) {
	t.Helper()
	b := d.Batch()
	for i := 0; i < len(kv); i += 2 {
		b.Set([]byte(kv[i]), []byte(kv[i+1]))
	}
	if err := d.Commit(b, sync); err != nil {
		t.Fatal(err)
	}
}

func all(t testing.TB, d *DB, prefix string) string {
	t.Helper()
	var out []string
	if err := d.Iterate([]byte(prefix), func(k, v []byte) error {
		out = append(out, fmt.Sprintf("%s=%s", k, v))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func TestBatchesAndIteration(t *testing.T) {
	d := open(t, disk.NewMem())
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	set(t, d, false, "a/1", "x", "a/2", "y", "b/1", "z", "\xff\xff", "last")
	snap, err := d.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	b := d.Batch()
	b.Delete([]byte("a/1"))
	b.DeletePrefix([]byte("b/"))
	b.Set([]byte("c"), nil)
	if err := d.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]string{"": "a/2=y c= \xff\xff=last", "a/": "a/2=y", "b": "", "\xff": "\xff\xff=last"} {
		if got := all(t, d, prefix); got != want {
			t.Errorf("prefix %q: %q, want %q", prefix, got, want)
		}
	}
	if v, ok, err := snap.Get([]byte("a/1")); string(v) != "x" || !ok || err != nil {
		t.Errorf("snapshot: %q %v %v", v, ok, err)
	}
	if v, ok, err := d.Get([]byte("a/1")); ok || err != nil {
		t.Errorf("deleted: %q %v %v", v, ok, err)
	}
	if v, ok, err := d.Get([]byte("c")); v == nil || len(v) != 0 || !ok || err != nil {
		t.Errorf("empty value: %q %v %v", v, ok, err)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
	var first string
	if err := d.IterateFrom(nil, []byte("b"), func(k, _ []byte) error { first = string(k); return ErrStop }); err != nil || first != "c" {
		t.Errorf("from b: %q %v", first, err)
	}
	boom := errors.New("boom")
	if err := d.Iterate(nil, func(_, _ []byte) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error of the function: %v", err)
	}
	for _, key := range []string{"", "\x00version"} {
		b := d.Batch()
		b.Set([]byte("ok"), nil)
		b.Set([]byte(key), []byte("x"))
		if err := d.Commit(b, false); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if _, ok, _ := d.Get([]byte("ok")); ok {
		t.Error("a batch with a bad key was applied")
	}
}

func TestVersionAndLock(t *testing.T) {
	fs := disk.NewMem()
	d := open(t, fs)
	if _, err := Open(fs, "/kv", Options{}); lattice.KindOf(err) != lattice.Unavailable {
		t.Fatalf("open twice: %v", err)
	}
	b := d.db.NewBatch()
	_ = b.Set(versionKey(), []byte{Version + 1}, nil)
	if err := d.commit(b, true); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(fs, "/kv", Options{}); lattice.KindOf(err) != lattice.Unsupported {
		t.Fatalf("later version: %v", err)
	}
	if _, _, err := d.Get([]byte("a")); lattice.KindOf(err) != lattice.Unavailable {
		t.Fatalf("closed: %v", err)
	}
}

// TestCrash: after a power cut, every synced batch is there with all before it,
// and every batch is there wholly or not at all.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		fs := disk.NewMem()
		d, err := Open(fs, "/kv", Options{})
		if err != nil {
			t.Fatal(err)
		}
		n, synced := rapid.IntRange(1, 30).Draw(t, "batches"), -1
		for i := range n {
			b := d.Batch()
			for j := range 3 {
				b.Set(fmt.Appendf(nil, "%d/%03d", j, i), []byte("v"))
			}
			sync := rapid.Bool().Draw(t, "sync")
			if err := d.Commit(b, sync); err != nil {
				t.Fatal(err)
			}
			if sync {
				synced = i
			}
		}
		clone := fs.CrashClone(rapid.SampledFrom([]int{0, 30, 100}).Draw(t, "kept"), rng)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err = Open(clone, "/kv", Options{}); err != nil {
			t.Fatal(err)
		}
		var have [3]int
		for j := range have {
			_ = d.Iterate(fmt.Appendf(nil, "%d/", j), func(k, _ []byte) error {
				if want := fmt.Sprintf("%d/%03d", j, have[j]); string(k) != want {
					t.Fatalf("key %s, want %s", k, want)
				}
				have[j]++
				return nil
			})
		}
		if have[0] != have[1] || have[1] != have[2] || have[0] <= synced {
			t.Fatalf("have %v of %d batches, synced up to %d", have, n, synced)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNearlyFullDisk(t *testing.T) {
	fs := disk.NewMem()
	d, err := Open(fs, "/kv", Options{ReserveBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	set(t, d, true, "a", "1")
	fs.SetUsage(vfs.DiskUsage{AvailBytes: 999, TotalBytes: 1 << 30})
	b := d.Batch()
	b.Set([]byte("a"), []byte("2"))
	if err := d.Commit(b, true); lattice.KindOf(err) != lattice.Storage {
		t.Fatalf("commit on a full disk: %v", err)
	}
	if got := all(t, d, ""); got != "a=1" {
		t.Fatal(got)
	}
	fs.SetUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 1 << 30})
	if err := d.Commit(b, true); err != nil {
		t.Fatalf("commit with room again: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFailingDisk: a failed write of the log is an error, not the end of the
// process; then commits fail, reads go on, and a reopened store has what was synced.
func TestFailingDisk(t *testing.T) {
	for _, kind := range []disk.OpKind{disk.OpWrite, disk.OpSync} {
		t.Run(string(kind), func(t *testing.T) {
			fs := disk.NewMem()
			d := open(t, fs)
			set(t, d, true, "a", "1")
			fs.SetFault(func(op disk.Op) *disk.Fault {
				if op.Kind == kind && strings.HasSuffix(op.Path, ".log") {
					return &disk.Fault{}
				}
				return nil
			})
			b := d.Batch()
			b.Set([]byte("b"), []byte("2"))
			if err := d.Commit(b, true); lattice.KindOf(err) != lattice.Storage {
				t.Fatalf("commit: %v", err)
			}
			fs.SetFault(nil)
			b = d.Batch()
			b.Set([]byte("c"), []byte("3"))
			if err := d.Commit(b, true); lattice.KindOf(err) != lattice.Storage || d.Failed() == nil {
				t.Fatalf("commit after a failure: %v", err)
			}
			if v, ok, err := d.Get([]byte("a")); string(v) != "1" || !ok || err != nil {
				t.Fatalf("get: %q %v %v", v, ok, err)
			}
			clone := fs.CrashClone(0, nil)
			if err := d.Close(); err == nil {
				t.Log("closing the failed store reported nothing")
			}
			d = open(t, clone)
			if v, ok, err := d.Get([]byte("a")); string(v) != "1" || !ok || err != nil {
				t.Fatalf("get after reopening: %q %v %v", v, ok, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestCheckpoint(t *testing.T) {
	fs := disk.NewMem()
	d := open(t, fs)
	set(t, d, false, "a", "1")
	if err := d.Checkpoint("/copy"); err != nil {
		t.Fatal(err)
	}
	set(t, d, false, "a", "2")
	c, err := Open(fs, "/copy", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, c, ""); got != "a=1" {
		t.Errorf("copy has %q", got)
	}
	if err := errors.Join(c.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
