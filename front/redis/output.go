package redis

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Replies and messages of one connection.
//
// Replies gather in c.w, which the connection's own goroutine owns and writes.
// Messages that come from other connections are queued; a goroutine writes them
// unless the connection's own is writing, and ends when there are none.
//
// What is queued leaves before replies that are written later. A subscription
// turns that round (hold): its confirmation is among the replies, and must leave
// before the messages that it brings.

const (
	// replyBytes is the room of a recycled reply buffer.
	replyBytes = 16 << 10
	// flushBytes of replies are written before the batch goes on.
	flushBytes = 256 << 10
	// pushAhead is what who can wait queues at most, one message more aside.
	pushAhead = 64 << 10
)

// queue is what other connections have for one. Guarded by c.mu.
type queue struct {
	parts [][]byte
	bytes int
	hold  bool // replies that were not written yet go first
}

// push queues a message for the connection, whoever asks. The message may be
// shared: nobody changes it. A connection that does not take its messages is closed.
func (c *conn) push(message []byte) {
	c.mu.Lock()
	if c.closed || c.loop != nil { // in a loop it has unsubscribed from everything
		c.mu.Unlock()
		return
	}
	full := c.queue.bytes+len(message) > c.srv.cfg.MaxPushBytes
	if !full && !c.srv.budget.take(len(message)) {
		full = true
	}
	if full {
		c.mu.Unlock()
		c.srv.stats.outputLimit.Add(1)
		c.srv.log.Warn("redis: a subscriber does not take its messages and is closed", "client", c.id, "peer", c.peer)
		c.close()
		return
	}
	c.queue.parts = append(c.queue.parts, message)
	c.queue.bytes += len(message)
	start := !c.writing && !c.queue.hold
	c.writing = c.writing || start
	c.mu.Unlock()
	if start {
		go c.drainQueue()
	}
}

// roomToPush waits until little is queued, for who can wait with what it has. false:
// the connection is closed, or ctx has ended.
func (c *conn) roomToPush(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moved.Broadcast()
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.queue.bytes > pushAhead && !c.closed && ctx.Err() == nil {
		c.moved.Wait()
	}
	return !c.closed && ctx.Err() == nil
}

// takeQueue returns what is queued. The caller holds c.mu.
func (c *conn) takeQueue() [][]byte {
	parts := c.queue.parts
	if c.queue.bytes > 0 {
		c.moved.Broadcast() // there is room again
	}
	c.srv.budget.give(c.queue.bytes)
	c.queue.parts, c.queue.bytes = nil, 0
	return parts
}

// drainQueue writes what is queued until nothing is; it has the right to write.
func (c *conn) drainQueue() {
	for {
		c.mu.Lock()
		if len(c.queue.parts) == 0 || c.queue.hold || c.closed {
			c.writing = false
			c.moved.Broadcast()
			c.mu.Unlock()
			return
		}
		parts := c.takeQueue()
		c.mu.Unlock()
		if err := c.writeAll(parts); err != nil {
			c.close()
		}
	}
}

// holdQueue makes replies go before what is queued from now on.
func (c *conn) holdQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.hold = true
}

// absorbQueue moves what is queued behind the replies: what was queued leaves
// before a reply that is written now.
func (c *conn) absorbQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.hold = true
	for _, p := range c.takeQueue() {
		c.w.Raw(p)
	}
}

// flush writes the replies, after what must go before them. Only the
// connection's own goroutine calls it.
func (c *conn) flush() error {
	if c.w.Len() == 0 && !c.heldAnything() {
		return nil
	}
	c.mu.Lock()
	for c.writing && !c.closed {
		c.moved.Wait()
	}
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.writing = true
	var first [][]byte
	if !c.queue.hold {
		first = c.takeQueue()
	}
	c.mu.Unlock()
	err := c.writeAll(first)
	if err == nil && c.w.Len() > 0 {
		err = c.write(c.w.Bytes())
	}
	c.recycleReplies()
	c.mu.Lock()
	c.queue.hold = false
	c.writing = len(c.queue.parts) > 0 && !c.closed
	if c.writing {
		go c.drainQueue()
	}
	c.moved.Broadcast()
	c.mu.Unlock()
	return err
}

func (c *conn) heldAnything() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.hold
}

// recycleReplies empties the reply buffer, and gives a large one away.
func (c *conn) recycleReplies() {
	if cap(c.w.Bytes()) > 4*replyBytes {
		c.w.SetBuffer(make([]byte, 0, replyBytes))
		return
	}
	c.w.Truncate(0)
}

// writeAll writes parts, small ones together.
func (c *conn) writeAll(parts [][]byte) error {
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return c.write(parts[0])
	}
	small := make([]byte, 0, replyBytes)
	for _, p := range parts {
		if len(small)+len(p) > cap(small) && len(small) > 0 {
			if err := c.write(small); err != nil {
				return err
			}
			small = small[:0]
		}
		if len(p) >= cap(small) {
			if err := c.write(p); err != nil {
				return err
			}
			continue
		}
		small = append(small, p...)
	}
	if len(small) == 0 {
		return nil
	}
	return c.write(small)
}

// writeStep is how much must leave within StallTimeout.
const writeStep = 1 << 20

// write sends p whole. A peer that takes nothing for StallTimeout loses the
// connection.
func (c *conn) write(p []byte) error {
	c.srv.stats.bytesOut.Add(int64(len(p)))
	c.srv.stats.writes.Add(1)
	if c.loop != nil {
		return c.seat.writeNow(p)
	}
	for len(p) > 0 {
		// A deadline costs more than a small write: it is moved now and then.
		if now := time.Now(); c.writeUntil.Sub(now) < c.srv.cfg.StallTimeout {
			c.writeUntil = now.Add(2 * c.srv.cfg.StallTimeout)
			c.nc.SetWriteDeadline(c.writeUntil) //nolint:errcheck // fails on a closed connection only, which Write reports
		}
		n, err := c.nc.Write(p[:min(len(p), writeStep)])
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		p = p[n:]
	}
	return nil
}
