package redis

import (
	"container/list"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// blocked is the clients that wait for keys, first come first served. Safe for
// concurrent use.
//
// A client is served inside the transaction that changed the key it waits for, by
// whoever runs that: nothing can come between. Its reply leaves when that
// transaction is durable. A waiter goes through these states:
//
//	waiting -> taken    by serve, in a transaction
//	taken   -> served   the transaction took place
//	taken   -> waiting  it was undone
//	waiting -> ended    time is up, CLIENT UNBLOCK, or the client left
type blocked struct {
	any atomic.Int64 // waiters; read before the lock is taken

	mu     sync.Mutex
	moved  sync.Cond // a waiter is no longer taken
	byKey  map[waitKey]*list.List
	byConn map[int64]*waiter
}

// waitKey is a key that should become a value of a type.
type waitKey struct {
	dbKey
	typ structs.Type
}

// waiter is one client that waits.
type waiter struct {
	c     *conn
	cmd   *command
	args  [][]byte // copies
	db    int
	keys  [][]byte
	typ   structs.Type
	resp3 bool
	until time.Time // zero: for ever
	since time.Time

	// serve does what the command does, with a key that holds a value of typ.
	serve func(x *call, key []byte) error
	// null replies that time is up.
	null func(w *resp.Writer)

	// Guarded by blocked.mu.
	state   waitState
	places  []waitPlace
	reply   []byte
	ticket  Ticket
	unblock string // CLIENT UNBLOCK ERROR: what to reply
}

// waitPlace is a waiter's place in one queue.
type waitPlace struct {
	at waitKey
	e  *list.Element
}

type waitState uint8

const (
	waiting waitState = iota
	taken
	served
	ended
)

func (b *blocked) init() {
	b.byKey, b.byConn = map[waitKey]*list.List{}, map[int64]*waiter{}
	b.moved.L = &b.mu
}

// block makes the client wait for keys. It is the last thing that a blocking
// command does, in its transaction, so that no write can slip by. Inside EXEC
// nothing blocks, as if time were up at once.
func (x *call) block(keys [][]byte, typ structs.Type, timeout time.Duration, null func(*resp.Writer), serve func(x *call, key []byte) error) error {
	if x.inExec {
		null(x.w)
		return nil
	}
	w := &waiter{
		c: x.c, cmd: x.cmd, args: cloneArgs(x.args), db: x.db, keys: cloneArgs(keys), typ: typ, resp3: x.w.RESP3(),
		since: x.now, serve: serve, null: null,
	}
	if timeout > 0 {
		w.until = x.now.Add(timeout)
	}
	x.srv.blocked.add(w)
	x.c.waiting = w
	x.c.blockedOn.Store(true)
	return nil
}

func (b *blocked) add(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[string]bool{}
	for _, k := range w.keys {
		if seen[string(k)] {
			continue
		}
		seen[string(k)] = true
		at := waitKey{dbKey{w.db, string(k)}, w.typ}
		if b.byKey[at] == nil {
			b.byKey[at] = list.New()
		}
		w.places = append(w.places, waitPlace{at, b.byKey[at].PushBack(w)})
	}
	b.byConn[w.c.id] = w
	b.any.Add(1)
}

// remove takes a waiter out of every queue. The caller holds mu.
func (b *blocked) remove(w *waiter, s waitState) {
	w.state = s
	for _, p := range w.places {
		q := b.byKey[p.at]
		q.Remove(p.e)
		if q.Len() == 0 {
			delete(b.byKey, p.at)
		}
	}
	w.places = nil
	delete(b.byConn, w.c.id)
	b.any.Add(-1)
}

// claim takes the first waiter for a key, nil when there is none.
func (b *blocked) claim(at waitKey) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.byKey[at]
	if q == nil {
		return nil
	}
	for e := q.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.state == waiting {
			w.state = taken
			return w
		}
	}
	return nil
}

// serve serves those who wait for keys that the transaction changed, from
// x.fx.touched[from] on. Serving one may change keys, too.
func (b *blocked) serve(x *call, from int) error {
	for i := from; i < len(x.fx.touched); i++ {
		k := x.fx.touched[i]
		for b.any.Load() > 0 {
			typ, err := x.in(k.db).Type([]byte(k.key))
			if err != nil {
				return err
			}
			if typ != structs.List && typ != structs.SortedSet {
				break
			}
			w := b.claim(waitKey{k, typ})
			if w == nil {
				break
			}
			x.fx.served = append(x.fx.served, w)
			if err := w.take(x, []byte(k.key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// take executes the waiter's command in somebody else's transaction.
func (w *waiter) take(x *call, key []byte) error {
	reply := resp.NewWriter(nil, w.resp3)
	y := call{srv: x.srv, c: w.c, cmd: w.cmd, args: w.args, w: &reply, rows: x.rows, db: w.db, now: x.now, fx: x.fx, inExec: true}
	if err := w.serve(&y, key); err != nil {
		msg, answer := text(err)
		if !answer {
			return err
		}
		reply.Truncate(0)
		reply.Error(msg)
	}
	w.reply = reply.Bytes()
	return nil
}

// resolve wakes those whom a transaction served.
func (b *blocked) resolve(ws []*waiter, t Ticket) {
	if len(ws) == 0 {
		return
	}
	b.mu.Lock()
	for _, w := range ws {
		w.ticket = t
		b.remove(w, served)
	}
	b.moved.Broadcast()
	b.mu.Unlock()
	for _, w := range ws {
		w.c.nudge()
	}
}

// putBack lets those wait on whom an undone transaction had served.
func (b *blocked) putBack(ws []*waiter) {
	if len(ws) == 0 {
		return
	}
	b.mu.Lock()
	for _, w := range ws {
		w.state, w.reply = waiting, nil
	}
	b.moved.Broadcast()
	b.mu.Unlock()
	for _, w := range ws {
		w.c.nudge() // its time may be up
	}
}

// end ends a wait and reports true, unless it was served or ended before. It waits while a
// transaction is about to serve.
func (b *blocked) end(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w.state == taken {
		b.moved.Wait()
	}
	if w.state != waiting {
		return false
	}
	b.remove(w, ended)
	return true
}

// unblock ends the wait of a client, on behalf of another.
func (b *blocked) unblock(id int64, reply string) bool {
	b.mu.Lock()
	w := b.byConn[id]
	if w == nil || w.state != waiting {
		b.mu.Unlock()
		return false
	}
	w.unblock = reply
	b.remove(w, ended)
	b.mu.Unlock()
	w.c.nudge()
	return true
}

// status returns how far a wait has come.
func (b *blocked) status(w *waiter) waitState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.state
}

// await waits until the client is served, its time is up, or somebody ends its
// wait; then it replies, and c.waiting is nil. It may return earlier.
func (c *conn) await() error {
	w := c.waiting
	switch c.srv.blocked.status(w) {
	case served, ended:
		return c.resume()
	case waiting:
		if !w.until.IsZero() && !time.Now().Before(w.until) {
			c.srv.blocked.end(w)
			return c.resume()
		}
	}
	if c.in.Buffered() < blockedBytes {
		return c.fill(w.until)
	}
	// It has sent enough ahead: only the wait is waited for.
	var late <-chan time.Time
	if !w.until.IsZero() {
		t := time.NewTimer(time.Until(w.until))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-c.wake:
	case <-late:
	case <-c.draining:
		return errDraining
	}
	if c.isClosed() {
		return errLimit
	}
	return nil
}

// resume replies to a command that had blocked.
func (c *conn) resume() error {
	c.unblocked()
	return c.settle()
}

func (c *conn) unblocked() {
	w := c.waiting
	c.waiting = nil
	c.blockedOn.Store(false)
	before := c.w.Len()
	switch {
	case w.state == served: // the waiter is ours again
		if w.ticket != nil {
			c.pending.tickets = append(c.pending.tickets, w.ticket)
		}
		c.w.Raw(w.reply)
	case w.unblock != "":
		c.error(w.unblock)
	default:
		w.null(&c.w)
	}
	if c.sess.mute() {
		c.w.Truncate(before)
	} else {
		c.pending.count++
	}
	c.sess.nextReply()
}

// timeout reads the last argument of a blocking command, in seconds.
func (x *call) timeout(i int) (time.Duration, error) {
	f, ok := structs.Float(x.args[i])
	switch {
	case !ok || f*1000 >= math.MaxInt64 || f*1000 <= math.MinInt64:
		return 0, replyError("ERR timeout is not a float or out of range")
	case f < 0:
		return 0, replyError("ERR timeout is negative")
	}
	ms := int64(math.Ceil(f * 1000))
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, nil
}

func cloneArgs(args [][]byte) [][]byte {
	out := make([][]byte, len(args))
	for i, a := range args {
		out[i] = append([]byte{}, a...)
	}
	return out
}
