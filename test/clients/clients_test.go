// Package clients has no code of its own: its tests run other people's Kafka
// clients, as processes, against a node that is a process too.
//
//	kcat       Debian's, with librdkafka 2.0.2: older than most servers would like
//	franz-go   ../go-clients, a module of its own, which has the driver for kcat, too
//	kafkajs    ../node
//
// A missing client fails the test: "make deps" brings them all.
package clients

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

type balancer struct {
	name string
	// keeps: a member holds on, during a rebalance, to what it keeps after it.
	keeps bool
	// static: members may have names that survive them.
	static bool
	// releases: a static member's successor waits for the session to expire
	// unless the member said that it will be back (KIP-848).
	releases bool
	// drops: a record that arrives just when it is told to leave, it counts as
	// read without showing it. kcat does.
	drops bool
}

var everyCodec = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// bench is what all cases share.
type bench struct {
	bin     string
	clients []client
	at      string // the node's Kafka address
}

// keepOld keeps samples with times of long ago, however long the tests take.
var keepOld = []string{"--set", "log.retention_ms=-1"}

// TestMain lets more cases run at once than there are processors: they spend
// most of their time waiting, for a group's first rebalance above all.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestClients(t *testing.T) {
	b := &bench{bin: realnode.Build(t), clients: installed(t)}
	b.at = realnode.Start(t, b.bin, t.TempDir(), keepOld...).Kafka
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"records", b.records},
		{"time", b.time},
		{"group", b.groups},
		{"static", b.static},
		{"idempotent", b.idempotent},
		{"kcat", b.onlyKcat},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			c.run(t)
		})
	}
}

// installed finds the clients, or fails: a client that was not tried is not
// one that works.
func installed(t *testing.T) []client {
	for _, tool := range []string{"kcat", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v; run: make deps", err)
		}
	}
	root := realnode.Root(t)
	js := root + "/test/node/kafkajs"
	if out, err := exec.Command("node", "--input-type=module", "-e", "await import('"+js+"/codecs.mjs')").CombinedOutput(); err != nil {
		t.Fatalf("kafkajs: %v; run: make deps\n%s", err, out)
	}
	build := func(name string) []string {
		return []string{realnode.Go(t, root+"/test/go-clients", t.TempDir()+"/"+name, "./"+name)}
	}
	return []client{
		{name: "kcat", command: build("kcat"), headers: printed, group: []balancer{
			{name: "range", static: true, drops: true},
			{name: "cooperative-sticky", keeps: true, static: true, drops: true},
		}},
		{name: "franz-go", command: build("franz-go"), headers: inOrder, says: true, creates: true, group: []balancer{
			{name: "range", static: true},
			{name: "cooperative-sticky", keeps: true, static: true},
			{name: "server", keeps: true, static: true, releases: true},
		}},
		{name: "kafkajs", command: []string{"node", js + "/main.mjs"}, headers: byName, says: true, creates: true, group: []balancer{{name: "roundrobin"}}},
	}
}

// each runs a case for every client, all at once.
func (b *bench) each(t *testing.T, run func(t *testing.T, c client)) {
	for _, c := range b.clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// limit bounds everything that a case waits for. Nothing takes this long on an
// idle machine.
const limit = 60 * time.Second

// command runs a program to its end and returns what it printed.
func command(t *testing.T, stdin []byte, name string, args ...string) (stdout, stderr []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\nit printed, at last: %s\nand said: %s", name, args, err, last(out.Bytes(), 300), last(errs.Bytes(), 5000))
	}
	return out.Bytes(), errs.Bytes()
}

func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

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
func makeTopic(t *testing.T, at, topic string, partitions int32) {
	t.Helper()
	if _, err := kadm.NewClient(observer(t, at)).CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

// seen is a record with what only its batch tells.
type seen struct {
	record
	codec    string
	producer int64 // the id of the idempotent producer, -1: none
}

// observe reads a whole topic and checks on the way that the offsets of each
// partition are dense from 0.
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
			s := seen{
				record:   record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value},
				codec:    everyCodec[k.Attrs.CompressionType()],
				producer: k.ProducerID,
			}
			for _, h := range k.Headers {
				s.Headers = append(s.Headers, header{h.Key, h.Value})
			}
			all = append(all, s)
		})
	}
	return all
}

// until waits for a condition; state says how far it is.
func until(t *testing.T, what string, done func() (state string, ok bool)) {
	t.Helper()
	state, ok := done()
	for end := time.Now().Add(limit); !ok; state, ok = done() {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %s: %s", what, limit, state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func name(parts ...any) string {
	s := fmt.Sprintln(parts...)
	return string(bytes.ReplaceAll(bytes.TrimSpace([]byte(s)), []byte(" "), []byte("-")))
}
