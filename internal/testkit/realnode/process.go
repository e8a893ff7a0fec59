package realnode

import (
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// Process is a child that ends with its parent, however that ends.
type Process struct {
	cmd    *exec.Cmd
	told   atomic.Bool   // somebody here wants it to end
	exited chan struct{} // closed when the process is gone and its output is read
	err    error         // of Wait; set before exited closes
}

// Spawn starts a command. Whoever reads its pipes by hand must be done before
// the process is seen as gone, so use writers instead.
func Spawn(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// To Linux the parent is the thread that forked: it must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	return p, <-started
}

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err returns how the process ended: nil for exit code 0. It waits for the end.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Signal asks the process to end. One that is gone already is as good.
func (p *Process) Signal(s syscall.Signal) {
	p.told.Store(true)
	_ = p.cmd.Process.Signal(s)
}

// Kill ends the process as kill -9 does and waits until it is gone. A second
// call does nothing.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}
