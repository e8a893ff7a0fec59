package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/app/bench/compare"
)

// historyPlan is how much lies behind a node when it is measured again.
type historyPlan struct {
	bytes   []int64 // of log, ascending
	idle    []int32 // partitions beside the one that is measured, ascending
	records int64   // of each produce and fetch
	repeat  int
	syncs   int
	way     time.Duration
	settle  func()
	say     func(format string, args ...any)
}

const (
	tailTopic = "tail"
	wideTopic = "wide"
)

// history measures the tail of one partition with more and more log behind it,
// then, on a new node, with more and more other partitions beside it.
func (e *env) history(ctx context.Context, plan historyPlan) (all []compare.Point, err error) {
	deep := func(h *past, at int64) error { return h.fill(ctx, at) }
	wide := func(h *past, at int64) error { return h.widen(ctx, int32(at)) }
	for _, axis := range []struct {
		steps []int64
		grow  func(h *past, at int64) error
	}{
		{plan.bytes, deep},
		{widened(plan.idle), wide},
	} {
		h, err := e.newPast(ctx, plan)
		if err != nil {
			return all, err
		}
		for _, at := range axis.steps {
			var p compare.Point
			if err = axis.grow(h, at); err == nil {
				p, err = h.point(ctx)
			}
			if err != nil {
				break
			}
			all = append(all, p)
		}
		if err = errors.Join(err, h.remove()); err != nil {
			return all, fmt.Errorf("history: %w", err)
		}
	}
	return all, nil
}

func widened(idle []int32) []int64 {
	all := make([]int64, len(idle))
	for i, n := range idle {
		all[i] = int64(n)
	}
	return all
}

// past is a node that is measured, grown, and measured again.
type past struct {
	env   *env
	plan  historyPlan
	dir   string
	s     *kafkaServer
	bytes int64
	idle  int32
	wide  int // topics made for idle partitions
}

func (e *env) newPast(ctx context.Context, plan historyPlan) (*past, error) {
	dir, err := os.MkdirTemp(e.dir, "history-")
	if err != nil {
		return nil, err
	}
	h := &past{env: e, plan: plan, dir: dir}
	if _, err := h.start(ctx); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	if err := h.s.Create(ctx, tailTopic, 1); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

// start returns how long it took until the node answered.
func (h *past) start(ctx context.Context) (time.Duration, error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	p, err := launch(h.dir, exec.Command(h.env.bin("lattice"), "up", "--data", filepath.Join(h.dir, "data"), "--kafka", address(port), "--redis", "", "--http", ""))
	if err != nil {
		return 0, err
	}
	h.s = &kafkaServer{process: p, addr: address(port)}
	// A client that finds nobody waits before it tries again, which is not the
	// node's time: ask only once somebody listens.
	if err := p.await(ctx, answers(port)); err != nil {
		return 0, err
	}
	err = h.s.connect(ctx)
	return time.Since(began), err
}

func (h *past) remove() error {
	var err error
	if h.s != nil {
		h.s.cl.Close()
		err = h.s.end()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// fill writes until the log has so many bytes.
func (h *past) fill(ctx context.Context, bytes int64) error {
	const size = 1024
	if records := (bytes - h.bytes) / size; records > 0 {
		h.plan.say("history: writing up to %d MiB of log", bytes>>20)
		w := compare.Work{Size: size, Records: records}
		if _, err := h.s.Produce(ctx, tailTopic, w); err != nil {
			return err
		}
	}
	h.bytes = bytes
	return nil
}

// widen makes topics until there are so many other partitions, and writes a
// record to each.
func (h *past) widen(ctx context.Context, partitions int32) error {
	if more := partitions - h.idle; more > 0 {
		h.plan.say("history: making %d partitions", partitions)
		name := fmt.Sprintf("%s-%d", wideTopic, h.wide)
		h.wide++
		if err := h.s.Create(ctx, name, more); err != nil {
			return err
		}
		w := compare.Work{Size: 100, Records: int64(more)}
		c := h.s.config(name, w)
		c.BatchBytes = 1024 // a batch is a few records: take enough for every partition
		c.Records = int64(more) * 10
		if _, err := bench.Produce(ctx, c); err != nil {
			return err
		}
	}
	h.idle = partitions
	return nil
}

// point restarts the node and measures it.
func (h *past) point(ctx context.Context) (compare.Point, error) {
	h.plan.say("history: %d MiB of log, %d other partitions", h.bytes>>20, h.idle)
	p := compare.Point{LogBytes: h.bytes, IdleParts: h.idle}
	h.s.cl.Close()
	if err := h.s.end(); err != nil {
		return p, err
	}
	h.plan.settle()
	took, err := h.start(ctx)
	if err != nil {
		return p, fmt.Errorf("start: %w", err)
	}
	p.StartSeconds = took.Seconds()
	time.Sleep(time.Second) // what a start leaves to be done is done
	p.IdleBytes, _ = bench.Memory(h.s.PID())
	if err := h.bulk(ctx, &p); err != nil {
		return p, err
	}
	w := compare.Work{Size: 100, Syncs: h.plan.syncs, Rate: 1000, For: h.plan.way}
	h.plan.settle()
	r, err := h.s.Latency(ctx, tailTopic, w)
	if err != nil {
		return p, fmt.Errorf("latency: %w", err)
	}
	p.OneP50Ms, p.WayP50Ms = *r.SyncP50Ms, *r.DeliverP50Ms
	return p, h.requests(ctx, &p)
}

// bulk produces at the tail and reads it back.
func (h *past) bulk(ctx context.Context, p *compare.Point) error {
	var rates, cpus, reads, readCPUs []float64
	for range h.plan.repeat {
		h.plan.settle()
		w := compare.Work{Size: 100, Records: h.plan.records}
		made, err := h.s.Produce(ctx, tailTopic, w)
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		c := h.s.config(tailTopic, w)
		c.Newest = true
		read, err := bench.Consume(ctx, c)
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		rates, cpus = append(rates, made.RecordsPerSec), append(cpus, *made.ServerCPUPerMillion)
		reads, readCPUs = append(reads, read.RecordsPerSec), append(readCPUs, *read.ServerCPUPerMillion)
	}
	p.ProduceRate, p.ProduceCPU, p.FetchRate, p.FetchCPU = middle(rates), middle(cpus), middle(reads), middle(readCPUs)
	return nil
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// requests times small requests, one at a time.
func (h *past) requests(ctx context.Context, p *compare.Point) error {
	metadata, err := h.timed(func() error {
		// As a request of its own: the admin client answers from its cache.
		req, topic := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(tailTopic)
		req.Topics = append(req.Topics, topic)
		m, err := req.RequestWith(ctx, h.s.cl)
		if err == nil && (len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1) {
			err = fmt.Errorf("not of one partition: %+v", m.Topics)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	next := int64(0)
	commit, err := h.timed(func() error {
		var o kadm.Offsets
		next++
		o.AddOffset(tailTopic, 0, next, -1)
		r, err := h.s.admin.CommitOffsets(ctx, "bench", o)
		if err == nil {
			err = r.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("group commit: %w", err)
	}
	p.MetadataP50Ms, p.CommitP50Ms = *metadata, *commit
	return nil
}

// timed returns the median of some calls, in ms, after a few that do not count.
func (h *past) timed(call func() error) (*float64, error) {
	const warmUp = 5
	var all []time.Duration
	for i := range h.plan.syncs + warmUp {
		start := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		if i >= warmUp {
			all = append(all, time.Since(start))
		}
	}
	return quantile(all, 0.50), nil
}
