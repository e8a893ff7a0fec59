package kafka

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is one request from its frame to its written answer. Until reply or
// silence it belongs to whoever works on it; then to the queue.
type request struct {
	c       *conn
	api     *api
	version int16
	corr    int32
	client  []byte // client id; aliases the frame
	body    []byte // aliases the frame
	frame   *buffer
	size    int // of the frame, as taken from the server's budget
	start   time.Time

	// The answer: either out, the whole frame, or stream, which writes itself.
	// Neither: the request has no answer (acks=0).
	out    *buffer
	stream streamer
	told   func(body []byte) // another member's client gets the answer: there is no queue

	// The rest is guarded by c.mu.
	hurry func() // ends a wait early; called with no lock held, maybe too late
	done  bool
	next  *request
}

// streamer is an answer that does not lie in one buffer. Only the writer
// goroutine calls it: writeTo once unless the connection broke, then release.
type streamer interface {
	writeTo(w *chunks) error
	release()
}

// flexible reports whether the request's version uses KIP-482's encoding.
func (r *request) flexible() bool { return r.version >= r.api.flexible }

// clientID returns a copy.
func (r *request) clientID() string { return string(r.client) }

// enqueue gives r its place in the order of answers.
func (c *conn) enqueue(r *request) {
	c.mu.Lock()
	if c.tail == nil {
		c.head = r
	} else {
		c.tail.next = r
	}
	c.tail = r
	c.inFlight++
	c.bytes += int64(r.size)
	c.mu.Unlock()
}

// onHurry sets what ends r's wait early.
func (r *request) onHurry(f func()) {
	r.c.mu.Lock()
	r.hurry = f
	r.c.mu.Unlock()
}

// begin starts an answer of about n bytes: room for the length, correlation id
// and, in flexible versions, the header's tags. ApiVersions never has those: its
// reader does not know yet what we speak (KIP-511).
func (r *request) begin(n int) *buffer {
	out := r.c.srv.bufs.get(n + 16)
	out.b = appendInt32(append(out.b, 0, 0, 0, 0), r.corr)
	if r.flexible() && r.api.key != keyAPIVersions {
		out.b = append(out.b, 0)
	}
	return out
}

// reply queues the answer that begin began. The frame may be gone when it returns.
func (r *request) reply(out *buffer) {
	binary.BigEndian.PutUint32(out.b, uint32(len(out.b)-4))
	r.out = out
	r.finish(int64(len(out.b)))
}

// answer encodes and queues m.
func (r *request) answer(m kmsg.Response) {
	m.SetVersion(r.version)
	out := r.begin(512)
	out.b = m.AppendTo(out.b)
	r.reply(out)
}

// answerStream queues an answer that writes itself.
func (r *request) answerStream(s streamer) {
	r.stream = s
	r.finish(0)
}

// silence ends a request that has no answer.
func (r *request) silence() { r.finish(0) }

// finish marks r as answered and sees to it that somebody writes: a goroutine
// that lives as long as the oldest request of the connection is an answered one.
func (r *request) finish(size int64) {
	c := r.c
	r.api.requests.Inc()
	r.api.duration.Observe(time.Since(r.start).Seconds())
	if r.told != nil {
		r.tell()
		return
	}
	c.mu.Lock()
	c.bytes += size
	r.done, r.hurry = true, nil
	write := c.head == r && !c.writing
	c.writing = c.writing || write
	c.mu.Unlock()
	if write {
		go c.write()
	}
}

// write writes the answers that are ready, in order.
func (c *conn) write() {
	w := chunks{c: c}
	var r *request
	for {
		var more bool
		if r, more = c.next(r, &w); r == nil {
			break
		}
		if err := w.put(r, more); err != nil {
			w.n = 0
			c.close()
		}
	}
	c.srv.bufs.put(w.buf)
}

// next takes written, if any, off the books, and the next answered request out
// of the queue; more says that another is ready after it. Without one it first
// flushes w, and then ends the writer: nil.
func (c *conn) next(written *request, w *chunks) (r *request, more bool) {
	var size int64
	if written != nil {
		size = int64(written.size)
		if written.out != nil {
			size += int64(len(written.out.b))
		}
		c.srv.recycle(written)
	}
	for {
		c.mu.Lock()
		if written != nil {
			c.inFlight--
			c.bytes -= size
			c.moved.Broadcast()
			written = nil
		}
		if r = c.head; r != nil && r.done {
			c.head = r.next
			if c.head == nil {
				c.tail = nil
			}
			more = c.head != nil && c.head.done
			c.mu.Unlock()
			return r, more
		}
		if w.n == 0 {
			c.writing = false
			c.moved.Broadcast()
			c.mu.Unlock()
			return nil, false
		}
		c.mu.Unlock()
		if err := w.flush(); err != nil {
			w.n = 0
			c.close()
		}
	}
}

// recycle takes back what a request holds.
func (s *Server) recycle(r *request) {
	if r.stream != nil {
		r.stream.release()
	}
	s.bufs.put(r.frame)
	s.frames.give(int64(r.size))
	s.bufs.put(r.out)
	*r = request{}
	s.requests.Put(r)
}

// chunks gathers an answer's bytes in one recycled buffer and writes it when it
// is full, so that small answers share a system call and large ones never exist
// as a whole.
type chunks struct {
	c     *conn
	buf   *buffer
	n     int // bytes in buf
	sent  int64
	since int64 // sent, when the current answer began
}

const (
	chunkBytes = 256 << 10
	// chunkRoom is the least room that is worth filling before a write.
	chunkRoom = 32 << 10
)

// put writes or gathers one answer.
func (w *chunks) put(r *request, more bool) error {
	switch {
	case r.stream != nil:
		return r.stream.writeTo(w)
	case r.out == nil:
		return nil
	case !more && w.n == 0:
		return w.write(r.out.b)
	}
	return w.append(r.out.b)
}

// append gathers p, or writes it when it is larger than the buffer.
func (w *chunks) append(p []byte) error {
	for len(p) > 0 {
		room, err := w.room(1)
		if err != nil {
			return err
		}
		n := copy(room, p)
		w.n += n
		p = p[n:]
	}
	return nil
}

// room returns the free part of the buffer, at least n bytes, which is not more
// than chunkBytes. The caller adds what it fills to w.n.
func (w *chunks) room(n int) ([]byte, error) {
	if w.buf == nil {
		w.buf = w.c.srv.bufs.get(chunkBytes)
		w.buf.b = w.buf.b[:chunkBytes]
	}
	if chunkBytes-w.n < n {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	return w.buf.b[w.n:], nil
}

// begun reports whether bytes of the current answer may have left already.
func (w *chunks) begun() bool { return w.sent > w.since }

func (w *chunks) flush() error {
	n := w.n
	w.n = 0
	if n == 0 {
		return nil
	}
	return w.write(w.buf.b[:n])
}

// write sends p whole. A peer that does not take it within WriteTimeout, for
// each chunk, loses the connection.
func (w *chunks) write(p []byte) error {
	c := w.c
	c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.WriteTimeout)) //nolint:errcheck // fails on a closed connection only, which Write reports
	w.sent += int64(len(p))
	c.srv.metrics.bytesOut.Add(float64(len(p)))
	if _, err := c.nc.Write(p); err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}
