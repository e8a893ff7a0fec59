package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lattice-log/lattice/mesh/p2p"
)

// meshMetrics describes the mesh each time someone asks. Peers are summed up: which
// is which, "lattice peer list" says.
type meshMetrics struct {
	mesh   *mesh
	stores *stores

	strangers, turned, peers, reachable, equal, behind, ahead, in, out, slow, refused *prometheus.Desc
	batches                                                                           batchDescs
}

func newMeshMetrics(m *mesh, s *stores) meshMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("lattice_mesh_"+name, help, labels, nil)
	}
	return meshMetrics{
		mesh: m, stores: s,
		strangers: desc("strangers", "Nodes connected that are members of no store here."),
		turned:    desc("refused_connections_total", "Connections that were refused."),
		peers:     desc("peers", "Other nodes that are members of the store.", "store"),
		reachable: desc("reachable_peers", "Those of them that are connected.", "store"),
		equal:     desc("equal_peers", "Those of them that have what is here, as they said last.", "store"),
		behind:    desc("behind_entries", "Entries that a peer has and this node lacks, at most.", "store"),
		ahead:     desc("ahead_entries", "Entries that peers want and were not sent yet.", "store"),
		in:        desc("received_bytes_total", "Bytes of messages from peers since the node began.", "store"),
		out:       desc("sent_bytes_total", "Bytes of messages to peers since the node began.", "store"),
		slow:      desc("slow_sessions_total", "Sessions that ended because the peer took its messages too slowly.", "store"),
		refused:   desc("refused_total", "What peers sent and was not taken, by reason.", "store", "reason"),
		batches: batchDescs{
			partitions: desc("behind_partitions", "Partitions of which a peer has batches that this node lacks; 64 and more are shown as 64.", "store"),
			behind:     desc("behind_batches", "Batches of them that this node lacks, at most.", "store"),
			ahead:      desc("ahead_batches", "Batches that peers follow and were not sent yet.", "store"),
			in:         desc("received_batches_bytes_total", "Bytes of messages about batches from peers since the node began.", "store"),
			out:        desc("sent_batches_bytes_total", "Bytes of messages about batches to peers since the node began.", "store"),
			slow:       desc("slow_batches_sessions_total", "Sessions about batches that ended because the peer took its messages too slowly.", "store"),
			refused:    desc("refused_batches_total", "What peers sent about batches and was not taken, by reason.", "store", "reason"),
		},
	}
}

// batchDescs are about the sessions about records.
type batchDescs struct {
	partitions, behind, ahead, in, out, slow, refused *prometheus.Desc
}

func (d *batchDescs) all() []*prometheus.Desc {
	return []*prometheus.Desc{d.partitions, d.behind, d.ahead, d.in, d.out, d.slow, d.refused}
}

func (d *batchDescs) collect(b *p2p.BatchStatus, name string, put func(d *prometheus.Desc, t prometheus.ValueType, v uint64, labels ...string)) {
	var behind, ahead, in, out, slow uint64
	for _, l := range b.Behind {
		behind += l.Behind
	}
	for _, p := range b.Peers {
		ahead, in, out, slow = ahead+p.Ahead, in+p.In, out+p.Out, slow+p.Slow
	}
	put(d.partitions, prometheus.GaugeValue, uint64(len(b.Behind)), name)
	put(d.behind, prometheus.GaugeValue, behind, name)
	put(d.ahead, prometheus.GaugeValue, ahead, name)
	put(d.in, prometheus.CounterValue, in, name)
	put(d.out, prometheus.CounterValue, out, name)
	put(d.slow, prometheus.CounterValue, slow, name)
	for reason, n := range b.Refused {
		put(d.refused, prometheus.CounterValue, n, name, reason.String())
	}
}

// Describe implements prometheus.Collector.
func (m meshMetrics) Describe(ch chan<- *prometheus.Desc) {
	all := []*prometheus.Desc{m.strangers, m.turned, m.peers, m.reachable, m.equal, m.behind, m.ahead, m.in, m.out, m.slow, m.refused}
	for _, d := range append(all, m.batches.all()...) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m meshMetrics) Collect(ch chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, t prometheus.ValueType, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, float64(v), labels...)
	}
	s := m.mesh.Status()
	put(m.strangers, prometheus.GaugeValue, uint64(s.Strangers))
	put(m.turned, prometheus.CounterValue, s.Turned)
	names := storeLabels(m.stores.All())
	for _, x := range s.Stores {
		name, ok := names[x.Store]
		if !ok {
			continue // it came just now
		}
		var reachable, equal, behind, ahead, in, out, slow uint64
		for _, p := range x.Peers {
			if p.Reachable {
				reachable++
			}
			if p.Equal {
				equal++
			}
			behind = max(behind, p.Behind)
			ahead, in, out, slow = ahead+p.Ahead, in+p.In, out+p.Out, slow+p.Slow
		}
		put(m.peers, prometheus.GaugeValue, uint64(len(x.Peers)), name)
		put(m.reachable, prometheus.GaugeValue, reachable, name)
		put(m.equal, prometheus.GaugeValue, equal, name)
		put(m.behind, prometheus.GaugeValue, behind, name)
		put(m.ahead, prometheus.GaugeValue, ahead, name)
		put(m.in, prometheus.CounterValue, in, name)
		put(m.out, prometheus.CounterValue, out, name)
		put(m.slow, prometheus.CounterValue, slow, name)
		for reason, n := range x.Refused {
			put(m.refused, prometheus.CounterValue, n, name, reason.String())
		}
		if x.Batches != nil {
			m.batches.collect(x.Batches, name, put)
		}
	}
}
