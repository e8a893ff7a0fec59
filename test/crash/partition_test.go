package crash

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// span is what one check reads: a partition from 0 to its end.
type span struct {
	topic      string
	partition  int32
	end        int64
	idempotent bool // its writers are
}

func (s span) String() string { return fmt.Sprintf("%s/%d", s.topic, s.partition) }

// checkPartition reads a span. want is what was acknowledged in it, by offset.
func (w *world) checkPartition(ctx context.Context, t *testing.T, s span, want map[int64]string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.at), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		s.topic: {s.partition: kgo.NewOffset().At(0)},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := reader{span: s, want: want, seen: map[string]int64{}, last: map[string]int{}}
	for r.next < s.end {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("read %s at %d of %d: %v", s, r.next, s.end, err)
		}
		f.EachRecord(func(k *kgo.Record) { r.take(t, k.Offset, string(k.Value)) })
	}
	for at, v := range want {
		t.Errorf("%s: %q was acknowledged at %d and is not there (end %d)", s, v, at, s.end)
	}
}

// reader holds the records of a span, in their order, to what was acknowledged.
type reader struct {
	span
	next int64
	want map[int64]string // what is not seen yet
	seen map[string]int64 // value => offset
	last map[string]int   // writer => number of its last record
}

func (r *reader) take(t *testing.T, offset int64, value string) {
	if offset != r.next {
		t.Errorf("%s: offset %d follows %d", r, offset, r.next-1)
	}
	r.next = offset + 1
	acked, isAcked := r.want[offset]
	if isAcked && acked != value {
		t.Errorf("%s offset %d: %q was acknowledged, %q is there", r, offset, acked, value)
	}
	delete(r.want, offset)
	if !r.idempotent && !isAcked {
		return // a plain producer writes again what it does not know about
	}
	if first, twice := r.seen[value]; twice {
		t.Errorf("%s: %q is at %d and at %d", r, value, first, offset)
	}
	r.seen[value] = offset
	name, num, _ := strings.Cut(value, " ")
	var n int
	if _, err := fmt.Sscan(num, &n); err != nil {
		t.Errorf("%s offset %d: %q", r, offset, value)
	}
	if was, ok := r.last[name]; ok && n <= was {
		t.Errorf("%s: %s wrote %d after %d", r, name, n, was)
	}
	r.last[name] = n
}
