// Command bench is make bench: Lattice beside Apache Kafka, NATS JetStream, Redis
// streams and franz-go's kfake, in one run on this machine, and Lattice with a
// growing history. It writes the tables into a page and all figures as JSON.
//
// It is a module of its own, so that what the peers need is not in the product's
// go.mod. What is measured and how it is told are in app/bench/compare; here are
// the peers: how each is started, and the clients of those that do not speak
// Kafka's protocol. scripts/bench.sh builds the programs that it starts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lattice-log/lattice/app/bench/compare"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	env
	short, history     bool
	keys, folds, mesh  bool
	only, without      string
	rounds             int
	page, json, commit string
	command            string
	dataDir            string
}

func measure(ctx context.Context, args []string) (err error) {
	var o options
	fl := flag.NewFlagSet("bench", flag.ContinueOnError)
	fl.StringVar(&o.bins, "bins", "bin", "directory of the programs lattice, kfake and nats-server")
	fl.StringVar(&o.classpath, "classpath", "test/bench/kafka/target/classpath", "file with the class path of Apache Kafka's broker")
	fl.StringVar(&o.dataDir, "dir", "", "where data goes for the time of the run: 20 GiB of the disk that is to be measured (default: the system's)")
	fl.BoolVar(&o.short, "short", false, "a few minutes that check the program, not the servers")
	fl.BoolVar(&o.history, "history", true, "measure Lattice with a history too")
	fl.BoolVar(&o.keys, "keys", false, "measure keys beside Redis instead, as make bench-redis does")
	fl.BoolVar(&o.mesh, "mesh", false, "measure two nodes of a mesh instead, as make bench-mesh does")
	fl.BoolVar(&o.folds, "folds", true, "with -keys, make the state again from its logs too")
	fl.StringVar(&o.only, "only", "", "peers to measure, with commas: lattice, kfake, kafka, jetstream, redis")
	fl.StringVar(&o.without, "without", "", "peers to leave out, with commas; the page says so")
	fl.IntVar(&o.rounds, "rounds", 0, "rounds (default 3, short: 1)")
	fl.StringVar(&o.page, "page", "", "page to write the tables into, between its marks (default: standard output only)")
	fl.StringVar(&o.json, "json", "", "file for all figures")
	fl.StringVar(&o.commit, "commit", "unknown", "commit that is measured")
	fl.StringVar(&o.command, "command", "make bench", "command that the page names")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if fl.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", fl.Arg(0))
	}
	if o.dir, err = os.MkdirTemp(o.dataDir, "lattice-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	say := sayer()
	switch {
	case o.keys:
		return o.measureKeys(ctx, say)
	case o.mesh:
		return o.measureMesh(ctx, say)
	}
	peers, left, err := o.peers(list(o.only), list(o.without))
	if err != nil {
		return err
	}

	plan, past := plans(o.short, say)
	if err := touchMemory(plan.Say); err != nil {
		return err
	}
	if o.rounds > 0 {
		plan.Rounds = o.rounds
	}
	report := compare.Report{
		Command: o.command, Commit: o.commit, Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(o.dir), Load: load(),
		Sizes: plan.Sizes, Partitions: plan.Partitions, Without: left,
	}
	if report.Peers, report.Rounds, err = plan.Run(ctx, peers); err != nil {
		return err
	}
	var failed error
	if o.history {
		report.History, failed = o.env.history(ctx, past)
	}
	figures := struct {
		*compare.Report
		Goals []compare.Goal `json:"goals"`
	}{&report, report.Goals()}
	return errors.Join(o.write("make bench", report.Markdown(), figures), report.Failures(), failed)
}

// sayer returns what tells how a run goes on.
func sayer() func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// plans returns what is measured: in a few minutes, or in twenty.
func plans(short bool, say func(format string, args ...any)) (compare.Plan, historyPlan) {
	plan := compare.Plan{
		Rounds: 3, Budget: 18 * time.Minute, Sizes: []int{100, 1024}, Partitions: []int32{1, 8},
		Records: map[int]int64{100: 4_000_000, 1024: 800_000}, Within: 2 * time.Second,
		Syncs: 1000, Rate: 1000, For: 2 * time.Second, Second: 500_000,
		Settle: unix.Sync, Say: say,
	}
	past := historyPlan{
		bytes: []int64{0, 1 << 30, 10 << 30}, idle: []int32{1, 100, 5000},
		records: 3_000_000, repeat: 3, syncs: 500, way: 2 * time.Second, settle: unix.Sync, say: say,
	}
	if short {
		plan.Rounds, plan.Within, plan.Syncs, plan.For, plan.Second = 1, 400*time.Millisecond, 100, 500*time.Millisecond, 100_000
		past.bytes, past.idle = []int64{0, 64 << 20, 256 << 20}, []int32{1, 50, 500}
		past.records, past.repeat, past.syncs, past.way = 300_000, 1, 50, 500*time.Millisecond
	}
	return plan, past
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
