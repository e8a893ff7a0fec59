package store

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestCompactionDoesNotWaitForRetention: compaction looks by itself, and leaves to
// retention what is retention's.
func TestCompactionDoesNotWaitForRetention(t *testing.T) {
	clock := tick.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	f := newFixtureAt(t, disk.NewMem(), clock)
	f.cfg.RetentionCheck = 1000 * time.Hour
	f.restart()
	configs := map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1",
	}
	compacted := f.part(f.topic("compacted", 1, configs), 0)
	plain := f.part(f.topic("plain", 1, map[string]string{"segment.bytes": "1000", "retention.ms": "1"}), 0)
	for i := range 60 {
		b := record.NewBuilder(record.None, 0)
		b.Add(clock.Now().UnixMilli(), []byte("key"), fmt.Append(nil, "value ", i), nil)
		batch := b.Build(nil)
		for _, p := range []*partition.Partition{compacted, plain} {
			if _, err := produce(p, bytes.Clone(batch)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := compacted.Size()
	for end := time.Now().Add(30 * time.Second); compacted.Size() >= before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes, as before", before)
		}
		clock.Advance(time.Second)
	}
	if b := plain.Bounds(); b.Start != 0 {
		t.Errorf("the other topic begins at %d: compaction applied retention", b.Start)
	}
}
