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
func (r *Report) peer(name string, class Class) *Measured { return find(r.Peers, name, class) }

func find(peers []Measured, name string, class Class) *Measured {
	for i := range peers {
		if peers[i].Name == name && peers[i].Class == class {
			return &peers[i]
		}
	}
	return nil
}

// Failures says what could not be measured, nil when everything could.
func (r *Report) Failures() error { return failures(r.Peers) }

func failures(peers []Measured) error {
	var all []error
	for _, m := range peers {
		if m.Failed != "" {
			all = append(all, fmt.Errorf("%s, %s: %s", m.Name, m.Class, m.Failed))
		}
	}
	return errors.Join(all...)
}

// marks are around the part of a page that a command writes.
func marks(command string) (begin, end string) {
	return "<!-- written by " + command + ": begin -->", "<!-- written by " + command + ": end -->"
}

// Insert puts section between the marks of a command in page: "make bench", say.
func Insert(page []byte, command, section string) ([]byte, error) {
	begin, end := marks(command)
	head, rest, ok1 := bytes.Cut(page, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("compare: the page lacks %q and, behind it, %q", begin, end)
	}
	return []byte(string(head) + begin + "\n\n" + strings.TrimSpace(section) + "\n\n" + end + string(tail)), nil
}
