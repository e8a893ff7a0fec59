package fsck_test

import (
	"errors"
	"fmt"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestReportIsASentence(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("a", 2)
	for i := range 20 {
		n.Put(n.Part(top, int32(i%2)), record.None, fmt.Sprint("v", i))
	}
	n.Stop()
	r := fsck.MustBeClean(t, fs, enginetest.Dir)
	const want = "Checked 1 store, 1 topic, 2 partitions: 20 batches with 20 records (1.4 KiB) and 3 entries in 4 segments, 23 tree leaves and 6 signed roots; everything matches."
	if r.String() != want || !r.Valid() || !r.Clean() || len(r.Findings) != 0 {
		t.Errorf("%s\nwant\n%s", r, want)
	}
	for path := range allFiles(t, fs, n.Cfg.Dir+"/topics") {
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	put(t, fs, enginetest.Dir+"/what.is.this", nil)
	r, err := fsck.Check(fs, enginetest.Dir, fsck.Options{MaxFindings: 2})
	if err != nil || r.Valid() || r.Clean() || len(r.Findings) != 2 || r.Omitted == 0 {
		t.Errorf("without its logs: %v, %v, %v", r, r.Findings, err)
	}
	if f := r.Findings[0]; f.String() != "note: what.is.this: belongs to nothing" || f.Store != "" {
		t.Errorf("first finding: %v", f)
	}
}

func TestCheckIsRefused(t *testing.T) {
	fs := disk.NewMem()
	for _, dir := range []string{"/nowhere", "/empty"} {
		if _, err := fsck.Check(fs, dir, fsck.Options{}); lattice.KindOf(err) != lattice.NotFound {
			t.Errorf("%s: %v", dir, err)
		}
		if err := disk.MkdirAll(fs, "/empty"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProgress(t *testing.T) {
	fs := small(t)
	var last fsck.Progress
	r, err := fsck.Check(fs, enginetest.Dir, fsck.Options{Progress: func(p fsck.Progress) error { last = p; return nil }})
	if err != nil || last.Total == 0 || last.Done != last.Total || last.Total < r.Bytes {
		t.Errorf("the last progress is %+v of %d bytes, %v", last, r.Bytes, err)
	}
	stop := errors.New("stop")
	if _, err := fsck.Check(fs, enginetest.Dir, fsck.Options{Progress: func(fsck.Progress) error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("%v, want what Progress returned", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	fs := disk.NewMem()
	n := enginetest.New(b, fs)
	p := n.Part(n.Topic("a", 1, "lattice.durability=os"), 0)
	value := string(make([]byte, 100))
	var values []string
	for range 100 {
		values = append(values, value)
	}
	for range 5000 {
		n.Put(p, record.None, values...)
	}
	n.Stop()
	b.ReportAllocs()
	for b.Loop() {
		r, err := fsck.Check(fs, enginetest.Dir, fsck.Options{})
		if err != nil || !r.Clean() {
			b.Fatal(r, err)
		}
		b.SetBytes(r.Bytes)
	}
}
