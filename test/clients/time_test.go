package clients

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	timedTopic = "timed"
	timedCount = 600
	timedStep  = 100 // ms between two records
)

// timed are the instants to look for, in ms after the first record.
var timed = []struct {
	name  string
	after int64
}{
	{"before all", -1000},
	{"the first", 0},
	{"just after the first", 1},
	{"a record's own", 300 * timedStep},
	{"between two", 301*timedStep + 50},
	{"the last", (timedCount - 1) * timedStep},
	{"after all", timedCount * timedStep},
}

// time: every client finds the first record at or after an instant, also in the
// middle of a compressed batch.
func (b *bench) time(t *testing.T) {
	all := writeTimed(t, b.at)
	b.each(t, func(t *testing.T, c client) {
		for _, instant := range timed {
			t.Run(instant.name, func(t *testing.T) {
				t.Parallel()
				ms := sampleTime + instant.after
				var want []record
				for _, r := range all {
					if r.Timestamp >= ms {
						want = append(want, r)
					}
				}
				checkSame(t, c.name, c.seek(t, b.at, timedTopic, ms), want)
			})
		}
	})
	t.Run("kcat-query", func(t *testing.T) {
		for _, instant := range timed {
			queryTimed(t, b.at, all, sampleTime+instant.after)
		}
	})
}

// writeTimed fills the topic: record i is in partition i%3, at its time, in
// batches of a few dozen.
func writeTimed(t *testing.T, at string) []record {
	t.Helper()
	makeTopic(t, at, timedTopic, partitions)
	cl := observer(t, at, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ManualFlushing())
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var sent []*kgo.Record
	for i := range timedCount {
		r := &kgo.Record{
			Topic:     timedTopic,
			Partition: int32(i % partitions),
			Timestamp: time.UnixMilli(sampleTime + int64(i)*timedStep),
			Value:     fmt.Appendf(nil, "record %d, and something that compresses: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i),
		}
		sent = append(sent, r)
		cl.Produce(ctx, r, nil)
		if i%97 == 0 || i == timedCount-1 {
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := make([]record, len(sent))
	for i, k := range sent {
		all[i] = record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Value: k.Value}
	}
	return all
}

var answered = regexp.MustCompile(`timed \[(\d+)\] offset (-?\d+)`)

// queryTimed asks kcat for offsets alone.
func queryTimed(t *testing.T, at string, all []record, ms int64) {
	t.Helper()
	want := map[string]string{}
	for p := range partitions {
		want[strconv.Itoa(p)] = "-1" // after the last record there is none
	}
	for i := len(all) - 1; i >= 0 && all[i].Timestamp >= ms; i-- {
		want[strconv.Itoa(int(all[i].Partition))] = strconv.FormatInt(all[i].Offset, 10)
	}
	args := []string{"-Q", "-b", at}
	for p := range partitions {
		args = append(args, "-t", fmt.Sprintf("%s:%d:%d", timedTopic, p, ms))
	}
	out, _ := command(t, nil, "kcat", args...)
	found := answered.FindAllStringSubmatch(string(out), -1)
	if len(found) != partitions {
		t.Errorf("kcat -Q at %d: %q", ms, out)
	}
	for _, f := range found {
		if want[f[1]] != f[2] {
			t.Errorf("kcat -Q at %d: partition %s at offset %s, want %s", ms, f[1], f[2], want[f[1]])
		}
	}
}
