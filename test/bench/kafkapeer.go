package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// kafkaServer is any server that speaks Kafka's protocol.
type kafkaServer struct {
	*process
	version  string
	addr     string
	configs  map[string]*string // of each topic
	discards bool
	kcat     string // the command
	cl       *kgo.Client
	admin    *kadm.Client
}

// connect waits until the server answers requests.
func (s *kafkaServer) connect(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(5*time.Second))
	if err != nil {
		return err
	}
	s.cl, s.admin = cl, kadm.NewClient(cl)
	return s.await(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		m, err := s.admin.BrokerMetadata(ctx)
		if err == nil && len(m.Brokers) == 0 {
			err = errors.New("no broker yet")
		}
		return err
	})
}

func (s *kafkaServer) Version() string { return s.version }

func (s *kafkaServer) Create(ctx context.Context, topic string, partitions int32) error {
	r, err := s.admin.CreateTopic(ctx, partitions, 1, s.configs, topic)
	if err = errors.Join(err, r.Err); err != nil {
		return err
	}
	// Brokers answer before all of them know the topic.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		topics, err := s.admin.ListTopics(ctx, topic)
		if err == nil && topics[topic].Err == nil && len(topics[topic].Partitions) == int(partitions) {
			leaders := 0
			for _, p := range topics[topic].Partitions {
				if p.Leader >= 0 && p.Err == nil {
					leaders++
				}
			}
			if leaders == int(partitions) {
				return nil
			}
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("topic %s does not appear: %w", topic, errors.Join(err, topics[topic].Err, ctx.Err()))
		}
	}
}

func (s *kafkaServer) Delete(ctx context.Context, topic string) error {
	_, err := s.admin.DeleteTopic(ctx, topic)
	return err
}

func (s *kafkaServer) Stop() error {
	if s.cl != nil {
		s.cl.Close()
	}
	return s.process.Stop()
}

func (s *kafkaServer) config(topic string, w compare.Work) bench.Config {
	c := bench.Default()
	c.Bootstrap, c.Topic, c.PID = []string{s.addr}, topic, s.PID()
	c.Size, c.Within, c.Syncs, c.Rate, c.For = w.Size, w.Within, w.Syncs, w.Rate, w.For
	c.Records = max(w.Records, 1)
	return c
}

func (s *kafkaServer) Produce(ctx context.Context, topic string, w compare.Work) (bench.Result, error) {
	return bench.Produce(ctx, s.config(topic, w))
}

func (s *kafkaServer) Consume(ctx context.Context, topic string, w compare.Work) (bench.Result, error) {
	if s.discards {
		return bench.Result{}, compare.ErrNotServed
	}
	return bench.Consume(ctx, s.config(topic, w))
}

func (s *kafkaServer) Latency(ctx context.Context, topic string, w compare.Work) (bench.Result, error) {
	c := s.config(topic, w)
	if !s.discards {
		return bench.Latency(ctx, c)
	}
	c.Records = 1 // nothing arrives: only the synchronous produces
	return bench.Produce(ctx, c)
}

// Second writes and reads lines with kcat, which is librdkafka. Its queue holds all
// that is read: a full one makes it sleep for a second, the faster the server the more often.
func (s *kafkaServer) Second(ctx context.Context, topic string, w compare.Work) (produced, consumed bench.Result, err error) {
	lines := filepath.Join(s.dir, "lines")
	// A line per record, without its end.
	line := strings.Repeat("0123456789", w.Size/10+1)[:w.Size] + "\n"
	if err := os.WriteFile(lines, []byte(strings.Repeat(line, int(w.Records))), 0o600); err != nil {
		return produced, consumed, err
	}
	defer os.Remove(lines)
	if produced, err = s.timed(ctx, w, "-P", "-b", s.addr, "-t", topic, "-X", "linger.ms=5", "-X", "batch.num.messages=10000", "-l", lines); err != nil || s.discards {
		return produced, consumed, err
	}
	consumed, err = s.timed(ctx, w, "-C", "-b", s.addr, "-t", topic, "-o", "beginning", "-e", "-q",
		"-X", "queued.min.messages=10000000", "-X", "queued.max.messages.kbytes=1048576")
	return produced, consumed, err
}

// timed runs kcat over w.Records records and checks that a consumer printed all.
func (s *kafkaServer) timed(ctx context.Context, w compare.Work, args ...string) (bench.Result, error) {
	cmd := exec.CommandContext(ctx, s.kcat, args...)
	var out lineCounter
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	cpu, start := bench.ServerCPU(s.PID()), time.Now()
	if err := cmd.Run(); err != nil {
		return bench.Result{}, fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	took := time.Since(start)
	if args[0] == "-C" && out.n != w.Records {
		return bench.Result{}, fmt.Errorf("kcat printed %d of %d records", out.n, w.Records)
	}
	return result(w.Records, w.Size, took, bench.ServerCPU(s.PID())-cpu), nil
}

// lineCounter counts lines.
type lineCounter struct{ n int64 }

func (c *lineCounter) Write(b []byte) (int, error) {
	for _, x := range b {
		if x == '\n' {
			c.n++
		}
	}
	return len(b), nil
}

// result fills in what app/bench does not measure itself.
func result(records int64, size int, took, cpu time.Duration) bench.Result {
	seconds := max(took.Seconds(), 1e-9)
	r := bench.Result{
		Records: records, Size: size, Seconds: seconds, RecordsPerSec: float64(records) / seconds,
		MiBPerSec: float64(records) * float64(size) / (1 << 20) / seconds,
	}
	if cpu > 0 && records > 0 {
		perMillion := cpu.Seconds() * 1e6 / float64(records)
		r.ServerCPUPerMillion = &perMillion
	}
	return r
}
