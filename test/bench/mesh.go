package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/app/bench"
)

// meshNode is a node of a mesh on this machine.
type meshNode struct {
	*process
	e     *env
	data  string
	kafka int
	mesh  int
}

func (e *env) newMeshNode(ctx context.Context, dir string) (*meshNode, error) {
	n := &meshNode{e: e, data: filepath.Join(dir, "data")}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		n.kafka, err = freePort()
	}
	if err == nil {
		n.mesh, err = freePort()
	}
	if err == nil {
		err = n.start(ctx)
	}
	return n, err
}

// start runs the node on what is on its disk, and waits until it serves.
func (n *meshNode) start(ctx context.Context) (err error) {
	n.process, err = launch(filepath.Dir(n.data), exec.Command(n.e.bin("lattice"), "up", "--data", n.data, "--kafka", address(n.kafka), "--redis", "", "--http", "",
		"--mesh", address(n.mesh), "--log-level", "warn"))
	if err == nil {
		err = n.await(ctx, func() error { // removed again when it stops
			_, err := os.Stat(filepath.Join(n.data, "node.json"))
			return err
		})
	}
	return err
}

// kill ends the node as kill -9 does: with thousands of logs a clean stop may take longer
// than this program waits.
func (n *meshNode) kill() error {
	_ = n.cmd.Process.Kill()
	<-n.exited
	if err := os.Remove(filepath.Join(n.data, "node.json")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// command runs the command against the node.
func (n *meshNode) command(ctx context.Context, args ...string) (string, error) {
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, n.e.bin("lattice"), append(args, "--data", n.data)...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("lattice %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// peer is what a node says of its only peer.
type meshPeer struct {
	In    int64 `json:"bytes_in"`
	Out   int64 `json:"bytes_out"`
	Equal bool  `json:"equal"`
}

func (n *meshNode) peer(ctx context.Context) (meshPeer, error) {
	var all struct {
		Peers []meshPeer `json:"peers"`
	}
	out, err := n.command(ctx, "peer", "list", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	if err == nil && len(all.Peers) != 1 {
		err = fmt.Errorf("the node has %d peers", len(all.Peers))
	}
	if err != nil {
		return meshPeer{}, err
	}
	return all.Peers[0], nil
}

// pair is two nodes of one store.
type pair struct{ a, b *meshNode }

func (e *env) newPair(ctx context.Context, dir string) (p pair, err error) {
	if p.a, err = e.newMeshNode(ctx, filepath.Join(dir, "a")); err != nil {
		return p, err
	}
	if p.b, err = e.newMeshNode(ctx, filepath.Join(dir, "b")); err != nil {
		return p, err
	}
	token, err := p.a.command(ctx, "peer", "invite")
	if err == nil {
		_, err = p.b.command(ctx, "peer", "join", token)
	}
	return p, err
}

func (p pair) end() error {
	var all []error
	for _, n := range []*meshNode{p.a, p.b} {
		if n != nil && n.process != nil {
			all = append(all, n.kill())
		}
	}
	return errors.Join(all...)
}

func kafkaClient(port int, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address(port)), kgo.MetadataMinAge(10 * time.Millisecond), kgo.UnknownTopicRetries(-1)}, opts...)...)
}

// fill writes records of a size to one partition.
func fill(ctx context.Context, port int, topic string, records, size int) error {
	c, err := kafkaClient(port, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(1<<20), kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return err
	}
	value := make([]byte, size)
	var failed error
	for range records {
		c.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // callbacks come one at a time
			}
		})
	}
	return errors.Join(c.Flush(ctx), failed)
}

// until waits until a node's replica of a partition goes up to end.
func until(ctx context.Context, port int, topic string, end int64) error {
	c, err := kafkaClient(port)
	if err != nil {
		return err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	for ctx.Err() == nil {
		got, err := adm.ListEndOffsets(ctx, topic)
		if err == nil {
			if o, ok := got.Lookup(topic, 0); ok && o.Err == nil && o.Offset >= end {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%s does not come to offset %d: %w", topic, end, ctx.Err())
}

// transfer is what a copy of records took.
type transfer struct {
	Name    string        `json:"name"`
	Took    time.Duration `json:"took"`
	CPU     time.Duration `json:"cpu"` // of all processes of the copy
	Memory  [2]int64      `json:"memory"`
	Records int           `json:"records"`
	Bytes   int64         `json:"bytes"`
}

func (t transfer) rate() float64 { return float64(t.Bytes) / (1 << 20) / t.Took.Seconds() }

// catchUp measures how a node gets what another wrote while it was down. It leaves the
// files of the log for others to copy.
func (e *env) catchUp(ctx context.Context, p pair, topic string, records, size int) (transfer, []string, error) {
	t := transfer{Name: "Lattice, one node from another", Records: records, Bytes: int64(records) * int64(size)}
	if err := errors.Join(p.b.end(), fill(ctx, p.a.kafka, topic, records, size)); err != nil {
		return t, nil, err
	}
	cpu, start := bench.ServerCPU(p.a.PID()), time.Now()
	if err := p.b.start(ctx); err != nil {
		return t, nil, err
	}
	if err := until(ctx, p.b.kafka, topic, int64(records)); err != nil {
		return t, nil, err
	}
	t.measured(start, cpu, p.a.process, p.b.process)
	logs, err := filepath.Glob(filepath.Join(p.a.data, "stores", "*", "topics", "*", "*", "*.log"))
	var files []string
	for _, f := range logs {
		if info, err := os.Stat(f); err == nil && info.Size() > 0 {
			files = append(files, f)
		}
	}
	return t, files, err
}

// rawStream copies files over a libp2p stream, synced: one process to another.
func (e *env) rawStream(ctx context.Context, dir string, files []string, like transfer) (transfer, error) {
	t := transfer{Name: "a raw libp2p stream of the same files, synced", Records: like.Records}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			t.Bytes += info.Size()
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return t, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	from := exec.CommandContext(ctx, e.bin("rawstream"), append([]string{"serve"}, files...)...)
	in, err := from.StdinPipe()
	if err != nil {
		return t, err
	}
	out, err := from.StdoutPipe()
	if err == nil {
		err = from.Start()
	}
	if err != nil {
		return t, err
	}
	line := make([]byte, 512)
	k, err := out.Read(line)
	if err != nil {
		return t, errors.Join(err, in.Close(), from.Wait())
	}
	cpu, start := bench.ServerCPU(from.Process.Pid), time.Now()
	to := exec.CommandContext(ctx, e.bin("rawstream"), "copy", strings.TrimSpace(string(line[:k])), dir)
	said, err := to.CombinedOutput()
	t.Took = time.Since(start)
	if err != nil {
		err = fmt.Errorf("rawstream: %w: %s", err, said)
	}
	t.CPU = bench.ServerCPU(from.Process.Pid) - cpu
	if s := to.ProcessState; s != nil {
		t.CPU += s.UserTime() + s.SystemTime()
	}
	return t, errors.Join(err, in.Close(), from.Wait())
}

// latency measures the time from a produce on one node to the fetch on the other.
func latency(ctx context.Context, p pair, count int) ([]time.Duration, error) {
	const topic = "latency"
	if err := fill(ctx, p.a.kafka, topic, 1, 100); err != nil {
		return nil, err
	}
	if err := until(ctx, p.b.kafka, topic, 1); err != nil {
		return nil, err
	}
	from, err := kafkaClient(p.a.kafka, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := kafkaClient(p.b.kafka, kgo.FetchMaxWait(time.Second), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(1)}}))
	if err != nil {
		return nil, err
	}
	defer to.Close()
	var all []time.Duration
	for range count {
		start := time.Now()
		if err := from.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 100)}).FirstErr(); err != nil {
			return nil, err
		}
		for got := 0; got == 0; {
			f := to.PollFetches(ctx)
			if err := errors.Join(ctx.Err(), f.Err()); err != nil {
				return nil, err
			}
			got = f.NumRecords()
		}
		all = append(all, time.Since(start))
		time.Sleep(2 * time.Millisecond) // so that the next fetch waits already
	}
	all = all[len(all)/10:] // the first ones find nothing ready
	slices.Sort(all)
	return all, nil
}
