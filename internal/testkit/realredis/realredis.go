// Package realredis runs a real Redis for tests that compare with it. It promises
// that no server outlives the test.
package realredis

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// startWithin bounds a start on a busy machine.
const startWithin = time.Minute

// Start starts a server on a socket and returns the socket's path.
func Start(t testing.TB) string {
	t.Helper()
	return start(t, "--port", "0")
}

// StartTCP starts a server on a socket and on a port of loopback, and returns
// the address of that.
func StartTCP(t testing.TB) string {
	t.Helper()
	addr := realnode.FreeAddress(t)
	start(t, "--port", addr[len("127.0.0.1:"):], "--bind", "127.0.0.1")
	return addr
}

// start returns the socket's path.
func start(t testing.TB, args ...string) string {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		// Debian's redis-tools has the same program by another name.
		if bin, err = exec.LookPath("redis-check-rdb"); err != nil {
			t.Fatalf("no redis-server to compare with; install it: scripts/deps.sh (Debian: apt-get install redis-tools)")
		}
	}
	dir, err := os.MkdirTemp("", "redis") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sock := filepath.Join(dir, "s")
	var log bytes.Buffer
	cmd := exec.Command(bin, append(args, "--unixsocket", sock, "--save", "", "--appendonly", "no", "--dir", dir, "--enable-debug-command", "yes")...)
	cmd.Args[0] = "redis-server"
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	p, err := realnode.Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	for deadline := time.Now().Add(startWithin); ; time.Sleep(10 * time.Millisecond) {
		if c, err := respclient.Dial(sock); err == nil {
			v, err := c.Do("PING")
			c.Close()
			if err == nil && v.Str == "PONG" {
				return sock
			}
		}
		select {
		case <-p.Exited():
			t.Fatalf("redis-server ended:\n%s", &log)
		default:
		}
		if time.Now().After(deadline) {
			p.Kill()
			t.Fatalf("redis-server does not answer:\n%s", &log)
		}
	}
}
