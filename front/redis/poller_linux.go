package redis

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// poller tells which of many sockets have something to read (epoll, edge-triggered:
// it says so once, for all that has come by then). Only wakeUp may be called from
// elsewhere than where wait is.
type poller struct {
	epoll, wake int
	events      [256]unix.EpollEvent
}

// socket is a connection's descriptor, without what the runtime adds.
type socket int

const noSocket socket = -1

// errAgain means that a socket has nothing to read, or no room, now.
var errAgain error = unix.EAGAIN

func newPoller() (*poller, error) {
	p := &poller{}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(p.epoll) //nolint:errcheck // nothing was done with it
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := p.control(unix.EPOLL_CTL_ADD, socket(p.wake)); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) control(op int, s socket) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(s)}
	if err := unix.EpollCtl(p.epoll, op, int(s), &e); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (p *poller) add(s socket) error { return p.control(unix.EPOLL_CTL_ADD, s) }

func (p *poller) remove(s socket) { _ = p.control(unix.EPOLL_CTL_DEL, s) }

// wait yields the sockets that have something to read, and whether their peers have
// ended. With block it waits until there is one, or wakeUp is called.
func (p *poller) wait(block bool, ready func(s socket, ended bool)) error {
	// A look is cheaper than a wait, which gives the processor away.
	n, err := unix.EpollWait(p.epoll, p.events[:], 0)
	for block && n == 0 && err == nil || errors.Is(err, unix.EINTR) {
		timeout := 0
		if block {
			timeout = -1
		}
		n, err = unix.EpollWait(p.epoll, p.events[:], timeout)
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, e := range p.events[:n] {
		if int(e.Fd) == p.wake {
			var count [8]byte
			_, _ = unix.Read(p.wake, count[:]) // empty is as good
			continue
		}
		ready(socket(e.Fd), e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
	}
	return nil
}

// wakeUp ends a wait, or the next one. Safe for concurrent use, until close.
func (p *poller) wakeUp() {
	_, _ = unix.Write(p.wake, []byte{0, 0, 0, 0, 0, 0, 0, 1}) // full is as good
}

func (p *poller) close() {
	unix.Close(p.epoll) //nolint:errcheck // holds nothing
	unix.Close(p.wake)  //nolint:errcheck // likewise
}

// take makes a socket of a connection, which is closed.
func take(nc net.Conn) (socket, error) {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return noSocket, errors.ErrUnsupported
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return noSocket, err
	}
	s, dup := noSocket, error(nil)
	err = raw.Control(func(fd uintptr) {
		n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		s, dup = socket(n), err
	})
	if err == nil {
		err = dup
	}
	if err != nil {
		return noSocket, err
	}
	nc.Close()
	return s, nil
}

// conn makes a connection of a socket, which is closed.
func (s socket) conn() (net.Conn, error) {
	f := os.NewFile(uintptr(s), "redis connection")
	defer f.Close()
	return net.FileConn(f)
}

// read reads what is there. errAgain: nothing.
func (s socket) read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), b)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// write writes what there is room for. errAgain: less than all.
func (s socket) write(b []byte) (int, error) {
	for {
		n, err := unix.Write(int(s), b)
		if err == nil && n < len(b) {
			err = errAgain
		}
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

func (s socket) close() { unix.Close(int(s)) } //nolint:errcheck // nothing of it is needed any more
