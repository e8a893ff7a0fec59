//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// console is a shell session on a pseudo-terminal, and who sits in front of it.
type console struct {
	t    *testing.T
	m    *os.File // the keyboard and the screen
	cmd  *exec.Cmd
	gone chan struct{} // closed when nothing more comes

	mu   sync.Mutex
	all  []byte // what the screen was sent
	seen int    // of it, what was expected
}

// openPTY returns both ends of a new pseudo-terminal, 40 rows by 160 columns.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	raw, err := m.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		if failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if failed == nil {
			failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 160})
		}
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m, s
}

// openConsole begins a session of "lattice shell" on a data directory.
func openConsole(t *testing.T, data string) *console {
	t.Helper()
	m, s := openPTY(t)
	c := &console{t: t, m: m, gone: make(chan struct{})}
	c.cmd = exec.Command("lattice", "shell", "--data", data)
	c.cmd.Env = append(os.Environ(), "TERM=xterm", "GORACE=atexit_sleep_ms=0")
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = s, s, s
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	go func() {
		defer close(c.gone)
		b := make([]byte, 4096)
		for {
			n, err := m.Read(b)
			c.mu.Lock()
			c.all = append(c.all, b[:n]...)
			c.mu.Unlock()
			if err != nil {
				return // EIO: the other end is closed
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.gone
		_ = m.Close()
	})
	return c
}

// see waits until the screen shows something behind what was seen before.
func (c *console) see(what string) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		c.mu.Lock()
		i := bytes.Index(c.all[c.seen:], []byte(what))
		if i >= 0 {
			c.seen += i + len(what)
		}
		rest := string(c.all[c.seen:])
		c.mu.Unlock()
		if i >= 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("the screen never shows %q; it has\n%q", what, rest)
		}
	}
}

// press sends keys.
func (c *console) press(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c.m, keys); err != nil {
		c.t.Fatal(err)
	}
}

// does types a line, and sees its echo, what it brings, and the next prompt.
func (c *console) does(line, prompt string, wants ...string) {
	c.t.Helper()
	c.press(line)
	c.see(line)
	c.press("\r")
	for _, w := range wants {
		c.see(w)
	}
	c.see(prompt)
}

// ends waits for the end of the session, which must be a good one.
func (c *console) ends() {
	c.t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			c.t.Fatalf("the session ended with %v: %q", err, c.all)
		}
	case <-time.After(30 * time.Second):
		c.t.Fatal("the session does not end")
	}
}

const (
	enter, tab, up, down = "\r", "\t", "\x1b[A", "\x1b[B"
	left, home           = "\x1b[D", "\x01"
	interrupt, endOfFile = "\x03", "\x04"
	mainPrompt           = "lattice> "
)

// nodeFor runs a node without listeners on a new directory.
func nodeFor(t *testing.T) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	cmd := exec.Command("lattice", "up", "--data", data, "--kafka", "", "--redis", "", "--http", "")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(data, "node.json")); err == nil {
			return data
		}
		if time.Now().After(end) {
			t.Fatalf("the node does not come up: %s", out.String())
		}
	}
}

// TestShellOnATerminal is a session as somebody has it at a terminal.
func TestShellOnATerminal(t *testing.T) {
	data := nodeFor(t)
	c := openConsole(t, data)
	c.see(`Type a command, "help" for a list, "quit" to end.`)
	c.see(mainPrompt)

	// Every command that has a short name, and those of the session.
	c.does("put greeting 'hello world'", mainPrompt)
	c.does("get greeting", mainPrompt, "hello world\r\n")
	c.does("get nothing", mainPrompt, `there is no key "nothing"`, "next: lattice kv list")
	c.does("status", mainPrompt, "state", "ready", "durability")
	c.does("init", mainPrompt, "next: nothing is left to do: a node runs there")
	c.does("init --data "+filepath.Join(t.TempDir(), "other"), mainPrompt, "now has")
	c.does("create-store press", mainPrompt, "created store press")
	c.does("list-stores", mainPrompt, "main", "*", "press")
	c.does("use press", "lattice press> ", "this session works with store press")
	c.does("get greeting", "lattice press> ", `there is no key "greeting"`)
	c.does("use nowhere", "lattice press> ", `no store "nowhere"`)
	c.does("use main", "lattice main> ", "this session works with store main")
	c.does("keys", "lattice main> ", "greeting")
	c.does("delete greeting", "lattice main> ", "deleted 1")
	c.does(`get "greeting`, "lattice main> ", "ends within a quotation")
	c.does("kv put -x", "lattice main> ", "unknown shorthand")
	c.does("nonsense", "lattice main> ", `unknown command "nonsense"`)

	// Keys: completion of commands, of keys, and a list where there are several.
	c.does("put green tea", "lattice main> ")
	c.press("ge" + tab)
	c.see("get ")
	c.press("gr" + tab)
	c.see("green ")
	c.press(enter)
	c.see("tea\r\n")
	c.see("lattice main> ")
	c.press("kv h" + tab)
	c.see("heads  history")
	c.press("i" + tab)
	c.see("history ")
	c.press("green" + enter)
	c.see("put")
	c.see("tea")
	c.see("lattice main> ")

	// History: up, down, and editing what it brings.
	c.press(up + up + up + down)
	c.see("get green ")
	c.press(home + strings.Repeat("\x1b[C", len("get green")) + left + left + left + left + left + left + enter)
	c.see("tea\r\n")
	c.see("lattice main> ")

	// Ctrl-C empties a line, and ends a command, and not the session; twice as well.
	c.press("delete green")
	c.see("delete green")
	c.press(interrupt)
	c.does("get green", "lattice main> ", "tea\r\n")
	for range 2 {
		c.press("kv watch --current" + enter)
		c.see("tea")
		c.press(interrupt)
		c.see("lattice main> ")
	}
	c.press("quit" + enter)
	c.ends()

	// The next session has the lines of this one, and Ctrl-D ends it, but not on a line
	// that is not empty.
	c = openConsole(t, data)
	c.see(mainPrompt)
	c.press(up)
	c.see("quit")
	c.press(up)
	c.see("kv watch --current")
	c.press(interrupt)
	c.press("get green" + endOfFile)
	c.see("get green")
	c.press(enter)
	c.see("tea\r\n")
	c.see(mainPrompt)
	c.press(endOfFile)
	c.ends()
}

// TestShellHelps: each command has help in the session, which names it.
func TestShellHelps(t *testing.T) {
	c := openConsole(t, nodeFor(t))
	c.see(mainPrompt)
	c.does("help", mainPrompt, "put", "kv put", "use", "quit", "verify", `"help COMMAND" tells more about one.`)
	for name, long := range shortNames() {
		c.does("help "+name, mainPrompt, "lattice "+strings.Join(long, " "))
	}
	for _, cmd := range newRoot(&app{stdout: io.Discard, stderr: io.Discard}).Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "shell" {
			continue
		}
		c.does("help "+cmd.Name(), mainPrompt, "Usage:", "lattice "+cmd.Name())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				c.does("help "+cmd.Name()+" "+sub.Name(), mainPrompt, "lattice "+cmd.Name()+" "+sub.Name())
			}
		}
	}
	c.press("quit" + enter)
	c.ends()
}
