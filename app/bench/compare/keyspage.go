package compare

import (
	"fmt"
	"strings"
)

// KeysReport is a whole run with servers of keys.
type KeysReport struct {
	Command string     `json:"command"`
	Flags   string     `json:"flags"` // of redis-benchmark, beside test, pipeline and number
	Commit  string     `json:"commit"`
	Date    string     `json:"date"`
	Machine string     `json:"machine"`
	Load    string     `json:"load"` // of the machine when the run began
	Rounds  int        `json:"rounds"`
	Works   []KeyWork  `json:"works"`
	Peers   []Measured `json:"peers"`
	Folds   []Fold     `json:"folds"`
}

// Fold is a node's state made again from its logs, after it was deleted.
type Fold struct {
	Log        string  `json:"log"` // what wrote it
	Operations int64   `json:"operations"`
	LogBytes   int64   `json:"log_bytes"`
	Seconds    float64 `json:"seconds"`     // of the whole start
	CPUSeconds float64 `json:"cpu_seconds"` // likewise
	PeakBytes  int64   `json:"peak_bytes"`  // resident
	StateBytes int64   `json:"state_bytes"` // on the disk, after it
}

// Rate returns operations a second.
func (f Fold) Rate() float64 { return float64(f.Operations) / max(f.Seconds, 1e-9) }

// What keys are to reach: ratios to Redis's rate, and folded operations a second.
const (
	durableGoal = 1.0
	secondGoal  = 0.7
	readGoal    = 0.7
	foldGoal    = 300_000
)

// Goals holds the figures against what keys are to reach.
func (r *KeysReport) Goals() []Goal {
	var g goals
	for _, class := range []Class{Durable, EverySecond} {
		ours, redis := r.peer(Lattice, class), r.peer(Redis, class)
		for _, w := range r.Works {
			want := secondGoal
			switch {
			case w.Reads:
				want = readGoal
			case class == Durable:
				want = durableGoal
			}
			a, ok1 := ours.Get(w.Name(), Rate)
			b, ok2 := redis.Get(w.Name(), Rate)
			g.add(fmt.Sprintf("%s, %s", workName(w), class), fmt.Sprintf("at least %.1f of Redis's rate", want),
				fmt.Sprintf("%s, %s: %.2f", count(a), count(b), a/max(b, 1)), ok1 && ok2, a >= want*b)
		}
	}
	for _, f := range r.Folds {
		g.add("fold: "+f.Log, fmt.Sprintf("at least %s operations/s on one core", count(foldGoal)), count(f.Rate()), f.Operations > 0, f.Rate() >= foldGoal)
	}
	return g.all
}

func (r *KeysReport) peer(name string, class Class) *Measured { return find(r.Peers, name, class) }

// Failures says what could not be measured, nil when everything could.
func (r *KeysReport) Failures() error { return failures(r.Peers) }

func workName(w KeyWork) string { return fmt.Sprintf("%s -P %d", strings.ToUpper(w.Test), w.Pipeline) }

// Markdown returns the report as the section of a page.
func (r *KeysReport) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made by `%s` at commit %s on %s: %s; load average %s before the run. Medians of %s in alternating order, "+
		"one server at a time, client and server sharing the machine. `redis-benchmark %s`, for each test and pipeline with a number of requests that is the same for both. "+
		"s/M: server CPU seconds for a million operations.\n",
		r.Command, r.Commit, r.Date, r.Machine, r.Load, plural(r.Rounds, "round"), r.Flags)
	for _, m := range r.Peers {
		if m.Failed != "" {
			fmt.Fprintf(&b, "\n%s, %s, failed: %s\n", m.Name, m.Class, strings.ReplaceAll(m.Failed, "\n", "; "))
		}
	}
	for _, class := range []Class{Durable, EverySecond} {
		r.table(&b, class)
	}
	r.folds(&b)
	writeGoals(&b, r.Goals())
	b.WriteString("\n")
	for _, m := range r.Peers {
		fmt.Fprintf(&b, "- %s, %s: %s. Version %s.", m.Name, m.Class, m.How, m.Version)
		if v, ok := m.Get(Memory); ok {
			fmt.Fprintf(&b, " Peak memory %s.", mib(v))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *KeysReport) table(b *strings.Builder, class Class) {
	ours, redis := r.peer(Lattice, class), r.peer(Redis, class)
	var rows [][]string
	for _, w := range r.Works {
		a, ok1 := ours.Get(w.Name(), Rate)
		c, ok2 := redis.Get(w.Name(), Rate)
		row := []string{strings.ToUpper(w.Test), fmt.Sprint(w.Pipeline), "–", cell(ours, w.Name()+"/"+CPU, "%.2f"), "–", cell(redis, w.Name()+"/"+CPU, "%.2f"), "–"}
		if ok1 {
			row[2] = count(a)
		}
		if ok2 {
			row[4] = count(c)
		}
		if ok1 && ok2 && c > 0 {
			row[6] = fmt.Sprintf("%.2f", a/c)
		}
		rows = append(rows, row)
	}
	title := map[Class]string{Durable: "Keys, durable: fsync beside appendfsync always", EverySecond: "Keys, synced every second: interval beside appendfsync everysec"}[class]
	table(b, title, []string{"test", "-P", "Lattice: operations/s", "s/M", "Redis: operations/s", "s/M", "ratio"}, rows)
}

func (r *KeysReport) folds(b *strings.Builder) {
	if len(r.Folds) == 0 {
		return
	}
	var rows [][]string
	for _, f := range r.Folds {
		rows = append(rows, []string{
			f.Log, fmt.Sprintf("%d", f.Operations), mib(float64(f.LogBytes)), count(f.Rate()),
			fmt.Sprintf("%.2f", f.CPUSeconds*1e6/float64(max(f.Operations, 1))), mib(float64(f.PeakBytes)), mib(float64(f.StateBytes)),
		})
	}
	b.WriteString("\nThe folded state deleted, and the node started again with GOMAXPROCS=1: rates are of the whole start.\n")
	table(b, "State made again from its logs, on one core", []string{
		"what wrote the log", "operations", "log", "operations/s", "s/M", "peak memory", "state",
	}, rows)
}
