package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// again is how far below what an audit has read already the next one begins: what was
// durable must also be what it was.
const again = 2000

// audit reads what was written, from where the last audit ended or all of it, and
// holds it to what was acknowledged. Clients may go on meanwhile; the node lives.
func (s *soak) audit(all bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	c := s.dial()
	defer c.Close()
	a := kadm.NewClient(c)
	for _, t := range s.all() {
		s.auditTopic(ctx, a, t, all)
	}
	s.checkCommits(ctx, a)
	s.churn.check(ctx, s, a)
	s.audits.Add(1)
}

// span is what one audit reads of a partition.
type span struct {
	t    *topic
	p    int32
	end  int64    // where reading ends
	from int64    // where it began, the start at least
	want []uint64 // what was acknowledged from there on when the audit began
	all  bool

	next int64
	last map[string]int   // by writer: the number of its last record
	keys map[string]final // by key, of a compacted topic
	seen map[string]int   // by transaction: its records; of a full audit of committed topics
	gone int64            // offsets without a record
}

func (x *span) String() string { return fmt.Sprintf("%s/%d", x.t.name, x.p) }

func (s *soak) auditTopic(ctx context.Context, a *kadm.Client, t *topic, all bool) {
	spans := s.spans(ctx, a, t, all)
	keys := s.keys.snapshot() // before the end is known: all of it must be there
	if !s.ends(ctx, a, spans) {
		return
	}
	if err := s.read(ctx, spans); err != nil {
		s.wrong("read %s: %v", t.name, err)
		return
	}
	read := map[string]final{}
	for _, x := range spans {
		x.close(s)
		for k, f := range x.keys {
			read[k] = f
		}
	}
	if t == s.compacted {
		s.keys.check(s, keys, read, all)
		s.keys.gone = 0
		for _, x := range spans {
			s.keys.gone += x.gone
		}
	}
	if all && t.committed {
		s.txns.keep(t, spans)
	}
}

// spans lists where reading begins, with what was acknowledged from there on.
func (s *soak) spans(ctx context.Context, a *kadm.Client, t *topic, all bool) []*span {
	var spans []*span
	for p, start := range s.starts(ctx, a, t) {
		l := t.ledgers[p]
		from := start
		if !all && t != s.compacted {
			from = max(start, l.audited-again)
		}
		spans = append(spans, &span{t: t, p: int32(p), from: from, want: l.acknowledged(from), all: all, next: from,
			last: map[string]int{}, keys: map[string]final{}, seen: map[string]int{}})
	}
	return spans
}

func (s *soak) starts(ctx context.Context, a *kadm.Client, t *topic) []int64 {
	before := make([]floor, len(t.ledgers)) // what was true when the question was asked
	for p, l := range t.ledgers {
		before[p] = l.floor()
	}
	listed, err := a.ListStartOffsets(ctx, t.name)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		s.wrong("list the starts of %s: %v", t.name, err)
		return nil
	}
	now := time.Now()
	starts := make([]int64, len(t.ledgers))
	for p := range starts {
		o, _ := listed.Lookup(t.name, int32(p))
		starts[p] = o.Offset
		if t.committed || t == s.compacted { // nothing moves these
			if o.Offset != 0 {
				s.wrong("%s/%d starts at %d", t.name, p, o.Offset)
			}
			continue
		}
		s.checkStart(t, p, o.Offset, before[p], now)
	}
	return starts
}

// ends finds where reading ends: at the end of the log where each offset has a
// record; elsewhere the last record is one that is written for this.
func (s *soak) ends(ctx context.Context, a *kadm.Client, spans []*span) bool {
	if len(spans) == 0 {
		return false
	}
	t := spans[0].t
	if !t.dense {
		return s.sentinels(ctx, spans)
	}
	listed, err := a.ListEndOffsets(ctx, t.name)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		s.wrong("list the ends of %s: %v", t.name, err)
		return false
	}
	for _, x := range spans {
		o, _ := listed.Lookup(t.name, x.p)
		x.end = o.Offset
		if known := x.from + int64(len(x.want)); x.end < known {
			s.wrong("%s ends at %d; offset %d was acknowledged", x, x.end, known-1)
			return false
		}
	}
	return true
}

func (s *soak) sentinels(ctx context.Context, spans []*span) bool {
	c := s.dial(kgo.RequiredAcks(kgo.AllISRAcks()))
	defer c.Close()
	for _, x := range spans {
		s.sentinelsWritten++
		r := &kgo.Record{Topic: x.t.name, Partition: x.p, Key: []byte("sentinel"), Value: []byte("sentinel"),
			Headers: []kgo.RecordHeader{{Key: "w", Value: fmt.Appendf(nil, "%s %d", sentinel(x.t), s.sentinelsWritten)}}}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			s.wrong("%s: produce: %v", x, err)
			return false
		}
		s.note(x.t, r)
		x.end = r.Offset + 1
	}
	return true
}

// sentinel is the name under which audits write to a topic.
func sentinel(t *topic) string { return "sentinel-" + t.name }

// read reads the spans of one topic to their ends.
func (s *soak) read(ctx context.Context, spans []*span) error {
	t := spans[0].t
	at := map[int32]kgo.Offset{}
	left := 0
	by := map[int32]*span{}
	for _, x := range spans {
		by[x.p] = x
		if x.next < x.end {
			at[x.p] = kgo.NewOffset().At(x.from)
			left++
		}
	}
	if left == 0 {
		return nil
	}
	isolation := kgo.ReadUncommitted()
	if t.committed {
		isolation = kgo.ReadCommitted()
	}
	c := s.dial(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.name: at}), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	defer c.Close()
	a := kadm.NewClient(c)
	for left > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return fmt.Errorf("%d partitions left, of which %v: %w", left, by, err)
		}
		fs.EachPartition(func(f kgo.FetchTopicPartition) {
			x := by[f.Partition]
			for _, r := range f.Records {
				if x.next >= x.end {
					break
				}
				if r.Offset != x.next && t.dense {
					s.skipped(ctx, a, x, r.Offset)
				}
				x.take(s, r)
				if x.next >= x.end {
					left--
				}
			}
		})
	}
	return nil
}

// skipped fails unless what lies before offset went while it was read.
func (s *soak) skipped(ctx context.Context, a *kadm.Client, x *span, offset int64) {
	starts := s.starts(ctx, a, x.t)
	if starts == nil || starts[x.p] < offset || offset < x.next {
		s.wrong("%s: offset %d follows %d; the start is %v", x, offset, x.next-1, starts)
	}
}

// take holds one record to what was acknowledged.
func (x *span) take(s *soak, r *kgo.Record) {
	if r.Offset < x.next {
		s.wrong("%s: offset %d comes where %d should", x, r.Offset, x.next)
		return
	}
	x.gone += r.Offset - x.next
	x.miss(s, x.next, r.Offset)
	x.next = r.Offset + 1
	name, n, ok := author(r)
	if !ok {
		s.wrong("%s: at %d is a record that nobody wrote: %q %q", x, r.Offset, r.Headers, r.Value)
		return
	}
	var want uint64
	if at := r.Offset - x.from; at < int64(len(x.want)) {
		want = x.want[at]
	}
	switch {
	case want != 0 && want != sum(r):
		s.wrong("%s: at %d is not what was acknowledged there, but %q %q", x, r.Offset, r.Headers, r.Value)
	case want == 0 && x.all && x.t.told && name != sentinel(x.t):
		s.wrong("%s: %s's record %d at %d was never acknowledged, and nobody waits for it any more", x, name, n, r.Offset)
	}
	if was, ok := x.last[name]; ok && n <= was {
		s.wrong("%s: at %d is %s's record %d, after its %d", x, r.Offset, name, n, was)
	}
	x.last[name] = n
	if x.t == s.compacted {
		x.keys[string(r.Key)] = final{r.Offset, sum(r), r.Value == nil}
	}
	if x.all && x.t.committed && name == "pair" {
		x.seen[transaction(r)]++
	}
}

// miss looks at offsets that have no record: in a topic that keeps all, none of them
// was acknowledged.
func (x *span) miss(s *soak, from, to int64) {
	if !x.t.keeps {
		return
	}
	for o := from; o < to; o++ {
		if at := o - x.from; at < int64(len(x.want)) && x.want[at] != 0 {
			s.wrong("%s: offset %d was acknowledged and is not there", x, o)
			return
		}
	}
}

// close ends an audit of the partition.
func (x *span) close(s *soak) {
	if x.next < x.end {
		s.wrong("%s: the records from %d to %d are not there", x, x.next, x.end)
	}
	x.t.ledgers[x.p].audited = x.next
}

// author says who wrote a record and which of his it is.
func author(r *kgo.Record) (name string, n int, ok bool) {
	mark := string(r.Value)
	for _, h := range r.Headers {
		if h.Key == "w" {
			mark = string(h.Value)
		}
	}
	name, number, ok := strings.Cut(mark, " ")
	if _, err := fmt.Sscan(number, &n); err != nil {
		return "", 0, false
	}
	return name, n, ok
}
