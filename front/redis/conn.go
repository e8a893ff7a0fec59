package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// errLimit means that the peer ran into a limit of Config.
var errLimit = lattice.E(lattice.TooLarge, errors.New("limit exceeded"))

// errDraining means that the server executes no more commands.
var errDraining = errors.New("draining")

const (
	// baseBytes is what a connection's receive buffer holds when it is idle; it is
	// not counted in the server's budget.
	baseBytes = 4 << 10
	// shrinkAfter is how long a larger one is kept for more.
	shrinkAfter = 10 * time.Second
	// blockedBytes is how much a blocked client may send ahead.
	blockedBytes = 1 << 20
)

// conn is one client's connection. run reads, executes and writes replies.
type conn struct {
	srv      *Server
	nc       net.Conn // changed under mu; none of use in a loop
	home     *loop    // that it may join; nil: none
	id       int64
	peer     string // host:port
	local    net.Addr
	ip       netip.Addr
	since    time.Time
	ctx      context.Context // ends when the server stops for good
	draining chan struct{}   // closed when no more commands are executed

	// Owned by run.
	in         resp.Parser
	w          resp.Writer // replies that nobody got yet
	held       int         // of the server's budget, for in, w and extra
	extra      int         // bytes of what the session keeps
	batch      batch
	sess       session
	waiting    *waiter // what the client is blocked on
	ending     bool    // close once the replies are written
	writeUntil time.Time
	pending    undecided
	loop       *loop // that serves it, instead of run; changed under mu
	seat       seat

	// last and the sizes are written by run for CLIENT LIST.
	last      atomic.Pointer[command]
	lastAt    atomic.Int64 // ms since 1970
	inBytes   atomic.Int64 // held by in
	unread    atomic.Int64 // bytes received and not executed
	outBytes  atomic.Int64 // capacity of w
	blockedOn atomic.Bool
	pushRESP3 atomic.Bool   // messages are written in RESP3
	wake      chan struct{} // holds a token after nudge

	mu       sync.Mutex
	moved    sync.Cond // writing or closed changed
	deadline time.Time // for reading; zero: none
	nudged   bool
	closed   bool
	writing  bool // somebody writes to nc
	queue    queue
	shown    shown
}

func newConn(s *Server, nc net.Conn, ctx context.Context, draining chan struct{}) *conn {
	c := &conn{
		srv: s, nc: nc, id: s.nextID.Add(1), ctx: ctx, draining: draining, since: s.cfg.Clock.Now(),
		peer: nc.RemoteAddr().String(), local: nc.LocalAddr(), wake: make(chan struct{}, 1),
	}
	if t, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.ip = t.AddrPort().Addr().Unmap()
	}
	c.moved.L = &c.mu
	if s.cfg.TLS != nil {
		c.nc = tls.Server(nc, s.cfg.TLS)
	}
	c.in.Limits = resp.Limits{Args: s.cfg.MaxArgs, Bulk: s.cfg.MaxBulkBytes}
	c.in.Grow(baseBytes)
	c.start()
	c.batch.init(c)
	c.lastAt.Store(c.since.UnixMilli())
	return c
}

// run serves the connection until it closes or drains, or moves to a loop.
func (c *conn) run() {
	if err := c.serve(); !errors.Is(err, errMoved) {
		c.part(err)
	}
}

// part ends the connection.
func (c *conn) part(err error) {
	if c.waiting != nil && !c.srv.blocked.end(c.waiting) {
		c.unblocked() // it was served: the reply is its
	}
	if !errors.Is(err, net.ErrClosed) {
		// What was executed is answered, also when the peer's next bytes were wrong.
		_ = c.settle()
	}
	c.leave()
	c.close()
	c.mu.Lock()
	for c.writing {
		c.moved.Wait()
	}
	c.takeQueue()
	c.mu.Unlock()
	c.srv.budget.give(c.held)
	c.srv.forget(c)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errDraining), errors.Is(err, net.ErrClosed), errors.Is(err, errQuit):
	default:
		c.srv.metrics.dropped.Inc()
		c.srv.log.DebugContext(c.ctx, "redis: connection closed", slog.String("peer", c.peer), slog.Any("err", err))
	}
}

// errQuit means that the client asked to be closed.
var errQuit = errors.New("quit")

// serve executes what comes, in order.
func (c *conn) serve() error {
	if rest := c.seat.rest; len(rest) > 0 {
		c.seat.rest = nil
		if err := c.write(rest); err != nil {
			return err
		}
	}
	for {
		if err := c.execute(); err != nil {
			return err
		}
		if c.waiting != nil {
			for c.waiting != nil {
				if err := c.await(); err != nil {
					return err
				}
			}
			continue // with what was sent meanwhile
		}
		if c.seat.batches >= calmBatches && c.home.join(c) {
			return errMoved
		}
		if err := c.fill(time.Time{}); err != nil {
			return err
		}
	}
}

// fill reads once. A zero until means no other deadline than the server's; when
// until passes, or the connection was nudged, it returns nil with nothing read.
func (c *conn) fill(until time.Time) error {
	free := c.in.Free()
	if len(free) == 0 {
		if err := c.grow(); err != nil {
			return err
		}
		free = c.in.Free()
	}
	c.unread.Store(int64(c.in.Buffered()))
	if nudged := c.arm(until); nudged {
		return c.drained()
	}
	n, err := c.nc.Read(free)
	if n > 0 {
		c.in.Filled(n)
		c.srv.stats.bytesIn.Add(int64(n))
		c.srv.stats.reads.Add(1)
		c.lastAt.Store(time.Now().UnixMilli())
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return c.overdue(until)
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (c *conn) drained() error {
	select {
	case <-c.draining:
		return errDraining
	default:
		return nil
	}
}

// grow makes room for an unfinished command.
func (c *conn) grow() error {
	want := max(c.in.Want(), baseBytes)
	if want > c.srv.cfg.MaxQueryBytes+baseBytes {
		if want = c.srv.cfg.MaxQueryBytes + baseBytes; c.in.Size() >= want {
			c.srv.stats.queryLimit.Add(1)
			return fmt.Errorf("more than %d bytes of commands: %w", c.srv.cfg.MaxQueryBytes, errLimit)
		}
	}
	if err := c.hold(want + cap(c.w.Bytes())); err != nil {
		return err
	}
	c.in.Grow(want)
	c.inBytes.Store(int64(c.in.Size()))
	return nil
}

// hold makes the connection's share of the server's budget what its buffers
// need, n bytes.
func (c *conn) hold(n int) error {
	n = max(0, n+c.extra-baseBytes-4*replyBytes)
	switch {
	case n > c.held:
		if !c.srv.budget.take(n - c.held) {
			c.srv.stats.queryLimit.Add(1)
			return fmt.Errorf("no room in MaxBufferedBytes: %w", errLimit)
		}
	case n < c.held:
		c.srv.budget.give(c.held - n)
	}
	c.held = n
	return nil
}

// arm sets the read deadline, and reports whether the connection was nudged.
// With until, that is the deadline; otherwise what idleness and the size of the
// buffer say. Moving a deadline costs more than a short read, so it is moved
// only when it lies far from where it should.
func (c *conn) arm(until time.Time) (nudged bool) {
	wait := c.srv.settings.timeout()
	if c.waiting != nil || c.sess.subscribed() {
		wait = 0 // waiting is not idling
	}
	if look := min(shrinkAfter, c.srv.cfg.StallTimeout); c.in.Size() > 2*baseBytes && (wait == 0 || wait > look) {
		wait = look
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nudged {
		c.nudged = false
		c.setDeadline(time.Time{})
		return true
	}
	switch {
	case !until.IsZero():
		c.setDeadline(until)
	case wait == 0:
		if !c.deadline.IsZero() {
			c.setDeadline(time.Time{})
		}
	default:
		if d := time.Until(c.deadline); d > wait || d < wait-wait/8 {
			c.setDeadline(time.Now().Add(wait))
		}
	}
	return false
}

// setDeadline moves the read deadline. The caller holds c.mu.
func (c *conn) setDeadline(t time.Time) {
	c.deadline = t
	c.nc.SetReadDeadline(t) //nolint:errcheck // fails on a closed connection only, which Read reports
}

// overdue decides what a passed read deadline means.
func (c *conn) overdue(until time.Time) error {
	c.mu.Lock()
	c.nudged = false
	c.setDeadline(time.Time{})
	c.mu.Unlock()
	if err := c.drained(); err != nil {
		return err
	}
	if !until.IsZero() || c.waiting != nil {
		return nil
	}
	if c.in.Buffered() == 0 {
		c.in.Shrink(baseBytes)
		c.inBytes.Store(int64(c.in.Size()))
		if err := c.hold(c.in.Size() + cap(c.w.Bytes())); err != nil {
			return err
		}
	}
	silent := time.Duration(time.Now().UnixMilli()-c.lastAt.Load()) * time.Millisecond
	idle := c.srv.settings.timeout()
	switch {
	case idle > 0 && silent >= idle && !c.sess.subscribed():
		return fmt.Errorf("idle for %v: %w", idle, errLimit)
	case c.held > 0 && silent >= c.srv.cfg.StallTimeout:
		return fmt.Errorf("an unfinished command of %d bytes for %v: %w", c.in.Buffered(), c.srv.cfg.StallTimeout, errLimit)
	}
	return nil
}

// nudge wakes run from wherever it is blocked.
func (c *conn) nudge() {
	c.mu.Lock()
	c.nudged = true
	c.nc.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails on a closed connection only
	c.moved.Broadcast()
	l := c.loop
	c.mu.Unlock()
	if l != nil {
		l.call(c)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close ends the connection: whoever reads or writes finds out.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	c.moved.Broadcast()
	nc, l := c.nc, c.loop
	c.mu.Unlock()
	nc.Close()
	if l != nil {
		l.call(c)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// leave takes the connection out of everything that knows it.
func (c *conn) leave() {
	c.srv.pubsub.leave(c)
	c.unwatchPrefixes()
}
