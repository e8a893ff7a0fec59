package store_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// rewrite writes testdata/v1, unless it is there. See testdata/README.md.
var rewrite = flag.Bool("rewrite", false, "write testdata/v1 if it does not exist")

const (
	v1Dir  = "testdata/v1"
	v1List = "testdata/v1.txt"
)

// v1Stopped is when the directory's node stopped, at the latest.
func v1Stopped() time.Time { return enginetest.Begin().Add(30 * 24 * time.Hour) }

// writeV1 makes a directory with a little of everything.
func writeV1(t *testing.T) *disk.Mem {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	ctx := context.Background()
	plain := n.Topic("plain", 2, "segment.bytes=16384")
	compact := n.Topic("compact", 1, "cleanup.policy=compact", "segment.bytes=2048", "min.cleanable.dirty.ratio=0", "delete.retention.ms=1000")
	stamped := n.Topic("stamped", 1, "message.timestamp.type=LogAppendTime", "lattice.durability=interval")
	gone := n.Topic("again", 1)
	n.Put(n.Part(gone, 0), record.None, "of a topic that is deleted")
	for term := range 3 {
		for i := range 110 { // more than 256 batches in all: tree nodes are stored
			n.Put(n.Part(plain, 0), record.Codec(i%5), fmt.Sprintf("key %d=value %d of term %d", i%7, i, term))
		}
		for i := range 10 {
			n.PutAs(n.Part(plain, 1), 4711, int16(term/2), int32(term%2*20+2*i), fmt.Sprint("first ", i), fmt.Sprint("second ", i))
			n.Put(n.Part(compact, 0), record.Zstd, fmt.Sprintf("k%d=%d.%d", i%4, term, i), fmt.Sprintf("only %d.%d=x", term, i))
			n.Put(n.Part(stamped, 0), record.Gzip, fmt.Sprint("stamped ", i))
			n.Clock.Advance(time.Second)
		}
		n.Commit("readers", plain, 0, int64(100*term+7), "as far as I got")
		n.Commit("readers", compact, 0, int64(10-term), "") // goes back: a rewind
		n.Commit("others", stamped, 0, int64(term), "café")
		n.Restart()
	}
	headers := record.NewBuilder(record.LZ4, 0)
	headers.Add(n.Clock.Now().UnixMilli(), nil, nil, []record.RecordHeader{{Key: "h", Value: []byte{0, 255}}, {Key: "nil"}})
	if _, err := enginetest.Produce(n.Part(plain, 1), headers.Build(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Part(plain, 0).Truncate(ctx, 299); err != nil {
		t.Fatal(err)
	}
	if err := n.Part(compact, 0).Retain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.DeleteTopic(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	n.Put(n.Part(n.Topic("again", 1), 0), record.Snappy, "of the topic that took its name")
	n.Restart()
	n.Put(n.Part(plain, 1), record.None, "the last")
	n.Stop()
	return fs
}

// listV1 writes down everything that a reader can see.
func listV1(t *testing.T, n *enginetest.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "store %s %q\n", n.Info().ID, n.Info().Name)
	for _, top := range n.Topics() {
		fmt.Fprintf(&b, "topic %q %s, %d partitions, %v\n", top.Name, top.ID, top.Partitions, top.Config)
		for i := range top.Partitions {
			p := n.Part(top, i)
			bounds := p.Bounds()
			cp, ok, err := p.Checkpoint(context.Background(), true)
			if err != nil || !ok {
				t.Fatalf("%s/%d has no checkpoint: %v", top.Name, i, err)
			}
			fmt.Fprintf(&b, "partition %d: %d to %d, %d batches, root %s\n", i, bounds.Start, bounds.Committed, cp.Size, cp.Root)
			for _, r := range n.Read(p, bounds.Start) {
				fmt.Fprintf(&b, "%d %d %q %q %q term %d\n", r.Offset, r.Timestamp, r.Key, r.Value, r.Headers, p.TermAt(r.Offset))
			}
			producers := p.Producers()
			slices.SortFunc(producers, func(a, b partition.ProducerState) int { return cmp.Compare(a.ID, b.ID) })
			for _, s := range producers {
				fmt.Fprintf(&b, "producer {ID:%d Epoch:%d LastSequence:%d LastTimestamp:%d}\n", s.ID, s.Epoch, s.LastSequence, s.LastTimestamp)
			}
		}
	}
	for _, g := range []string{"others", "readers"} {
		for _, o := range n.Committed(g) {
			fmt.Fprintf(&b, "group %q: %s/%d at %d %q %d\n", g, o.Topic, o.Partition, o.Offset, o.Metadata, o.Committed.UnixMilli())
		}
	}
	return b.String()
}

// TestV1 opens a directory that version 1 wrote: it must open for ever. Everything
// in it is sound, is what was written, can be proven, and can be gone on with.
func TestV1(t *testing.T) {
	if *rewrite {
		fs := writeV1(t)
		enginetest.Save(t, fs, v1Dir)
		n := enginetest.Attach(t, fs, v1Stopped())
		n.Start()
		if err := os.WriteFile(v1List, []byte(listV1(t, n)), 0o644); err != nil {
			t.Fatal(err)
		}
		n.Stop()
	}
	fs := disk.NewMem()
	enginetest.Load(t, fs, v1Dir)
	t.Log(fsck.MustBeClean(t, fs, enginetest.Dir))
	want, err := os.ReadFile(v1List)
	if err != nil {
		t.Fatal(err)
	}
	n := enginetest.Attach(t, fs, v1Stopped())
	n.Start()
	if got := listV1(t, n); got != string(want) {
		t.Errorf("it reads\n%s\nwant\n%s", got, want)
	}
	for _, top := range n.Topics() {
		p := n.Part(top, 0)
		offset := p.Bounds().Committed - 1
		file, err := p.Prove(context.Background(), offset)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := proof.Verify(file); err != nil || res.Record.Offset != offset || res.TopicName != top.Name {
			t.Errorf("proof of %s at %d: %+v, %v", top.Name, offset, res, err)
		}
		if at := n.Put(p, record.None, "new=record"); at != offset+1 {
			t.Errorf("%s: a new record is at %d, want %d", top.Name, at, offset+1)
		}
	}
	n.Retain(context.Background())
	n.Stop()
	fsck.MustBeClean(t, fs, enginetest.Dir)
}
