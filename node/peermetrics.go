package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lattice "github.com/lattice-log/lattice"
)

// maxPeerMetrics bounds the peers of a store of which each is described by itself.
const maxPeerMetrics = 256

// peerMetrics describes each peer of each store, and what a store's entries wait for.
type peerMetrics struct {
	mesh   *mesh
	stores *stores

	reachable, since, trip, in, out, known, behind, logs, late, missing *prometheus.Desc
	comingBlocks, comingBytes, fetchBytes, fetchHere                    *prometheus.Desc
	held, waiting, refused, equivocations                               *prometheus.Desc
}

func newPeerMetrics(m *mesh, s *stores) peerMetrics {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("lattice_"+name, help, append([]string{"store"}, labels...), nil)
	}
	return peerMetrics{
		mesh: m, stores: s,
		reachable: of("peer_reachable", "1 when the peer is connected.", "peer"),
		since:     of("peer_since_timestamp_seconds", "When the peer became reachable, or unreachable; absent when that is not known.", "peer"),
		trip:      of("peer_round_trip_seconds", "Round trip to the peer; absent when it was not measured.", "peer"),
		in:        of("peer_received_bytes_total", "Bytes of messages from the peer since the node began.", "peer"),
		out:       of("peer_sent_bytes_total", "Bytes of messages to the peer since the node began.", "peer"),
		known:     of("peer_known", "1 when something was compared with the peer since the node began: what it lacks is known.", "peer"),
		behind:    of("peer_behind_blocks", "Entries and batches that the peer lacks of what is here, as far as is known.", "peer"),
		logs:      of("peer_behind_logs", "Logs of which the peer lacks something.", "peer"),
		late:      of("peer_behind_seconds", "For how long the peer has lacked something, as far as was seen here.", "peer"),
		missing:   of("peer_missing_blocks", "Entries and batches that the peer has and this node lacks.", "peer"),

		comingBlocks: of("catchup_blocks_per_second", "Entries and batches that came from peers, over the last seconds."),
		comingBytes:  of("catchup_bytes_per_second", "Bytes of messages that came from peers, over the last seconds."),
		fetchBytes:   of("fetching_snapshot_bytes", "Size of the snapshot that is being fetched; 0: none is."),
		fetchHere:    of("fetching_snapshot_here_bytes", "Bytes of it that are here."),

		held:          of("entries_held", "Entries that are here and count later: ahead of the clock, or of a newer program."),
		waiting:       of("entries_waiting", "Entries that are here and wait for others."),
		refused:       of("entries_refused_total", "Entries of others that were not taken, since the node began."),
		equivocations: of("equivocations", "Authors that were seen to sign two entries for one place."),
	}
}

// Describe implements prometheus.Collector.
func (m peerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.reachable, m.since, m.trip, m.in, m.out, m.known, m.behind, m.logs, m.late, m.missing,
		m.comingBlocks, m.comingBytes, m.fetchBytes, m.fetchHere, m.held, m.waiting, m.refused, m.equivocations,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m peerMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	all := m.stores.All()
	names := storeLabels(all)
	for _, s := range all {
		id := s.Info().ID
		name := names[id]
		st := s.State().Status()
		gauge(m.held, float64(st.Held), name)
		gauge(m.waiting, float64(st.Waiting), name)
		count(m.refused, float64(st.Refused), name)
		gauge(m.equivocations, float64(st.Equivocations), name)
		if m.mesh != nil {
			m.collectMesh(gauge, count, id, name)
		}
	}
}

func (m peerMetrics) collectMesh(gauge, count func(*prometheus.Desc, float64, ...string), id lattice.StoreID, name string) {
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	peers := m.mesh.Peers(id)
	gauge(m.comingBlocks, peers.Coming.BlocksPerSecond, name)
	gauge(m.comingBytes, peers.Coming.BytesPerSecond, name)
	var bytes, here int64
	if f := peers.Coming.Fetching; f != nil {
		bytes, here = f.Bytes, f.Here
	}
	gauge(m.fetchBytes, float64(bytes), name)
	gauge(m.fetchHere, float64(here), name)
	for _, p := range peers.All[:min(len(peers.All), maxPeerMetrics)] {
		peer := p.Node.String()
		gauge(m.reachable, flag(p.Reachable), name, peer)
		if !p.Since.IsZero() {
			gauge(m.since, float64(p.Since.UnixMilli())/1000, name, peer)
		}
		if p.RoundTrip > 0 {
			gauge(m.trip, p.RoundTrip.Seconds(), name, peer)
		}
		count(m.in, float64(p.BytesIn), name, peer)
		count(m.out, float64(p.BytesOut), name, peer)
		gauge(m.known, flag(p.Known), name, peer)
		gauge(m.missing, float64(p.Behind), name, peer)
		if !p.Known {
			continue
		}
		late := 0.0
		if !p.AheadSince.IsZero() {
			late = max(0, time.Since(p.AheadSince).Seconds())
		}
		gauge(m.behind, float64(p.Ahead), name, peer)
		gauge(m.logs, float64(p.AheadLogs), name, peer)
		gauge(m.late, late, name, peer)
	}
}
