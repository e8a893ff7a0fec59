package publisher

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the publisher's counters for Prometheus; the caller registers it.
func (p *Publisher) Collector() prometheus.Collector { return collector{p} }

type collector struct{ p *Publisher }

// metric is one number of Stats.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(Stats) int64
}

func (c collector) metrics() []metric {
	labels := prometheus.Labels{"publisher": c.p.o.Name}
	m := func(name, help string, kind prometheus.ValueType, of func(Stats) int64) metric {
		return metric{prometheus.NewDesc("lattice_publisher_"+name, help, nil, labels), kind, of}
	}
	return []metric{
		m("published_total", "Events that every topic acknowledged.", prometheus.CounterValue, func(s Stats) int64 { return s.Published }),
		m("read_from_ledger_total", "Events that were read from the ledger, not taken from memory.", prometheus.CounterValue, func(s Stats) int64 { return s.FromLedger }),
		m("refused_total", "Records that a broker refused; they come again, but for fire-and-forget.", prometheus.CounterValue, func(s Stats) int64 { return s.Failed }),
		m("lost_total", "Events that are not on their topics for good: fire-and-forget only.", prometheus.CounterValue, func(s Stats) int64 { return s.Lost }),
		m("skipped_total", "Events that are larger than their topics allow.", prometheus.CounterValue, func(s Stats) int64 { return s.Skipped }),
		m("sessions_total", "Starts, those after failures included.", prometheus.CounterValue, func(s Stats) int64 { return s.Sessions }),
		m("cursor", "Position of the ledger up to which all is acknowledged.", prometheus.GaugeValue, func(s Stats) int64 { return s.Cursor }),
		m("in_flight", "Events that are sent and not acknowledged.", prometheus.GaugeValue, func(s Stats) int64 { return s.InFlight }),
		m("leading", "1 if this process publishes, 0 if it waits for another.", prometheus.GaugeValue, func(s Stats) int64 {
			if s.Leading {
				return 1
			}
			return 0
		}),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics() {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.p.Stats()
	for _, m := range c.metrics() {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.of(s)))
	}
}
