package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// These tests use franz-go, the client, against a server on loopback.

func (f *fixture) kgo(opts ...kgo.Opt) *kgo.Client {
	f.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(f.addr), kgo.RetryTimeout(20 * time.Second), kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// produceN writes n records with keys, and returns each key's values in order.
func produceN(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, n int) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	var mu sync.Mutex
	for i := range n {
		key, value := fmt.Sprintf("k%d", i%17), fmt.Sprintf("v%d", i)
		want[key] = append(want[key], value)
		cl.Produce(ctx, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(value)}}},
			func(_ *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return want
}

// consumeN reads until n records came.
func consumeN(ctx context.Context, t *testing.T, cl *kgo.Client, n int) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for read := 0; read < n; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", read, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
			if len(r.Headers) != 1 || string(r.Headers[0].Value) != string(r.Value) {
				t.Errorf("headers %v of %s", r.Headers, r.Value)
			}
		})
	}
	return got
}

func equalRecords(t *testing.T, got, want map[string][]string) {
	t.Helper()
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("key %s: %d records, want %d in the same order", key, len(got[key]), len(want[key]))
		}
	}
}

// TestKgoVersions produces and consumes with the protocol of several releases.
func TestKgoVersions(t *testing.T) {
	for name, v := range map[string]*kversion.Versions{
		"newest": nil, "4.0": kversion.V4_0_0(), "3.0": kversion.V3_0_0(), "2.4": kversion.V2_4_0(), "2.1": kversion.V2_1_0(), "1.0": kversion.V1_0_0(),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Config{})
			f.topic("t", 3)
			ctx := testContext(t)
			opts := []kgo.Opt{kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
			if v != nil {
				opts = append(opts, kgo.MaxVersions(v))
			}
			if name == "1.0" { // before zstd, and before idempotence could be relied on
				opts = append(opts, kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(kgo.GzipCompression()))
			}
			cl := f.kgo(opts...)
			want := produceN(ctx, t, cl, "t", 2000)
			equalRecords(t, consumeN(ctx, t, cl, 2000), want)
		})
	}
}

func TestKgoCompression(t *testing.T) {
	f := newFixture(t, Config{AutoCreate: true})
	ctx := testContext(t)
	for i, codec := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		topic := fmt.Sprintf("codec%d", i)
		cl := f.kgo(kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(2*time.Millisecond))
		want := produceN(ctx, t, cl, topic, 1000)
		reader := f.kgo(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		equalRecords(t, consumeN(ctx, t, reader, 1000), want)
	}
	if topic, ok := f.store.Topic("codec0"); !ok || topic.Partitions != 4 {
		t.Errorf("auto-created topic: %+v", topic)
	}
}

// TestKgoGroups consumes as a group, with the classic protocol and with KIP-848:
// members come and go, nothing is lost, and offsets stay.
func TestKgoGroups(t *testing.T) {
	for _, kip848 := range []bool{false, true} {
		t.Run(fmt.Sprintf("848=%v", kip848), func(t *testing.T) {
			f := newFixture(t, Config{})
			f.topic("t", 4)
			ctx := testContext(t)
			if kip848 {
				//lint:ignore SA1029 the client's own name for it
				ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
			}
			member := func() *kgo.Client {
				return f.kgo(kgo.WithContext(ctx), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
					kgo.DisableAutoCommit(), kgo.HeartbeatInterval(50*time.Millisecond), kgo.SessionTimeout(10*time.Second))
			}
			producer := f.kgo()
			first := member()
			want := produceN(ctx, t, producer, "t", 500)
			equalRecords(t, consumeN(ctx, t, first, 500), want)
			if err := first.CommitUncommittedOffsets(ctx); err != nil {
				t.Fatal(err)
			}
			groups, err := kadm.NewClient(producer).DescribeGroups(ctx, "g")
			if !kip848 && (err != nil || groups["g"].State != "Stable" || len(groups["g"].Members) != 1) {
				t.Errorf("described: %+v, %v", groups, err)
			}
			if kip848 {
				cg, err := kadm.NewClient(producer).DescribeConsumerGroups(ctx, "g")
				if err != nil || len(cg["g"].Members) != 1 {
					t.Errorf("described: %+v, %v", cg, err)
				}
			}
			first.LeaveGroup()
			second := member()
			more := produceN(ctx, t, producer, "t", 300)
			equalRecords(t, consumeN(ctx, t, second, 300), more) // and nothing of before
		})
	}
}

func TestKadmTopics(t *testing.T) {
	f := newFixture(t, Config{})
	ctx := testContext(t)
	adm := kadm.NewClient(f.kgo())
	created, err := adm.CreateTopics(ctx, 3, 1, map[string]*string{"retention.ms": kadm.StringPtr("5000")}, "a", "b")
	if err != nil || created.Error() != nil {
		t.Fatalf("create: %v, %v", err, created.Error())
	}
	for name, tc := range map[string]struct {
		partitions int32
		replicas   int16
		configs    map[string]*string
		want       error
	}{
		"a":                      {1, 1, nil, kerr.TopicAlreadyExists},
		"repl":                   {1, 2, nil, kerr.InvalidReplicationFactor},
		"zero":                   {0, 1, nil, kerr.InvalidPartitions},
		"sp ace":                 {1, 1, nil, kerr.InvalidTopicException},
		"conf":                   {1, 1, map[string]*string{"no.such": kadm.StringPtr("1")}, kerr.InvalidConfig},
		"val":                    {1, 1, map[string]*string{"retention.ms": kadm.StringPtr("soon")}, kerr.InvalidConfig},
		strings.Repeat("x", 250): {1, 1, nil, kerr.InvalidTopicException},
	} {
		r, err := adm.CreateTopic(ctx, tc.partitions, tc.replicas, tc.configs, name)
		if !errors.Is(err, tc.want) && !errors.Is(r.Err, tc.want) {
			t.Errorf("create %.20q: %v, %v; want %v", name, err, r.Err, tc.want)
		}
		if r.ErrMessage == "" {
			t.Errorf("create %.20q: no message", name)
		}
	}
	if r, err := adm.ValidateCreateTopics(ctx, 1, 1, nil, "dry"); err != nil || r["dry"].Err != nil {
		t.Errorf("validate: %v, %+v", err, r["dry"])
	}
	listed, err := adm.ListTopics(ctx)
	if err != nil || !slices.Equal(listed.Names(), []string{"a", "b"}) || len(listed["a"].Partitions) != 3 {
		t.Errorf("listed %v, %v", listed.Names(), err)
	}
	if r, err := adm.UpdatePartitions(ctx, 5, "a"); err != nil || r["a"].Err != nil {
		t.Errorf("partitions: %v %+v", err, r)
	}
	if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("2000")},
		{Op: kadm.DeleteConfig, Name: "retention.ms"},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")},
	}, "a"); err != nil {
		t.Error(err)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range configs[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	if got["max.message.bytes"] != "2000" || got["retention.ms"] != "604800000" || got["cleanup.policy"] != "delete,compact" {
		t.Errorf("configs %v", got)
	}
	if r, err := adm.DeleteTopics(ctx, "b", "none"); err != nil || r["b"].Err != nil || !errors.Is(r["none"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete: %v, %+v", err, r)
	}
	if _, ok := f.store.Topic("b"); ok {
		t.Error("b is still there")
	}
}

func TestKadmOffsetsAndRecords(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 2)
	ctx := testContext(t)
	cl := f.kgo(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(cl)
	for i := range 10 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: 1, Value: []byte{byte(i)}, Timestamp: time.UnixMilli(int64(1_000_000 + i*1000))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	at := func(l kadm.ListedOffsets, err error) int64 {
		t.Helper()
		o, _ := l.Lookup("t", 1)
		if err := errors.Join(err, o.Err); err != nil {
			t.Fatal(err)
		}
		return o.Offset
	}
	if got := at(adm.ListOffsetsAfterMilli(ctx, 1_004_500, "t")); got != 5 {
		t.Errorf("after a time: %d", got)
	}
	del := kadm.Offsets{}
	del.AddOffset("t", 1, 4, -1)
	if r, err := adm.DeleteRecords(ctx, del); err != nil || r.Error() != nil || r["t"][1].LowWatermark != 4 {
		t.Errorf("delete records: %v, %+v", err, r)
	}
	if got := at(adm.ListStartOffsets(ctx, "t")); got != 4 {
		t.Errorf("start: %d", got)
	}
	if got := at(adm.ListEndOffsets(ctx, "t")); got != 10 {
		t.Errorf("end: %d", got)
	}
	past := kadm.Offsets{}
	past.AddOffset("t", 1, 11, -1)
	if r, err := adm.DeleteRecords(ctx, past); err != nil || !errors.Is(r["t"][1].Err, kerr.OffsetOutOfRange) {
		t.Errorf("delete beyond the end: %v, %+v", err, r)
	}
	commit := kadm.Offsets{}
	commit.AddOffset("t", 0, 0, -1)
	commit.AddOffset("t", 1, 7, 3)
	if err := adm.CommitAllOffsets(ctx, "g", commit); err != nil {
		t.Fatal(err)
	}
	lag, err := adm.Lag(ctx, "g")
	if err != nil || lag["g"].Lag.Total() != 3 {
		t.Errorf("lag %v, %v", lag["g"].Lag.Total(), err)
	}
	if got, err := adm.FetchOffsets(ctx, "g"); err != nil || got["t"][1].At != 7 || got["t"][1].LeaderEpoch != 3 {
		t.Errorf("offsets %+v, %v", got, err)
	}
	gone := kadm.TopicsSet{}
	gone.Add("t", 0)
	if r, err := adm.DeleteOffsets(ctx, "g", gone); err != nil || r["t"][0] != nil {
		t.Errorf("delete offsets: %v %v", r, err)
	}
	if l, err := adm.ListGroups(ctx); err != nil || l["g"].State != "Empty" {
		t.Errorf("groups %+v, %v", l, err)
	}
	if r, err := adm.DeleteGroups(ctx, "g", "none"); err != nil || r["g"].Err != nil || !errors.Is(r["none"].Err, kerr.GroupIDNotFound) {
		t.Errorf("delete groups %+v, %v", r, err)
	}
}

// TestKgoIdempotence closes connections under a producer: every record is there
// once and in order.
func TestKgoIdempotence(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	log, err := f.store.Partition(topic.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	cl := f.kgo(kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for last := int64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			end := log.Bounds().End
			if end == last {
				continue // it has not come back from the last time: on a slow machine it never would
			}
			last = end
			f.srv.mu.Lock()
			for c := range f.srv.conns {
				go c.close()
			}
			f.srv.mu.Unlock()
		}
	})
	want := map[string][]string{}
	for range 30 {
		for k, v := range produceN(ctx, t, cl, "t", 100) {
			want[k] = append(want[k], v...)
		}
	}
	close(stop)
	wg.Wait()
	reader := f.kgo(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	equalRecords(t, consumeN(ctx, t, reader, 3000), want)
	if ends, err := kadm.NewClient(reader).ListEndOffsets(ctx, "t"); err != nil || ends["t"][0].Offset != 3000 {
		t.Errorf("end %d, %v: want each record once", ends["t"][0].Offset, err)
	}
}
