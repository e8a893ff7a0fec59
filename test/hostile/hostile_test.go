// Package hostile has no code of its own: its test is ten thousand bad clients
// of one node, a process of its own, and a good one that must not notice.
//
// What each kind of bad bytes is answered with is tested where it is decided,
// in front/kafka. This is about what they cost together: memory, descriptors,
// and other people's time.
package hostile

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

const (
	idlers  = 10_000
	deaf    = 32  // clients that ask and never read
	asks    = 100 // fetches that each of them sends
	topic   = "wanted"
	perRead = 8 << 20 // bytes that each fetch asks for
	limit   = 60 * time.Second

	// What the node may hold more than when it began. An idle connection costs a
	// few KiB, most of them stack; a deaf one what the operating system does not
	// take off its hands, and that is bounded. 74 MiB in all were measured.
	mayHold = 256 << 20
)

func TestHostile(t *testing.T) {
	raiseLimit(t)
	n := realnode.Start(t, realnode.Build(t), t.TempDir())
	good := newGood(t, n.Kafka)
	good.fill(t)
	before, files := n.RSS(t), n.Files(t)

	var crowd crowd
	t.Cleanup(crowd.leave)
	crowd.idle(t, n.Kafka)
	t.Logf("%d idle connections cost %d MiB", idlers, (n.RSS(t)-before)>>20)
	good.goesOn(t, "beside idle connections")

	crowd.deaf(t, n.Kafka)
	good.goesOn(t, "beside clients that never read")
	// The answers of the deaf ones are made in the time that this takes.
	good.newcomer(t)
	if more := n.RSS(t) - before; more > mayHold {
		t.Errorf("the node holds %d MiB more than before, want at most %d", more>>20, mayHold>>20)
	} else {
		t.Logf("with %d that never read: %d MiB more than before", deaf, more>>20)
	}

	halfOpen(t, n.Kafka)
	crowd.leave()
	for end := time.Now().Add(limit); n.Files(t) > files+50; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors are open after all have left, %d before they came", n.Files(t), files)
		}
	}
	good.goesOn(t, "after all have left")

	// A stop does not wait for those who say nothing.
	crowd.deaf(t, n.Kafka)
	n.Stop(t)
}

// raiseLimit lets this process and its children open what the test needs.
func raiseLimit(t *testing.T) {
	t.Helper()
	const want = idlers + 2000
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	l.Cur = max(l.Cur, want)
	l.Max = max(l.Max, want) // for root alone
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatalf("%d open files are needed: %v; raise the limit with ulimit -Hn, or run it as root", want, err)
	}
}

// good is a client that nobody should disturb.
type good struct {
	*kgo.Client
	written int64
}

func newGood(t *testing.T, at string) *good {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(at), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.UnknownTopicRetries(10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &good{Client: cl}
}

// fill writes what the deaf clients ask for: 32 MiB.
func (g *good) fill(t *testing.T) {
	t.Helper()
	g.write(t, "before all", 64, 512<<10)
}

// goesOn writes some more, one by one, while others are there.
func (g *good) goesOn(t *testing.T, when string) {
	t.Helper()
	g.write(t, when, 200, 100)
}

func (g *good) write(t *testing.T, when string, records, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for range records {
		r, err := g.ProduceSync(ctx, &kgo.Record{Value: make([]byte, size)}).First()
		if err != nil {
			t.Fatalf("write %s: %v", when, err)
		}
		if r.Offset != g.written {
			t.Fatalf("write %s: at offset %d, want %d", when, r.Offset, g.written)
		}
		g.written++
	}
}

// newcomer reads all of it over connections of its own.
func (g *good) newcomer(t *testing.T) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.OptValue(kgo.SeedBrokers).([]string)...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().AtStart()},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for read := int64(0); read < g.written; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("a newcomer reads, after %d of %d: %v", read, g.written, err)
		}
		read += int64(fs.NumRecords())
	}
}

// crowd is the bad clients' connections.
type crowd struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *crowd) dial(t *testing.T, at string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", at, limit)
	if err != nil {
		t.Errorf("dial, with %d connections: %v", len(c.conns), err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return conn
}

func (c *crowd) leave() {
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// opening is what the idle clients send before they fall silent.
var opening = [][]byte{
	{},
	{0, 0}, // half of a length
	binary.BigEndian.AppendUint32(nil, 90<<20), // a large request that never comes
	frame(kmsg.NewPtrApiVersionsRequest())[:9], // a part of a small one
	frame(kmsg.NewPtrApiVersionsRequest()),     // a whole one, whose answer is not read
}

func (c *crowd) idle(t *testing.T, at string) {
	t.Helper()
	const dialers = 8
	var all sync.WaitGroup
	for d := range dialers {
		all.Go(func() {
			for i := d; i < idlers && !t.Failed(); i += dialers {
				if conn := c.dial(t, at); conn != nil {
					if _, err := conn.Write(opening[i%len(opening)]); err != nil {
						t.Errorf("idle connection %d: %v", i, err)
					}
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// deaf connects clients that ask for everything, many times, and read nothing.
func (c *crowd) deaf(t *testing.T, at string) {
	t.Helper()
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 11
	fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes = 1000, 1, perRead
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes, part.CurrentLeaderEpoch = perRead, -1
	wanted := kmsg.NewFetchRequestTopic()
	wanted.Topic, wanted.Partitions = topic, append(wanted.Partitions, part)
	fetch.Topics = append(fetch.Topics, wanted)
	for range deaf {
		conn := c.dial(t, at)
		if conn == nil {
			t.FailNow()
		}
		// The node may stop reading too, once enough is owed; then this would
		// wait for ever.
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		for range asks {
			if _, err := conn.Write(frame(fetch)); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("ask for records: %v", err)
				}
				break
			}
		}
	}
}

// halfOpen ends connections in the middle of a request. The node must close
// them: nothing can come any more.
func halfOpen(t *testing.T, at string) {
	t.Helper()
	for i, sent := range opening[:4] {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, werr := conn.Write(sent)
		if err := errors.Join(werr, conn.(*net.TCPConn).CloseWrite(), conn.SetReadDeadline(time.Now().Add(limit))); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) || n > 0 {
			t.Errorf("half-open connection %d: read %d bytes and %v, want that it is closed", i, n, err)
		}
	}
}

// frame is a request as it goes over the wire.
func frame(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("hostile")).AppendRequest(nil, req, 1)
}
