package suites

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

// cSuite is librdkafka's suite: one program, whose tests are chosen by number. A
// number can have several; the program runs those that are meant for the broker's
// configuration, which it is told (a scenario).
type cSuite struct {
	info      about
	only      []string           // numbers; nil: all
	env       []string           // of the program
	processes map[string]process // by the first test of each; set by list
}

func (s *cSuite) about() about { return s.info }

func librdkafka() suite {
	return &cSuite{info: about{
		name: "librdkafka", title: "librdkafka", version: "2.15.1", limit: 12 * time.Minute,
		how: "Its tests that talk to a broker, in full mode and for a broker of version 4.2, each number in a process of its own. The sources and tests are those " +
			"that the npm package @confluentinc/kafka-javascript brings. What the tests ask of Kafka's kafka-topics.sh is done by `lattice topic`, their Java " +
			"programs run on Kafka's jars, and kafka-acls.sh fails. Timeouts are three times as long as on an idle machine (`test.timeout.multiplier`). " +
			"The node takes replication factors above 1, which most tests ask for, and describes them as 1.",
		node: []string{"--set", "kafka.replication=lenient"},
		nodeFor: map[string][]string{ // by the first test of a process that is for a broker without auto-creation
			"0045_subscribe_update_topic_remove": {"--set", "kafka.auto_create=false"},
			"0107_topic_recreate":                {"--set", "kafka.auto_create=false"},
			"0111_delay_create_topics":           {"--set", "kafka.auto_create=false"},
		},
	}}
}

// librdkafka848 runs tests about groups once more, with groups of KIP-848.
func librdkafka848() suite {
	a := librdkafka().about()
	a.name, a.program, a.title, a.nodeFor = "librdkafka-848", a.name, a.title+", KIP-848", nil
	a.how = "Those of its tests that are about groups, with `TEST_CONSUMER_GROUP_PROTOCOL=consumer`, otherwise as above."
	return &cSuite{
		info: a, env: []string{"TEST_CONSUMER_GROUP_PROTOCOL=consumer"},
		only: []string{
			"0018", "0022", "0026", "0029", "0030", "0033", "0045", "0050", "0051", "0056", "0069", "0089", "0099", "0102", "0118", "0122", "0132", "0137",
		},
	}
}

// build runs librdkafka/build.sh, again when anything beside it changes.
func (*cSuite) build(t *testing.T, dir string) {
	t.Helper()
	src := filepath.Join(realnode.Root(t), "test", "suites", "librdkafka")
	sum := sha256.New()
	if err := filepath.WalkDir(src, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(file)
		fmt.Fprintf(sum, "%s %d\n%s", strings.TrimPrefix(file, src), len(b), b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want, stamp := hex.EncodeToString(sum.Sum(nil)), filepath.Join(dir, "built")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return
	}
	cmd := exec.Command(filepath.Join(src, "build.sh"), dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build librdkafka: %v\n%s", err, out)
	}
	if err := os.WriteFile(stamp, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// noAutoCreate is the scenario of tests for a broker that makes no topics by itself.
const noAutoCreate = "noautocreate"

// process is one run of the program.
type process struct {
	number, scenario string
	tests            []string
}

// processes returns what runs the tests of the program's table that talk to a
// broker, by the first of its tests.
func processes(table string) map[string]process {
	out, first := map[string]process{}, map[string]string{}
	_, table, _ = strings.Cut(table, "\nstruct test tests[] = {")
	table, _, _ = strings.Cut(table, "{NULL}};")
	for _, row := range strings.Split(table, " _TEST(")[1:] {
		name, rest, _ := strings.Cut(row, ",")
		if strings.Contains(rest, "TEST_F_LOCAL") || strings.Contains(rest, "TEST_F_MANUAL") {
			continue
		}
		p := process{number: name[:4]}
		if strings.Contains(rest, noAutoCreate) {
			p.scenario = noAutoCreate
		}
		key := p.number + p.scenario
		if first[key] == "" {
			first[key] = name
		}
		p.tests = append(out[first[key]].tests, name)
		out[first[key]] = p
	}
	return out
}

// list names the first test of each process; read says of all what they came to.
func (s *cSuite) list(t *testing.T, dir string) []string {
	text, err := os.ReadFile(filepath.Join(dir, "source", "tests", "test.c"))
	if err != nil {
		t.Fatal(err)
	}
	s.processes = processes(string(text))
	maps.DeleteFunc(s.processes, func(_ string, p process) bool {
		return s.only != nil && (p.scenario != "" || !slices.Contains(s.only, p.number))
	})
	return slices.Sorted(maps.Keys(s.processes))
}

func (s *cSuite) command(t *testing.T, at place) *exec.Cmd {
	conf := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(conf, []byte("bootstrap.servers="+at.node.Kafka+"\ntest.timeout.multiplier=3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(at.dir, "source")
	p := s.processes[at.test]
	cmd := exec.Command("./test-runner", "-p1", "-L")
	cmd.Dir = filepath.Join(source, "tests")
	cmd.Env = append(os.Environ(),
		"TESTS="+p.number, "TEST_KAFKA_VERSION=4.2.0", "RDKAFKA_TEST_CONF="+conf,
		"LD_LIBRARY_PATH="+filepath.Join(source, "src")+":"+filepath.Join(source, "src-cpp"),
		"KAFKA_PATH="+filepath.Join(at.dir, "kafka"), "BROKERS="+at.node.Kafka,
		"LATTICE_BIN="+at.bin, "LATTICE_DATA="+at.node.Dir,
	)
	cmd.Env = append(cmd.Env, s.env...)
	if p.scenario != "" {
		cmd.Env = append(cmd.Env, "TEST_SCENARIO="+p.scenario)
	}
	return cmd
}

// row is a line of the summary that the program prints at its end.
var row = regexp.MustCompile(`(?m)^\|(?:\x1b\[\d+m)? *(\d{4}_\w+) +\| +(\w+) \|`)

func (s *cSuite) read(test string, printed []byte, ended error) map[string]verdict.Outcome {
	out := map[string]verdict.Outcome{}
	failed := false
	for _, m := range row.FindAllSubmatch(printed, -1) {
		name := string(m[1])
		if !slices.Contains(s.processes[test].tests, name) {
			continue
		}
		switch string(m[2]) {
		case "PASSED":
			out[name] = verdict.Pass
		case "SKIPPED":
			out[name] = verdict.Skip
		default:
			out[name], failed = verdict.Fail, true
		}
	}
	if ended != nil && !failed {
		out[test] = verdict.Fail // none failed, and then the program did not end well
	}
	return out
}

func TestReadLibrdkafka(t *testing.T) {
	table := `
struct test tests[] = {
    /* Special MAIN test to hold over-all timings, etc. */
    {"<MAIN>", LOCAL},
    _TEST(0001_one, 0),
    _TEST(0002_two, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0002_two_local, TEST_F_LOCAL),
    _TEST(0002_two_made,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0002_two_more,
          0,
          /* much */
          _THRES(.ucpu = 20.0, .scpu = 10.0)),
    _TEST(8000_idle, TEST_F_MANUAL),

    {NULL}};
`
	s := &cSuite{processes: processes(table)}
	want := map[string]process{
		"0001_one":      {"0001", "", []string{"0001_one"}},
		"0002_two":      {"0002", "", []string{"0002_two", "0002_two_more"}},
		"0002_two_made": {"0002", noAutoCreate, []string{"0002_two_made"}},
	}
	if !reflect.DeepEqual(s.processes, want) {
		t.Fatalf("processes: %v, want %v", s.processes, want)
	}
	printed := []byte("|\x1b[32m <MAIN>          |     PASSED |  72.947s \x1b[0m|\n" +
		"|\x1b[32m 0002_two        |     PASSED |  20.202s \x1b[0m|\n" +
		"|\x1b[36m 0002_two_local  |    SKIPPED |   0.000s \x1b[0m|\x1b[36m why\x1b[0m\n" +
		"|\x1b[36m 0002_two_made   |    SKIPPED |   0.000s \x1b[0m|\x1b[36m \x1b[0m\n" +
		"|\x1b[31m 0002_two_more   |     FAILED |   1.000s \x1b[0m|\x1b[31m x\x1b[0m\n")
	got := s.read("0002_two", printed, os.ErrClosed)
	if len(got) != 2 || got["0002_two"] != verdict.Pass || got["0002_two_more"] != verdict.Fail {
		t.Errorf("one of two failed: %v", got)
	}
	printed = bytes.ReplaceAll(printed, []byte("FAILED"), []byte("PASSED"))
	if got := s.read("0002_two", printed, nil); got["0002_two"] != verdict.Pass || got["0002_two_more"] != verdict.Pass {
		t.Errorf("both passed: %v", got)
	}
	if got := s.read("0002_two", printed, os.ErrClosed); got["0002_two"] != verdict.Fail {
		t.Errorf("both passed, and the program ended badly: %v", got)
	}
	if got := s.read("0001_one", printed, nil); len(got) != 0 {
		t.Errorf("no summary of it: %v", got)
	}
}
