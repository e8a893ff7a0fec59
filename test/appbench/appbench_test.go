// Package appbench is make bench-app: how fast an application's roles are, as processes, on a
// node of ours with SQLite and with PostgreSQL. Without -measure it only checks how figures are
// told.
package appbench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/app/bench/compare"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

var (
	measure = flag.Bool("measure", false, "measure, which takes some minutes; with -short a few seconds each that check the program")
	page    = flag.String("page", "", "page to write the tables into, between its marks")
	commit  = flag.String("commit", "unknown", "commit that is measured")
	only    = flag.String("only", "", "parts to measure, with commas: projector, latency, intents, gateway")
)

const command = "make bench-app"

// bench is one run.
type bench struct {
	t        *testing.T
	bin      string
	short    bool
	postgres *realpostgres.Server
	out      strings.Builder
	goals    [][]string
}

// store is where the ledger or the projections are.
type store struct {
	name string
	url  func() string
	cpu  func() time.Duration // of a server of its own
}

func (b *bench) stores() []store {
	return []store{
		{"SQLite", func() string { return sqldbtest.SQLite(b.t) }, func() time.Duration { return 0 }},
		{"PostgreSQL", func() string { return b.postgres.Database(b.t) }, func() time.Duration { return b.postgres.CPU(b.t) }},
	}
}

func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("a benchmark: make bench-app, or go test ./test/appbench -measure")
	}
	b := &bench{t: t, bin: realnode.Build(t), short: testing.Short()}
	b.postgres = realpostgres.Start(t, "-c", "fsync=on", "-c", "max_connections=200", "-c", "shared_buffers=256MB")
	fmt.Fprintf(&b.out, "Made by `%s` at commit %s on %s: %s; load average %s before the run. Roles are processes of their own; they, the node, the database and "+
		"the clients share the machine. Databases sync each commit.\n", command, *commit, time.Now().UTC().Format(time.DateOnly), machine(), load())
	for _, part := range []struct {
		name string
		run  func()
	}{{"projector", b.projector}, {"latency", b.latency}, {"intents", b.intents}, {"gateway", b.gateway}} {
		if *only == "" || slices.Contains(strings.Split(*only, ","), part.name) {
			began := time.Now()
			part.run()
			t.Logf("%s took %.0f s", part.name, time.Since(began).Seconds())
		}
	}
	b.table("Goals", []string{"work", "goal", "figure", ""}, b.goals)
	fmt.Println(b.out.String())
	if *page == "" || t.Failed() {
		return
	}
	text, err := os.ReadFile(*page)
	if err == nil {
		text, err = compare.Insert(text, command, b.out.String())
	}
	if err == nil {
		err = os.WriteFile(*page, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// table writes a table; its first column is text.
func (b *bench) table(title string, head []string, rows [][]string) {
	fmt.Fprintf(&b.out, "\n### %s\n\n| %s |\n|---|%s\n", title, strings.Join(head, " | "), strings.Repeat("---:|", len(head)-1))
	for _, row := range rows {
		fmt.Fprintf(&b.out, "| %s |\n", strings.Join(row, " | "))
	}
}

func (b *bench) goal(work, want, got string, met bool) {
	verdict := "**missed**"
	if met {
		verdict = "met"
	}
	b.goals = append(b.goals, []string{work, want, got, verdict})
}

// process runs lattice, with its output in a file.
type process struct {
	*realnode.Process
	pid int
}

func (b *bench) start(args ...string) process {
	b.t.Helper()
	log, err := os.Create(filepath.Join(b.t.TempDir(), "log"))
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(b.bin, append(args, "--data", b.t.TempDir())...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := realnode.Spawn(cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		p.Kill()
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && b.t.Failed() {
			b.t.Logf("lattice %s said:\n%s", strings.Join(args[:2], " "), text[max(0, len(text)-3000):])
		}
	})
	return process{p, cmd.Process.Pid}
}

// until waits; everything else is measured by what it waits for.
func (b *bench) until(what string, every time.Duration, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(every) {
		if time.Now().After(end) {
			b.t.Fatalf("it never came to this: %s", what)
		}
	}
}

// quantile of durations in ms, as text.
func quantile(all []time.Duration, q float64) string {
	if len(all) == 0 {
		return "–"
	}
	s := slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%.2f", float64(s[min(len(s)-1, int(q*float64(len(s))))].Microseconds())/1000)
}

// count shows a number with three digits that count.
func count(n float64) string {
	for unit := 1.0; ; unit *= 10 {
		if n/unit < 1000 {
			n = float64(int64(n/unit+0.5)) * unit
			break
		}
	}
	s := fmt.Sprint(int64(n))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func machine() string {
	field := func(file, key string) string {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(v)
			}
		}
		return "unknown"
	}
	var kb int64
	_, _ = fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kb)
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kernel, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return fmt.Sprintf("%d cores of %s, %d GiB of memory, Linux %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), (kb+1<<19)>>20, kernel)
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

func TestTold(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 12: "12", 1234: "1,230", 99999: "100,000", 1234567: "1,230,000"} {
		if have := count(n); have != want {
			t.Errorf("%v is told as %s, want %s", n, have, want)
		}
	}
	ms := []time.Duration{3e6, 1e6, 2e6}
	if a, z, none := quantile(ms, 0.5), quantile(ms, 0.99), quantile(nil, 0.5); a != "2.00" || z != "3.00" || none != "–" {
		t.Error(a, z, none)
	}
	b := &bench{}
	b.goal("x", "y", "z", false)
	b.table("T", []string{"a", "b", "c", ""}, b.goals)
	if have := b.out.String(); have != "\n### T\n\n| a | b | c |  |\n|---|---:|---:|---:|\n| x | y | z | **missed** |\n" {
		t.Errorf("%q", have)
	}
	text, err := os.ReadFile(filepath.Join(realnode.Root(t), "docs/benchmarks.md"))
	if _, err2 := compare.Insert(text, command, "x"); errors.Join(err, err2) != nil {
		t.Error(err, err2)
	}
}
