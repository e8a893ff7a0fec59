package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func newBench(a *app) *cobra.Command {
	return family("bench", "Measure what this machine does",
		newBenchOne(a, "produce", "Measure writing: rate, latency of a synchronous produce, server CPU", bench.Produce),
		newBenchOne(a, "consume", "Measure reading: rate and server CPU", bench.Consume),
		newBenchOne(a, "latency", "Measure waiting: a synchronous produce, and the way from producer to consumer", bench.Latency))
}

type benchFlags struct {
	bench.Config
	bootstrap string
	json      bool
}

func newBenchOne(a *app, what, short string, measure func(context.Context, bench.Config) (bench.Result, error)) *cobra.Command {
	f := benchFlags{Config: bench.Default()}
	cmd := &cobra.Command{
		Use:   what,
		Short: short,
		Long: short + `.

The load comes from a Kafka client in this process, which shares the machine with the
server and is often the slower of the two: look at the server's CPU seconds first. With
--bootstrap any Kafka server is measured the same way.`,
		Example: fmt.Sprintf("  lattice bench %s --records 1000000 --size 100\n  lattice bench %s --bootstrap other:9092 -o json", what, what),
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), what, f, measure) },
	}
	fl := cmd.Flags()
	if what != "latency" {
		fl.Int64VarP(&f.Records, "records", "n", f.Records, "number of records")
	}
	fl.IntVar(&f.Size, "size", f.Size, "bytes of each value")
	fl.Int32Var(&f.Partitions, "partitions", f.Partitions, "partitions of the topic that is made for it")
	fl.Int32Var(&f.BatchBytes, "batch", f.BatchBytes, "largest batch, in bytes")
	fl.Var(&choice{&f.Compression, []string{"none", "gzip", "snappy", "lz4", "zstd"}}, "compression", "how batches are compressed")
	fl.StringVar(&f.Durability, "durability", "", "lattice.durability of the topic: fsync, interval or os (default: the node's)")
	fl.StringVar(&f.Topic, "topic", "", "use this topic and leave it there (default: a new one, deleted at the end)")
	fl.StringVar(&f.bootstrap, "bootstrap", "", "HOST:PORT of any Kafka server, instead of a node")
	fl.BoolVar(&f.json, "json", false, "same as -o json")
	if what != "consume" {
		fl.Var(&choice{&f.Acks, []string{"all", "1", "0"}}, "acks", "acknowledgements to wait for")
		fl.IntVar(&f.Syncs, "syncs", f.Syncs, "synchronous produces for the latency")
	}
	if what == "latency" {
		fl.IntVar(&f.Rate, "rate", f.Rate, "records sent in a second, to be consumed")
		fl.DurationVar(&f.For, "for", f.For, "how long they are sent")
	}
	a.outputFlag(cmd)
	a.clientFlags(cmd)
	return cmd
}

func (a *app) bench(ctx context.Context, what string, f benchFlags, measure func(context.Context, bench.Config) (bench.Result, error)) error {
	if f.json {
		a.output = "json"
	}
	if f.bootstrap != "" {
		f.Bootstrap = strings.Split(f.bootstrap, ",")
	} else if err := a.benchNode(ctx, &f); err != nil {
		return err
	}
	meter := a.meter(false, what+"d", cli.OfRecords(f.Records))
	f.Progress = meter.Add
	r, err := measure(ctx, f.Config)
	meter.Stop()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
		return err
	}
	return a.print(r, func() error { return a.showBench(r) })
}

// benchNode finds the node's Kafka listener, and its process if it runs here.
func (a *app) benchNode(ctx context.Context, f *benchFlags) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	addr := st.Listeners.Kafka
	if addr == "" {
		return cli.Hint(fmt.Errorf("the node's Kafka listener is off"), "start it with --kafka 127.0.0.1:9092")
	}
	if node := a.nodeURLHost(); node != "" {
		if host, port, err := net.SplitHostPort(addr); err == nil {
			if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
				addr = net.JoinHostPort(node, port)
			}
		}
	}
	f.Bootstrap = []string{addr}
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	// The pid means something only if the node of that directory is the one measured.
	if info, err := client.ReadNodeInfo(dir); err == nil && info.Node == st.Node {
		f.PID = info.PID
	}
	return nil
}

// nodeURLHost returns the host of --node or LATTICE_NODE, "" without them.
func (a *app) nodeURLHost() string {
	raw := a.nodeURL
	if raw == "" && a.data == "" {
		raw = a.env("LATTICE_NODE")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func (a *app) showBench(r bench.Result) error {
	t := cli.NewTable("MEASURED", ">FIGURE", "UNIT")
	t.Row("records of "+cli.Bytes(int64(r.Size)), cli.Count(r.Records), fmt.Sprintf("over %s, compression %s", cli.Of(r.Partitions, "partition"), r.Compression))
	t.Row("time", strconv.FormatFloat(r.Seconds, 'f', 2, 64), "s")
	t.Row("rate", cli.Count(int64(r.RecordsPerSec)), "records/s")
	t.Row("", strconv.FormatFloat(r.MiBPerSec, 'f', 1, 64), "MiB/s")
	if r.SyncP50Ms != nil {
		t.Row("synchronous produce, p50", strconv.FormatFloat(*r.SyncP50Ms, 'f', 3, 64), "ms")
		t.Row("synchronous produce, p99", strconv.FormatFloat(*r.SyncP99Ms, 'f', 3, 64), "ms")
	}
	if r.DeliverP50Ms != nil {
		t.Row("produce to consume, p50", strconv.FormatFloat(*r.DeliverP50Ms, 'f', 3, 64), "ms")
		t.Row("produce to consume, p99", strconv.FormatFloat(*r.DeliverP99Ms, 'f', 3, 64), "ms")
	}
	if r.ServerCPUPerMillion != nil {
		t.Row("server CPU", strconv.FormatFloat(*r.ServerCPUPerMillion, 'f', 2, 64), "s for a million records")
	}
	_, err := t.WriteTo(a.stdout)
	return err
}
