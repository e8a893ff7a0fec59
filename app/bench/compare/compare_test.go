package compare

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/app/bench"
)

// fake is a server whose figures are those it was made with, times the round.
type fake struct {
	rate, cpu, ms float64
	topics        map[string]bool
	noReads       bool
	fail          error
}

func (f *fake) Version() string { return "1" }
func (f *fake) PID() int        { return os.Getpid() }

func (f *fake) Create(_ context.Context, topic string, _ int32) error {
	f.topics[topic] = true
	return nil
}

func (f *fake) Delete(_ context.Context, topic string) error {
	delete(f.topics, topic)
	return nil
}

func (f *fake) bulk(w Work) bench.Result {
	return bench.Result{Records: w.Records, RecordsPerSec: f.rate, MiBPerSec: f.rate * float64(w.Size) / (1 << 20), ServerCPUPerMillion: &f.cpu}
}

func (f *fake) Produce(_ context.Context, topic string, w Work) (bench.Result, error) {
	if !f.topics[topic] {
		return bench.Result{}, errors.New("no such topic")
	}
	return f.bulk(w), f.fail
}

func (f *fake) Consume(_ context.Context, _ string, w Work) (bench.Result, error) {
	if f.noReads {
		return bench.Result{}, ErrNotServed
	}
	return f.bulk(w), nil
}

func (f *fake) Latency(context.Context, string, Work) (bench.Result, error) {
	r := bench.Result{SyncP50Ms: &f.ms, SyncP99Ms: &f.ms}
	if !f.noReads {
		r.DeliverP50Ms, r.DeliverP99Ms = &f.ms, &f.ms
	}
	return r, nil
}

func (f *fake) Second(_ context.Context, _ string, w Work) (produced, consumed bench.Result, err error) {
	return f.bulk(w), f.bulk(w), nil
}

func (f *fake) Stop() error {
	if len(f.topics) > 0 {
		return errors.New("topics are left")
	}
	return nil
}

func peer(name string, class Class, log *[]string, f fake) Peer {
	round := 0.0
	return Peer{Name: name, Class: class, How: "for a test", Start: func(context.Context) (Server, error) {
		*log = append(*log, name)
		round++
		s := f
		s.topics = map[string]bool{}
		s.rate *= round
		return &s, nil
	}}
}

var testPlan = Plan{
	Rounds: 3, Sizes: []int{100, 1024}, Partitions: []int32{1, 8},
	Records: map[int]int64{100: 1000, 1024: 100}, Within: time.Second, Syncs: 10, Rate: 100, For: time.Second, Second: 10,
}

func testReport(t *testing.T) (*Report, []string) {
	t.Helper()
	var log []string
	peers := []Peer{
		peer(Lattice, Durable, &log, fake{rate: 1000, cpu: 0.2, ms: 0.25}),
		peer(Kfake, Durable, &log, fake{rate: 900, cpu: 0.5, ms: 1}),
		peer(Kafka, Durable, &log, fake{rate: 2000, cpu: 4, ms: 2}),
		peer(Kfake, Discards, &log, fake{rate: 5000, cpu: 0.1, ms: 0.1, noReads: true}),
		peer("broken", PageCache, &log, fake{fail: errors.New("out of order")}),
	}
	measured, rounds, err := testPlan.Run(t.Context(), peers)
	if err != nil || rounds != 3 {
		t.Fatalf("%d rounds, %v", rounds, err)
	}
	return &Report{
		Command: "make bench", Commit: "abc", Date: "2026-01-02", Machine: "2 cores", Load: "0.1",
		Rounds: 3, Sizes: testPlan.Sizes, Partitions: testPlan.Partitions, Peers: measured, Without: []string{"redis"},
		History: []Point{{LogBytes: 0, StartSeconds: 0.1, IdleBytes: 20 << 20}, {LogBytes: 10 << 30, StartSeconds: 2.5, IdleBytes: 30 << 20}},
	}, log
}

func TestRunAlternates(t *testing.T) {
	_, log := testReport(t)
	want := strings.Fields("Lattice kfake Apache,Kafka kfake broken" + " kfake Apache,Kafka kfake Lattice" + " Lattice kfake Apache,Kafka kfake")
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], ",", " ")
	}
	if !slices.Equal(log, want) {
		t.Errorf("order %q\nwant  %q", log, want)
	}
}

func TestRunKeepsToItsBudget(t *testing.T) {
	var log []string
	plan := testPlan
	plan.Budget = time.Nanosecond
	if _, rounds, err := plan.Run(t.Context(), []Peer{peer(Lattice, Durable, &log, fake{rate: 1})}); rounds != 1 || err != nil || len(log) != 1 {
		t.Errorf("%d rounds, %d starts, %v", rounds, len(log), err)
	}
}

func TestFiguresAreMedians(t *testing.T) {
	r, _ := testReport(t)
	m := r.peer(Lattice, Durable)
	if v, ok := m.Get(Bulk(Produce, 1024, 8), Rate); !ok || v != 2000 {
		t.Errorf("median of 1000, 2000, 3000: %v, %v", v, ok)
	}
	if n := len(m.Figures[OneP50].Rounds); n != 3 {
		t.Errorf("%d rounds", n)
	}
	if _, ok := r.peer(Kfake, Discards).Get(Bulk(Consume, 100, 1), Rate); ok {
		t.Error("a figure of what is not served")
	}
	if _, ok := r.peer("nobody", Durable).Get(Rate); ok {
		t.Error("a figure of nobody")
	}
	for _, c := range []struct {
		all  []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}} {
		if got := median(c.all); got != c.want {
			t.Errorf("median of %v = %v", c.all, got)
		}
	}
	if err := r.Failures(); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("failures: %v", err)
	}
}

func TestGoals(t *testing.T) {
	r, _ := testReport(t)
	got := map[string]string{}
	for _, g := range r.Goals() {
		switch {
		case g.Met == nil:
			got[g.Work] = "unknown"
		case *g.Met:
			got[g.Work] = "met"
		default:
			got[g.Work] = "missed"
		}
	}
	for work, want := range map[string]string{
		"produce 100 B, durable, records/s":           "met",
		"produce 1 KiB, durable, server CPU s/M":      "met",
		"one synchronous produce, durable, p50":       "met",
		"produce to consume, page cache, p50 ms":      "unknown",
		"produce to consume, durable, p50 ms":         "met",
		"all produce and fetch, durable":              "missed",
		"all produce and fetch, page cache":           "unknown",
		"server CPU for a record, durable":            "met",
		"peak memory, durable":                        "missed",
		"start after a clean stop with 10 GiB of log": "missed",
		"idle memory after it":                        "met",
	} {
		if got[work] != want {
			t.Errorf("%s: %q, want %s", work, got[work], want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	r, _ := testReport(t)
	page := r.Markdown()
	for _, want := range []string{
		"Left out: redis.", "broken, page cache, failed: warm up: produce: out of order",
		"| Lattice | durable | 2,000 | 0 | 0.20 |", "| kfake | durable | 1,800 (0.90) | 0 | 0.50 |",
		"| kfake | discards | 10,000 |", "| kfake | discards | – | – |",
		"| 10 GiB | 0 |", "least in produce 100 B, 1 partition: 0.50 times its rate",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for line := range strings.Lines(page) {
		if strings.Contains(line, "NaN") || strings.Contains(line, "Inf") || strings.Contains(line, "%!") {
			t.Errorf("line %q", line)
		}
	}
}

func TestInsert(t *testing.T) {
	begin, end := "<!-- written by make bench: begin -->", "<!-- written by make bench: end -->"
	page := "# Figures\n\n" + begin + "\nold\n" + end + "\n\nkept\n"
	got, err := Insert([]byte(page), "make bench", "\nnew\n")
	want := "# Figures\n\n" + begin + "\n\nnew\n\n" + end + "\n\nkept\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := Insert(got, "make bench", "new"); err != nil || string(again) != want {
		t.Errorf("again: %q, %v", again, err)
	}
	if _, err := Insert(got, "make other", "new"); err == nil {
		t.Error("a page without the command's marks is taken")
	}
}

func TestCount(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 7.4: "7", 999: "999", 1234: "1,230", 999_999: "1,000,000", 3_081_234: "3,080,000"} {
		if got := count(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
