package redis

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// tools runs redis-cli and redis-benchmark against a node.
type tools struct {
	t    *testing.T
	port string
	*respclient.Client
}

func newTools(t *testing.T) *tools {
	t.Helper()
	n := realnode.Start(t, realnode.Build(t), t.TempDir(), "--kafka", "")
	_, port, err := net.SplitHostPort(n.Redis)
	if err != nil {
		t.Fatal(err)
	}
	c, err := respclient.Dial(n.Redis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &tools{t, port, c}
}

// run runs a tool and returns what it printed. It must end well.
func (x *tools) run(stdin, name string, args ...string) string {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), name, append([]string{"-p", x.port}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		x.t.Fatalf("%s %q: %v\n%s\n%s", name, args, err, &out, &errs)
	}
	return out.String()
}

// cli compares what redis-cli prints.
func (x *tools) cli(want string, args ...string) {
	x.t.Helper()
	if got := x.run("", "redis-cli", args...); got != want {
		x.t.Errorf("redis-cli %q:\n%swant:\n%s", args, got, want)
	}
}

// is compares a reply.
func (x *tools) is(want string, args ...string) {
	x.t.Helper()
	v, err := x.Do(args...)
	if err != nil {
		x.t.Fatal(err)
	}
	if v.String() != want {
		x.t.Errorf("%q: %s, want %s", args, v, want)
	}
}

func TestRedisCli(t *testing.T) {
	t.Parallel()
	x := newTools(t)
	x.cli("OK\n", "SET", "greeting", "hello")
	x.cli("hello\n", "GET", "greeting")
	x.cli("2\n", "HSET", "h", "a", "1", "b", "2")
	x.cli("{\"a\":\"1\",\"b\":\"2\"}\n", "--json", "HGETALL", "h")
	x.cli("\"a\",\"1\",\"b\",\"2\"\n", "--csv", "HGETALL", "h")
	x.cli("1\n2\n3\n", "-r", "3", "INCR", "n")
	x.cli("ERR unknown command 'nosuch', with args beginning with: \n\n", "nosuch")
	x.cli("OK\n", "-n", "3", "SET", "elsewhere", "x")
	x.cli("1\n", "-n", "3", "DBSIZE")
	x.cli("x\n", "-3", "-n", "3", "GET", "elsewhere")
	if got := x.run("MULTI\nSET a 1\nINCR a\nEXEC\n", "redis-cli"); got != "OK\nQUEUED\nQUEUED\nOK\n2\n" {
		t.Errorf("a transaction from stdin: %q", got)
	}
	// Mass insertion, as Redis's documentation tells to do it.
	var many bytes.Buffer
	const n = 20_000
	for i := range n {
		many.Write(respclient.Encode("SET", fmt.Sprintf("mass:%d", i), "v"))
	}
	if got := x.run(many.String(), "redis-cli", "--pipe"); !strings.Contains(got, fmt.Sprintf("errors: 0, replies: %d", n)) {
		t.Errorf("--pipe: %s", got)
	}
	if got := strings.Count(x.run("", "redis-cli", "--scan", "--pattern", "mass:1*"), "\n"); got != 11111 {
		t.Errorf("--scan found %d keys, want 11111", got)
	}
	x.is(":10", "RPUSH", "long", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
	if got := x.run("", "redis-cli", "--bigkeys"); !strings.Contains(got, `Biggest   list found '"long"' has 10 items`) {
		t.Errorf("--bigkeys: %s", got)
	}
	if got := x.run("", "redis-cli", "--memkeys"); !strings.Contains(got, "Biggest") {
		t.Errorf("--memkeys: %s", got)
	}
	if got := x.run("", "redis-cli", "INFO", "server"); !strings.Contains(got, "redis_version:") {
		t.Errorf("INFO: %s", got)
	}
	// A value from a file, with -x.
	value := strings.Repeat("\x00bytes\n", 1000)
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := x.run(value, "redis-cli", "-x", "SET", "raw"); got != "OK\n" {
		t.Errorf("-x: %q", got)
	}
	x.is(fmt.Sprintf("%q", value), "GET", "raw")
}

// TestRedisBenchmark runs what the tool runs when it is told nothing, and holds
// the keys to what it says that it did.
func TestRedisBenchmark(t *testing.T) {
	t.Parallel()
	x := newTools(t)
	const n = 2000
	got := x.run("", "redis-benchmark", "-n", fmt.Sprint(n), "-c", "20", "-P", "8", "-q", "-e")
	for _, name := range []string{"PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "LPUSH", "RPUSH", "LPOP", "RPOP", "SADD", "HSET",
		"SPOP", "ZADD", "ZPOPMIN", "LRANGE_600 (first 600 elements)", "MSET (10 keys)"} {
		if !regexp.MustCompile(`(?m)` + regexp.QuoteMeta(name) + `: [0-9.]+ requests per second`).MatchString(got) {
			t.Errorf("no figures for %s:\n%s", name, got)
		}
	}
	if strings.Contains(got, "rror") || strings.Contains(got, "WARNING") {
		t.Errorf("it complains:\n%s", got)
	}
	x.is(fmt.Sprintf("%q", fmt.Sprint(n)), "GET", "counter:__rand_int__")
	x.is(":"+fmt.Sprint(n), "LLEN", "mylist")
	// Many keys, RESP3, larger pipelines.
	x.is("+OK", "FLUSHALL")
	x.run("", "redis-benchmark", "-n", "10000", "-c", "50", "-P", "100", "-r", "500", "-t", "set,incr,lpush,zadd", "-q", "-e", "-3")
	keys, err := x.Do("DBSIZE")
	if err != nil || keys.Kind != ':' {
		t.Fatalf("DBSIZE: %v %v", keys, err)
	}
	// 500 of each of SET and INCR, all but certainly, and a list and a sorted set.
	if keys.Str != "1002" {
		t.Errorf("%s keys, want 1002", keys.Str)
	}
	x.is(":10000", "LLEN", "mylist")
}
