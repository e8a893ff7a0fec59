package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lattice-log/lattice/pipeline/gateway/flow"
)

// stats are counters. buffers are those of writers.
type stats struct {
	connections, subscriptions, offered, sent, bytes, merged atomic.Int64
	snapshots, snapshotErrors, readErrors                    atomic.Int64
	nothing, replayed, reset                                 atomic.Int64

	mu     sync.Mutex
	closes map[string]int64

	buffers sync.Pool
}

func (s *stats) closed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closes == nil {
		s.closes = map[string]int64{}
	}
	s.closes[name]++
}

func (s *stats) resumed(a flow.Answer, err error) {
	switch {
	case err != nil:
	case a.Kind == flow.Nothing:
		s.nothing.Add(1)
	case a.Kind == flow.Replay:
		s.replayed.Add(1)
	default:
		s.reset.Add(1)
	}
}

// Collector returns the metrics for Prometheus; the caller registers it.
func (g *Gateway) Collector() prometheus.Collector { return newCollector(g) }

type collector struct {
	g      *Gateway
	gauges []metric
	closes *prometheus.Desc
	resume *prometheus.Desc
}

type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(flow.FeedStats) int64
}

func newCollector(g *Gateway) *collector {
	labels := prometheus.Labels{"app": g.o.App.Name}
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("lattice_gateway_"+name, help, variable, labels)
	}
	s := &g.stats
	of := func(n *atomic.Int64) func(flow.FeedStats) int64 {
		return func(flow.FeedStats) int64 { return n.Load() }
	}
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	return &collector{
		g: g, closes: desc("closed_total", "Connections that the gateway closed, by code.", "code"),
		resume: desc("resumes_total", "Subscriptions, by the answer that they got.", "answer"),
		gauges: []metric{
			{desc("connections", "Open connections."), gauge, of(&s.connections)},
			{desc("subscriptions", "Open subscriptions."), gauge, of(&s.subscriptions)},
			{desc("frames_sent_total", "Frames written to clients."), counter, of(&s.sent)},
			{desc("bytes_sent_total", "Bytes of these frames."), counter, of(&s.bytes)},
			{desc("patches_offered_total", "Patches queued for clients."), counter, of(&s.offered)},
			{desc("patches_merged_total", "Patches merged into others of their row, for slow clients."), counter, of(&s.merged)},
			{desc("snapshots_total", "Snapshots read."), counter, of(&s.snapshots)},
			{desc("snapshot_errors_total", "Snapshots that failed."), counter, of(&s.snapshotErrors)},
			{desc("read_errors_total", "Errors of reading the topic."), counter, of(&s.readErrors)},
			{desc("patches_total", "Patches read."), counter, func(f flow.FeedStats) int64 { return f.Patches }},
			{desc("duplicates_total", "Patches that came again."), counter, func(f flow.FeedStats) int64 { return f.Duplicates }},
			{desc("junk_total", "Records that are no patches."), counter, func(f flow.FeedStats) int64 { return f.Junk }},
			{desc("stale_total", "Patches of projections that were built anew since."), counter, func(f flow.FeedStats) int64 { return f.Stale }},
			{desc("gaps_total", "Patches that were missing."), counter, func(f flow.FeedStats) int64 { return f.Gaps }},
			{desc("held", "Patches that wait for an earlier one of their row."), gauge, func(f flow.FeedStats) int64 { return int64(f.Held) }},
			{desc("recent", "Patches kept for clients that come back."), gauge, func(f flow.FeedStats) int64 { return int64(f.Recent) }},
			{desc("recent_bytes", "Their bytes."), gauge, func(f flow.FeedStats) int64 { return int64(f.RecentBytes) }},
		},
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.gauges {
		out <- m.desc
	}
	out <- c.closes
	out <- c.resume
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := &c.g.stats
	var f flow.FeedStats
	c.g.mu.Lock()
	if c.g.feed != nil {
		f = c.g.feed.Stats()
	}
	c.g.mu.Unlock()
	for _, m := range c.gauges {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.get(f)))
	}
	for a, n := range map[flow.AnswerKind]*atomic.Int64{flow.Nothing: &s.nothing, flow.Replay: &s.replayed, flow.Reset: &s.reset} {
		out <- prometheus.MustNewConstMetric(c.resume, prometheus.CounterValue, float64(n.Load()), a.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for code, n := range s.closes {
		out <- prometheus.MustNewConstMetric(c.closes, prometheus.CounterValue, float64(n), code)
	}
}
