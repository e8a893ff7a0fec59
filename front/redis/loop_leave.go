package redis

import "errors"

// forget takes a connection out of the loop, with what it has not executed as if it
// had just come.
func (l *loop) forget(c *conn) {
	l.poll.remove(c.seat.s)
	delete(l.conns, c.seat.s)
	mark := c.in.Mark()
	if i := c.seat.next; i < len(c.batch.cmds) {
		mark = c.batch.cmds[i].mark
	}
	c.in.Rewind(mark) // what is unfinished, or a mistake, is found again
	c.batch.cmds = c.batch.cmds[:0]
	c.seat.next = 0
}

// release gives a connection a goroutine.
func (l *loop) release(c *conn) {
	l.forget(c)
	nc, err := c.seat.s.conn()
	c.mu.Lock()
	if err == nil {
		c.nc = nc
	} else {
		c.closed = true
	}
	closed := c.closed
	c.loop, c.seat.s, c.seat.batches = nil, noSocket, 0
	c.mu.Unlock()
	if closed {
		c.nc.Close()
	}
	l.spawn(c.run)
}

// drop ends a connection.
func (l *loop) drop(c *conn, why error) {
	l.forget(c)
	c.mu.Lock()
	c.closed = true
	c.loop = nil
	c.mu.Unlock()
	c.seat.s.close()
	c.part(why)
}

// end empties the loop. When it drains, connections end once what they had
// executed is answered; otherwise they get goroutines.
func (l *loop) end(why error) {
	l.mu.Lock()
	l.ended = true
	come := l.come
	l.mu.Unlock()
	for _, c := range come {
		l.conns[c.seat.s] = c
	}
	for _, c := range l.conns {
		if !errors.Is(why, errDraining) {
			l.srv.log.Error("redis: connections get goroutines", "err", why)
			l.release(c)
			continue
		}
		err := c.settle()
		if err == nil {
			err = why
		}
		if len(c.seat.rest) > 0 {
			l.release(c)
			continue
		}
		l.drop(c, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poll.close()
}
