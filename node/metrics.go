package node

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	lattice "github.com/lattice-log/lattice"
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

// storeMetrics describes the stores each time someone asks. Topics are labels,
// partitions are not: a node may have many thousands.
type storeMetrics struct {
	stores                                                                        *stores
	info, partitions, bytes, start, committed, cut, fail, alone, behind, stranded *prometheus.Desc

	snapshots, snapshotTime, upkeepFailures, prunedEntries, prunedBytes, unshared *prometheus.Desc
	held, waiting, void, equivocations                                            *prometheus.Desc
}

func newStoreMetrics(s *stores) storeMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("lattice_"+name, help, labels, nil)
	}
	return storeMetrics{
		stores:     s,
		info:       desc("store_info", "Always 1; the labels say which store this is.", "id", "name", "node"),
		partitions: desc("topic_partitions", "Partitions of the topic.", "store", "topic"),
		bytes:      desc("topic_bytes", "Bytes on disk.", "store", "topic"),
		start:      desc("topic_start_offsets", "Start offsets, summed over partitions.", "store", "topic"),
		committed:  desc("topic_committed_offsets", "Committed offsets, summed over partitions: its rate is records a second.", "store", "topic"),
		cut:        desc("topic_cut_bytes", "Bytes of unfinished writes that the last start cut off.", "store", "topic"),
		fail:       desc("topic_failed_partitions", "Partitions that take no writes.", "store", "topic"),
		alone:      desc("topic_only_here_records", "Records of partitions with replicas that this node leads, which no other member is known to hold.", "store", "topic"),
		behind:     desc("topic_replicas_behind", "Replicas that are not in sync, of partitions that this node leads.", "store", "topic"),

		stranded: desc("topic_stranded_batches", "Batches beyond the base of a later term that are kept aside here, and were not re-produced.", "store", "topic"),

		snapshots:      desc("state_snapshots", "Snapshots of the store's keys that are kept.", "store"),
		snapshotTime:   desc("state_snapshot_time_seconds", "When the newest of them was taken, in seconds since 1970; 0: there is none.", "store"),
		upkeepFailures: desc("state_upkeep_failures_total", "Failures of taking snapshots and pruning by policy, since the start.", "store"),
		prunedEntries:  desc("state_pruned_entries_total", "Entries that were pruned, since the start.", "store"),
		unshared:       desc("state_beyond_watermark_entries", "Entries here that not all active members have said to have.", "store"),
		held:           desc("state_held_entries", "Entries here that are ahead of the clock, or made by a newer program.", "store"),
		waiting:        desc("state_waiting_entries", "Entries here that wait for others.", "store"),
		void:           desc("state_void_entries_total", "Entries that are kept and have no effect, since the start.", "store"),
		equivocations:  desc("state_equivocations", "Authors that signed two entries for one place.", "store"),
		prunedBytes:    desc("state_pruned_bytes_total", "Bytes of author logs that were freed, since the start.", "store"),
	}
}

// Describe implements prometheus.Collector.
func (m storeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.info, m.partitions, m.bytes, m.start, m.committed, m.cut, m.fail, m.alone, m.behind, m.stranded, m.snapshots, m.snapshotTime, m.upkeepFailures, m.prunedEntries, m.prunedBytes, m.unshared, m.held, m.waiting, m.void, m.equivocations} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m storeMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	all := m.stores.All()
	labels := storeLabels(all)
	for _, s := range all {
		i := s.Info()
		label := labels[i.ID]
		gauge(m.info, 1, i.ID.String(), i.Name, i.Node.String())
		m.collectUpkeep(s, label, ch)
		m.collectTopics(s, func(d *prometheus.Desc, v int64, topic string) { gauge(d, v, label, topic) })
	}
}

// storeLabels returns what each store is called: its name, and where two have one
// name the beginning of the id as well.
func storeLabels(all []*store.Store) map[lattice.StoreID]string {
	times := map[string]int{}
	for _, s := range all {
		times[s.Info().Name]++
	}
	labels := map[lattice.StoreID]string{}
	for _, s := range all {
		i := s.Info()
		if labels[i.ID] = i.Name; times[i.Name] > 1 {
			labels[i.ID] = i.Name + "@" + i.ID.Short()
		}
	}
	return labels
}

// collectUpkeep describes what becomes of a store's snapshots. What cannot be read is
// left out; that it cannot is among the failures.
func (m storeMetrics) collectUpkeep(s *store.Store, name string, ch chan<- prometheus.Metric) {
	st := s.State().Status()
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, t, v, name)
	}
	send(m.prunedEntries, prometheus.CounterValue, float64(st.PrunedEntries))
	send(m.prunedBytes, prometheus.CounterValue, float64(st.PrunedBytes))
	send(m.held, prometheus.GaugeValue, float64(st.Held))
	send(m.waiting, prometheus.GaugeValue, float64(st.Waiting))
	send(m.void, prometheus.CounterValue, float64(st.Void))
	send(m.equivocations, prometheus.GaugeValue, float64(st.Equivocations))
	w := s.State().Watermark()
	send(m.unshared, prometheus.GaugeValue, float64(w.Own.Entries()-w.Frontier.Entries()))
	u, err := s.Upkeep()
	send(m.upkeepFailures, prometheus.CounterValue, float64(u.Failures))
	if err != nil {
		return
	}
	at := 0.0
	if !u.Newest.IsZero() {
		at = float64(u.Newest.UnixMilli()) / 1000
	}
	send(m.snapshots, prometheus.GaugeValue, float64(u.Kept))
	send(m.snapshotTime, prometheus.GaugeValue, at)
}

func (m storeMetrics) collectTopics(s *store.Store, gauge func(d *prometheus.Desc, v int64, topic string)) {
	for _, t := range s.Topics() {
		var bytes, begin, committed, cut, failed, alone, behind, stranded int64
		for n := range t.Partitions {
			p, err := s.Partition(t.ID, n)
			if errors.Is(err, store.ErrNotLeader) {
				continue
			}
			if err != nil {
				failed++
				continue
			}
			st := p.Status()
			bytes += st.Bytes
			begin += st.Start
			committed += st.Committed
			cut += st.CutBytes
			stranded += p.StrandedBlocks()
			if acks := p.AckStatus(); p.Leads() && len(acks.Replicas) > 1 {
				alone += acks.OnlyHere
				for _, r := range acks.Replicas {
					if !r.InSync {
						behind++
					}
				}
			}
			if st.Failed != "" {
				failed++
			}
		}
		gauge(m.partitions, int64(t.Partitions), t.Name)
		gauge(m.bytes, bytes, t.Name)
		gauge(m.start, begin, t.Name)
		gauge(m.committed, committed, t.Name)
		gauge(m.cut, cut, t.Name)
		gauge(m.fail, failed, t.Name)
		gauge(m.alone, alone, t.Name)
		gauge(m.behind, behind, t.Name)
		gauge(m.stranded, stranded, t.Name)
	}
}
