package gateway

import (
	"sync"
	"time"

	"github.com/lattice-log/lattice/pipeline/gateway/flow"
)

// link is a transport. Its methods may be called at once.
type link interface {
	// write writes one frame, within the write timeout.
	write(f flow.Frame) error
	// bye ends the transport with a code; gone ends it at once.
	bye(c *flow.Close)
	gone()
	// probe asks the client for a sign of life, where the transport can.
	probe()
}

// peer is one connection.
type peer struct {
	g    *Gateway
	host string
	link link

	mu      sync.Mutex // guards what follows
	conn    *flow.Conn
	writing bool // a goroutine is in flush
	dead    bool
	room    chan struct{} // nil, or who gives rows waits for it
	writers sync.WaitGroup
	merged  int64 // what the statistics have of it

	members []*member // guarded by Gateway.mu
}

// do changes the connection, and forgets what that ended.
func (p *peer) do(f func(c *flow.Conn) flow.Changes) []*flow.Sub {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return nil
	}
	ch := f(p.conn)
	p.kick()
	p.mu.Unlock()
	if len(ch.Ended) > 0 {
		p.g.mu.Lock()
		p.g.ended(p, ch)
		p.g.mu.Unlock()
	}
	return ch.Began
}

// receive takes one frame from the client.
func (p *peer) receive(raw []byte) {
	p.g.begin(p, p.do(func(c *flow.Conn) flow.Changes { return c.Receive(time.Now(), raw) }))
}

// kick starts a writer if there is something to write and none is at it. p.mu is held.
func (p *peer) kick() {
	if p.writing || p.dead || p.conn.Idle() {
		return
	}
	p.writing = true
	p.writers.Add(1)
	go p.flush()
}

// flush writes until nothing is left.
func (p *peer) flush() {
	defer p.writers.Done()
	buf := p.g.stats.buffers.Get().(*[]byte)
	defer p.g.stats.buffers.Put(buf)
	for {
		p.mu.Lock()
		f, ok := p.conn.Next(*buf)
		if p.room != nil && p.conn.Room() {
			select {
			case p.room <- struct{}{}:
			default:
			}
		}
		if !ok || p.dead {
			p.writing = false
			m := p.conn.Merged()
			p.g.stats.merged.Add(m - p.merged)
			p.merged = m
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if f.Close != nil {
			p.g.stats.closed(f.Close.Name)
			p.g.o.Logger.Debug("connection closed by the gateway", "conn", p.conn.ID(), "code", f.Close.Name, "reason", f.Close.Reason)
			p.link.bye(f.Close)
			p.end()
			return
		}
		if cap(f.Data) > cap(*buf) && cap(f.Data) <= 64<<10 && f.Cursor != "" {
			*buf = f.Data // a patch was written into a new one
		}
		if err := p.link.write(f); err != nil {
			p.gone(err)
			return
		}
		p.g.stats.sent.Add(1)
		p.g.stats.bytes.Add(int64(len(f.Data)))
		p.mu.Lock()
		p.conn.Sent(time.Now())
		p.mu.Unlock()
	}
}

// gone ends a connection whose transport is broken.
func (p *peer) gone(err error) {
	p.end()
	p.link.gone()
	p.g.o.Logger.Debug("connection lost", "conn", p.conn.ID(), "error", err)
}

// end forgets the connection.
func (p *peer) end() {
	p.mu.Lock()
	p.dead = true
	if p.room != nil {
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	p.g.remove(p)
}
