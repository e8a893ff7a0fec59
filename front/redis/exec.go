package redis

import (
	"errors"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// Execution of what has arrived.
//
// A batch is the commands that one connection has sent and that were not
// executed. Neighbours that read or write state run in one transaction (a chunk),
// everything else by itself. A transaction's ticket is kept; replies leave when
// all tickets so far are decided. Should one fail, the replies that depend on it
// are replaced by the failure: the writes never happened.
//
// A failure of the engine in the middle of a chunk undoes it; its commands are
// then executed one by one, so that only those that fail, fail. Handlers
// therefore do nothing that lasts but through the transaction and effects.

const (
	// chunkCommands and chunkBytes bound what runs under one lock of the store.
	chunkCommands = 128
	chunkBytes    = 1 << 20
	// batchCommands are cut before they are executed.
	batchCommands = 1024
)

// queued is a command of a batch.
type queued struct {
	from, to int // its arguments
	mark     int // where it stands in the receive buffer
	resolved bool
	cmd      *command
	err      error // why it cannot be executed: the reply
}

// batch is owned by the connection's goroutine.
type batch struct {
	cmds []queued
	args [][]byte

	x        call
	fx       effects
	from, to int // the chunk
	done     int // how far the chunk came
	failed   int // the command that failed
	run      func(structs.Rows) error
}

func (b *batch) init(c *conn) {
	b.x = call{srv: c.srv, c: c, w: &c.w, fx: &b.fx}
	b.run = c.runChunk
}

// undecided is what replies depend on.
type undecided struct {
	tickets []Ticket
	from    int // the replies from here on
	count   int // how many there are
	outs    []*outgoing
}

// execute runs every whole command that was received. The error ends the
// connection; replies are written by then, or by run.
func (c *conn) execute() error {
	for {
		err := c.cut()
		c.observe()
		n := len(c.batch.cmds)
		for i := 0; i < n && !c.ending; {
			i = c.step(i)
			if c.waiting != nil {
				if i < n {
					c.in.Rewind(c.batch.cmds[i].mark)
				}
				return c.settle()
			}
			if c.w.Len() >= flushBytes {
				if err := c.settle(); err != nil {
					return err
				}
			}
		}
		if c.ending {
			if err := c.settle(); err != nil {
				return err
			}
			return errQuit
		}
		var bad *resp.ProtocolError
		if errors.As(err, &bad) {
			c.replyError("ERR " + bad.Error())
			return err
		}
		if n < batchCommands {
			return c.settle()
		}
	}
}

// cut takes commands out of the receive buffer. The error is a
// *resp.ProtocolError, behind the commands.
func (c *conn) cut() (err error) {
	b := &c.batch
	if cap(b.args) > 4*batchCommands {
		b.args = nil
	}
	b.cmds, b.args = b.cmds[:0], b.args[:0]
	for len(b.cmds) < batchCommands && len(b.args) < 4*batchCommands {
		q := queued{from: len(b.args), mark: c.in.Mark()}
		if b.args, err = c.in.Next(b.args); err != nil || len(b.args) == q.from {
			return err
		}
		q.to = len(b.args)
		b.cmds = append(b.cmds, q)
	}
	return nil
}

// argsOf returns the arguments of a command of the batch.
func (b *batch) argsOf(i int) [][]byte { return b.args[b.cmds[i].from:b.cmds[i].to] }

// resolve looks the command up once.
func (c *conn) resolve(i int) *queued {
	q := &c.batch.cmds[i]
	if !q.resolved {
		q.resolved = true
		q.cmd, q.err = c.srv.table.resolve(c.batch.argsOf(i))
	}
	return q
}

// step executes command i, or a chunk that begins with it, and returns which is
// next.
func (c *conn) step(i int) int {
	q := c.resolve(i)
	args := c.batch.argsOf(i)
	if q.cmd == nil && (fold(args[0], "host:") || fold(args[0], "post")) {
		// A browser was made to talk to us.
		c.srv.log.Warn("redis: HTTP sent to the Redis listener; the connection is closed", "peer", c.peer)
		c.ending = true
		return i + 1
	}
	if q.err == nil {
		q.err = c.refuse(q.cmd)
	}
	if q.err != nil {
		c.reject(q.cmd, q.err)
		return i + 1
	}
	if wait := c.srv.pause.holds(q.cmd, c); wait != nil {
		if err := c.paused(wait); err != nil {
			c.ending = true
			return i + 1
		}
	}
	c.last.Store(q.cmd)
	switch {
	case c.sess.multi != nil && !q.cmd.immediate():
		c.enqueue(q.cmd, args)
		return i + 1
	case q.cmd.state() && q.cmd.set&(blocks|alone) == 0:
		return c.chunk(i)
	}
	c.single(q.cmd, args)
	return i + 1
}

// refuse returns why a command may not run in the connection's present state.
func (c *conn) refuse(cmd *command) error {
	switch {
	case c.sess.multi != nil && cmd.set&noMulti != 0:
		return replyError("ERR Command not allowed inside a transaction")
	case !c.w.RESP3() && cmd.set&pubsubOK == 0 && c.sess.subscribed():
		cmd.stats.rejected.Add(1)
		return errorf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", cmd.fullName())
	}
	return nil
}

// reject replies that a command is not executed at all.
func (c *conn) reject(cmd *command, err error) {
	if c.sess.multi != nil {
		c.sess.multi.dirty = true
		if cmd != nil && cmd.name == "exec" {
			c.discard()
			msg, _ := text(err)
			c.replyError("EXECABORT Transaction discarded because of: " + trimCode(msg))
			return
		}
	}
	msg, _ := text(err)
	c.replyError(msg)
}

// chunk runs command i and the neighbours that share its transaction.
func (c *conn) chunk(i int) int {
	b := &c.batch
	writes, bytes, to := false, 0, i
	for ; to < len(b.cmds) && to-i < chunkCommands && bytes < chunkBytes; to++ {
		q := c.resolve(to)
		if q.err != nil || !q.cmd.state() || q.cmd.set&(blocks|alone) != 0 || to > i && c.srv.pause.holds(q.cmd, c) != nil {
			break
		}
		writes = writes || q.cmd.set&write != 0
		for _, a := range b.argsOf(to) {
			bytes += len(a)
		}
	}
	start := c.mark()
	b.from, b.to, b.done, b.failed = i, to, i, -1
	if err := c.transact(writes); err == nil {
		return b.done
	}
	// Undone: once more, one by one.
	c.restore(start)
	for k := i; k < to; k++ {
		c.single(b.cmds[k].cmd, b.argsOf(k))
	}
	return to
}

// place is where the replies, and what decides about them, stood.
type place struct {
	w, count, db int
	replies      replyMode
}

func (c *conn) mark() place { return place{c.w.Len(), c.pending.count, c.sess.db, c.sess.replies} }

// restore goes back to where a transaction that failed began.
func (c *conn) restore(p place) {
	c.w.Truncate(p.w)
	c.pending.count, c.sess.db, c.sess.replies = p.count, p.db, p.replies
}

// transact runs the chunk in a transaction and keeps its ticket.
func (c *conn) transact(writes bool) error {
	b := &c.batch
	b.fx.reset()
	var t Ticket
	var err error
	if writes {
		t, err = c.srv.state.Update(b.run)
	} else {
		t, err = c.srv.state.View(b.run)
	}
	c.conclude(t, err)
	return err
}

// conclude makes a transaction's effects known, or forgets them.
func (c *conn) conclude(t Ticket, err error) {
	fx := &c.batch.fx
	c.batch.x.rows = nil
	if err != nil {
		fx.out.drop(c.srv)
		c.srv.blocked.putBack(fx.served)
		return
	}
	c.srv.stats.dirty.Add(fx.changes)
	c.srv.blocked.resolve(fx.served, t)
	if t != nil {
		c.pending.tickets = append(c.pending.tickets, t)
	}
	if fx.out != nil {
		fx.out.commit(c.srv)
		c.pending.outs = append(c.pending.outs, fx.out)
	}
}

// runChunk is the transaction of a chunk.
func (c *conn) runChunk(rows structs.Rows) error {
	b := &c.batch
	b.fx.reset()
	b.x.rows = rows
	b.x.now = time.Now()
	for b.done = b.from; b.done < b.to && c.w.Len() < flushBytes; b.done++ {
		if err := c.invoke(b.cmds[b.done].cmd, b.argsOf(b.done)); err != nil {
			b.failed = b.done
			return err
		}
	}
	return c.finish()
}

// finish is the last thing in a transaction.
func (c *conn) finish() error {
	b := &c.batch
	if len(b.fx.events) > 0 {
		b.fx.out = c.srv.outbox.add(b.fx.events)
	}
	return nil
}

// single runs one command by itself: in a transaction of its own if it needs one.
func (c *conn) single(cmd *command, args [][]byte) {
	b := &c.batch
	start := c.mark()
	if !cmd.state() {
		b.fx.reset()
		b.x.rows, b.x.now = nil, time.Now()
		err := c.invoke(cmd, args)
		if err == nil {
			err = c.finish()
		}
		c.singled(cmd, start, nil, err)
		return
	}
	fn := func(rows structs.Rows) error {
		b.fx.reset()
		b.x.rows, b.x.now = rows, time.Now()
		if err := c.invoke(cmd, args); err != nil {
			return err
		}
		return c.finish()
	}
	var t Ticket
	var err error
	if cmd.set&write != 0 {
		t, err = c.srv.state.Update(fn)
	} else {
		t, err = c.srv.state.View(fn)
	}
	c.singled(cmd, start, t, err)
}

// singled ends what single began at start.
func (c *conn) singled(cmd *command, start place, t Ticket, err error) {
	c.conclude(t, err)
	if err == nil {
		return
	}
	c.restore(start)
	if c.waiting != nil && c.srv.blocked.end(c.waiting) {
		c.waiting = nil
		c.blockedOn.Store(false)
	}
	msg, _ := text(err)
	cmd.stats.failed.Add(1)
	c.replyError(msg)
}

// invoke executes a command inside whatever surrounds it. The error is a failure
// of the engine; Redis's own errors are replies.
func (c *conn) invoke(cmd *command, args [][]byte) error {
	x := &c.batch.x
	before := c.w.Len()
	c.w.Limit = before + c.srv.cfg.MaxReplyBytes
	touched := len(x.fx.touched)
	x.cmd, x.args, x.db = cmd, args, c.sess.db
	began := x.now
	if err := x.endExpired(); err != nil {
		return err
	}
	err := x.cmd.do(x)
	if err != nil {
		msg, answer := text(err)
		if !answer {
			return err
		}
		c.w.Truncate(before)
		c.error(msg)
		cmd.stats.failed.Add(1)
	}
	if c.w.Over() {
		c.tooMuch(cmd)
	}
	if len(x.fx.touched) > touched && !x.inExec {
		if err := c.srv.blocked.serve(x, touched); err != nil {
			return err
		}
	}
	switch {
	case c.waiting != nil: // replied to when the wait is over
	case c.sess.mute() && (cmd.set&confirms == 0 || err != nil):
		c.w.Truncate(before)
		c.sess.nextReply()
	default:
		if c.w.Len() > before {
			c.pending.count++
		}
		c.sess.nextReply()
	}
	x.now = time.Now()
	c.srv.account(c, cmd, args, began, x.now.Sub(began))
	return nil
}

// tooMuch ends a connection whose reply would be larger than it may be.
func (c *conn) tooMuch(cmd *command) {
	c.srv.stats.outputLimit.Add(1)
	c.srv.log.Warn("redis: a reply beyond MaxReplyBytes; the connection is closed", "command", cmd.fullName(), "peer", c.peer)
	c.close()
}

// replyError replies to a command that was not executed.
func (c *conn) replyError(msg string) {
	c.reply(func() { c.error(msg) })
}

// reply writes the whole reply to a command outside of invoke.
func (c *conn) reply(write func()) {
	if !c.sess.mute() {
		write()
		c.pending.count++
	}
	c.sess.nextReply()
}

// error writes an error and counts its code.
func (c *conn) error(msg string) {
	c.w.Error(msg)
	c.srv.stats.countError(codeOf(msg))
}

// settle waits until every transaction so far is decided, makes known what
// follows from them, and writes the replies.
func (c *conn) settle() error {
	p := &c.pending
	var failed error
	for _, t := range p.tickets {
		if err := t.Wait(c.ctx); err != nil && failed == nil {
			failed = err
		}
	}
	clear(p.tickets)
	for _, o := range p.outs {
		o.settle(c.srv, failed)
	}
	clear(p.outs)
	if failed != nil {
		c.w.Truncate(p.from)
		for range p.count {
			c.error(failure(failed))
		}
	}
	p.tickets, p.outs, p.count, p.from = p.tickets[:0], p.outs[:0], 0, 0
	c.outBytes.Store(int64(cap(c.w.Bytes())))
	if err := c.hold(c.in.Size() + cap(c.w.Bytes())); err != nil {
		return err
	}
	return c.flush()
}
