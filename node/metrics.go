package node

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lattice-log/lattice/engine/store"
)

// registerMetrics registers what describes the process; the front ends add
// their own.
func (n *Node) registerMetrics() error {
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "lattice", Name: "build_info", Help: "Always 1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": n.opts.Version, "commit": n.opts.Commit},
	}, func() float64 { return 1 })
	return errors.Join(
		n.metrics.Register(collectors.NewGoCollector()),
		n.metrics.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		n.metrics.Register(build),
	)
}

// storeMetrics describes a store each time someone asks. Topics are labels,
// partitions are not: a node may have many thousands.
type storeMetrics struct {
	store                                                *store.Store
	info, partitions, bytes, start, committed, cut, fail *prometheus.Desc
}

func newStoreMetrics(s *store.Store) storeMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("lattice_"+name, help, labels, nil)
	}
	return storeMetrics{
		store:      s,
		info:       desc("store_info", "Always 1; the labels say which store this is.", "id", "name", "node"),
		partitions: desc("topic_partitions", "Partitions of the topic.", "topic"),
		bytes:      desc("topic_bytes", "Bytes on disk.", "topic"),
		start:      desc("topic_start_offsets", "Start offsets, summed over partitions.", "topic"),
		committed:  desc("topic_committed_offsets", "Committed offsets, summed over partitions: its rate is records a second.", "topic"),
		cut:        desc("topic_cut_bytes", "Bytes of unfinished writes that the last start cut off.", "topic"),
		fail:       desc("topic_failed_partitions", "Partitions that take no writes.", "topic"),
	}
}

// Describe implements prometheus.Collector.
func (m storeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.info, m.partitions, m.bytes, m.start, m.committed, m.cut, m.fail} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m storeMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	i := m.store.Info()
	gauge(m.info, 1, i.ID.String(), i.Name, i.Node.String())
	for _, t := range m.store.Topics() {
		var bytes, begin, committed, cut, failed int64
		for n := range t.Partitions {
			p, err := m.store.Partition(t.ID, n)
			if err != nil {
				failed++
				continue
			}
			s := p.Status()
			bytes += s.Bytes
			begin += s.Start
			committed += s.Committed
			cut += s.CutBytes
			if s.Failed != "" {
				failed++
			}
		}
		gauge(m.partitions, int64(t.Partitions), t.Name)
		gauge(m.bytes, bytes, t.Name)
		gauge(m.start, begin, t.Name)
		gauge(m.committed, committed, t.Name)
		gauge(m.cut, cut, t.Name)
		gauge(m.fail, failed, t.Name)
	}
}
