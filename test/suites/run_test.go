package suites

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

// suiteDir returns where what a suite makes is kept: below bin, which git does not see.
func suiteDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(realnode.Root(t), "bin", "suites", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// programDir returns where a suite is built.
func programDir(t *testing.T, a about) string {
	t.Helper()
	return suiteDir(t, cmp.Or(a.program, a.name))
}

// TestBuild fetches and compiles. It is apart from TestRun, which has no network.
func TestBuild(t *testing.T) {
	for _, s := range selected(t) {
		t.Run(s.about().name, func(t *testing.T) { s.build(t, programDir(t, s.about())) })
	}
}

// TestRun runs suites that are built. When all tests of one were run it compares
// them with the recorded results, and replaces these unless something is worse;
// bin/suites/NAME/now.json has them in any case.
func TestRun(t *testing.T) {
	chosen := selected(t)
	bin := realnode.Build(t)
	for _, s := range chosen {
		t.Run(s.about().name, func(t *testing.T) {
			a := s.about()
			r := &run{suite: s, bin: bin, dir: suiteDir(t, a.name), before: recorded(t, a.name)}
			r.now = verdict.Results{Version: a.version, Date: time.Now().UTC().Format(time.DateOnly), Tests: map[string]verdict.Outcome{}, Tries: map[string]int{}}
			r.all(t)
		})
	}
}

// run is one run of a suite.
type run struct {
	suite
	bin, dir string
	before   verdict.Results

	mu   sync.Mutex
	done int // tests
	now  verdict.Results
}

func (r *run) all(t *testing.T) {
	a := r.about()
	tests := r.list(t, programDir(t, a))
	if len(tests) == 0 {
		t.Fatal("the suite lists no tests")
	}
	t.Run("tests", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test, func(t *testing.T) {
				if !a.alone {
					t.Parallel()
				}
				r.one(t, test)
			})
		}
	})
	if r.done < len(tests) {
		return // -run left some out
	}
	if err := r.now.Write(filepath.Join(r.dir, "now.json")); err != nil {
		t.Fatal(err)
	}
	pass, _ := r.now.Count(verdict.Pass)
	was, _ := r.before.Count(verdict.Pass)
	t.Logf("%s %s: %d of %d pass, %d in the recorded results", a.title, a.version, pass, len(tests), was)
	if r.before.Version == a.version {
		for _, what := range r.before.Worse(r.now) {
			t.Errorf("worse: %s; see %s", what, filepath.Join(r.dir, "out"))
		}
	}
	if t.Failed() {
		return
	}
	if err := r.now.Write(verdict.ResultsFile(".", a.name)); err != nil {
		t.Fatal(err)
	}
	for _, fault := range readReasons(t, a.name).Faults(r.now) {
		t.Errorf("%s: %s", verdict.ReasonsFile(".", a.name), fault)
	}
}

// one runs a test, and again if that is worse than before: many suites give
// their clients less time than a busy machine needs. What passes in either run
// passes; the page names those that needed the second.
func (r *run) one(t *testing.T, test string) {
	got := r.try(t, test)
	var again []string
	if worse := r.worse(test, got); len(worse) > 0 {
		t.Logf("%s, once more: %q", test, worse)
		second := r.try(t, test)
		for _, name := range worse {
			if second[name] == verdict.Pass {
				got[name] = verdict.Pass
				again = append(again, name)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	maps.Copy(r.now.Tests, got)
	for _, name := range again {
		r.now.Tries[name] = 2
	}
	t.Logf("%s: %s", test, got[test])
}

// worse names what passed before of a test and its parts, and does not now.
func (r *run) worse(test string, got map[string]verdict.Outcome) []string {
	var out []string
	for name, was := range r.before.Tests {
		if was == verdict.Pass && got[name] != verdict.Pass && (name == test || strings.HasPrefix(name, test+"/")) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (r *run) try(t *testing.T, test string) map[string]verdict.Outcome {
	a := r.about()
	data, err := os.MkdirTemp("", "suite-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(data)
	n := realnode.Start(t, r.bin, data, slices.Concat(a.node, a.nodeFor[test])...)
	defer n.Kill()
	var printed bytes.Buffer
	cmd := r.command(t, place{dir: programDir(t, a), bin: r.bin, test: test, node: n})
	cmd.Stdout, cmd.Stderr = &printed, &printed
	ended := within(cmd, a.limit+10*time.Second)
	if ended != nil {
		fmt.Fprintf(&printed, "\n[%v]\n", ended)
	}
	fmt.Fprintf(&printed, "\n[the node:]\n%s", n.Log())
	n.Stop(t)
	verify(t, r.bin, data)
	out := filepath.Join(r.dir, "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, test+".log"), printed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got := r.read(test, printed.Bytes(), ended)
	if got[test] == "" {
		got[test] = verdict.Fail
	}
	return got
}

// verify fails our own test when what the node leaves behind is not sound.
func verify(t *testing.T, bin, data string) {
	t.Helper()
	if out, err := exec.Command(bin, "verify", "--data", data).CombinedOutput(); err != nil {
		t.Errorf("lattice verify: %v\n%s", err, out)
	}
}

// within runs a command for that long at most.
func within(cmd *exec.Cmd, limit time.Duration) error {
	cmd.WaitDelay = 5 * time.Second // for what it left running with its output
	p, err := realnode.Spawn(cmd)
	if err != nil {
		return err
	}
	late := time.AfterFunc(limit, p.Kill)
	defer late.Stop()
	if err := p.Err(); err != nil {
		return fmt.Errorf("the process: %w", err)
	}
	return nil
}

// makeTopic creates a topic that a suite takes for granted.
func makeTopic(t *testing.T, at place, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(at.node.Kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 4, 1, nil, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}
