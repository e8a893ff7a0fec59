// Package realnode runs a node as what it is for a user: the command lattice as
// a process of its own, with a data directory, found through its node.json.
//
// Use it where the process boundary is the point (other languages' clients,
// kill -9, file descriptors, memory). It promises that no process outlives the
// test; it does not check what the node did, that is the test's business.
package realnode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startWithin bounds a start, recovery included, on a busy machine.
const startWithin = 60 * time.Second

// stopWithin is what "lattice up" promises for SIGTERM, and a little.
const stopWithin = 12 * time.Second

// Build compiles the command into a directory of the test and returns its path.
// With LATTICE_BIN set it builds nothing and returns that.
//
// It also reads the names of the module's files, so that go test's cache, which
// does not see what a subprocess reads, knows what the result depends on.
func Build(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("LATTICE_BIN"); bin != "" {
		return bin
	}
	root := Root(t)
	if err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		return err
	}); err != nil {
		t.Fatalf("read the module's file names: %v", err)
	}
	bin := filepath.Join(t.TempDir(), "lattice")
	return Go(t, root, bin, "./cmd/lattice")
}

// Go compiles the main package pkg of the module in dir to bin, and returns bin.
func Go(t testing.TB, dir, bin, pkg string) string {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", bin, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s in %s: %v\n%s", pkg, dir, err, out)
	}
	return bin
}

// Root returns the directory of the module's go.mod, above the test's.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module github.com/lattice-log/lattice\n")) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod of this module above the test")
		}
		dir = up
	}
}

// Node is a running process. Its methods may be called from anywhere.
type Node struct {
	Dir, Kafka, Redis, HTTP string
	PID                     int

	log *tail
	*Process
}

// Start runs "lattice up --data dir" with every listener on a port of its
// choice, unless args say otherwise, and waits until it serves. The process is
// killed at the end of the test if nothing ended it before; the test fails if
// it ends by itself.
func Start(t testing.TB, bin, dir string, args ...string) *Node {
	t.Helper()
	// Flags that come later win.
	args = append([]string{"up", "--data", dir, "--kafka", "127.0.0.1:0", "--redis", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)
	cmd := exec.Command(bin, args...)
	n := &Node{Dir: dir, log: &tail{}}
	cmd.Stdout, cmd.Stderr = n.log, n.log
	for _, kv := range os.Environ() {
		// The developer's own settings are not the test's.
		if !strings.HasPrefix(kv, "LATTICE_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	p, err := Spawn(cmd)
	if err != nil {
		t.Fatalf("start a node on %s: %v", dir, err)
	}
	n.Process, n.PID = p, cmd.Process.Pid
	if err := n.await(); err != nil {
		n.Kill()
		t.Fatalf("start a node on %s: %v; its last lines:\n%s", dir, err, n.log)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		<-n.Exited()
		if !n.told.Load() {
			t.Errorf("the node on %s ended by itself: %v; its last lines:\n%s", dir, n.Err(), n.log)
		}
	}()
	t.Cleanup(func() {
		n.Kill()
		<-watched
		if t.Failed() {
			t.Logf("the last lines of the node on %s:\n%s", dir, n.log)
		}
	})
	return n
}

// await reads node.json once it is this process's: one left by a killed
// predecessor names another pid.
func (n *Node) await() error {
	for end := time.Now().Add(startWithin); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		select {
		case <-n.Exited():
			return fmt.Errorf("ended before it served: %v", n.Err())
		default:
		}
		b, err := os.ReadFile(filepath.Join(n.Dir, "node.json"))
		if err != nil {
			continue
		}
		var info struct {
			Kafka, Redis, HTTP string
			PID                int
		}
		if err := json.Unmarshal(b, &info); err != nil {
			return fmt.Errorf("node.json: %w", err)
		}
		if info.PID == n.PID {
			n.Kafka, n.Redis, n.HTTP = info.Kafka, info.Redis, info.HTTP
			return nil
		}
	}
	return fmt.Errorf("does not serve after %s", startWithin)
}

// Stop ends the process with SIGTERM and fails the test unless it stops cleanly
// in the time that the command promises.
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	n.Signal(syscall.SIGTERM)
	select {
	case <-n.Exited():
		if err := n.Err(); err != nil {
			t.Fatalf("stop the node: %v; its last lines:\n%s", err, n.log)
		}
	case <-time.After(stopWithin):
		t.Fatalf("the node runs %s after SIGTERM; its last lines:\n%s", stopWithin, n.log)
	}
	if _, err := os.Stat(filepath.Join(n.Dir, "node.json")); !os.IsNotExist(err) {
		t.Errorf("node.json is still there after a clean stop (%v)", err)
	}
}

// Log returns the last lines that the process printed.
func (n *Node) Log() string { return n.log.String() }

// RSS returns the resident memory of the process in bytes.
func (n *Node) RSS(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID))
	if err != nil {
		t.Fatalf("the node's memory: %v; its last lines:\n%s", err, n.log)
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("the node's memory: no VmRSS in its status")
	return 0
}

// Files counts the descriptors that the process has open.
func (n *Node) Files(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID))
	if err != nil {
		t.Fatalf("the node's open files: %v; its last lines:\n%s", err, n.log)
	}
	return len(all)
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 32 << 10

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - tailBytes; over > 0 {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
