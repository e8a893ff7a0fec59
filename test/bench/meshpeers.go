package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// This file is how others give one server what another has.

// kfakeCopy copies records from one kfake to another, as a mirror with franz-go would.
func (e *env) kfakeCopy(ctx context.Context, records, size int) (t transfer, err error) {
	const topic = "history"
	t = transfer{Name: "a franz-go client from one kfake to another, synced", Records: records, Bytes: int64(records) * int64(size)}
	var ports [2]int
	var fakes [2]*process
	for i := range fakes {
		dir := filepath.Join(e.dir, fmt.Sprint("kfake", time.Now().UnixNano()))
		if ports[i], err = freePort(); err != nil {
			return t, err
		}
		if err = os.MkdirAll(dir, 0o700); err != nil {
			return t, err
		}
		if fakes[i], err = launch(dir, exec.Command(e.bin("kfake"), "-port", fmt.Sprint(ports[i]), "-dir", filepath.Join(dir, "data"), "-sync")); err != nil {
			return t, err
		}
		defer func() { err = errors.Join(err, fakes[i].Stop()) }()
		if err = fakes[i].await(ctx, answers(ports[i])); err != nil {
			return t, err
		}
	}
	if err := fill(ctx, ports[0], topic, records, size); err != nil {
		return t, err
	}
	from, err := kafkaClient(ports[0], kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return t, err
	}
	defer from.Close()
	to, err := kafkaClient(ports[1], kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(1<<20), kgo.MaxBufferedRecords(100_000),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return t, err
	}
	defer to.Close()
	if _, err := kadm.NewClient(to).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return t, err
	}
	spent := func() time.Duration {
		return bench.ServerCPU(fakes[0].PID()) + bench.ServerCPU(fakes[1].PID()) + ownCPU()
	}
	cpu, start := spent(), time.Now()
	var failed error
	for got := 0; got < records; {
		f := from.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), f.Err()); err != nil {
			return t, err
		}
		f.EachRecord(func(r *kgo.Record) {
			got++
			to.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed = err
				}
			})
		})
	}
	err = errors.Join(to.Flush(ctx), failed)
	t.Took, t.CPU = time.Since(start), spent()-cpu
	return t, err
}

// jetStreamMirror has a second server mirror a stream of the first, over a leaf node's
// connection.
func (e *env) jetStreamMirror(ctx context.Context, records, size int) (t transfer, err error) {
	t = transfer{Name: "a NATS JetStream mirror, synced every two minutes", Records: records, Bytes: int64(records) * int64(size)}
	port, err := freePort()
	if err != nil {
		return t, err
	}
	hub, err := e.startNATS(ctx, "domain: hub", fmt.Sprintf("leafnodes { listen: %q }", address(port)))
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, hub.Stop()) }()
	if err := hub.Create(ctx, "history", 1); err != nil {
		return t, err
	}
	if _, err := hub.Produce(ctx, "history", compare.Work{Records: int64(records), Size: size, Within: time.Duration(math.MaxInt64 / 4)}); err != nil {
		return t, err
	}
	cpu, start := bench.ServerCPU(hub.PID()), time.Now()
	leaf, err := e.startNATS(ctx, "domain: leaf", fmt.Sprintf("leafnodes { remotes [ { url: \"nats-leaf://%s\" } ] }", address(port)))
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, leaf.Stop()) }()
	s, err := leaf.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "mirror", Storage: jetstream.FileStorage, Mirror: &jetstream.StreamSource{Name: streamName("history", 0), Domain: "hub"},
	})
	if err != nil {
		return t, err
	}
	for {
		info, err := s.Info(ctx)
		if err != nil {
			return t, err
		}
		if info.State.Msgs >= uint64(records) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.measured(start, cpu, hub.process, leaf.process)
	return t, nil
}

// redisReplica has a second server become a replica of the first, which holds the
// records in a stream.
func (e *env) redisReplica(ctx context.Context, records, size int) (t transfer, err error) {
	t = transfer{Name: "a Redis replica, in memory: its file follows", Records: records, Bytes: int64(records) * int64(size)}
	first, err := e.startRedis(ctx, "everysec", "--repl-diskless-sync-delay", "0")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, first.Stop()) }()
	first.partitions["history"] = 1
	if _, err := first.Produce(ctx, "history", compare.Work{Records: int64(records), Size: size, Within: time.Duration(math.MaxInt64 / 4)}); err != nil {
		return t, err
	}
	cpu, start := bench.ServerCPU(first.PID()), time.Now()
	second, err := e.startRedis(ctx, "everysec", "--replicaof", "127.0.0.1 "+fmt.Sprint(first.port))
	if err != nil {
		return t, err
	}
	defer func() { // it does not stop by itself while it writes its first file
		_ = second.cmd.Process.Kill()
		err = errors.Join(err, second.Stop())
	}()
	for n := 0; n < records; time.Sleep(5 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		// While it loads it answers with an error, and before that with nothing.
		if r, err := second.admin.do("XLEN", streamName("history", 0)); err == nil {
			_, _ = fmt.Sscan(r.text, &n)
		}
	}
	t.measured(start, cpu, first.process, second.process)
	return t, nil
}

// measured fills in what a copy took whose second server began at start, when the first
// had used cpu.
func (t *transfer) measured(start time.Time, cpu time.Duration, first, second *process) {
	t.Took, t.CPU = time.Since(start), bench.ServerCPU(first.PID())-cpu+bench.ServerCPU(second.PID())
	_, t.Memory[0] = bench.Memory(first.PID())
	_, t.Memory[1] = bench.Memory(second.PID())
}
