package suites

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

// redisSuite is the suite of Redis itself, in Tcl, which can be told to use a
// server that runs already. A test is one of its files, and a part one of the
// tests in it. A file passes when it comes to its end.
type redisSuite struct{}

func redis() suite { return redisSuite{} }

func (redisSuite) about() about {
	return about{
		name: "redis", title: "Redis", version: "7.0.15", elsewhere: true,
		how:   "The files of tests/unit that are about what is served here, each against a fresh node.",
		node:  []string{"--kafka", "", "--set", "log.retention_ms=-1"},
		limit: 20 * time.Minute,
		alone: true, // its test server looks for a free port, and takes it later
	}
}

func (redisSuite) build(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "source", "src", "redis-cli")); err == nil {
		return
	}
	cmd := exec.Command(filepath.Join(realnode.Root(t), "test", "suites", "redis", "build.sh"), dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("fetch Redis's suite: %v\n%s", err, out)
	}
}

// list names the files, with dots for slashes. Those that are left out are about
// what is not here at all: replication, RDB and AOF files, modules, memory that runs
// out, scripts and functions, ACL users, clusters, client-side caching, geographic
// indexes, HyperLogLogs.
func (redisSuite) list(*testing.T, string) []string {
	return []string{
		"type.string", "type.incr", "type.hash", "type.list", "type.list-2", "type.list-3", "type.set", "type.zset",
		"type.stream", "type.stream-cgroups",
		"expire", "scan", "keyspace", "sort", "multi", "pubsub", "pubsubshard", "bitops", "bitfield",
		"protocol", "pause", "quit", "auth", "info", "introspection", "introspection-2", "slowlog", "latency-monitor",
		"querybuf", "obuf-limits", "limits", "lazyfree", "other",
	}
}

// upsetting are tests that fail here in the middle, and leave a transaction, a pause
// or keys behind which fail the tests that follow, or that now and then wait for ever.
// They are left out.
func upsetting(file string) []string {
	switch file {
	case "type.list":
		return []string{"SWAPDB awakes blocked client", "BRPOPLPUSH with multiple blocked clients"}
	case "multi":
		return []string{"SWAPDB is able to touch the watched keys that exist", "SWAPDB is able to touch the watched keys that do not exist"}
	case "pause":
		return []string{
			"Test scripts are blocked by pause RO", "Test RO scripts are not blocked by pause RO", "Test read-only scripts in mutli-exec are not blocked by pause RO",
			"Test write scripts in mutli-exec are blocked by pause RO", "Test may-replicate commands are rejected in RO scripts",
		}
	case "keyspace":
		return []string{"COPY basic usage for stream", "COPY basic usage for stream-cgroups"}
	case "introspection-2":
		return []string{"command stats for MULTI"}
	}
	return nil
}

func (redisSuite) command(t *testing.T, at place) *exec.Cmd {
	host, port, err := net.SplitHostPort(at.node.Redis)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tclsh", "tests/test_helper.tcl", "--host", host, "--port", port, "--clients", "1", "--timeout", "300",
		"--single", "unit/"+strings.ReplaceAll(at.test, ".", "/"),
		"--durable", // an error in a test does not end its file
		"--tags", "-needs:debug -needs:repl -needs:save -needs:config-maxmemory -needs:pfdebug")
	for _, name := range upsetting(at.test) {
		cmd.Args = append(cmd.Args, "--skiptest", name)
	}
	cmd.Dir = filepath.Join(at.dir, "source")
	cmd.Env = append(os.Environ(), "TERM=dumb", "LC_ALL=C.UTF-8")
	return cmd
}

// verdictLine is what the suite prints of one test.
var (
	tclVerdict = regexp.MustCompile(`(?m)^\[(ok|err|ignore|skip)\]: (.*)$`)
	tclTime    = regexp.MustCompile(` \(\d+ ms\)$`)
	tclDone    = regexp.MustCompile(`(?m)^\[\d+/\d+ done\]: `)
)

func (redisSuite) read(test string, printed []byte, _ error) map[string]verdict.Outcome {
	out := map[string]verdict.Outcome{test: verdict.Fail}
	if tclDone.Match(printed) {
		out[test] = verdict.Pass
	}
	for _, m := range tclVerdict.FindAllSubmatch(printed, -1) {
		name, is := string(m[2]), verdict.Skip
		switch string(m[1]) {
		case "ok":
			name, is = tclTime.ReplaceAllString(name, ""), verdict.Pass
		case "err":
			is = verdict.Fail
			if i := strings.LastIndex(name, " in tests/"); i >= 0 {
				name = name[:i]
			}
		case "ignore":
			name = ignored(name)
		}
		name = test + "/" + strings.ReplaceAll(name, ": ", " - ") // a reason begins behind a colon
		unique := name
		for n := 2; out[unique] != ""; n++ {
			unique = name + " (" + strconv.Itoa(n) + ")"
		}
		out[unique] = is
	}
	return out
}

// ignored takes away why a test was ignored: a tag, or a reason that has no colon.
// Of a block of tests nothing else is told.
func ignored(name string) string {
	if cut, _, tagged := strings.Cut(": "+name, ": Tag: "); tagged {
		name = cut
	} else {
		name = ": " + name
		name = name[:strings.LastIndex(name, ": ")]
	}
	if name == "" {
		return "a block of tests"
	}
	return strings.TrimPrefix(name, ": ")
}

func TestReadRedis(t *testing.T) {
	printed := `Starting test server at port 21079
[ready]: 4711
Testing unit/multi
[ok]: MULTI / EXECS basics (0 ms)
[err]: EXEC fails: always in tests/unit/multi.tcl
Expected 'x' to be equal to 'y'
[ok]: MULTI / EXECS basics (3 ms)
[ignore]: MULTI with BGREWRITEAOF: Not supported on external server
[ignore]: MULTI: twice: Tag: needs:debug denied
[ignore]: Tag: needs:repl denied
[ignore]: Not supported on external server
[1/1 done]: unit/multi (3 seconds)

*** [err]: EXEC fails: always in tests/unit/multi.tcl
`
	got := redisSuite{}.read("multi", []byte(printed), os.ErrClosed)
	want := map[string]verdict.Outcome{
		"multi": verdict.Pass, "multi/MULTI / EXECS basics": verdict.Pass, "multi/MULTI / EXECS basics (2)": verdict.Pass,
		"multi/EXEC fails - always": verdict.Fail, "multi/MULTI with BGREWRITEAOF": verdict.Skip, "multi/MULTI - twice": verdict.Skip,
		"multi/a block of tests": verdict.Skip, "multi/a block of tests (2)": verdict.Skip,
	}
	for name, is := range want {
		if got[name] != is {
			t.Errorf("%s: %q, want %q", name, got[name], is)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d outcomes, want %d: %v", len(got), len(want), got)
	}
	printed, _, _ = strings.Cut(printed, "[1/1 done]")
	if got := (redisSuite{}).read("multi", []byte(printed), os.ErrClosed); got["multi"] != verdict.Fail {
		t.Errorf("a file that stopped: %v", got)
	}
}
