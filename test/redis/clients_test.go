// Package redis has no code of its own: its tests run Redis's clients and tools,
// as processes, against a node that is a process too.
//
//	go-redis       ../go-redis, a module of its own
//	ioredis        ../ioredis
//	redis-py       ../python
//	redis-cli      Debian's, with redis-benchmark
//
// A client's program checks what comes back by itself. It is run against a real Redis,
// too, so that what it takes for right is right there. A missing client fails the
// test: "make deps" brings them all.
package redis

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/realredis"
)

// cases is what every client does. Some have more.
var cases = []string{"strings", "hashes", "sets", "zsets", "lists", "blocking", "transactions", "pubsub", "events", "scan",
	"pipeline", "expiry", "errors"}

// reconnect is the case in which the server is killed.
const reconnect = "reconnect"

// limit bounds a client's whole run. Nothing takes this long on an idle machine.
const limit = 3 * time.Minute

// program is a client that does cases.
type program struct {
	name    string
	command []string
	more    []string // cases that not every client has
}

// installed returns the clients.
func installed(t *testing.T) []program {
	t.Helper()
	root := realnode.Root(t)
	for _, tool := range []string{"node", "redis-cli", "redis-benchmark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v; run: make deps", err)
		}
	}
	python := root + "/test/python/.venv/bin/python"
	for _, try := range [][]string{
		{"node", "--input-type=module", "-e", "await import('" + root + "/test/ioredis/cases.mjs'); await import('" + root + "/test/ioredis/node_modules/ioredis/built/index.js')"},
		{python, "-c", "import redis"},
	} {
		if out, err := exec.Command(try[0], try[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v; run: make deps\n%s", try[0], err, out)
		}
	}
	return []program{
		{"go-redis", []string{realnode.Go(t, root+"/test/go-redis", t.TempDir()+"/go-redis", ".")}, []string{"resp3"}},
		{"ioredis", []string{"node", root + "/test/ioredis/main.mjs"}, nil},
		{"redis-py", []string{python, root + "/test/python/redis_py_driver.py"}, []string{"resp3"}},
	}
}

func TestClients(t *testing.T) {
	bin := realnode.Build(t)
	for _, p := range installed(t) {
		all := slices.Concat(cases, p.more)
		t.Run(p.name, func(t *testing.T) {
			t.Run("redis", func(t *testing.T) {
				t.Parallel()
				p.run(t, realredis.StartTCP(t), all, nil)
			})
			t.Run("lattice", func(t *testing.T) {
				t.Parallel()
				dir, at := t.TempDir(), realnode.FreeAddress(t)
				up := func() *realnode.Node { return realnode.Start(t, bin, dir, "--kafka", "", "--redis", at) }
				node := up()
				p.run(t, at, append(all, reconnect), func() {
					node.Kill()
					node = up()
				})
				node.Stop(t)
			})
		})
	}
}

// run runs a client's program. kill is what it may ask for.
func (p program) run(t *testing.T, at string, names []string, kill func()) {
	t.Helper()
	cmd := exec.Command(p.command[0], slices.Concat(p.command[1:], []string{at}, names)...)
	out, said := io.Pipe()
	var errs tail
	cmd.Stdout, cmd.Stderr = said, &errs
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	process, err := realnode.Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	late := time.AfterFunc(limit, process.Kill)
	defer late.Stop()
	go func() {
		<-process.Exited()
		said.Close()
	}()
	left := slices.Clone(names)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line struct{ Case, Error, Event string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s printed %q: %v", p.name, lines.Bytes(), err)
		}
		switch {
		case line.Event == "kill" && kill != nil:
			kill()
			if _, err := fmt.Fprintln(stdin, "back"); err != nil {
				t.Fatal(err)
			}
			continue
		case line.Error != "":
			t.Errorf("%s: %s", line.Case, line.Error)
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == line.Case })
	}
	if err := process.Err(); err != nil || len(left) > 0 {
		t.Fatalf("%s ended with %v; cases left: %q; it said: %s", p.name, err, left, errs.String())
	}
}

// tail keeps the last bytes written to it.
type tail []byte

func (l *tail) Write(p []byte) (int, error) {
	*l = append(*l, p...)
	*l = (*l)[max(0, len(*l)-8<<10):]
	return len(p), nil
}

func (l *tail) String() string { return string(*l) }
