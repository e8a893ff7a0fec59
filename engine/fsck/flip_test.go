package fsck_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// small makes a directory with a little of everything, cleanly stopped.
func small(t *testing.T) *disk.Mem {
	t.Helper()
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	plain := n.Topic("plain", 1, "segment.bytes=1000")
	compact := n.Topic("compact", 1, "cleanup.policy=compact", "segment.bytes=600", "min.cleanable.dirty.ratio=0")
	p, c := n.Part(plain, 0), n.Part(compact, 0)
	for i := range 40 {
		n.Put(p, record.Codec(i%5), fmt.Sprint("v", i))
		n.Put(c, record.None, fmt.Sprintf("k%d=%d", i%3, i))
		n.Clock.Advance(time.Second)
		if i == 20 {
			n.Restart()
			p, c = n.Part(plain, 0), n.Part(compact, 0)
		}
	}
	for i := range int32(6) {
		n.PutAs(p, 7, 0, i, "x")
	}
	if _, err := p.Truncate(context.Background(), 15); err != nil {
		t.Fatal(err)
	}
	n.Commit("readers", plain, 0, 30, "note")
	n.Retain(context.Background())
	n.Stop()
	r := fsck.MustBeClean(t, fs, enginetest.Dir)
	if len(r.Findings) > 0 {
		t.Fatalf("findings in a clean directory: %v", r.Findings)
	}
	return fs
}

// allFiles returns every file's path and bytes.
func allFiles(t *testing.T, fs disk.FS, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			for p, b := range allFiles(t, fs, path) {
				out[p] = b
			}
			continue
		}
		b, err := disk.ReadFile(fs, path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = b
	}
	return out
}

func put(t *testing.T, fs disk.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, disk.Category)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// dump returns the catalogue's records, or why it cannot be read.
func dump(fs disk.FS, dir string) string {
	var b strings.Builder
	db, err := kv.OpenReadOnly(fs, dir, kv.Options{})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = db.Close() }()
	if err := db.Iterate(nil, func(k, v []byte) error {
		fmt.Fprintf(&b, "%x %x\n", k, v)
		return nil
	}); err != nil {
		return err.Error()
	}
	return b.String()
}

func checked(t *testing.T, fs disk.FS) fsck.Report {
	t.Helper()
	r, err := fsck.Check(fs, enginetest.Dir, fsck.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// catalogueOf returns the directory of the catalogue that a file is of; "" for none.
func catalogueOf(path string) string {
	if dir, _, ok := strings.Cut(path, "/kv/"); ok {
		return dir + "/kv"
	}
	return ""
}

// hinges are the records that something else hinges on. The rest are producer
// snapshots ('p') and how far compaction came ('k'): when the journal loses the
// last one, the one before is as true, of fewer batches, and nobody can tell.
func hinges(records string) string {
	var b strings.Builder
	for line := range strings.Lines(records) {
		if !strings.HasPrefix(line, "70") && !strings.HasPrefix(line, "6b") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// idle reports whether what a file says does not matter: it is written over, or
// made again by whoever opens the log.
func idle(fs disk.FS, path string) bool {
	base := path[strings.LastIndex(path, "/")+1:]
	if strings.HasPrefix(base, "recycle-") || strings.HasSuffix(base, ".hint") || strings.Contains(path, "/state/") {
		return true // the fold database may lag behind the logs that it is made from
	}
	if !strings.HasSuffix(base, "index") {
		return false
	}
	names, err := fs.List(path[:strings.LastIndex(path, "/")])
	if err != nil {
		return false
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") && name[:20] > base[:20] {
			return false
		}
	}
	return true // of the file that is written to
}

// every makes TestEveryByteCounts flip each byte, not every so many.
var every = flag.Bool("every", false, "flip every single byte")

// places is in how many places of a file something is tried: of n, a quarter in short tests.
func places(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// TestEveryByteCounts flips bytes of each file: the check finds every one, unless
// it lies in a file of the ordered store that goes on saying the same.
func TestEveryByteCounts(t *testing.T) {
	fs := small(t)
	for path, b := range allFiles(t, fs, enginetest.Dir) {
		if strings.Contains(path, "/recycle-") || strings.HasSuffix(path, ".hint") || strings.Contains(path, "/state/") {
			continue
		}
		cat, want, step := catalogueOf(path), "", max(1, len(b)/places(61))
		if *every {
			step = 1
		}
		if cat != "" {
			want = hinges(dump(fs, cat))
		}
		for at := 0; at < len(b); at += step {
			bad := bytes.Clone(b)
			bad[at] ^= 1 << (at % 8)
			put(t, fs, path, bad)
			r := checked(t, fs)
			if cat == "" && r.Valid() && (strings.HasSuffix(path, ".log") || strings.HasSuffix(path, "/prefix") || strings.HasSuffix(path, ".key")) {
				t.Errorf("%s: byte %d of %d flipped is no damage: %v", path, at, len(b), r.Findings)
			}
			if len(r.Findings) > 0 || cat != "" && hinges(dump(fs, cat)) == want {
				continue
			}
			t.Errorf("%s: byte %d of %d flipped, nothing found", path, at, len(b))
		}
		put(t, fs, path, b)
	}
	fsck.MustBeClean(t, fs, enginetest.Dir)
}

// TestEveryTruncationCounts cuts and removes each file.
func TestEveryTruncationCounts(t *testing.T) {
	fs := small(t)
	for path, b := range allFiles(t, fs, enginetest.Dir) {
		if idle(fs, path) {
			continue
		}
		cat, want := catalogueOf(path), ""
		if cat != "" {
			want = hinges(dump(fs, cat))
		}
		look := func(what string) {
			r := checked(t, fs)
			if len(r.Findings) == 0 && (cat == "" || hinges(dump(fs, cat)) != want) {
				t.Errorf("%s: %s, nothing found", path, what)
			}
		}
		for at := 0; at < len(b); at += max(1, len(b)/places(13)) {
			put(t, fs, path, b[:at])
			look(fmt.Sprintf("cut from %d to %d bytes", len(b), at))
		}
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		look("removed")
		put(t, fs, path, b)
	}
	fsck.MustBeClean(t, fs, enginetest.Dir)
}

// TestNothingChanges: a check leaves every byte and name as it was.
func TestNothingChanges(t *testing.T) {
	fs := small(t)
	before := allFiles(t, fs, enginetest.Dir)
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind.Changes() {
			t.Errorf("%s of %s", op.Kind, op.Path)
		}
		return nil
	})
	checked(t, fs)
	fs.SetFault(nil)
	after := allFiles(t, fs, enginetest.Dir)
	if len(before) != len(after) {
		t.Errorf("%d files, were %d", len(after), len(before))
	}
	for path, b := range before {
		if !bytes.Equal(after[path], b) {
			t.Errorf("%s changed", path)
		}
	}
}

// TestFoldDatabase: what cannot be read of the fold database is a warning, since
// the logs give it again.
func TestFoldDatabase(t *testing.T) {
	fs := small(t)
	found := 0
	for path, b := range allFiles(t, fs, enginetest.Dir) {
		if !strings.Contains(path, "/state/") || !strings.HasSuffix(path, ".sst") {
			continue
		}
		for at := 0; at < len(b); at += max(1, len(b)/31) {
			bad := bytes.Clone(b)
			bad[at] ^= 1 << (at % 8)
			put(t, fs, path, bad)
			r := checked(t, fs)
			if !r.Valid() {
				t.Errorf("%s: byte %d flipped is damage: %v", path, at, r.Findings)
			}
			found += len(r.Findings)
		}
		put(t, fs, path, b)
	}
	if found == 0 {
		t.Error("no flipped byte was found")
	}
}
