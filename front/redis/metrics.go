package redis

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the server does. Nothing is global: each server has its
// own, registered with the Registerer that the caller passed. What INFO counts
// as well is read from there.
type metrics struct {
	refused *prometheus.CounterVec // by limit
	dropped prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lattice", Subsystem: "redis", Name: "connections_refused_total", Help: "Connections closed at once, by the limit they met.",
		}, []string{"limit"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "lattice", Subsystem: "redis", Name: "connections_dropped_total", Help: "Connections closed for an error: malformed or stalled commands, limits, lost peers.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	gauge := func(name, help string, read func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "lattice", Subsystem: "redis", Name: name, Help: help},
			func() float64 { return float64(read()) })
	}
	counter := func(name, help string, read func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "lattice", Subsystem: "redis", Name: name, Help: help},
			func() float64 { return float64(read()) })
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.refused, m.dropped, &commandCollector{s.table},
		gauge("connections", "Open connections.", func() int64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return int64(len(s.conns))
		}),
		gauge("blocked_clients", "Connections that wait in a blocking command.", s.blocked.any.Load),
		gauge("buffered_bytes", "Bytes of commands, replies and messages held for connections, beyond what each has anyway.", s.budget.used.Load),
		counter("received_bytes_total", "Bytes of commands.", s.stats.bytesIn.Load),
		counter("sent_bytes_total", "Bytes of replies and messages.", s.stats.bytesOut.Load),
		counter("events_lost_total", "Keyspace events of writes from elsewhere that nobody could be told of, because too many waited.", s.outside.lost.Load),
		counter("errors_total", "Errors replied.", s.stats.errors.Load),
	} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// commandCollector shows how often each command was executed, and how long that
// took.
type commandCollector struct{ table *table }

func (*commandCollector) describe() (calls, seconds *prometheus.Desc) {
	return prometheus.NewDesc("lattice_redis_commands_total", "Commands executed.", []string{"command"}, nil),
		prometheus.NewDesc("lattice_redis_command_seconds_total", "Time in commands, without the wait until they are durable.", []string{"command"}, nil)
}

// Describe implements prometheus.Collector.
func (c *commandCollector) Describe(ch chan<- *prometheus.Desc) {
	calls, seconds := c.describe()
	ch <- calls
	ch <- seconds
}

// Collect implements prometheus.Collector.
func (c *commandCollector) Collect(ch chan<- prometheus.Metric) {
	calls, seconds := c.describe()
	each := func(cmd *command) {
		if n := cmd.stats.calls.Load(); n > 0 {
			ch <- prometheus.MustNewConstMetric(calls, prometheus.CounterValue, float64(n), cmd.fullName())
			ch <- prometheus.MustNewConstMetric(seconds, prometheus.CounterValue, float64(cmd.stats.micros.Load())/1e6, cmd.fullName())
		}
	}
	for _, cmd := range c.table.rows {
		each(cmd)
		for i := range cmd.sub {
			each(&cmd.sub[i])
		}
	}
}
