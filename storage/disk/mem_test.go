package disk

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func put(t *testing.T, fs FS, name, data string, sync bool) {
	t.Helper()
	f, err := fs.Create(name, Category)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write([]byte(data))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, fs FS, name string) string {
	t.Helper()
	b, err := ReadFile(fs, name)
	if IsNotExist(err) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSame runs the same operations on the memory and on the machine's file
// system, and compares what is read.
func TestSame(t *testing.T) {
	mem, machine := NewMem(), OS()
	root := t.TempDir()
	if err := MkdirAll(mem, root); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "d/c"}
	for _, fs := range []FS{mem, machine} {
		if err := MkdirAll(fs, filepath.Join(root, "d")); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 {
		op, name, other := rng.IntN(8), names[rng.IntN(3)], names[rng.IntN(3)]
		at, n := rng.Int64N(9000), rng.Int64N(9000)
		data := bytes.Repeat([]byte{byte(rng.Uint32())}, int(n))
		run := func(fs FS) string {
			name, other := filepath.Join(root, name), filepath.Join(root, other)
			var err error
			switch op {
			case 0:
				var f vfs.File
				if f, err = fs.Create(name, Category); err == nil {
					_, err = f.Write(data)
					err = errors.Join(err, f.Close())
				}
			case 1, 2:
				var f vfs.File
				if f, err = fs.OpenReadWrite(name, Category); err == nil {
					_, err = f.WriteAt(data, at)
					err = errors.Join(err, f.SyncData(), f.Close())
				}
			case 3:
				err = fs.Truncate(name, n)
			case 4:
				err = fs.Rename(name, other)
			case 5:
				err = fs.Link(name, other)
			case 6:
				err = fs.Remove(name)
			case 7:
				err = WriteFile(fs, name, data)
			}
			if op == 5 && err != nil {
				return "no link"
			}
			if IsNotExist(err) {
				return "not there"
			}
			if err != nil {
				return "error"
			}
			return ""
		}
		if a, b := run(mem), run(machine); a != b {
			t.Fatalf("operation %d on %s, %s: %q in memory, %q on the machine", op, name, other, a, b)
		}
		for _, name := range names {
			if a, b := get(t, mem, filepath.Join(root, name)), get(t, machine, filepath.Join(root, name)); a != b {
				t.Fatalf("after operation %d on %s, %s: %s differs: %d and %d bytes", op, name, other, name, len(a), len(b))
			}
		}
	}
	a, _ := mem.List(root)
	b, _ := machine.List(root)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		t.Fatalf("lists %v and %v", a, b)
	}
}

// TestCrashClone: what was synced stays, what was not may go, name by name and
// page by page.
func TestCrashClone(t *testing.T) {
	fs := NewMem()
	if err := MkdirAll(fs, "/d"); err != nil {
		t.Fatal(err)
	}
	put(t, fs, "/d/both", "durable", true)
	put(t, fs, "/d/bytes", "unsynced", false)
	if err := SyncDir(fs, "/d"); err != nil {
		t.Fatal(err)
	}
	put(t, fs, "/d/name", "unsynced name", true)
	put(t, fs, "/d/both", "", false) // another file under that name
	if err := fs.Rename("/d/bytes", "/d/moved"); err != nil {
		t.Fatal(err)
	}
	c := fs.CrashClone(0, nil)
	for name, want := range map[string]string{"both": "durable", "bytes": "", "name": "-", "moved": "-"} {
		if got := get(t, c, "/d/"+name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c = fs.CrashClone(100, nil)
	for name, want := range map[string]string{"both": "", "bytes": "-", "name": "unsynced name", "moved": "unsynced"} {
		if got := get(t, c, "/d/"+name); got != want {
			t.Errorf("all kept: %s: %q, want %q", name, got, want)
		}
	}
	seen := map[string]bool{}
	for seed := range uint64(100) {
		c := fs.CrashClone(50, rand.New(rand.NewPCG(seed, 0)))
		seen[strings.Join([]string{get(t, c, "/d/both"), get(t, c, "/d/name"), get(t, c, "/d/moved")}, "|")] = true
		if (get(t, c, "/d/moved") == "-") == (get(t, c, "/d/bytes") == "-") {
			t.Fatal("a rename was torn")
		}
	}
	if len(seen) < 8 {
		t.Errorf("only %d outcomes: %v", len(seen), seen)
	}
}

func TestCrashTearsPages(t *testing.T) {
	fs := NewMem()
	put(t, fs, "/f", strings.Repeat("o", 5*page), true)
	if err := SyncDir(fs, "/"); err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenReadWrite("/f", Category)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("n"), 6*page), 0); err != nil {
		t.Fatal(err)
	}
	torn, sizes := 0, map[int]bool{}
	for seed := range uint64(50) {
		got := get(t, fs.CrashClone(50, rand.New(rand.NewPCG(seed, 0))), "/f")
		sizes[len(got)] = true
		for i := 0; i < len(got); i += page {
			if p := got[i : i+page]; p != strings.Repeat(p[:1], page) {
				t.Fatal("a page was torn")
			}
		}
		if strings.Contains(got, "o") && strings.Contains(got, "n") {
			torn++
		}
	}
	if torn < 40 || len(sizes) != 2 {
		t.Errorf("%d of 50 writes torn, sizes %v", torn, sizes)
	}
	if err := fs.Truncate("/f", 10); err != nil {
		t.Fatal(err)
	}
	if got := get(t, fs.CrashClone(0, nil), "/f"); got != strings.Repeat("o", 5*page) {
		t.Error("an unsynced truncation survived")
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if got := get(t, fs.CrashClone(0, nil), "/f"); got != strings.Repeat("n", 10) {
		t.Errorf("a synced truncation was lost: %d bytes", len(got))
	}
}

// TestFailedSyncForgets: after a sync that failed, the bytes are readable and
// clean, so only writing them again makes them durable.
func TestFailedSyncForgets(t *testing.T) {
	fs := NewMem()
	put(t, fs, "/f", "old", true)
	if err := SyncDir(fs, "/"); err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenReadWrite("/f", Category)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteAt([]byte("new"), 0)
	fs.SetFault(func(op Op) *Fault {
		if op.Kind == OpSync {
			return &Fault{}
		}
		return nil
	})
	if err := f.Sync(); !errors.Is(err, ErrInjected) {
		t.Fatal(err)
	}
	fs.SetFault(nil)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got, crashed := get(t, fs, "/f"), get(t, fs.CrashClone(0, nil), "/f"); got != "new" || crashed != "old" {
		t.Errorf("have %q, after a crash %q", got, crashed)
	}
	_, _ = f.WriteAt([]byte("new"), 0)
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if crashed := get(t, fs.CrashClone(0, nil), "/f"); crashed != "new" {
		t.Errorf("written again: %q after a crash", crashed)
	}
}

// TestWriteFile: whatever step fails, the file has the old or the new bytes, the
// new ones if WriteFile said so.
func TestWriteFile(t *testing.T) {
	for step := range 8 {
		for _, kept := range []bool{false, true} {
			for _, percent := range []int{0, 50, 100} {
				fs := NewMem()
				if err := WriteFile(fs, "/f", []byte("old")); err != nil {
					t.Fatal(err)
				}
				n := 0
				fs.SetFault(func(op Op) *Fault {
					if op.Kind.Changes() {
						if n++; n == step+1 {
							return &Fault{Kept: kept, Short: 1}
						}
					}
					return nil
				})
				err := WriteFile(fs, "/f", []byte("new"))
				fs.SetFault(nil)
				for _, got := range []string{get(t, fs, "/f"), get(t, fs.CrashClone(percent, rand.New(rand.NewPCG(uint64(step), 1))), "/f")} {
					if got != "new" && (got != "old" || err == nil) {
						t.Errorf("step %d, kept %v, %d%%: %q after %v", step, kept, percent, got, err)
					}
				}
			}
		}
	}
}

func TestFull(t *testing.T) {
	fs := NewMem()
	put(t, fs, "/f", "1234", true)
	fs.SetFull(true)
	f, err := fs.OpenReadWrite("/f", Category)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt([]byte("abcd"), 2); n != 2 || !IsFull(err) {
		t.Errorf("wrote %d: %v", n, err)
	}
	if _, err := f.WriteAt([]byte("xy"), 0); err != nil {
		t.Errorf("overwrite: %v", err)
	}
	if _, err := fs.Create("/g", Category); !IsFull(err) {
		t.Errorf("create: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("close twice: %v", err)
	}
	if got := get(t, fs, "/f"); got != "xyab" {
		t.Errorf("have %q", got)
	}
}

func TestMkdirAllIsDurable(t *testing.T) {
	fs := NewMem()
	if err := MkdirAll(fs, "/a/b/c"); err != nil {
		t.Fatal(err)
	}
	c := fs.CrashClone(0, nil)
	if _, err := c.Stat("/a/b/c"); err != nil {
		t.Error(err)
	}
	if err := MkdirAll(c, "/a/b/c"); err != nil {
		t.Error(err)
	}
}

func TestLock(t *testing.T) {
	fs := NewMem()
	l, err := fs.Lock("/lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Lock("/lock"); err == nil {
		t.Error("locked twice")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = fs.Lock("/lock"); err != nil {
		t.Error(err)
	}
	_ = l.Close()
}

func TestCreatePrivate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, []byte("open"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := CreatePrivate(OS(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 1 {
		t.Errorf("%v, %v", info, err)
	}
}
