package soak

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFinds: what a node could do wrong is found. A partition has ten records of one
// writer, acknowledged; each case reads something else back.
func TestFinds(t *testing.T) {
	const n = 10
	written := func() []*kgo.Record {
		var all []*kgo.Record
		for i := range n {
			all = append(all, &kgo.Record{Offset: int64(i), Value: []byte("v"), Timestamp: time.Now(),
				Headers: []kgo.RecordHeader{{Key: "w", Value: fmt.Appendf(nil, "a %d", i)}}})
		}
		return all
	}
	at := func(r *kgo.Record, offset int64) *kgo.Record {
		c := *r
		c.Offset = offset
		return &c
	}
	for _, c := range []struct {
		name  string
		spoil func([]*kgo.Record) []*kgo.Record
		want  string // part of what is said; "": nothing
	}{
		{"nothing", func(r []*kgo.Record) []*kgo.Record { return r }, ""},
		{"lost", func(r []*kgo.Record) []*kgo.Record { return append(r[:4:4], r[5:]...) }, "offset 4 was acknowledged and is not there"},
		{"lost at the end", func(r []*kgo.Record) []*kgo.Record { return r[:9] }, "the records from 9 to 10 are not there"},
		{"changed", func(r []*kgo.Record) []*kgo.Record { r[3].Value = []byte("x"); return r }, "at 3 is not what was acknowledged"},
		{"twice", func(r []*kgo.Record) []*kgo.Record { return append(r, at(r[9], 10)) }, "a's record 9, after its 9"},
		{"out of order", func(r []*kgo.Record) []*kgo.Record { return []*kgo.Record{at(r[1], 0), at(r[0], 1)} }, "a's record 0, after its 1"},
		{"an offset again", func(r []*kgo.Record) []*kgo.Record { return append(r[:5:5], r[4:]...) }, "offset 4 comes where 5 should"},
		{"somebody else's", func(r []*kgo.Record) []*kgo.Record { r[0].Headers = nil; return r }, "a record that nobody wrote"},
		{"never acknowledged", func(r []*kgo.Record) []*kgo.Record {
			extra := at(r[9], 10)
			extra.Headers = []kgo.RecordHeader{{Key: "w", Value: []byte("a 10")}}
			return append(r, extra)
		}, "was never acknowledged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			s := &soak{t: t, report: func(a ...any) { said = append(said, fmt.Sprint(a...)) }, begun: time.Now()}
			s.ctx, s.end = context.WithCancel(t.Context())
			top := &topic{name: "t", dense: true, told: true, keeps: true, ledgers: []*ledger{{}}}
			for _, r := range written() {
				s.note(top, r)
			}
			read := c.spoil(written())
			x := &span{t: top, end: max(n, int64(len(read))), want: top.ledgers[0].acknowledged(0), all: true,
				last: map[string]int{}, keys: map[string]final{}, seen: map[string]int{}}
			for _, r := range read {
				x.take(s, r)
			}
			x.close(s)
			all := strings.Join(said, "\n")
			if !strings.Contains(all, c.want) || c.want == "" && all != "" {
				t.Errorf("said %q, want %q", all, c.want)
			}
		})
	}
}

// TestFindsStarts: a start that moved too far, not far enough, back, or too early.
func TestFindsStarts(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name      string
		retention time.Duration
		start     int64
		want      string
	}{
		{"as acknowledged", 0, 5, ""},
		{"as asked for", 0, 7, ""},
		{"not far enough", 0, 4, "deletion below 5 was acknowledged"},
		{"too far", 0, 8, "none beyond 7 asked for"},
		{"back", 0, 2, "was 3 and is 2"},
		{"old records expired", time.Minute, 300, ""},
		{"young records expired", time.Minute, 700, "retention is 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := ""
			s := &soak{t: t, report: func(a ...any) { said += fmt.Sprint(a...) }, begun: now}
			s.ctx, s.end = context.WithCancel(t.Context())
			l := &ledger{trimmed: 5, asked: 7, seen: 3, stamps: []stamp{{0, now.Add(-time.Hour).UnixMilli()}, {600, now.UnixMilli()}}}
			s.checkStart(&topic{name: "t", retention: c.retention, ledgers: []*ledger{l}}, 0, c.start, l.floor(), now)
			if !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// TestFindsKeys: a value that is gone, older or changed, and a deleted one that is back.
func TestFindsKeys(t *testing.T) {
	for _, c := range []struct {
		name       string
		want, read map[string]final
		says       string
	}{
		{"as acknowledged", map[string]final{"k": {5, 1, false}}, map[string]final{"k": {5, 1, false}}, ""},
		{"later", map[string]final{"k": {5, 1, false}}, map[string]final{"k": {6, 2, false}}, ""},
		{"a tombstone that went", map[string]final{"k": {5, 1, true}}, nil, ""},
		{"gone", map[string]final{"k": {5, 1, false}}, nil, "k is gone"},
		{"older", map[string]final{"k": {5, 1, false}}, map[string]final{"k": {4, 1, false}}, "has its last record at 4"},
		{"changed", map[string]final{"k": {5, 1, false}}, map[string]final{"k": {5, 2, false}}, "something else"},
		{"back", map[string]final{"k": {5, 1, true}}, map[string]final{"k": {4, 1, false}}, "a value at 4 again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := ""
			s := &soak{t: t, report: func(a ...any) { said += fmt.Sprint(a...) }, begun: time.Now()}
			s.ctx, s.end = context.WithCancel(t.Context())
			k := keyed{last: c.want}
			k.check(s, c.want, c.read, true)
			if !strings.Contains(said, c.says) || c.says == "" && said != "" {
				t.Errorf("said %q, want %q", said, c.says)
			}
		})
	}
}

// TestFindsTransactions: torn, lost, aborted ones that can be read, copied twice.
func TestFindsTransactions(t *testing.T) {
	for _, c := range []struct {
		name, ended string
		a, b, copy  int
		wrong       bool
	}{
		{"committed", "committed", 3, 3, 3, false},
		{"aborted", "aborted", 0, 0, 0, false},
		{"not known, all", "", 3, 3, 3, false},
		{"not known, nothing", "", 0, 0, 0, false},
		{"lost", "committed", 0, 0, 0, true},
		{"torn", "committed", 3, 2, 3, true},
		{"not known, torn", "", 3, 0, 3, true},
		{"aborted and there", "aborted", 3, 3, 3, true},
		{"not copied", "committed", 3, 3, 0, true},
		{"copied twice", "committed", 3, 3, 6, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := ""
			s := &soak{t: t, report: func(a ...any) { said += fmt.Sprint(a...) }, begun: time.Now(),
				pairA: &topic{name: "a"}, pairB: &topic{name: "b"}, copied: &topic{name: "c"}}
			s.ctx, s.end = context.WithCancel(t.Context())
			x := transactions{order: []string{"1"}, tried: map[string]*outcome{"1": {3, c.ended}}}
			x.read = map[string]map[string]int{"a": {"1": c.a}, "b": {"1": c.b}, "c": {"1": c.copy}}
			x.check(s)
			if (said != "") != c.wrong {
				t.Errorf("said %q, want something: %t", said, c.wrong)
			}
		})
	}
}
