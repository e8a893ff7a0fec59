// Package realpostgres runs a real PostgreSQL from the machine's binaries, on a
// unix socket in a temporary directory, for tests of what speaks to one. It
// promises that no server and no file outlives the test. PostgreSQL does not run
// as root, so root's tests run it as another user.
package realpostgres

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// startWithin bounds a start, recovery included, on a busy machine.
const startWithin = time.Minute

// Server is one database cluster. Its methods belong to the test's goroutine.
type Server struct {
	bin, dir  string
	args      []string
	as        *syscall.Credential // nil: whoever runs the test
	process   *realnode.Process
	log       *os.File
	databases atomic.Int64
}

// Start makes an empty cluster and starts a server on it. The server does not
// sync its files, since a killed process leaves them to the kernel; args, such as
// "-c", "fsync=on", come later and win.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{bin: binaries(t), args: args}
	dir, err := os.MkdirTemp("", "pg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		s.as = unprivileged(t)
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.log.Close() })
	s.run(t, "initdb", "-D", s.data(), "-U", "lattice", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	s.Start(t)
	t.Cleanup(s.Kill)
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts the server again after Kill or Stop and waits until it serves.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	cmd := s.command("postgres", append([]string{
		"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50", "-c", "deadlock_timeout=20ms",
		// So that a killed server leaves nothing behind in the kernel.
		"-c", "shared_memory_type=mmap", "-c", "dynamic_shared_memory_type=mmap",
	}, s.args...)...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	p, err := realnode.Spawn(cmd)
	if err != nil {
		t.Fatalf("start postgres: %v", err)
	}
	s.process = p
	for end := time.Now().Add(startWithin); !s.ready(cmd.Process.Pid); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.Exited():
			t.Fatalf("postgres ended (%v); its last lines:\n%s", p.Err(), s.Log())
		default:
		}
		if time.Now().After(end) {
			p.Kill()
			t.Fatalf("postgres does not serve after %s; its last lines:\n%s", startWithin, s.Log())
		}
	}
}

// ready reads what the server says of itself, as pg_ctl does: the eighth line of
// the file that names its process.
func (s *Server) ready(pid int) bool {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := strings.Split(string(b), "\n")
	return err == nil && len(lines) > 7 && strings.TrimSpace(lines[0]) == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	s.run(t, "createdb", "-h", s.dir, "-U", "lattice", name)
	return "postgres://lattice@/" + name + "?host=" + s.dir
}

// Kill ends the server as kill -9 of all its processes does.
func (s *Server) Kill() {
	s.process.Kill()
	// Its children see that it is gone and go, too. A new one would refuse to start before that.
	for end := time.Now().Add(startWithin); time.Now().Before(end) && s.attached(); time.Sleep(5 * time.Millisecond) {
	}
}

// attached reports whether a process of this cluster is still there.
func (s *Server) attached() bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cwd")
	return slices.ContainsFunc(dirs, func(d string) bool {
		to, err := os.Readlink(d)
		return err == nil && to == s.data()
	})
}

// Stop ends the server cleanly; it cuts its clients off.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.process.Signal(syscall.SIGINT)
	select {
	case <-s.process.Exited():
	case <-time.After(startWithin):
		t.Fatalf("postgres does not stop; its last lines:\n%s", s.Log())
	}
}

// Log returns the last lines that the server wrote.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-8<<10):])
}

// CPU returns the processor time that the server's processes have used so far,
// those that are gone included.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var ticks int64
	for _, file := range stats {
		if to, err := os.Readlink(filepath.Join(filepath.Dir(file), "cwd")); err != nil || to != s.data() {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		for i := 11; i < 15 && i < len(f); i++ { // utime, stime, and those of children that were waited for
			n, _ := strconv.ParseInt(f[i], 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + s.dir}
	if s.as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	}
	return cmd
}

func (s *Server) run(t testing.TB, name string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := s.command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, &out)
	}
}

// binaries returns the directory of initdb and postgres, which Debian keeps off
// the PATH.
func binaries(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p)
	}
	t.Fatal("no PostgreSQL to test with: install its server with make deps (Debian: apt-get install postgresql)")
	return ""
}

func version(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
	return n
}

// unprivileged finds whom to run as for root: Debian's package makes the user
// postgres; nobody is everywhere.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Fatalf("PostgreSQL does not run as root, and there is no user to run it as: %v", errors.Join(errs...))
	return nil
}
