package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// process is a server of another program, with a directory of its own.
type process struct {
	cmd    *exec.Cmd
	dir    string
	log    string // file of what it says
	exited chan struct{}
	err    error // set before exited closes
}

// launch starts a command that ends with us, however we end. Its output goes to
// a file in dir.
func launch(dir string, cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, dir: dir, log: filepath.Join(dir, "output"), exited: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// To Linux the parent is the thread that forked: it must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) PID() int { return p.cmd.Process.Pid }

// await polls ready until it returns nil.
func (p *process) await(ctx context.Context, ready func() error) error {
	const patience = 60 * time.Second
	for end := time.Now().Add(patience); ; {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.exited:
			return fmt.Errorf("%s ended: %w; it said: %s", filepath.Base(p.cmd.Path), errors.Join(p.err, err), p.tail())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is not ready after %v: %w; it said: %s", filepath.Base(p.cmd.Path), patience, err, p.tail())
		}
	}
}

// end stops the process as its own tools would, and by force when it does not
// obey. The directory stays.
func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil // Java answers a signal with an exit code of its own: no error
	case <-time.After(30 * time.Second):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return fmt.Errorf("%s did not stop when asked to", filepath.Base(p.cmd.Path))
}

// Stop ends the process and removes its directory.
func (p *process) Stop() error { return errors.Join(p.end(), os.RemoveAll(p.dir)) }

func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-600):])
}

// answers returns a readiness check: something listens at the port.
func answers(port int) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", address(port), time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePort returns a port that is free now, below the range from which systems
// take those of outgoing connections.
func freePort() (int, error) {
	const low, high = 20000, 32000
	for range 100 {
		l, err := net.Listen("tcp", address(low+rand.IntN(high-low)))
		if err == nil {
			defer l.Close()
			return l.Addr().(*net.TCPAddr).Port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", low, high)
}
