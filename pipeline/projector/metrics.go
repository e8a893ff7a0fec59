package projector

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the projector's counters for Prometheus; the caller registers it.
func (p *Projector) Collector() prometheus.Collector { return collector{p} }

type collector struct{ p *Projector }

// metric is one number of a Status.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	of         func(Status) int64
}

func metrics() []metric {
	counter := func(name, help string, of func(Counts) int64) metric {
		return metric{name + "_total", help, prometheus.CounterValue, func(s Status) int64 { return of(s.Counts) }}
	}
	return []metric{
		counter("applied", "Events that were applied.", func(c Counts) int64 { return c.Applied }),
		counter("duplicates", "Events whose effects were there already.", func(c Counts) int64 { return c.Duplicates }),
		counter("healed", "Events that were read from the ledger, since the topic did not have them.", func(c Counts) int64 { return c.Healed }),
		counter("gaps", "Jumps in the sequence numbers of an entity on the topic.", func(c Counts) int64 { return c.Gaps }),
		counter("unknown", "Events of types that the application does not know, passed over.", func(c Counts) int64 { return c.Unknown }),
		counter("foreign", "Events of tenant schemas that are not served, passed over.", func(c Counts) int64 { return c.Foreign }),
		counter("buried", "Records that became dead letters.", func(c Counts) int64 { return c.Buried }),
		counter("parked", "Events that wait behind a dead letter of their entity.", func(c Counts) int64 { return c.Parked }),
		counter("failed_transactions", "Transactions that failed and were tried again.", func(c Counts) int64 { return c.Retries }),
		counter("patches", "Patches that were put into the outbox.", func(c Counts) int64 { return c.Patches }),
		{"partitions", "Partitions that this instance owns.", prometheus.GaugeValue, func(s Status) int64 { return int64(len(s.Partitions)) }},
		{"paused_partitions", "Partitions of those that are paused.", prometheus.GaugeValue, func(s Status) int64 {
			n := int64(0)
			for _, p := range s.Partitions {
				if p.Paused != "" {
					n++
				}
			}
			return n
		}},
		{"waiting_records", "Records that are read and not applied.", prometheus.GaugeValue, func(s Status) int64 {
			n := int64(0)
			for _, p := range s.Partitions {
				n += int64(p.Waiting)
			}
			return n
		}},
	}
}

func (m metric) desc() *prometheus.Desc {
	return prometheus.NewDesc("lattice_projector_"+m.name, m.help, []string{"projection"}, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		out <- m.desc()
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.p.Status() {
		for _, m := range metrics() {
			out <- prometheus.MustNewConstMetric(m.desc(), m.kind, float64(m.of(s)), s.Projection)
		}
	}
}
