package compare

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Report is a whole run.
type Report struct {
	Command    string     `json:"command"`
	Commit     string     `json:"commit"`
	Date       string     `json:"date"`
	Machine    string     `json:"machine"`
	Load       string     `json:"load"` // of the machine when the run began
	Rounds     int        `json:"rounds"`
	Sizes      []int      `json:"sizes"`
	Partitions []int32    `json:"partitions"`
	Peers      []Measured `json:"peers"`
	// Without names the peers that were left out by the caller's wish.
	Without []string `json:"without,omitempty"`
	History []Point  `json:"history"`
}

// Point is what one Lattice node does with so much behind it. All figures are
// medians of what the run repeated.
type Point struct {
	LogBytes      int64   `json:"log_bytes"`       // in the partition that is measured
	IdleParts     int32   `json:"idle_partitions"` // beside it, with a record each
	ProduceRate   float64 `json:"produce_records_per_second"`
	ProduceCPU    float64 `json:"produce_cpu_seconds_per_million"`
	FetchRate     float64 `json:"fetch_records_per_second"` // of the newest records
	FetchCPU      float64 `json:"fetch_cpu_seconds_per_million"`
	OneP50Ms      float64 `json:"one_at_a_time_p50_ms"`
	WayP50Ms      float64 `json:"produce_to_consume_p50_ms"`
	MetadataP50Ms float64 `json:"metadata_p50_ms"` // of the topic that is measured
	CommitP50Ms   float64 `json:"group_commit_p50_ms"`
	StartSeconds  float64 `json:"start_seconds"` // after a clean stop, until it serves
	IdleBytes     int64   `json:"idle_memory_bytes"`
}

// peer returns what was measured; nil, which has no figures, without it.
func (r *Report) peer(name string, class Class) *Measured {
	for i := range r.Peers {
		if r.Peers[i].Name == name && r.Peers[i].Class == class {
			return &r.Peers[i]
		}
	}
	return nil
}

// Failures says what could not be measured, nil when everything could.
func (r *Report) Failures() error {
	var all []error
	for _, m := range r.Peers {
		if m.Failed != "" {
			all = append(all, fmt.Errorf("%s, %s: %s", m.Name, m.Class, m.Failed))
		}
	}
	return errors.Join(all...)
}

// Marks around the part of a page that a run writes.
const (
	beginMark = "<!-- written by make bench: begin -->"
	endMark   = "<!-- written by make bench: end -->"
)

// Insert puts section between the marks of page.
func Insert(page []byte, section string) ([]byte, error) {
	head, rest, ok1 := bytes.Cut(page, []byte(beginMark))
	_, tail, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("compare: the page lacks %q and, behind it, %q", beginMark, endMark)
	}
	return []byte(string(head) + beginMark + "\n\n" + strings.TrimSpace(section) + "\n\n" + endMark + string(tail)), nil
}
