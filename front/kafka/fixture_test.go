package kafka

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fixture is a server over a store in memory.
type fixture struct {
	t     testing.TB
	fs    *disk.Mem
	store *store.Store
	srv   *Server
	addr  string
	reg   *prometheus.Registry
	stop  func() // of the server: cancels Serve and waits for it
}

// newStore opens a store on a file system in memory, with its work running.
func newStore(t testing.TB, fs *disk.Mem, change ...func(*store.Config)) *store.Store {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	key := identity.FromSeed([32]byte{1, 2, 3})
	if err := disk.MkdirAll(fs, "/data/stores"); err != nil {
		t.Fatal(err)
	}
	id, err := store.Create(fs, "/data/stores", key, "main", tick.Real{}, rand.Reader, logger)
	if err != nil {
		t.Fatal(err)
	}
	groups := group.DefaultConfig()
	groups.InitialRebalanceDelay = 0
	groups.MinSession = 100 * time.Millisecond
	cfg := store.Config{
		FS: fs, Dir: "/data/stores/" + id.String(), Key: key, Clock: tick.Real{}, Rand: rand.Reader, Logger: logger, Group: groups,
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newFixture(t testing.TB, cfg Config) *fixture {
	t.Helper()
	f := &fixture{t: t, fs: disk.NewMem(), reg: prometheus.NewRegistry()}
	f.store = newStore(t, f.fs)
	cfg.Metrics = f.reg
	f.serve(cfg)
	return f
}

// serve starts a server on a loopback port.
func (f *fixture) serve(cfg Config) {
	f.t.Helper()
	srv, err := New(cfg, f.store)
	if err != nil {
		f.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, ln) }()
	f.srv, f.addr = srv, ln.Addr().String()
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				f.t.Errorf("Serve: %v", err)
			}
		case <-time.After(30 * time.Second):
			f.t.Error("Serve did not return")
		}
	}
	f.t.Cleanup(f.stop)
}

func (f *fixture) topic(name string, partitions int32, configs ...string) store.Topic {
	f.t.Helper()
	n := store.NewTopic{Name: name, Partitions: partitions, Config: map[string]string{}}
	for i := 0; i < len(configs); i += 2 {
		n.Config[configs[i]] = configs[i+1]
	}
	t, err := f.store.CreateTopic(context.Background(), n)
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// term returns a partition's leader epoch.
func (f *fixture) term(t store.Topic, p int32) int32 {
	f.t.Helper()
	log, err := f.store.Partition(t.ID, p)
	if err != nil {
		f.t.Fatal(err)
	}
	return log.Bounds().Term
}

// damage flips a byte of a stored partition, in the last segment file, at the
// first place where pattern stands.
func (f *fixture) damage(t store.Topic, p int32, pattern string) {
	f.t.Helper()
	dir := fmt.Sprintf("/data/stores/%s/topics/%s/%d", f.store.Info().ID, t.ID, p)
	name := dir + "/00000000000000000000.log"
	data, err := disk.ReadFile(f.fs, name)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range len(data) - len(pattern) {
		if string(data[i:i+len(pattern)]) == pattern {
			file, err := f.fs.OpenReadWrite(name, "")
			if err != nil {
				f.t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.WriteAt([]byte{data[i] ^ 1}, int64(i)); err != nil {
				f.t.Fatal(err)
			}
			return
		}
	}
	f.t.Fatalf("%q is not in %s", pattern, name)
}

// client is a connection that speaks kmsg, or raw bytes.
type client struct {
	net.Conn
	t    testing.TB
	corr int32
	sent []kmsg.Request // without an answer yet
}

func (f *fixture) dial() *client {
	f.t.Helper()
	nc, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(60 * time.Second))
	return &client{Conn: nc, t: f.t}
}

// frame encodes a request, with its length.
func frame(req kmsg.Request, corr int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, corr)
}

// send writes requests in one piece.
func (c *client) send(reqs ...kmsg.Request) {
	c.t.Helper()
	var b []byte
	for _, r := range reqs {
		c.corr++
		c.sent = append(c.sent, r)
		b = append(b, frame(r, c.corr)...)
	}
	c.raw(b)
}

func (c *client) raw(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// readFrame reads a length-prefixed frame.
func (c *client) readFrame() ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

// recv reads the answer to the oldest request sent.
func (c *client) recv() kmsg.Response {
	c.t.Helper()
	req := c.sent[0]
	c.sent = c.sent[1:]
	want := c.corr - int32(len(c.sent))
	b, err := c.readFrame()
	if err != nil {
		c.t.Fatalf("answer to key %d version %d: %v", req.Key(), req.GetVersion(), err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != want {
		c.t.Fatalf("correlation id %d, want %d", got, want)
	}
	return decodeAnswer(c.t, req, b[4:])
}

// decodeAnswer decodes the header's rest and the body, all of it.
func decodeAnswer(t testing.TB, req kmsg.Request, b []byte) kmsg.Response {
	t.Helper()
	if req.IsFlexible() && req.Key() != keyAPIVersions {
		if b[0] != 0 {
			t.Fatalf("response header has tags: %x", b[0])
		}
		b = b[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(b); err != nil {
		t.Fatalf("key %d version %d: %v in %x", req.Key(), req.GetVersion(), err, b)
	}
	if again := resp.AppendTo(nil); string(again) != string(b) {
		t.Fatalf("key %d version %d: the answer is encoded otherwise than kmsg does:\n have %x\n want %x", req.Key(), req.GetVersion(), b, again)
	}
	return resp
}

// ask sends one request and returns its answer.
func ask[R kmsg.Response](c *client, req kmsg.Request) R {
	c.t.Helper()
	c.send(req)
	return c.recv().(R)
}

// closed fails unless the server closes the connection.
func (c *client) closed() {
	c.t.Helper()
	b, err := c.readFrame()
	if err == nil {
		c.t.Fatalf("got an answer, want the connection closed: %x", b)
	}
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatal("the connection stays open")
	}
}

// batch builds a record batch with one record for each value.
func batch(codec record.Codec, values ...string) []byte {
	b := record.NewBuilder(codec, 0)
	for i, v := range values {
		b.Add(1000+int64(i), []byte("k"), []byte(v), nil)
	}
	return b.Build(nil)
}

// produceReq asks to append one batch.
func produceReq(t store.Topic, version int16, p int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	req.Acks = -1
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = p, records
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = t.Name, t.ID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

// produce appends one batch and returns the answer for its partition.
func (c *client) produce(t store.Topic, version int16, p int32, records []byte) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return ask[*kmsg.ProduceResponse](c, produceReq(t, version, p, records)).Topics[0].Partitions[0]
}

// fetchReq asks for records of one partition.
func fetchReq(t store.Topic, version int16, p int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, 1<<20
	req.SessionEpoch = -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, offset, 1<<20
	part.CurrentLeaderEpoch, part.LastFetchedEpoch = -1, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = t.Name, t.ID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func (c *client) fetch(t store.Topic, version int16, p int32, offset int64) kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	return ask[*kmsg.FetchResponse](c, fetchReq(t, version, p, offset)).Topics[0].Partitions[0]
}

// values decodes records from batches.
func values(t testing.TB, b []byte) []string {
	t.Helper()
	var out []string
	var r record.Reader
	for len(b) > 0 {
		one, rest, _, err := record.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := record.CheckCRC(one); err != nil {
			t.Fatal(err)
		}
		if err := r.Open(one, record.Limits{}); err != nil {
			t.Fatal(err)
		}
		for {
			var rec record.Record
			ok, err := r.Next(&rec)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			out = append(out, string(rec.Value))
		}
		b = rest
	}
	return out
}

type fetchResponse = kmsg.FetchResponse
