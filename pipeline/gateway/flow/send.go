package flow

import (
	"encoding/json"
	"fmt"
	"time"
)

// Codes that connections are closed with, and their names.
const (
	Slow          = 4000 // it does not read as fast as patches come
	HelloTimeout  = 4001
	Heartbeat     = 4002 // it was silent
	BadFrame      = 4003
	BadCursor     = 4004
	Flood         = 4005 // it sends too much
	Unauthorized  = 4006
	Expired       = 4007 // its token is over
	TooMany       = 4008 // connections
	Draining      = 4009 // the gateway stops; come back
	InternalError = 4010
)

// Codes returns the name of each code.
func Codes() map[int]string {
	return map[int]string{
		Slow: "slow", HelloTimeout: "hello_timeout", Heartbeat: "heartbeat", BadFrame: "bad_frame", BadCursor: "bad_cursor", Flood: "flood",
		Unauthorized: "unauthorized", Expired: "expired", TooMany: "too_many", Draining: "draining", InternalError: "internal",
	}
}

// Row is one row of a snapshot.
type Row struct {
	Key, Row json.RawMessage
	// Cursor is that of the row's last patch.
	Cursor int64
}

// frame queues a frame of ours.
func (c *Conn) frame(b []byte) { c.out.push(entry{frame: b}) }

// Offer gives a subscription an item that it follows.
func (c *Conn) Offer(s *Sub, it *Item) Changes {
	if c.close != nil || s.state == ended || s.state == asking {
		return Changes{}
	}
	if it.Reset {
		c.restart(s, it)
		return Changes{}
	}
	if it.last <= s.asOf {
		return Changes{} // the snapshot has it
	}
	q := &c.out
	if s.state == snapshotting {
		q = &s.held
	}
	q.push(entry{sub: s, item: it})
	n, size := c.waiting()
	if n > c.cfg.Queue/2 || size > c.cfg.QueueBytes/2 {
		c.out.startMerging()
		for _, s := range c.subs {
			s.held.startMerging()
		}
		n, size = c.waiting()
	}
	if n > c.cfg.Queue || size > c.cfg.QueueBytes {
		return c.End(Slow, fmt.Sprintf("%d frames (%d bytes) wait, though patches of one row are merged", n, size))
	}
	return Changes{}
}

// waiting counts what is queued.
func (c *Conn) waiting() (frames, bytes int) {
	frames, bytes = c.out.live, c.out.size
	for _, s := range c.subs {
		frames, bytes = frames+s.held.live, bytes+s.held.size
	}
	return frames, bytes
}

// restart has a client read its projection anew. What is queued is of the old one.
func (c *Conn) restart(s *Sub, it *Item) {
	c.out.purge(s)
	s.held = queue{}
	s.round++
	s.asOf = 0 // cursors of a projection that was built anew may be lower
	s.state, s.cursor = snapshotting, it.Cursor
	b := field(field(on("resume", s.at), "answer", Reset.String()), "reason", it.Reason)
	c.out.push(entry{sub: s, frame: end(field(b, "cursor", s.cursor))})
}

// Room reports whether more rows of a snapshot may be given.
func (c *Conn) Room() bool {
	n, size := c.waiting()
	return c.close != nil || n < c.cfg.Queue/4 && size < c.cfg.QueueBytes/4
}

// Rows gives some rows of a snapshot. It reports false if nobody wants them any more.
func (c *Conn) Rows(s *Sub, round int, rows []Row) bool {
	if c.close != nil || s.state != snapshotting || s.round != round {
		return false
	}
	b := append(on("snapshot", s.at), `"rows":[`...)
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"key":`...), compact(r.Key)...), `,"row":`...)
		b = append(append(b, oneLine(r.Row)...), ',')
		b = end(number(b, "cursor", r.Cursor))
	}
	c.out.push(entry{sub: s, frame: append(b, "]}"...)})
	return true
}

// SnapshotDone ends a snapshot: what came meanwhile follows it. asOf is the cursor of the
// last patch that is in the snapshot: earlier ones are, later ones are not. 0: not known.
func (c *Conn) SnapshotDone(s *Sub, round int, asOf int64, err error) Changes {
	if c.close != nil || s.state != snapshotting || s.round != round {
		return Changes{}
	}
	if err != nil {
		return c.Fail(s, err)
	}
	s.state, s.asOf = following, asOf
	cursor := s.cursor
	for {
		e, ok := s.held.pop()
		if !ok {
			break
		}
		cursor = e.item.Cursor
		if e.item.last > asOf {
			c.out.push(e)
		}
	}
	c.upToDate(s, cursor)
	return Changes{}
}

// Frame is what is to be written. It is valid until the next call of Next.
type Frame struct {
	Data   []byte
	Cursor string // of a patch, or of what ends catching up: SSE's id
	// Close, if not nil, follows Data: nothing more will come.
	Close *Close
}

// Next returns the next frame, written into buf if it is a patch; false: there is none.
func (c *Conn) Next(buf []byte) (Frame, bool) {
	if c.closed {
		return Frame{}, false
	}
	e, ok := c.out.pop()
	if !ok {
		if c.close == nil {
			return Frame{}, false
		}
		c.closed = true
		return Frame{Close: c.close}, true
	}
	if e.item == nil {
		if e.cursor != "" {
			e.sub.cursor = e.cursor
		}
		return Frame{Data: e.frame, Cursor: e.cursor}, true
	}
	buf = append(buf[:0], e.sub.prefix...)
	buf = field(buf, "prev_cursor", e.sub.cursor)
	buf = append(buf, e.item.body...)
	e.sub.cursor = e.item.Cursor
	return Frame{Data: buf, Cursor: e.item.Cursor}, true
}

// Sent says that something was written.
func (c *Conn) Sent(now time.Time) { c.told = now }

// Heard says that the client is there, though it sent no frame: a pong of WebSocket's own.
func (c *Conn) Heard(now time.Time) { c.heard = now }

// Idle reports whether nothing waits.
func (c *Conn) Idle() bool { return c.out.live == 0 && (c.close == nil || c.closed) }

// Merged returns the number of patches that were merged into others.
func (c *Conn) Merged() int64 {
	n := c.out.merged
	for _, s := range c.subs {
		n += s.held.merged
	}
	return n
}

// Tick does what time asks for. It reports whether the client is to be asked for a
// sign of life in the transport's own way.
func (c *Conn) Tick(now time.Time) (probe bool, ch Changes) {
	switch g := c.grant; {
	case c.close != nil:
	case !c.greeted && now.Sub(c.began) >= c.cfg.Hello:
		ch = c.End(HelloTimeout, "no hello came")
	case now.Sub(c.heard) >= c.cfg.Silence:
		ch = c.End(Heartbeat, "no sign of life came")
	case !g.Expires.IsZero() && !now.Before(g.Expires):
		ch = c.End(Expired, "the token has expired: get a new one and come back")
	case !g.Expires.IsZero() && !c.warned && now.After(g.Expires.Add(-c.cfg.Warn)):
		c.warned = true
		c.frame(end(number(begin("auth_expiring"), "expires_ts", g.Expires.UnixMilli())))
	}
	if c.close != nil || !c.greeted {
		return false, ch
	}
	if now.Sub(c.told) >= c.cfg.Heartbeat && c.out.live == 0 {
		c.told = now
		c.frame(end(number(begin("ping"), "ts", now.UnixMilli())))
	}
	return now.Sub(c.heard) >= c.cfg.Heartbeat, ch
}

// End closes the connection: one frame says why and where each subscription stands, and then
// the transport is closed with the code. What waits is not sent: the cursors say so.
func (c *Conn) End(code int, reason string) Changes {
	if c.close != nil {
		return Changes{}
	}
	c.close = &Close{Code: code, Name: Codes()[code], Reason: reason}
	c.out = queue{merged: c.Merged()}
	b := number(field(field(begin("closing"), "code", c.close.Name), "message", reason), "status", int64(code))
	b = append(b, `"cursors":[`...)
	for i, s := range c.subs {
		if i > 0 {
			b = append(b, ',')
		}
		cursor := s.cursor
		if s.state != following {
			cursor = "" // it has half a snapshot: it begins anew
		}
		b = field(field(append(b, '{'), "stream_id", s.at.String()), "channel", s.at.channel)
		b = end(field(b, "cursor", cursor))
	}
	c.frame(append(b, "]}"...))
	ch := Changes{Ended: c.subs}
	for _, s := range c.subs {
		s.state, s.held = ended, queue{}
	}
	c.subs = nil
	return ch
}

// Closing reports whether the connection ends, and why.
func (c *Conn) Closing() *Close { return c.close }

// Drain ends it because the gateway stops. Clients come back after a time of their own choice up to
// retry, not all at once.
func (c *Conn) Drain(retry time.Duration) Changes {
	return c.End(Draining, fmt.Sprintf("the gateway stops: come back within %d ms, here or elsewhere", retry.Milliseconds()))
}
