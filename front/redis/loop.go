package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
)

// A loop serves connections that ask for state and nothing else, many at a time: it
// reads what all of them have sent, runs it in one transaction, or in two, one of
// which only reads, and writes their replies. So a lock, an entry and its signature
// are shared by all who have something to do, and nobody is put to sleep and woken
// for each command.
//
// A connection is in the loop while all that it sends is short commands on state.
// For whatever else there is it gets a goroutine of its own (conn.run) and the loop
// forgets it: a command of another kind, one that is larger than the buffer, a
// mistake, a peer that does not take its replies, TLS, a limit on idle time. It comes back after
// calmBatches of commands on state.
//
// What was written is decided by the loop itself, when it has done what there is to do,
// in one entry: then all replies leave. That takes a sync at level fsync. Where syncs
// are slow, it is waited for outside of the loop, which serves others meanwhile.
type loop struct {
	srv      *Server
	ctx      context.Context // ends when the server stops for good
	draining chan struct{}   // closed when no more commands are executed
	spawn    func(func())    // runs something that the server waits for
	poll     *poller
	update   func(func(structs.Rows) error) (Ticket, error)
	hurries  hurries // whose updates the loop decides; nil: it cannot

	mu    sync.Mutex
	ended bool
	come  []*conn   // connections that join
	calls []*conn   // those that somebody nudged or closed
	done  [][]*conn // those whose transactions are decided

	// Owned by run.
	conns   map[socket]*conn
	ready   []*conn // those to look at in the next turn
	reads   []*conn // those of this turn that only read
	writes  []*conn // those that write
	running []*conn // those of the transaction
	fn      func(structs.Rows) error
	now     time.Time
	later   bool          // the loop decides what is written in this turn
	held    []*conn       // whose replies wait for that
	tickets []Ticket      // likewise
	lag     time.Duration // how long a decision takes, lately
}

// seat is a connection's place in a loop. Owned by the loop's goroutine while it is
// in there.
type seat struct {
	s       socket
	queued  bool // among ready
	more    bool // there may be something to read
	over    bool // the peer has ended: there is its end to read, at least
	waits   bool // for its transaction to be decided
	next    int  // the first command of the batch that was not executed
	start   place
	rest    []byte // of a reply that its peer did not take
	batches int    // in its own goroutine: those in a row that the loop could have executed
}

const (
	// calmBatches is how many batches in a row a connection's goroutine executes
	// that a loop could have, before it gives the connection to one.
	calmBatches = 4
	// turnCommands bounds what runs under one lock of the store.
	turnCommands = 2048
	// turnsTogether bounds how often the loop looks for more to decide at once.
	turnsTogether = 4
	// slowDecision is how long a decision takes that the loop does not wait for.
	slowDecision = 2 * time.Millisecond
)

// errMoved means that the connection is in a loop now.
var errMoved = errors.New("moved")

func newLoop(s *Server, ctx context.Context, draining chan struct{}, spawn func(func())) *loop {
	p, err := newPoller()
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			s.log.Warn("redis: each connection gets a goroutine", "err", err)
		}
		return nil
	}
	l := &loop{
		srv: s, ctx: ctx, draining: draining, spawn: spawn, poll: p, conns: map[socket]*conn{},
	}
	l.fn = l.runAll
	l.hurries, _ = s.state.(hurries)
	return l
}

// join takes a connection in, or returns false. Whoever calls it lets go of the
// connection when it is true.
func (l *loop) join(c *conn) bool {
	if l == nil || !c.idles() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended || c.closed || c.nudged || c.writing || len(c.queue.parts) > 0 {
		return false
	}
	if c.in.Size() > 2*baseBytes {
		if c.in.Buffered() > 0 {
			return false
		}
		c.in.Shrink(baseBytes)
		c.inBytes.Store(int64(c.in.Size()))
	}
	s, err := take(c.nc)
	if err != nil {
		return false
	}
	c.deadline, c.writeUntil = time.Time{}, time.Time{} // they were the connection's that is closed
	c.loop, c.seat = l, seat{s: s, more: true, next: len(c.batch.cmds)}
	l.come = append(l.come, c)
	l.poll.wakeUp()
	return true
}

// idles reports whether a connection is in no state that a loop does not know.
func (c *conn) idles() bool {
	return c.srv.cfg.TLS == nil && c.srv.settings.timeout() == 0 && !c.srv.pause.on.Load() && c.waiting == nil && !c.ending &&
		c.sess.multi == nil && len(c.sess.watched) == 0 && !c.sess.subscribed()
}

// observe counts batches that a loop could have executed.
func (c *conn) observe() {
	switch {
	case len(c.batch.cmds) == 0:
	case c.ordinary() && c.in.Mark()-c.batch.cmds[0].mark <= baseBytes/2:
		c.seat.batches++
	default:
		c.seat.batches = 0
	}
}

// call has the loop look at a connection that was nudged or closed.
func (l *loop) call(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.calls = append(l.calls, c)
		l.poll.wakeUp()
	}
}

// wakeUp has the loop look whether it drains.
func (l *loop) wakeUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.poll.wakeUp()
	}
}

// run serves until it drains, or the poller fails: then its connections get
// goroutines.
func (l *loop) run() {
	for {
		err := l.poll.wait(len(l.ready) == 0, l.hear)
		l.now = time.Now()
		l.listen()
		select {
		case <-l.draining:
			err = errDraining
		default:
		}
		if err != nil {
			l.end(err)
			return
		}
		l.turn()
	}
}

// hear notes that a socket has something to read.
func (l *loop) hear(s socket, ended bool) {
	if c := l.conns[s]; c != nil {
		c.seat.more, c.seat.over = true, c.seat.over || ended
		l.enqueue(c)
	}
}

// enqueue has a connection looked at in the next turn.
func (l *loop) enqueue(c *conn) {
	if !c.seat.queued && !c.seat.waits {
		c.seat.queued = true
		l.ready = append(l.ready, c)
	}
}

// listen takes what others have for the loop.
func (l *loop) listen() {
	l.mu.Lock()
	come, calls, done := l.come, l.calls, l.done
	l.come, l.calls, l.done = nil, nil, nil
	l.mu.Unlock()
	for _, c := range come {
		l.conns[c.seat.s] = c
		if err := l.poll.add(c.seat.s); err != nil {
			l.release(c)
			continue
		}
		l.enqueue(c)
	}
	for _, cs := range done {
		for _, c := range cs {
			if l.has(c) {
				c.seat.waits = false
				l.answer(c)
			}
		}
	}
	for _, c := range calls {
		switch {
		case !l.has(c):
		case c.isClosed():
			l.drop(c, net.ErrClosed)
		case !c.seat.waits:
			l.release(c)
		}
	}
}

// has reports whether a connection is in this loop.
func (l *loop) has(c *conn) bool { return c.loop == l && l.conns[c.seat.s] == c }

// turn serves those that are ready, and those that become ready meanwhile, so that more
// share an entry; then it decides what they wrote, and answers.
func (l *loop) turn() {
	l.update, l.later = l.srv.state.Update, l.hurries != nil && l.lag < slowDecision
	if l.later {
		l.update = l.hurries.UpdateLater
	}
	l.serve()
	for n := 1; len(l.held) > 0 && n < turnsTogether; n++ {
		if err := l.poll.wait(false, l.hear); err != nil || len(l.ready) == 0 {
			break // the next wait has the error, too
		}
		l.serve()
	}
	l.decide()
}

// decide commits what was written in the turn, and answers.
func (l *loop) decide() {
	if len(l.tickets) > 0 {
		began := time.Now()
		for _, t := range l.tickets { // a reader's may be older than a writer's before it
			l.hurries.Decide(t)
		}
		l.lag += (time.Since(began) - l.lag) / 8
		clear(l.tickets)
		l.tickets = l.tickets[:0]
	}
	held := l.held
	for _, c := range held {
		if c.seat.waits = false; l.has(c) {
			l.answer(c)
		}
	}
	clear(held)
	l.held = held[:0]
}

// serve runs what those that are ready have sent.
func (l *loop) serve() {
	ready := l.ready
	l.ready = l.ready[len(l.ready):]
	for _, c := range ready {
		if c.seat.queued = false; !l.has(c) || !l.receive(c) {
			continue
		}
		if c.writes() {
			l.writes = append(l.writes, c)
		} else {
			l.reads = append(l.reads, c)
		}
	}
	if len(l.ready) == 0 {
		l.ready = ready[:0]
	}
	l.together(l.reads, l.srv.state.View)
	l.together(l.writes, l.update)
	clear(l.reads)
	clear(l.writes)
	l.reads, l.writes = l.reads[:0], l.writes[:0]
}

// receive reads what a connection has sent, and cuts it into commands. true: they
// are the loop's to execute.
func (l *loop) receive(c *conn) bool {
	if c.seat.next == len(c.batch.cmds) {
		if !c.seat.more {
			return false
		}
		free := c.in.Free()
		n := 0
		if len(free) > 0 {
			var err error
			n, err = c.seat.s.read(free)
			switch {
			case errors.Is(err, errAgain):
				c.seat.more = false
				return false
			case err != nil || n == 0:
				if err == nil {
					err = io.EOF
				}
				l.drop(c, err)
				return false
			}
			c.in.Filled(n)
			c.srv.stats.bytesIn.Add(int64(n))
			c.srv.stats.reads.Add(1)
			c.lastAt.Store(l.now.UnixMilli())
		}
		c.seat.more = n == len(free) || c.seat.over // else what comes is told
		c.seat.next = 0
		if err := c.cut(); err != nil || len(free) == 0 {
			l.release(c)
			return false
		}
		if len(c.batch.cmds) == 0 {
			if c.seat.more {
				l.enqueue(c) // with the rest of a command, or to find that it is too large
			}
			return false
		}
	}
	if !c.ordinary() {
		l.release(c)
		return false
	}
	return true
}

// ordinary reports whether the commands to come are all of the kind that a loop
// executes, and nothing else is between.
func (c *conn) ordinary() bool {
	if c.sess.multi != nil || c.sess.subscribed() || c.srv.pause.on.Load() || c.srv.settings.timeout() != 0 {
		return false
	}
	for i := c.seat.next; i < len(c.batch.cmds); i++ {
		if q := c.resolve(i); q.err != nil || !q.cmd.state() || q.cmd.set&(blocks|alone) != 0 {
			return false
		}
	}
	return true
}

// writes reports whether one of the commands to come writes.
func (c *conn) writes() bool {
	return slices.ContainsFunc(c.batch.cmds[c.seat.next:], func(q queued) bool { return q.cmd.set&write != 0 })
}

// together runs what connections have to do in as few transactions as may be.
func (l *loop) together(cs []*conn, run func(func(structs.Rows) error) (Ticket, error)) {
	for len(cs) > 0 {
		n, size := 0, 0
		for n < len(cs) && size < turnCommands {
			size += cs[n].plan()
			n++
		}
		l.transact(cs[:n], run)
		cs = cs[n:]
	}
}

// plan makes a chunk of the commands to come, and returns how many they are.
func (c *conn) plan() int {
	b, bytes := &c.batch, 0
	b.from, b.to, b.failed = c.seat.next, c.seat.next, -1
	for b.to < len(b.cmds) && b.to-b.from < chunkCommands && bytes < chunkBytes {
		for _, a := range b.argsOf(b.to) {
			bytes += len(a)
		}
		b.to++
	}
	c.last.Store(b.cmds[b.to-1].cmd)
	return b.to - b.from
}

// transact runs the chunks of connections in one transaction. One that fails leaves
// nothing of any; then each runs its own.
func (l *loop) transact(cs []*conn, run func(func(structs.Rows) error) (Ticket, error)) {
	for _, c := range cs {
		c.batch.fx.reset()
		c.seat.start = c.mark()
	}
	l.running = cs
	t, err := run(l.fn)
	l.running = nil
	for _, c := range cs {
		if c.conclude(t, err); err == nil {
			c.seat.next = c.batch.done
		}
	}
	if err != nil {
		for _, c := range cs {
			c.restore(c.seat.start)
		}
		for _, c := range cs {
			c.seat.next = c.chunk(c.seat.next)
		}
	}
	switch {
	case t == nil:
	case l.later:
		for _, c := range cs {
			c.seat.waits = true
		}
		l.held, l.tickets = append(l.held, cs...), append(l.tickets, t)
		return
	default:
		l.lag -= l.lag / 256 // it is tried again
		l.await(slices.Clone(cs), t)
		return
	}
	for _, c := range cs {
		l.answer(c)
	}
}

// runAll is the transaction.
func (l *loop) runAll(rows structs.Rows) error {
	for _, c := range l.running {
		if err := c.runChunk(rows); err != nil {
			return err
		}
	}
	return nil
}

// await answers when a transaction is decided.
func (l *loop) await(cs []*conn, t Ticket) {
	for _, c := range cs {
		c.seat.waits = true
	}
	l.spawn(func() {
		_ = t.Wait(l.ctx) // whoever answers asks again
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done = append(l.done, cs)
		if !l.ended {
			l.poll.wakeUp()
		}
	})
}

// answer writes a connection's replies, waiting for what they depend on.
func (l *loop) answer(c *conn) {
	err := c.settle()
	switch {
	case err != nil:
		l.drop(c, err)
	case len(c.seat.rest) > 0:
		l.release(c)
	case c.seat.more || c.seat.next < len(c.batch.cmds):
		l.enqueue(c)
	}
}

// writeNow writes what the peer takes now, and keeps the rest for the goroutine that
// the connection then gets.
func (st *seat) writeNow(p []byte) error {
	if len(st.rest) == 0 {
		n, err := st.s.write(p)
		if err != nil && !errors.Is(err, errAgain) {
			return err
		}
		p = p[n:]
	}
	st.rest = append(st.rest, p...)
	return nil
}
