package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// meshReport is what make bench-mesh found.
type meshReport struct {
	Command string        `json:"command"`
	Commit  string        `json:"commit"`
	Date    string        `json:"date"`
	Machine string        `json:"machine"`
	Load    string        `json:"load"`
	Copies  []copied      `json:"copies"`
	Equal   int64         `json:"equal_bytes"`   // of a comparison of stores that are equal
	Few     int64         `json:"changed_bytes"` // of one where Changed logs of Logs differ
	Logs    int           `json:"logs"`
	Changed int           `json:"changed"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
}

// copied is the same records copied in several ways, ours first.
type copied struct {
	Size int        `json:"size"`
	All  []transfer `json:"all"`
}

// measureMesh is make bench-mesh.
func (o *options) measureMesh(ctx context.Context, say func(string, ...any)) error {
	r := meshReport{
		Command: o.command, Commit: o.commit, Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(o.dir), Load: load(), Logs: 10_000, Changed: 10,
	}
	if _, _, err := o.peers([]string{"kfake", "jetstream", "redis"}, nil); err != nil {
		return err
	}
	sizes, samples := [][2]int{{1_000_000, 100}, {1 << 20, 1024}}, 2000
	if o.short {
		sizes, samples, r.Logs = [][2]int{{100_000, 100}, {1 << 16, 1024}}, 200, 500
	}
	for _, s := range sizes {
		say("copy %d records of %d bytes", s[0], s[1])
		c, err := o.copies(ctx, s[0], s[1])
		if err != nil {
			return err
		}
		r.Copies = append(r.Copies, c)
	}
	if err := o.onePair(ctx, func(p pair) error { return r.measureLive(ctx, p, samples, say) }); err != nil {
		return err
	}
	figures := struct {
		*meshReport
		Goals []compare.Goal `json:"goals"`
	}{&r, r.goals()}
	return o.write("make bench-mesh", r.markdown(), figures)
}

// onePair runs f with two nodes of one store.
func (e *env) onePair(ctx context.Context, f func(pair) error) error {
	dir := filepath.Join(e.dir, fmt.Sprint("pair", time.Now().UnixNano()))
	p, err := e.newPair(ctx, dir)
	if err == nil {
		err = f(p)
	}
	return errors.Join(err, p.end())
}

func (o *options) copies(ctx context.Context, records, size int) (copied, error) {
	c := copied{Size: size}
	err := o.onePair(ctx, func(p pair) error {
		unix.Sync()
		ours, files, err := o.catchUp(ctx, p, "history", records, size)
		if err != nil {
			return err
		}
		unix.Sync()
		raw, err := o.rawStream(ctx, filepath.Join(o.dir, "raw"), files, ours)
		c.All = append(c.All, ours, raw)
		return err
	})
	if err != nil {
		return c, err
	}
	unix.Sync()
	for _, other := range []func(context.Context, int, int) (transfer, error){o.kfakeCopy, o.jetStreamMirror, o.redisReplica} {
		t, err := other(ctx, records, size)
		if err != nil {
			return c, fmt.Errorf("%s: %w", t.Name, err)
		}
		c.All = append(c.All, t)
		unix.Sync()
	}
	return c, nil
}

// measureLive measures what two nodes that are in step cost and take.
func (r *meshReport) measureLive(ctx context.Context, p pair, samples int, say func(string, ...any)) error {
	say("produce on one node, fetch on the other")
	all, err := latency(ctx, p, samples)
	if err != nil {
		return err
	}
	r.P50, r.P99 = all[len(all)/2], all[len(all)*99/100]
	say("compare %d logs", r.Logs)
	c, err := kafkaClient(p.a.kafka)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, int32(r.Logs), 1, nil, "many"); err != nil {
		return err
	}
	one := func(partition int32) *kgo.Record {
		return &kgo.Record{Topic: "many", Partition: partition, Value: make([]byte, 100)}
	}
	w, err := kafkaClient(p.a.kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer w.Close()
	var each []*kgo.Record
	for i := range r.Logs {
		each = append(each, one(int32(i)))
	}
	if err := w.ProduceSync(ctx, each...).FirstErr(); err != nil {
		return err
	}
	if _, err := p.calm(ctx); err != nil {
		return err
	}
	if r.Equal, err = p.meet(ctx, nil); err != nil {
		return err
	}
	r.Few, err = p.meet(ctx, func() error { return w.ProduceSync(ctx, each[:r.Changed]...).FirstErr() })
	return err
}

// meet has the second node go, something be written meanwhile, and come again; it
// returns the bytes that went both ways on all streams of theirs until they were equal.
func (p pair) meet(ctx context.Context, meanwhile func() error) (int64, error) {
	if err := p.b.kill(); err != nil {
		return 0, err
	}
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return 0, err
		}
	}
	if err := p.b.start(ctx); err != nil {
		return 0, err
	}
	got, err := p.calm(ctx)
	return got.In + got.Out, err
}

// calm waits until both say that they are equal and nothing goes to and fro.
func (p pair) calm(ctx context.Context) (meshPeer, error) {
	var before meshPeer
	for quiet := 0; ; {
		now, err := p.b.peer(ctx)
		if err != nil {
			return now, err
		}
		if quiet++; !now.Equal || now != before {
			quiet = 0
		}
		if before = now; quiet >= 3 {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (r *meshReport) goals() []compare.Goal {
	var all []compare.Goal
	goal := func(met bool, work, want, got string, args ...any) {
		all = append(all, compare.Goal{Work: work, Want: want, Got: fmt.Sprintf(got, args...), Met: &met})
	}
	for _, c := range r.Copies {
		ours, raw, fake := c.All[0], c.All[1], c.All[2]
		what := fmt.Sprintf("catch-up, records of %d B", c.Size)
		goal(ours.rate() >= 0.7*raw.rate(), what, "at least 0.7 of a raw stream", "%.2f", ours.rate()/raw.rate())
		goal(ours.Took < fake.Took, what, "faster than franz-go between two kfakes", "%.2f of its time", ours.Took.Seconds()/fake.Took.Seconds())
		goal(ours.CPU <= fake.CPU, what, "at most its CPU", "%.2f of it", ours.CPU.Seconds()/fake.CPU.Seconds())
	}
	goal(r.Equal < 1024, fmt.Sprintf("two equal stores of %d logs meet", r.Logs), "under 1 KiB", "%d bytes", r.Equal)
	goal(r.P50 < 5*time.Millisecond, "produce on A to fetch on B", "median under 5 ms", "%.2f ms", ms(r.P50))
	return all
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *meshReport) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made by `%s` at commit %s on %s: %s; load average %s before the run. One run. CPU: of both nodes, or of all processes of a copy.\n", r.Command, r.Commit, r.Date, r.Machine, r.Load)
	for _, c := range r.Copies {
		fmt.Fprintf(&b, "\n%d records of %d bytes:\n\n| copied by | seconds | records/s | MiB/s | CPU s | peak memory MiB |\n|---|---:|---:|---:|---:|---:|\n", c.All[0].Records, c.Size)
		for _, t := range c.All {
			memory := "–"
			if t.Memory[1] > 0 {
				memory = fmt.Sprintf("%d and %d", t.Memory[0]>>20, t.Memory[1]>>20)
			}
			fmt.Fprintf(&b, "| %s | %.2f | %.0f | %.0f | %.2f | %s |\n", t.Name, t.Took.Seconds(), float64(t.Records)/t.Took.Seconds(), t.rate(), t.CPU.Seconds(), memory)
		}
	}
	fmt.Fprintf(&b, "\nTwo stores of %d logs meet after a restart of one: %d bytes both ways if they are equal, %d if %d logs differ by a record of 100 bytes.\n", r.Logs, r.Equal, r.Few, r.Changed)
	fmt.Fprintf(&b, "Produce on one node to fetch on the other, one at a time: %.2f ms at the median, %.2f ms at p99.\n\n| goal | wanted | got | |\n|---|---|---|---|\n", ms(r.P50), ms(r.P99))
	for _, g := range r.goals() {
		met := "missed"
		if *g.Met {
			met = "met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.Work, g.Want, g.Got, met)
	}
	return b.String()
}

// ownCPU is what this process has spent.
func ownCPU() time.Duration { return bench.ServerCPU(os.Getpid()) }
