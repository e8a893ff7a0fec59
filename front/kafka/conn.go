package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/share"
)

// errLimit means that the peer ran into a limit of Config.
var errLimit = lattice.E(lattice.TooLarge, errors.New("limit exceeded"))

// conn is one client's connection. run reads; answers leave through the queue.
type conn struct {
	srv      *Server
	nc       net.Conn
	addr     netip.Addr
	ctx      context.Context // ends when the server stops for good
	draining chan struct{}   // closed when no more requests are taken

	// deadline is owned by run: when the read deadline falls due, so that it is
	// moved now and then and not with each frame.
	deadline time.Time
	prefix   [4]byte   // owned by run
	proven   int       // owned by run: bytes of the largest frame that came whole
	room     allowance // owned by run: of the frame that is being read

	mu       sync.Mutex
	moved    sync.Cond // the queue got shorter, the writer ended, or the connection closed
	head     *request  // oldest request without a written answer
	tail     *request
	inFlight int   // requests in the queue
	bytes    int64 // their frames and answers
	writing  bool  // a writer goroutine exists
	closed   bool
	sessions map[*share.Session]struct{} // share sessions that end with the connection
}

func newConn(s *Server, nc net.Conn, ctx context.Context, draining chan struct{}) *conn {
	c := &conn{srv: s, nc: nc, addr: addrOf(nc.RemoteAddr()), ctx: ctx, draining: draining}
	c.moved.L = &c.mu
	if s.cfg.TLS != nil {
		c.nc = tls.Server(nc, s.cfg.TLS)
	}
	return c
}

// run serves the connection until it closes or drains.
func (c *conn) run(drain time.Duration) {
	err := c.serve()
	if errors.Is(err, errDraining) {
		c.drain(drain)
	}
	c.close()
	c.hurry()
	c.mu.Lock()
	for c.writing {
		c.moved.Wait()
	}
	c.mu.Unlock()
	c.disown()
	c.srv.forget(c)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errDraining), errors.Is(err, net.ErrClosed):
	default:
		c.srv.metrics.dropped.Inc()
		c.srv.log.DebugContext(c.ctx, "kafka: connection closed", slog.String("peer", c.addr.String()), slog.Any("err", err))
	}
}

// errDraining means that the server takes no more requests.
var errDraining = errors.New("draining")

// serve reads requests and starts them, in order.
func (c *conn) serve() error {
	for {
		if err := c.admit(); err != nil {
			return err
		}
		frame, err := c.readFrame()
		if err != nil {
			return err
		}
		if err := c.dispatch(frame); err != nil {
			return err
		}
	}
}

// admit waits until the requests in flight leave room for another.
func (c *conn) admit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return net.ErrClosed
		case c.isDraining():
			return errDraining
		case c.inFlight < c.srv.cfg.MaxInFlight && c.bytes < c.srv.cfg.MaxInFlightBytes:
			return nil
		}
		c.moved.Wait()
	}
}

func (c *conn) isDraining() bool {
	select {
	case <-c.draining:
		return true
	default:
		return false
	}
}

// readFrame reads one length-prefixed frame. The caller owes frames.give for
// its length.
func (c *conn) readFrame() (*buffer, error) {
	size, err := c.readLength()
	if err != nil {
		return nil, err
	}
	c.room = allowance{of: c.srv.frames}
	frame, err := c.readBody(size)
	if err != nil {
		c.room.drop()
		return nil, fmt.Errorf("read a frame of %d bytes: %w", size, err)
	}
	c.room.whole()
	c.srv.metrics.bytesIn.Add(float64(size + len(c.prefix)))
	return frame, nil
}

// readLength waits for the next frame as long as the connection may be idle. No
// buffer is held meanwhile.
func (c *conn) readLength() (int, error) {
	got := 0
	for got < len(c.prefix) {
		idle := c.srv.cfg.IdleTimeout
		if now := time.Now(); c.deadline.Sub(now) < idle-idle/8 {
			c.setDeadline(now.Add(idle))
		}
		n, err := c.nc.Read(c.prefix[got:])
		got += n
		switch {
		case got == len(c.prefix):
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.isDraining() {
				return 0, errDraining
			}
			if got > 0 || !c.pending() {
				return 0, fmt.Errorf("idle for %v: %w", idle, errLimit)
			}
			c.deadline = time.Time{} // a long poll or a join is out: that is not idle
		case got > 0 && err == io.EOF:
			return 0, io.ErrUnexpectedEOF
		default:
			return 0, err
		}
	}
	size := int(int32(binary.BigEndian.Uint32(c.prefix[:])))
	if size <= 0 || size > c.srv.cfg.MaxRequestBytes {
		return 0, fmt.Errorf("frame of %d bytes, 1 to %d are taken: %w", size, c.srv.cfg.MaxRequestBytes, errLimit)
	}
	return size, nil
}

// A frame's buffer holds what was received and one step more, and so does its
// share of the server's budget: a length is not believed before the bytes are
// here, beyond what this connection has sent in one frame before. A producer's
// large frames are thus not copied from step to step.
const (
	firstStep = 64 << 10
	nextStep  = 1 << 20
)

// readBody reads size bytes, for which it takes room. The caller returns that.
func (c *conn) readBody(size int) (*buffer, error) {
	var f *buffer
	held := 0
	for f == nil || len(f.b) < size {
		if f == nil || len(f.b) == held {
			step := max(firstStep, c.proven)
			if f != nil {
				step = max(held, nextStep)
			}
			step = min(step, size-held)
			if !c.room.take(int64(step), c.srv.cfg.ReadTimeout, c.draining) {
				c.srv.bufs.put(f)
				return nil, fmt.Errorf("no room in MaxBufferedBytes: %w", errLimit)
			}
			held += step
			f = c.grow(f, held)
		}
		n, err := c.nc.Read(f.b[len(f.b):held])
		f.b = f.b[:len(f.b)+n]
		if len(f.b) == size {
			c.proven = max(c.proven, size)
			break
		}
		if err != nil {
			c.srv.bufs.put(f)
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		// The rest is on its way, or the peer stalls: no longer than ReadTimeout.
		if now := time.Now(); c.deadline.Sub(now) > c.srv.cfg.ReadTimeout || len(f.b) == held {
			c.setDeadline(now.Add(c.srv.cfg.ReadTimeout))
		}
	}
	return f, nil
}

// grow returns a buffer that holds n bytes and begins with those of f, if any.
func (c *conn) grow(f *buffer, n int) *buffer {
	if f != nil && cap(f.b) >= n {
		return f
	}
	grown := c.srv.bufs.get(n)
	if f != nil {
		grown.b = append(grown.b, f.b...)
		c.srv.bufs.put(f)
	}
	return grown
}

// setDeadline moves the read deadline, but never takes back a nudge.
func (c *conn) setDeadline(t time.Time) {
	c.deadline = t
	c.nc.SetReadDeadline(t) //nolint:errcheck // fails on a closed connection only, which Read reports
	if c.isDraining() {
		c.nc.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // as above
	}
}

// nudge wakes run from wherever it is blocked, to see that the server drains.
func (c *conn) nudge() {
	c.nc.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails on a closed connection only
	c.mu.Lock()
	c.moved.Broadcast()
	c.mu.Unlock()
}

// drain lets the requests in flight finish, for a while.
func (c *conn) drain(d time.Duration) {
	c.hurry()
	late := time.AfterFunc(d, c.close)
	defer late.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.head != nil && !c.closed {
		c.moved.Wait()
	}
}

// close ends the connection: run and the writer find out by themselves.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	c.moved.Broadcast()
	c.mu.Unlock()
	c.nc.Close()
}

func (c *conn) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head != nil
}

// hurry ends everything that waits for something to happen elsewhere.
func (c *conn) hurry() {
	c.mu.Lock()
	var waits []func()
	for r := c.head; r != nil; r = r.next {
		if r.hurry != nil {
			waits = append(waits, r.hurry)
		}
	}
	c.mu.Unlock()
	for _, f := range waits {
		f()
	}
}

// advertised is where this client is told to find the node: the configured
// address, or the one that the client reached.
func (c *conn) advertised() (host string, port int32) {
	host, port = c.srv.cfg.AdvertisedHost, c.srv.cfg.AdvertisedPort
	if local, ok := c.nc.LocalAddr().(*net.TCPAddr); ok {
		if host == "" {
			host = local.AddrPort().Addr().Unmap().WithZone("").String()
		}
		if port == 0 {
			port = int32(local.Port)
		}
	}
	return host, port
}
