package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// redis keeps a topic as one stream for each partition, all of it in memory.
type redis struct {
	*process
	version    string
	port       int
	admin      *resp
	partitions map[string]int32
}

// pipelineOf is how many XADD go out before their answers are read, and how many
// entries an XREAD asks for.
const (
	pipelineOf = 500
	readOf     = 1000
)

func (e *env) redis(class compare.Class, fsync string) compare.Peer {
	return compare.Peer{
		Name: "Redis streams", Class: class,
		How:   fmt.Sprintf("appendonly yes, appendfsync %s; XADD, %d a pipeline, one connection for a stream; XREAD of %d", fsync, pipelineOf, readOf),
		Start: func(ctx context.Context) (compare.Server, error) { return e.startRedis(ctx, fsync) },
	}
}

// startRedis runs a server with an append-only file, and with more flags.
func (e *env) startRedis(ctx context.Context, fsync string, flags ...string) (*redis, error) {
	dir, err := os.MkdirTemp(e.dir, "peer-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := launch(dir, exec.Command("redis-server", append([]string{"--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--dir", dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"}, flags...)...))
	if err != nil {
		return nil, err
	}
	s := &redis{process: p, version: e.version("redis-server", "--version"), port: port, partitions: map[string]int32{}}
	if err := p.await(ctx, func() (err error) {
		if s.admin, err = dialRESP(port); err != nil {
			return err
		}
		_, err = s.admin.do("PING")
		return err
	}); err != nil {
		_ = s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *redis) Version() string { return redisVersion(s.version) }

func (s *redis) Create(_ context.Context, topic string, partitions int32) error {
	s.partitions[topic] = partitions
	return nil
}

func (s *redis) Delete(_ context.Context, topic string) error {
	var all []error
	for p := range s.partitions[topic] {
		_, err := s.admin.do("DEL", streamName(topic, p))
		all = append(all, err)
	}
	return errors.Join(all...)
}

func (s *redis) Stop() error {
	if s.admin != nil {
		s.admin.close()
	}
	return errors.Join(s.process.end(), os.RemoveAll(s.dir))
}

func (s *redis) Produce(_ context.Context, topic string, w compare.Work) (bench.Result, error) {
	n := s.partitions[topic]
	cpu, start := bench.ServerCPU(s.PID()), time.Now()
	records, err := each(n, func(p int32) (int64, error) {
		return s.pipelines(streamName(topic, p), w.Size, w.Records/int64(n), start.Add(w.Within))
	})
	return result(records, w.Size, time.Since(start), bench.ServerCPU(s.PID())-cpu), err
}

// pipelines writes pipelines until deadline, the next one while the last is
// being answered.
func (s *redis) pipelines(stream string, size int, records int64, deadline time.Time) (int64, error) {
	c, err := dialRESP(s.port)
	if err != nil {
		return 0, err
	}
	defer c.close()
	value := strings.Repeat("x", size)
	answers := func() error {
		for range pipelineOf {
			if _, err := c.read(); err != nil {
				return err
			}
		}
		return nil
	}
	var sent, acked int64
	for sent < records && time.Now().Before(deadline) {
		for range pipelineOf {
			c.write("XADD", stream, "*", "v", value)
		}
		if err := c.flush(); err != nil {
			return acked, err
		}
		sent += pipelineOf
		if sent-acked > pipelineOf {
			if err := answers(); err != nil {
				return acked, err
			}
			acked += pipelineOf
		}
	}
	for acked < sent {
		if err := answers(); err != nil {
			return acked, err
		}
		acked += pipelineOf
	}
	return acked, nil
}

func (s *redis) Consume(_ context.Context, topic string, w compare.Work) (bench.Result, error) {
	n := s.partitions[topic]
	cpu, start := bench.ServerCPU(s.PID()), time.Now()
	records, err := each(n, func(p int32) (int64, error) { return s.readAll(streamName(topic, p)) })
	if err == nil && records < w.Records {
		err = fmt.Errorf("read %d of %d records", records, w.Records)
	}
	return result(records, w.Size, time.Since(start), bench.ServerCPU(s.PID())-cpu), err
}

func (s *redis) readAll(stream string) (records int64, err error) {
	c, err := dialRESP(s.port)
	if err != nil {
		return 0, err
	}
	defer c.close()
	for last := "0"; ; {
		r, err := c.do("XREAD", "COUNT", fmt.Sprint(readOf), "STREAMS", stream, last)
		if err != nil {
			return records, err
		}
		got := entries(r)
		if len(got) == 0 {
			return records, nil
		}
		records += int64(len(got))
		last = got[len(got)-1].id
	}
}

// entry is one of a stream.
type entry struct{ id, value string }

// entries returns what XREAD of one stream with one field an entry answered:
// [[stream, [[id, [field, value]], …]]], or nothing.
func entries(r reply) []entry {
	if len(r.list) == 0 || len(r.list[0].list) < 2 {
		return nil
	}
	raw := r.list[0].list[1].list
	all := make([]entry, 0, len(raw))
	for _, e := range raw {
		if len(e.list) == 2 && len(e.list[1].list) == 2 {
			all = append(all, entry{e.list[0].text, e.list[1].list[1].text})
		}
	}
	return all
}

func (s *redis) Latency(ctx context.Context, topic string, w compare.Work) (bench.Result, error) {
	stream := streamName(topic, 0)
	value := strings.Repeat("x", w.Size)
	one := make([]time.Duration, 0, w.Syncs)
	for range w.Syncs {
		start := time.Now()
		if _, err := s.admin.do("XADD", stream, "*", "v", value); err != nil {
			return bench.Result{}, err
		}
		one = append(one, time.Since(start))
	}
	last, err := s.admin.do("XADD", stream, "*", "v", value)
	if err != nil {
		return bench.Result{}, err
	}
	reader, err := dialRESP(s.port)
	if err != nil {
		return bench.Result{}, err
	}
	run := newDelivery(w)
	done := make(chan error, 1)
	go func() {
		for at := last.text; ; {
			r, err := reader.do("XREAD", "BLOCK", "0", "STREAMS", stream, at)
			if err != nil {
				done <- err
				return
			}
			for _, e := range entries(r) {
				at = e.id
				run.arrived(binary.BigEndian.Uint64([]byte(e.value)))
			}
		}
	}()
	answered := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && i < cap(run.sent); i++ {
			_, err = s.admin.read()
		}
		answered <- err
	}()
	way, err := run.send(ctx, func(value []byte) error {
		s.admin.write("XADD", stream, "*", "v", string(value))
		return s.admin.flush()
	})
	reader.close()
	<-done
	if err == nil {
		err = <-answered
	}
	return latencies(one, way), err
}

// Second: librdkafka does not speak Redis.
func (s *redis) Second(context.Context, string, compare.Work) (produced, consumed bench.Result, err error) {
	return produced, consumed, compare.ErrNotServed
}
