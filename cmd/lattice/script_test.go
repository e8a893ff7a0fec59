package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata/script now compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"lattice": func() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// TestScript runs the transcripts in testdata/script against this program and
// real nodes. Beside testscript's own commands they have
//
//	ready DIR              wait for the node on DIR; sets $KAFKA, $REDIS, $HTTP and $PID
//	term                   send SIGTERM to the node of the last ready
//	fails CODE PROGRAM...  run a program that must end with this exit code
//	json PATH [VALUE]      the last output is JSON and has something (VALUE, printed) at PATH
//	jsonl N PATH [VALUE]   line N of the last output likewise
//	sh SCRIPT              a shell line, for pipes
//	example NAME           copy an application of examples/ to here
//	flip FILE OFFSET       change one byte of a file; OFFSET below 0 counts from the end
//
// A path is keys and indexes with dots, such as partitions.0.end.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *rewrite,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// A process under the race detector otherwise waits a second before it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": scriptReady,
			"term":  scriptTerm,
			"fails": scriptFails,
			"json":  scriptJSON,
			"jsonl": scriptJSONLine,
			"sh":    scriptShell,
			"flip":  scriptFlip,
			"example": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.CopyFS(ts.MkAbs(args[0]), os.DirFS("../../examples/"+args[0])))
			},
		},
	})
}

func scriptReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready DIR")
	}
	path := ts.MkAbs(args[0]) + "/node.json"
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil {
			var info struct {
				Kafka, Redis, HTTP string
				PID                int
			}
			ts.Check(json.Unmarshal(b, &info))
			ts.Setenv("KAFKA", info.Kafka)
			ts.Setenv("REDIS", info.Redis)
			ts.Setenv("HTTP", info.HTTP)
			ts.Setenv("PID", strconv.Itoa(info.PID))
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no %s after 30 s", path)
		}
	}
}

func scriptTerm(ts *testscript.TestScript, _ bool, _ []string) {
	pid, err := strconv.Atoi(ts.Getenv("PID"))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGTERM))
}

// scriptFails runs a program that must end with this exit code.
func scriptFails(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fails CODE PROGRAM [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if code := 0; err != nil {
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		if code = exit.ExitCode(); strconv.Itoa(code) != args[0] {
			ts.Fatalf("exit code %d, want %s", code, args[0])
		}
		return
	}
	ts.Fatalf("exit code 0, want %s", args[0])
}

func scriptShell(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: sh SCRIPT")
	}
	err := ts.Exec("sh", "-c", args[0])
	if neg == (err == nil) {
		ts.Fatalf("sh: %v", err)
	}
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	checkJSON(ts, neg, []byte(ts.ReadFile("stdout")), args)
}

func scriptJSONLine(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	if n >= len(lines) {
		ts.Fatalf("there are %d lines", len(lines))
	}
	checkJSON(ts, neg, []byte(lines[n]), args[1:])
}

func checkJSON(ts *testscript.TestScript, neg bool, b []byte, args []string) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		ts.Fatalf("no JSON: %v\n%s", err, b)
	}
	got, ok := lookup(v, strings.Split(args[0], "."))
	match := ok && (len(args) < 2 || fmt.Sprint(got) == args[1])
	if match == neg {
		ts.Fatalf("%s is %v (there: %v), %q wanted\n%s", args[0], got, ok, args[1:], b)
	}
}

func lookup(v any, path []string) (any, bool) {
	for _, key := range path {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// scriptFlip changes one bit of one byte of a file.
func scriptFlip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	i, err := strconv.Atoi(args[1])
	ts.Check(err)
	if i < 0 {
		i += len(b)
	}
	b[i] ^= 1
	ts.Check(os.WriteFile(path, b, 0o644))
}
