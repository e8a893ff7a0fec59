package node

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// TestSteady does the same work for some rounds and then for three times as many:
// the node must use no more memory, goroutines or files afterwards. Each round leaves
// what there is as it was, topics, keys and bytes that are kept, so what has grown
// is what is remembered of the past.
//
// What fills up to a bound does so in the first rounds, because the bounds are made
// small. docs/benchmarks.md says what they are in a real node.
func TestSteady(t *testing.T) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 4096
	cfg := local(t)
	cfg.State.CacheBytes, cfg.State.Durability = 1<<20, "os"
	cfg.Log.Durability, cfg.Log.RetentionCheckMs, cfg.Log.CompactionCheckMs = "os", 200, 200
	cfg.Limits.OpenSegments = 16
	cfg.Groups.RebalanceDelayMs, cfg.Groups.MinSessionMs = 0, 100
	n, _ := runNode(t, cfg)
	s := &steady{t: t, n: n}
	s.prepare()

	const rounds = 300 // of which the first fill the cache of keys
	s.rounds(rounds)
	first := s.measure()
	s.rounds(rounds)
	last := s.measure()
	t.Logf("after %d rounds: %s; after %d: %s", rounds, first, 2*rounds, last)
	// What a round leaves is seen from 1 KiB on: a topic that was remembered took 2 KiB.
	// Less than that comes once, by whom it is the turn of: a journal that is changed for
	// another (110 KiB), a larger round of writes, tables that double.
	const slack = 320 << 10
	if last.heap > first.heap+slack {
		t.Errorf("%d KiB more in use after %d more rounds; most of it from:\n%s", (last.heap-first.heap)>>10, rounds, last.grown(first))
	}
	if last.goroutines > first.goroutines+5 {
		t.Errorf("%d goroutines, %d before", last.goroutines, first.goroutines)
	}
	if last.files > first.files+12 { // tables of databases and segments that are kept open come and go
		t.Errorf("%d files are open, %d before", last.files, first.files)
	}
}

// steady is work that leaves everything as it was.
type steady struct {
	t    *testing.T
	n    *Node
	done int // rounds
}

// used is what a node uses.
type used struct {
	heap              int64 // live, bytes
	goroutines, files int
	sites             map[string]int64 // live bytes, by where they were allocated
}

func (u used) String() string {
	return fmt.Sprintf("%d KiB, %d goroutines, %d files", u.heap>>10, u.goroutines, u.files)
}

// grown lists what takes more memory than before.
func (u used) grown(before used) string {
	type site struct {
		at   string
		more int64
	}
	var all []site
	for at, n := range u.sites {
		all = append(all, site{at, n - before.sites[at]})
	}
	slices.SortFunc(all, func(a, b site) int { return cmp.Compare(b.more, a.more) })
	var b strings.Builder
	for _, s := range all[:min(len(all), 25)] {
		fmt.Fprintf(&b, "%8d KiB  %s\n", s.more>>10, s.at)
	}
	return b.String()
}

func (s *steady) measure() used {
	time.Sleep(2 * time.Second)      // for what runs behind: retention, compaction, connections that close
	rootOf(s.t, defaultOf(s.t, s.n)) // what changed is written for it, and need not be kept dirty
	for range 4 {
		runtime.GC() // pools need two
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.t.Fatal(err)
	}
	all := sites()
	heap := int64(m.HeapAlloc)
	for name, n := range all {
		// A memtable of pebble's grows to its bound. Outside of race builds it is not in the heap.
		// The lists of a round of changed keys are kept for the next, as long as the longest was.
		if strings.HasPrefix(name, "manual.New:") || strings.HasPrefix(name, "keyval.(*DB).takeRound:") {
			heap -= n
		}
	}
	return used{heap, runtime.NumGoroutine(), len(fds), all}
}

// sites returns the live bytes by their allocation's innermost frames.
func sites() map[string]int64 {
	var records []runtime.MemProfileRecord
	for n, ok := runtime.MemProfile(nil, false); !ok; {
		records = make([]runtime.MemProfileRecord, n+n/2)
		if n, ok = runtime.MemProfile(records, false); ok {
			records = records[:n]
		}
	}
	all := map[string]int64{}
	for _, r := range records {
		var names []string
		frames := runtime.CallersFrames(r.Stack())
		for len(names) < 8 {
			f, more := frames.Next()
			name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
			if name != "" && !strings.HasPrefix(name, "runtime.") {
				names = append(names, fmt.Sprintf("%s:%d", name, f.Line))
			}
			if !more {
				break
			}
		}
		all[strings.Join(names, " < ")] += r.InUseBytes()
	}
	return all
}

func (s *steady) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("round %d: %v", s.done, err)
	}
}

func (s *steady) dial(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.n.Info().Kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.UnknownTopicRetries(-1),
	}, opts...)...)
	s.must(err)
	return c
}

// prepare makes the topics that stay. Of each partition about 100 KiB are kept.
func (s *steady) prepare() {
	c := s.dial()
	defer c.Close()
	set := func(kv ...string) map[string]*string {
		m := map[string]*string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = &kv[i+1]
		}
		return m
	}
	for name, configs := range map[string]map[string]*string{
		"plain":     set("segment.bytes", "32768", "retention.bytes", "65536"),
		"paired":    set("segment.bytes", "32768", "retention.bytes", "65536"),
		"compacted": set("segment.bytes", "32768", "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01"),
	} {
		_, err := kadm.NewClient(c).CreateTopic(s.t.Context(), 2, 1, configs, name)
		s.must(err)
	}
}

// rounds does n rounds, ten with each set of clients.
func (s *steady) rounds(n int) {
	for range n / 10 {
		c, p := s.dial(), s.dial(kgo.TransactionalID("steady"))
		a := kadm.NewClient(c)
		for range 10 {
			s.produce(c)
			s.transactions(p, true)
			s.transactions(p, false)
			s.topic(c, a)
			s.offsets(a)
			s.keys()
			s.done++
		}
		c.Close()
		p.Close()
		s.consume()
	}
}

func (s *steady) produce(c *kgo.Client) {
	var all []*kgo.Record
	for i := range 16 {
		all = append(all,
			&kgo.Record{Topic: "plain", Partition: int32(i % 2), Value: bytes.Repeat([]byte{byte(i)}, 600)},
			&kgo.Record{Topic: "compacted", Partition: int32(i % 2), Key: fmt.Appendf(nil, "key %d", i), Value: bytes.Repeat([]byte{byte(i)}, 600)})
	}
	s.must(c.ProduceSync(s.t.Context(), all...).FirstErr())
}

func (s *steady) transactions(p *kgo.Client, commit bool) {
	ctx := s.t.Context()
	s.must(p.BeginTransaction())
	for part := range int32(2) {
		s.must(p.ProduceSync(ctx, &kgo.Record{Topic: "paired", Partition: part, Value: make([]byte, 600)},
			&kgo.Record{Topic: "compacted", Partition: part, Key: []byte("key"), Value: make([]byte, 600)}).FirstErr())
	}
	s.must(p.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
}

// topic makes a topic, writes to it, commits an offset in it and deletes it.
func (s *steady) topic(c *kgo.Client, a *kadm.Client) {
	ctx := s.t.Context()
	name := fmt.Sprintf("made-%d", s.done)
	_, err := a.CreateTopic(ctx, 2, 1, nil, name)
	s.must(err)
	w := s.dial() // c would remember the topic, and that is its business
	s.must(w.ProduceSync(ctx, &kgo.Record{Topic: name, Value: []byte("value")}).FirstErr())
	w.Close()
	s.commit(a, name, 1)
	_, err = a.DeleteTopic(ctx, name)
	s.must(err)
}

func (s *steady) commit(a *kadm.Client, topic string, at int64) {
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: at, LeaderEpoch: -1})
	got, err := a.CommitOffsets(s.t.Context(), "stays", offsets)
	s.must(err)
	s.must(got.Error())
}

// offsets commits for a group that stays, and makes one that goes.
func (s *steady) offsets(a *kadm.Client) {
	s.commit(a, "plain", int64(s.done))
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "plain", Partition: 1, At: 1, LeaderEpoch: -1})
	name := fmt.Sprintf("goes-%d", s.done)
	got, err := a.CommitOffsets(s.t.Context(), name, offsets)
	s.must(err)
	s.must(got.Error())
	_, err = a.DeleteGroup(s.t.Context(), name)
	s.must(err)
}

// consume is a member that joins a group, reads and leaves.
func (s *steady) consume() {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	c := s.dial(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("plain", "paired"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	defer c.Close()
	s.must(c.PollFetches(ctx).Err())
	s.must(c.CommitUncommittedOffsets(ctx))
}

// keys makes keys of each type under new names, and deletes them.
func (s *steady) keys() {
	c, err := respclient.Dial(s.n.Info().Redis)
	s.must(err)
	defer c.Close()
	key := func(kind string) string { return fmt.Sprintf("%s-%d", kind, s.done) }
	var commands [][]string
	for i := range 8 {
		at := fmt.Sprint(i)
		commands = append(commands,
			[]string{"SET", key("string") + at, "value"}, []string{"HSET", key("hash"), at, "value"}, []string{"SADD", key("set"), at},
			[]string{"ZADD", key("sorted"), at, "member" + at}, []string{"RPUSH", key("list"), at}, []string{"INCR", key("counter")},
			[]string{"SET", "stays" + at, "value"}, []string{"RPUSH", "queue", key(at)}, []string{"DEL", key("string") + at})
	}
	for range 8 {
		commands = append(commands, []string{"LPOP", "queue"})
	}
	commands = append(commands, []string{"SET", key("expires"), "value", "PX", "50"},
		[]string{"DEL", key("hash"), key("set"), key("sorted"), key("list"), key("counter")})
	for _, args := range commands {
		v, err := c.Do(args...)
		s.must(err)
		if v.Err() != "" {
			s.t.Fatalf("%q: %s", args, v.Err())
		}
	}
}
