package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/record"
)

// TestProduceFetchEveryVersion appends and reads with each version served. The
// client compares our encoding with kmsg's byte for byte.
func TestProduceFetchEveryVersion(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	c := f.dial()
	next := int64(0)
	for v := int16(3); v <= 13; v++ {
		p := c.produce(topic, v, 1, batch(record.None, fmt.Sprintf("v%d", v), "x"))
		if p.ErrorCode != 0 || p.BaseOffset != next || p.LogAppendTime != -1 || p.Partition != 1 {
			t.Fatalf("version %d: %+v, want base %d", v, p, next)
		}
		next += 2
	}
	for v := int16(4); v <= 18; v++ {
		p := c.fetch(topic, v, 1, 2)
		got := values(t, p.RecordBatches)
		if p.ErrorCode != 0 || p.HighWatermark != next || p.LastStableOffset != next || len(got) != int(next)-2 || got[0] != "v4" {
			t.Fatalf("version %d: %+v, values %q", v, p, got)
		}
		if v >= 5 && p.LogStartOffset != 0 {
			t.Errorf("version %d: log start %d", v, p.LogStartOffset)
		}
		if p := c.fetch(topic, v, 0, 0); p.ErrorCode != 0 || p.HighWatermark != 0 || len(p.RecordBatches) != 0 {
			t.Errorf("version %d, empty partition: %+v", v, p)
		}
		if p := c.fetch(topic, v, 7, 0); p.ErrorCode != 3 || p.HighWatermark != -1 {
			t.Errorf("version %d, no such partition: %+v", v, p)
		}
	}
}

// TestFetchGathersPartitions reads several partitions in one answer that is
// larger than a chunk, within the request's limits.
func TestFetchGathersPartitions(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 3)
	c := f.dial()
	var want [3][]string
	for i := range 12 {
		v := strings.Repeat(string(rune('a'+i)), 60_000)
		p := int32(i % 3)
		want[p] = append(want[p], v)
		if r := c.produce(topic, 9, p, batch(record.None, v)); r.ErrorCode != 0 {
			t.Fatal(r.ErrorCode)
		}
	}
	req := fetchReq(topic, 12, 0, 0)
	req.MaxBytes, req.MinBytes = 10<<20, 1
	for p := int32(1); p < 3; p++ {
		more := fetchReq(topic, 12, p, 0).Topics[0].Partitions[0]
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, more)
	}
	resp := ask[*fetchResponse](c, req)
	for p, part := range resp.Topics[0].Partitions {
		if got := values(t, part.RecordBatches); !slices.Equal(got, want[p]) {
			t.Errorf("partition %d: %d values, want %d", p, len(got), len(want[p]))
		}
	}
	// A budget of one and a half batches: the first partition's batch, and nothing
	// that does not fit beside it.
	req.MaxBytes = 90_000
	resp = ask[*fetchResponse](c, req)
	total := 0
	for _, part := range resp.Topics[0].Partitions {
		total += len(values(t, part.RecordBatches))
	}
	if total != 1 {
		t.Errorf("%d batches within a budget of one and a half", total)
	}
	// A budget below one batch: one batch all the same (KIP-74).
	req.MaxBytes = 1
	resp = ask[*fetchResponse](c, req)
	if got := values(t, resp.Topics[0].Partitions[0].RecordBatches); len(got) != 1 {
		t.Errorf("%d batches for a budget of 1 byte, want 1", len(got))
	}
}
