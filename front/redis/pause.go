package redis

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pause holds commands back (CLIENT PAUSE). Safe for concurrent use.
type pause struct {
	on      atomic.Bool
	waiting atomic.Int64 // connections whose commands are held back

	mu    sync.Mutex
	until time.Time
	all   bool          // every command, not only those that write
	over  chan struct{} // closed when the pause is
	timer *time.Timer
}

// begin holds commands back until a time, or longer when a pause lasts longer
// already.
func (p *pause) begin(until time.Time, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on.Load() {
		// Whoever asked for more keeps it.
		p.all = p.all || all
		if until.Before(p.until) {
			return
		}
		p.timer.Stop()
	} else {
		p.over, p.all = make(chan struct{}), all
		p.on.Store(true)
	}
	p.until = until
	p.timer = time.AfterFunc(time.Until(until), p.end)
}

// end lets commands run.
func (p *pause) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on.Load() {
		p.timer.Stop()
		p.on.Store(false)
		close(p.over)
	}
}

// holds returns what a command must wait for, nil for nothing.
func (p *pause) holds(cmd *command, c *conn) <-chan struct{} {
	if !p.on.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	writes := cmd.set&write != 0 || cmd.name == "publish" || cmd.name == "spublish"
	if cmd.name == "exec" {
		writes = c.sess.multi != nil && c.sess.multi.writes
	} else if c.sess.multi != nil && !cmd.immediate() {
		writes = false // it is only queued
	}
	if !p.on.Load() || !p.all && !writes {
		return nil
	}
	return p.over
}

// paused waits until a pause is over. What was replied before leaves first.
func (c *conn) paused(over <-chan struct{}) error {
	if err := c.settle(); err != nil {
		return err
	}
	c.srv.pause.waiting.Add(1)
	defer c.srv.pause.waiting.Add(-1)
	for {
		select {
		case <-over:
			return nil
		case <-c.draining:
			return errDraining
		case <-c.wake:
			if c.isClosed() {
				return net.ErrClosed
			}
		}
	}
}
