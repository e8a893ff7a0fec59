package fsck_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
)

// reopened starts a node on a copy of a file system, and wants partition 0 of the
// topic to take writes and to stay clean.
func reopened(t *testing.T, fs *disk.Mem, now time.Time, top store.Topic) {
	t.Helper()
	fsck.MustBeValid(t, fs, enginetest.Dir)
	n := enginetest.Attach(t, fs, now)
	n.Start()
	p := n.Part(top, 0)
	if st := p.Status(); st.Failed != "" {
		t.Fatalf("it takes no writes: %s", st.Failed)
	}
	n.Put(p, record.None, "after=1")
	n.Stop()
	fsck.MustBeClean(t, fs, enginetest.Dir)
}

func certify(t *testing.T, p *partition.Partition) {
	t.Helper()
	if _, err := p.ProveCheckpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestPowerCutBehindACompactedFile: the leaves of the file that is written to are
// not durable, and those of the compacted file before it cannot be made again
// from its blocks.
func TestPowerCutBehindACompactedFile(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("t", 1, "cleanup.policy=compact", "segment.bytes=600", "min.cleanable.dirty.ratio=0")
	p := n.Part(top, 0)
	for i := range 17 {
		n.Put(p, record.None, fmt.Sprintf("k%d=%d", i%2, i))
	}
	if err := p.Retain(context.Background()); err != nil {
		t.Fatal(err)
	}
	n.Put(p, record.None, "k0=last")
	certify(t, p)
	reopened(t, fs.CrashClone(0, nil), n.Clock.Now(), top)
}

// TestPowerCutAfterCompactingTheLastFile: a file can be compacted before another
// begins, and so before its leaves would have been made durable.
func TestPowerCutAfterCompactingTheLastFile(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("t", 1, "cleanup.policy=compact", "segment.ms=1000", "min.cleanable.dirty.ratio=0")
	p := n.Part(top, 0)
	for i := range 16 {
		n.Put(p, record.None, fmt.Sprintf("k%d=%d", i%2, i))
	}
	n.Clock.Advance(time.Minute)
	if err := p.Retain(context.Background()); err != nil {
		t.Fatal(err)
	}
	reopened(t, fs.CrashClone(0, nil), n.Clock.Now(), top)
}

// TestPowerCutTakesTheFirstFile: with durability os nothing is durable before the
// first checkpoint, not even that of two files the first is there.
func TestPowerCutTakesTheFirstFile(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("t", 1, "lattice.durability=os", "segment.bytes=300")
	p := n.Part(top, 0)
	for i := range 8 {
		n.Put(p, record.None, fmt.Sprint("v", i))
	}
	cut := fs.CrashClone(100, nil)
	var first string
	for path := range allFiles(t, cut, enginetest.Dir) {
		if !strings.Contains(path, "/topics/") {
			continue
		}
		if strings.HasSuffix(path, "/00000000000000000000.log") {
			first = path
		}
		if strings.HasSuffix(path, "/head") {
			put(t, cut, path, make([]byte, 16<<10))
		}
	}
	if err := cut.Remove(first); err != nil {
		t.Fatal(err)
	}
	reopened(t, cut, n.Clock.Now(), top)
}

// TestStoredNodesAreMadeAgain: a stored node of the file that is written to is
// compared with the leaves when the log is opened, since a power cut can take one
// page of a level and leave a later one.
func TestStoredNodesAreMadeAgain(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("t", 1)
	p := n.Part(top, 0)
	for i := range 600 {
		n.Put(p, record.None, fmt.Sprint("v", i))
	}
	n.Stop()
	for path, b := range allFiles(t, fs, enginetest.Dir) {
		if strings.HasSuffix(path, "/tree.08") {
			bad := bytes.Clone(b)
			clear(bad[32:64])
			put(t, fs, path, bad)
		}
	}
	if r := checked(t, fs); r.Count(fsck.Warning) != 1 {
		t.Errorf("a lost node: %v %v", r, r.Findings)
	}
	reopened(t, fs, n.Clock.Now(), top)
}
