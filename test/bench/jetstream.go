package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// jetStream is NATS with streams in files. A topic is as many streams as it has
// partitions, because a stream is what JetStream keeps in order.
type jetStream struct {
	*process
	version string
	nc      *nats.Conn
	js      jetstream.JetStream
	streams map[string]int32
}

// batchOf is how many messages one atomic batch has: what JetStream writes
// fastest, and the most that it allows.
const batchOf = 1000

func (e *env) jetStream(class compare.Class, interval, how string) compare.Peer {
	return compare.Peer{
		Name: "NATS JetStream", Class: class, How: how + "; written in atomic batches of " + strconv.Itoa(batchOf) + ", its fastest way",
		Start: func(ctx context.Context) (compare.Server, error) {
			return e.startNATS(ctx, fmt.Sprintf("sync_interval: %s", interval), "")
		},
	}
}

// startNATS runs a server, with more of its configuration: of JetStream, and of itself.
func (e *env) startNATS(ctx context.Context, stream, more string) (*jetStream, error) {
	dir, err := os.MkdirTemp(e.dir, "peer-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\nmax_payload: 8MB\nmax_pending: 256MB\njetstream { store_dir: %q, %s }\n%s\n",
		address(port), filepath.Join(dir, "data"), stream, more)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := launch(dir, exec.Command(e.bin("nats-server"), "-c", conf))
	if err != nil {
		return nil, err
	}
	s := &jetStream{process: p, version: e.module("github.com/nats-io/nats-server/v2"), streams: map[string]int32{}}
	if err := p.await(ctx, func() error { return s.connect(ctx, port) }); err != nil {
		_ = s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *jetStream) connect(ctx context.Context, port int) error {
	nc, err := nats.Connect("nats://" + address(port))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	if err != nil {
		nc.Close()
		return err
	}
	s.nc, s.js = nc, js
	return nil
}

func (s *jetStream) Version() string { return s.version }

func streamName(topic string, partition int32) string { return fmt.Sprintf("%s-%d", topic, partition) }

func (s *jetStream) Create(ctx context.Context, topic string, partitions int32) error {
	for p := range partitions {
		name := streamName(topic, p)
		if _, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, AllowAtomicPublish: true,
		}); err != nil {
			return err
		}
	}
	s.streams[topic] = partitions
	return nil
}

func (s *jetStream) Delete(ctx context.Context, topic string) error {
	var all []error
	for p := range s.streams[topic] {
		all = append(all, s.js.DeleteStream(ctx, streamName(topic, p)))
	}
	return errors.Join(all...)
}

func (s *jetStream) Stop() error {
	if s.nc != nil {
		s.nc.Close()
	}
	return s.process.Stop()
}

// each runs do for every stream of a topic at once, and returns the sum of what
// they return.
func each(n int32, do func(p int32) (int64, error)) (int64, error) {
	var wg sync.WaitGroup
	counts, errs := make([]int64, n), make([]error, n)
	for p := range n {
		wg.Go(func() { counts[p], errs[p] = do(p) })
	}
	wg.Wait()
	var sum int64
	for _, c := range counts {
		sum += c
	}
	return sum, errors.Join(errs...)
}

func (s *jetStream) Produce(_ context.Context, topic string, w compare.Work) (bench.Result, error) {
	n := s.streams[topic]
	cpu, start := bench.ServerCPU(s.PID()), time.Now()
	records, err := each(n, func(p int32) (int64, error) {
		return s.batches(streamName(topic, p), w.Size, w.Records/int64(n), start.Add(w.Within))
	})
	return result(records, w.Size, time.Since(start), bench.ServerCPU(s.PID())-cpu), err
}

// batches writes batches until deadline, the next one while the last is being
// acknowledged.
func (s *jetStream) batches(stream string, size int, records int64, deadline time.Time) (int64, error) {
	acks := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(acks)
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe()
	value := make([]byte, size)
	ack := func() error {
		m, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			return err
		}
		return checkAck(m)
	}
	var sent, acked int64
	for sent < records && time.Now().Before(deadline) {
		id := stream + strconv.FormatInt(sent, 36)
		for i := 1; i <= batchOf; i++ {
			m := &nats.Msg{Subject: stream, Data: value, Header: nats.Header{
				"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(i)},
			}}
			if i == batchOf {
				m.Header["Nats-Batch-Commit"] = []string{"1"}
				m.Reply = acks
			}
			if err := s.nc.PublishMsg(m); err != nil {
				return acked, err
			}
		}
		sent += batchOf
		if sent-acked > batchOf {
			if err := ack(); err != nil {
				return acked, err
			}
			acked += batchOf
		}
	}
	for acked < sent {
		if err := ack(); err != nil {
			return acked, err
		}
		acked += batchOf
	}
	return acked, nil
}

func checkAck(m *nats.Msg) error {
	var a struct {
		Seq   uint64          `json:"seq"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return fmt.Errorf("acknowledgement %q: %w", m.Data, err)
	}
	if a.Seq == 0 || a.Error != nil {
		return fmt.Errorf("not acknowledged: %s", m.Data)
	}
	return nil
}

func (s *jetStream) Consume(ctx context.Context, topic string, w compare.Work) (bench.Result, error) {
	n := s.streams[topic]
	cpu, start := bench.ServerCPU(s.PID()), time.Now()
	records, err := each(n, func(p int32) (int64, error) { return s.read(ctx, streamName(topic, p)) })
	if err == nil && records < w.Records {
		err = fmt.Errorf("read %d of %d records", records, w.Records)
	}
	return result(records, w.Size, time.Since(start), bench.ServerCPU(s.PID())-cpu), err
}

// read reads a whole stream through an ordered consumer.
func (s *jetStream) read(ctx context.Context, stream string) (int64, error) {
	c, err := s.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return 0, err
	}
	it, err := c.Messages(jetstream.PullMaxMessages(10_000))
	if err != nil {
		return 0, err
	}
	defer it.Stop()
	for n := int64(1); ; n++ {
		m, err := it.Next()
		if err != nil {
			return n, err
		}
		meta, err := m.Metadata()
		if err != nil || meta.NumPending == 0 {
			return n, err
		}
	}
}

func (s *jetStream) Latency(ctx context.Context, topic string, w compare.Work) (bench.Result, error) {
	stream := streamName(topic, 0)
	value := make([]byte, w.Size)
	one := make([]time.Duration, 0, w.Syncs)
	for range w.Syncs {
		start := time.Now()
		if _, err := s.js.Publish(ctx, stream, value); err != nil {
			return bench.Result{}, err
		}
		one = append(one, time.Since(start))
	}
	c, err := s.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return bench.Result{}, err
	}
	run := newDelivery(w)
	it, err := c.Consume(func(m jetstream.Msg) { run.arrived(binary.BigEndian.Uint64(m.Data())) })
	if err != nil {
		return bench.Result{}, err
	}
	defer it.Stop()
	way, err := run.send(ctx, func(value []byte) error {
		_, err := s.js.PublishAsync(stream, value)
		return err
	})
	return latencies(one, way), err
}

// Second: librdkafka does not speak NATS.
func (s *jetStream) Second(context.Context, string, compare.Work) (produced, consumed bench.Result, err error) {
	return produced, consumed, compare.ErrNotServed
}
