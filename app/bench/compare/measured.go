package compare

import (
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/app/bench"
)

// Figure is one figure of all rounds.
type Figure struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

// Measured is what one peer did.
type Measured struct {
	Name    string             `json:"name"`
	Class   Class              `json:"class"`
	How     string             `json:"how"`
	Version string             `json:"version,omitempty"`
	Failed  string             `json:"failed,omitempty"` // why there is no more of it
	Figures map[string]*Figure `json:"figures"`
}

// Names of figures. Those of bulk work have a prefix, Bulk's.
const (
	Rate = "records_per_second"
	MiB  = "mib_per_second"
	CPU  = "server_cpu_seconds_per_million"

	OneP50 = "one_at_a_time_p50_ms"
	OneP99 = "one_at_a_time_p99_ms"
	WayP50 = "produce_to_consume_p50_ms"
	WayP99 = "produce_to_consume_p99_ms"
	Memory = "peak_memory_bytes"

	Produce       = "produce"
	Consume       = "consume"
	SecondProduce = "second client/produce"
	SecondConsume = "second client/consume"
)

// Bulk names the work of writing or reading at full speed.
func Bulk(what string, size int, partitions int32) string {
	return fmt.Sprintf("%s/%d bytes/%d partitions", what, size, partitions)
}

// Get returns the median of a figure; ok is false when it was not measured.
func (m *Measured) Get(path ...string) (v float64, ok bool) {
	if m == nil {
		return 0, false
	}
	name := path[0]
	for _, p := range path[1:] {
		name += "/" + p
	}
	f := m.Figures[name]
	if f == nil {
		return 0, false
	}
	return f.Median, true
}

func (m *Measured) add(name string, v float64) {
	f := m.Figures[name]
	if f == nil {
		f = &Figure{}
		m.Figures[name] = f
	}
	f.Rounds = append(f.Rounds, v)
	f.Median = median(f.Rounds)
}

func (m *Measured) addBulk(what string, w Work, r bench.Result) {
	if m != nil {
		m.addResult(Bulk(what, w.Size, w.Partitions), r)
	}
}

func (m *Measured) addResult(work string, r bench.Result) {
	m.add(work+"/"+Rate, r.RecordsPerSec)
	m.add(work+"/"+MiB, r.MiBPerSec)
	if r.ServerCPUPerMillion != nil {
		m.add(work+"/"+CPU, *r.ServerCPUPerMillion)
	}
}

// median returns the middle one, or the mean of the two in the middle.
func median(all []float64) float64 {
	s := slices.Clone(all)
	slices.Sort(s)
	n := len(s)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}
