package redis

import (
	"fmt"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
)

// multi is a transaction between MULTI and EXEC.
type multi struct {
	cmds   []multiCommand
	dirty  bool // a command could not be queued
	writes bool
	bytes  int
}

type multiCommand struct {
	cmd  *command
	args [][]byte
}

// watched is a key as it was when WATCH saw it.
type watched struct {
	version uint64
	present bool
	stale   bool // it had expired, and was not removed yet
}

func transactionCommands() family {
	return family{"transactions", []command{
		{name: "multi", arity: 1, flags: "noscript loading stale fast allow_busy", since: "1.2.0", about: "begin a transaction", do: multiStart},
		{name: "exec", arity: 1, flags: "noscript loading stale skip_slowlog", since: "1.2.0", about: "execute a transaction", set: write | alone, do: exec,
			note: "One atomic entry: seen whole or not at all, on every node. A transaction that fails in the engine has not happened."},
		{name: "discard", arity: 1, flags: "noscript loading stale fast allow_busy", since: "2.0.0", about: "forget a transaction", do: discardCommand},
		{name: "watch", arity: -2, flags: "noscript loading stale fast allow_busy", specs: "RO @1 -1,1,0", since: "2.2.0",
			about: "make the transaction depend on keys that nobody changes", set: readonly | alone, do: watch,
			note: "Exclusive on one node. Between nodes that have not met, both transactions take place and merge."},
		{name: "unwatch", arity: 1, flags: "noscript loading stale fast allow_busy", since: "2.2.0", about: "forget watched keys", do: unwatch},
	}}
}

// immediate reports whether the command is executed inside MULTI, not queued.
func (c *command) immediate() bool {
	switch c.name {
	case "exec", "discard", "multi", "watch", "quit", "reset":
		return c.parent == nil
	}
	return false
}

// charge counts n more bytes that the session keeps; n may be negative.
func (c *conn) charge(n int) error {
	if n > 0 && c.extra+n > c.srv.cfg.MaxQueryBytes {
		return errorf("ERR what this connection keeps (queued commands, watched keys, subscriptions) would exceed %d bytes", c.srv.cfg.MaxQueryBytes)
	}
	c.extra += n
	if err := c.hold(c.in.Size() + cap(c.w.Bytes())); err != nil {
		c.extra -= n
		return replyError("ERR the node's buffers are full; try again later")
	}
	return nil
}

// enqueue keeps a command for EXEC.
func (c *conn) enqueue(cmd *command, args [][]byte) {
	m := c.sess.multi
	n := 64
	for _, a := range args {
		n += 24 + len(a)
	}
	if err := c.charge(n); err != nil {
		c.reject(cmd, err)
		return
	}
	m.bytes += n
	m.cmds = append(m.cmds, multiCommand{cmd, cloneArgs(args)})
	m.writes = m.writes || cmd.set&write != 0
	c.show(func(s *shown) { s.multi = len(m.cmds) })
	c.reply(func() { c.w.Simple("QUEUED") })
}

func multiStart(x *call) error {
	if x.c.sess.multi != nil {
		return replyError("ERR MULTI calls can not be nested")
	}
	x.c.sess.multi = &multi{}
	x.c.show(func(s *shown) { s.multi = 0 })
	return x.ok()
}

// discard forgets the transaction and what it depended on.
func (c *conn) discard() {
	if m := c.sess.multi; m != nil {
		c.extra -= m.bytes
		c.sess.multi = nil
	}
	c.forgetWatched()
	c.show(func(s *shown) { s.multi = -1 })
}

func (c *conn) forgetWatched() {
	for k := range c.sess.watched {
		c.extra -= watchedBytes + len(k.key)
	}
	c.sess.watched = nil
	c.show(func(s *shown) { s.watching = 0 })
}

// watchedBytes is what a watched key takes beside its name.
const watchedBytes = 64

func discardCommand(x *call) error {
	if x.c.sess.multi == nil {
		return replyError("ERR DISCARD without MULTI")
	}
	x.c.discard()
	return x.ok()
}

func watch(x *call) error {
	c := x.c
	if c.sess.multi != nil {
		return replyError("ERR WATCH inside MULTI is not allowed")
	}
	for _, key := range x.args[1:] {
		k := dbKey{x.db, string(key)}
		if _, known := c.sess.watched[k]; known {
			continue // the first look counts
		}
		w, err := x.look(k)
		if err != nil {
			return err
		}
		if err := c.charge(watchedBytes + len(key)); err != nil {
			return err
		}
		if c.sess.watched == nil {
			c.sess.watched = map[dbKey]watched{}
		}
		c.sess.watched[k] = w
	}
	c.show(func(s *shown) { s.watching = len(c.sess.watched) })
	return x.ok()
}

// look returns a key as it is.
func (x *call) look(k dbKey) (watched, error) {
	m := x.in(k.db)
	stored, err := x.rows.Key(m.Name(), []byte(k.key))
	if err != nil {
		return watched{}, err
	}
	typ, err := m.Type([]byte(k.key))
	return watched{stored.Version, typ != structs.None, typ == structs.None && len(stored.Seen) > 0}, err
}

// changedSince reports whether a watched key is not what it was. A key that had
// expired and was removed since did not change; one that expired since did.
func (x *call) changedSince(k dbKey, was watched) (bool, error) {
	is, err := x.look(k)
	if was.stale && !is.present {
		return false, err
	}
	return is.version != was.version || is.present != was.present, err
}

func unwatch(x *call) error {
	x.c.forgetWatched()
	return x.ok()
}

// exec executes the queued commands in the transaction it runs in.
func exec(x *call) error {
	c := x.c
	m := c.sess.multi
	if m == nil {
		return replyError("ERR EXEC without MULTI")
	}
	changed := false
	for k, w := range c.sess.watched {
		is, err := x.changedSince(k, w)
		if err != nil {
			return err
		}
		changed = changed || is
	}
	c.discard()
	switch {
	case m.dirty:
		return replyError("EXECABORT Transaction discarded because of previous errors.")
	case changed:
		x.w.NullArray()
		return nil
	}
	x.w.Array(len(m.cmds))
	cmd, args := x.cmd, x.args
	x.inExec = true
	defer func() { x.cmd, x.args, x.inExec = cmd, args, false }()
	for i, q := range m.cmds {
		if err := x.invokeQueued(q); err != nil {
			return fmt.Errorf("command %d of the transaction: %w", i+1, err)
		}
	}
	return nil
}

// invokeQueued executes one command of a transaction. The error is a failure of
// the engine.
func (x *call) invokeQueued(q multiCommand) error {
	c := x.c
	before := x.w.Len()
	x.cmd, x.args, x.db = q.cmd, q.args, c.sess.db
	began := x.now
	if err := x.endExpired(); err != nil {
		return err
	}
	if err := q.cmd.do(x); err != nil {
		msg, answer := text(err)
		if !answer {
			return err
		}
		x.w.Truncate(before)
		c.error(msg)
		q.cmd.stats.failed.Add(1)
	}
	x.now = time.Now()
	c.srv.account(c, q.cmd, q.args, began, x.now.Sub(began))
	return nil
}
