package intents

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the counters for Prometheus; the caller registers it.
func (s *Service) Collector() prometheus.Collector {
	return collector{s, prometheus.NewDesc("lattice_intents_total", "Intents, by what became of them.", []string{"outcome"}, prometheus.Labels{"app": s.o.App.Name})}
}

type collector struct {
	s    *Service
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	st := c.s.Stats()
	for outcome, n := range map[string]int64{
		"accepted": st.Accepted, "repeated": st.Repeated, "rejected": st.Rejected, "refused": st.Refused, "failed": st.Failed,
	} {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n), outcome)
	}
}
