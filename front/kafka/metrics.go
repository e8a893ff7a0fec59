package kafka

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the server does. Nothing is global: each server has its
// own, registered with the Registerer that the caller passed.
type metrics struct {
	connections       prometheus.Gauge
	refused           *prometheus.CounterVec // by limit
	dropped           prometheus.Counter
	bytesIn, bytesOut prometheus.Counter
	errors            *prometheus.CounterVec // by Kafka error name
}

// newMetrics makes the collectors, gives each API its own, and registers all
// with reg unless it is nil.
func newMetrics(reg prometheus.Registerer, apis apiTable) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lattice", Subsystem: "kafka", Name: name, Help: help})
	}
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "lattice", Subsystem: "kafka", Name: "connections", Help: "Open connections.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lattice", Subsystem: "kafka", Name: "connections_refused_total", Help: "Connections closed at once, by the limit they met.",
		}, []string{"limit"}),
		dropped:  counter("connections_dropped_total", "Connections closed for an error: malformed or stalled requests, lost peers."),
		bytesIn:  counter("received_bytes_total", "Bytes of requests."),
		bytesOut: counter("sent_bytes_total", "Bytes of answers."),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lattice", Subsystem: "kafka", Name: "errors_total", Help: "Errors answered, by Kafka's name.",
		}, []string{"error"}),
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lattice", Subsystem: "kafka", Name: "requests_total", Help: "Requests answered, by API.",
	}, []string{"api"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "lattice", Subsystem: "kafka", Name: "request_seconds",
		Help:    "From a request's last byte to its answer being ready, by API; long polls include their wait.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
	}, []string{"api"})
	for _, a := range apis {
		if a != nil {
			a.requests, a.duration = requests.WithLabelValues(a.name), duration.WithLabelValues(a.name)
		}
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.connections, m.refused, m.dropped, m.bytesIn, m.bytesOut, m.errors, requests, duration} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
