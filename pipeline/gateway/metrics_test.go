package gateway_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lattice-log/lattice/pipeline/gateway"
)

func connections(t testing.TB, g *gateway.Gateway) int {
	return int(metric(t, g, "lattice_gateway_connections"))
}

// metric returns the sum of a metric's values.
func metric(t testing.TB, g *gateway.Gateway, name string) (sum float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(g.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		return sum
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
