package suites

import (
	"bytes"
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/verdict"
)

// goSuite is a suite that is the tests of a package of a Go module: module zips
// carry them.
type goSuite struct {
	info   about
	module string
	sum    string // of the zip, as in go.sum
	pkg    string // "./" for the module's root
	tags   string
	only   []string // nil: all tests
	files  string   // a pattern for the names of the files that have them, "": all
	// parts: subtests are results of their own.
	parts bool
	// first names, for a test, one that must have run in the same process: some
	// rely on what others leave behind.
	first map[string]string
	// methods is the test that runs the methods of a testify suite, which then are
	// the tests; "": there is none.
	methods string
	// besides starts what else a test needs, and returns its environment.
	besides func(t *testing.T, at place) []string
	// extra builds what besides starts.
	extra func(t *testing.T, dir string)
}

func (g *goSuite) about() about { return g.info }

// build copies the module, since what it runs in must be writable, and compiles
// its tests.
func (g *goSuite) build(t *testing.T, dir string) {
	want := strings.Join([]string{g.module, g.info.version, g.sum, g.pkg, g.tags, goCommand(t, dir, "version")}, "\n")
	stamp := filepath.Join(dir, "built")
	if have, err := os.ReadFile(stamp); err != nil || string(have) != want {
		source := g.source(dir)
		if err := os.RemoveAll(source); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(source, os.DirFS(g.download(t, dir))); err != nil {
			t.Fatalf("copy %s: %v", g.module, err)
		}
		// Some go.sum files lack what only the tests import.
		goCommand(t, source, "test", "-mod=mod", "-c", "-tags", g.tags, "-o", filepath.Join(dir, "tests"), g.pkg)
		if err := os.WriteFile(stamp, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if g.extra != nil {
		g.extra(t, dir)
	}
}

func (g *goSuite) source(dir string) string { return filepath.Join(dir, "source") }

// download returns the module's directory in Go's cache, after a look at its sum.
func (g *goSuite) download(t *testing.T, dir string) string {
	t.Helper()
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal([]byte(goCommand(t, dir, "mod", "download", "-json", g.module+"@"+g.info.version)), &got); err != nil {
		t.Fatalf("download %s: %v", g.module, err)
	}
	if got.Sum != g.sum {
		t.Fatalf("%s@%s has the sum %s, want %s", g.module, g.info.version, got.Sum, g.sum)
	}
	return got.Dir
}

// goCommand runs the go command and returns what it prints.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s in %s: %v\n%s%s", strings.Join(args, " "), dir, err, out.Bytes(), said.Bytes())
	}
	return out.String()
}

var (
	function = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\) \{$`)
	method   = regexp.MustCompile(`(?m)^func \(\w+ \*\w+Suite\) (Test\w+)\(\) \{$`)
)

// list reads the names from the source: some programs want a server before they
// tell them, and none tells the methods of a testify suite.
func (g *goSuite) list(t *testing.T, dir string) []string {
	if g.only != nil {
		return g.only
	}
	in := build.Default
	in.BuildTags = []string{g.tags}
	source := filepath.Join(g.source(dir), g.pkg)
	pkg, err := in.ImportDir(source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := function
	if g.methods != "" {
		want = method
	}
	var names []string
	for _, file := range append(pkg.TestGoFiles, pkg.XTestGoFiles...) {
		if g.files != "" && !matches(t, g.files, file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range want.FindAllSubmatch(text, -1) {
			if name := string(m[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
	}
	return names
}

func matches(t *testing.T, pattern, name string) bool {
	t.Helper()
	ok, err := filepath.Match(pattern, name)
	if err != nil {
		t.Fatalf("pattern %q: %v", pattern, err)
	}
	return ok
}

func (g *goSuite) command(t *testing.T, at place) *exec.Cmd {
	args := []string{"-test.v", "-test.count=1", "-test.timeout", g.info.limit.String(), "-test.run"}
	switch before := g.first[at.test]; {
	case g.methods != "":
		args = append(args, "^"+g.methods+"$", "-testify.m", "^"+at.test+"$")
	case before != "":
		args = append(args, "^("+before+"|"+at.test+")$")
	default:
		args = append(args, "^"+at.test+"$")
	}
	cmd := exec.Command(filepath.Join(at.dir, "tests"), args...)
	cmd.Dir = filepath.Join(g.source(at.dir), g.pkg)
	cmd.Env = os.Environ()
	if g.besides != nil {
		cmd.Env = append(cmd.Env, g.besides(t, at)...)
	}
	return cmd
}

var report = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) \(`)

func (g *goSuite) read(test string, printed []byte, ended error) map[string]verdict.Outcome {
	out := map[string]verdict.Outcome{}
	for _, m := range report.FindAllSubmatch(printed, -1) {
		name := string(m[2])
		if g.methods != "" {
			name = strings.TrimPrefix(name, g.methods+"/")
		}
		if name == test || g.parts && strings.HasPrefix(name, test+"/") {
			out[name] = verdict.Outcome(strings.ToLower(string(m[1])))
		}
	}
	if ended != nil && out[test] == verdict.Pass {
		out[test] = verdict.Fail // it passed, and then its process did not end well
	}
	return out
}

func TestReadGo(t *testing.T) {
	printed := []byte(`=== RUN   TestA
    a_test.go:1: --- FAIL: not me
--- FAIL: TestA (1.20s)
    --- PASS: TestA/one (1.00s)
        --- SKIP: TestA/one/deep (0.00s)
--- PASS: TestAlso (0.00s)
FAIL
`)
	parts := &goSuite{parts: true}
	got := parts.read("TestA", printed, nil)
	if len(got) != 3 || got["TestA"] != verdict.Fail || got["TestA/one"] != verdict.Pass || got["TestA/one/deep"] != verdict.Skip {
		t.Errorf("with parts: %v", got)
	}
	if got := new(goSuite).read("TestAlso", printed, nil); len(got) != 1 || got["TestAlso"] != verdict.Pass {
		t.Errorf("without parts: %v", got)
	}
	if got := new(goSuite).read("TestAlso", printed, os.ErrClosed); got["TestAlso"] != verdict.Fail {
		t.Errorf("a process that ended badly: %v", got)
	}
	if got := new(goSuite).read("TestB", printed, nil); len(got) != 0 {
		t.Errorf("a test that said nothing: %v", got)
	}
	methods := &goSuite{methods: "TestAll"}
	if got := methods.read("TestM", []byte("    --- PASS: TestAll/TestM (0.1s)\n"), nil); got["TestM"] != verdict.Pass {
		t.Errorf("a method: %v", got)
	}
}
