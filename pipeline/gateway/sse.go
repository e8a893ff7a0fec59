package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lattice-log/lattice/pipeline/gateway/flow"
)

// serveSSE follows one channel as an event stream:
//
//	GET /v1/events?stream_id=…&channel=…[&fork_id=…][&from_cursor=…][&token=…]
//
// Each frame is an event: its type, as data the frame that a WebSocket gets, and as id
// the cursor where a client has all that is behind it. Browsers send the last id when they
// come back.
func (g *Gateway) serveSSE(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	refuse := func(status int, why string) {
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, why, status)
	}
	if why := g.Busy(); why != "" {
		refuse(http.StatusServiceUnavailable, why)
		return
	}
	where := r.Header.Get("Last-Event-ID")
	if where == "" {
		where = q.Get("from_cursor")
	}
	quoted, _ := json.Marshal(where) // a string has an encoding
	from, err := flow.ParseFrom(quoted)
	if err != nil {
		refuse(http.StatusBadRequest, err.Error())
		return
	}
	if _, err := g.conf.Verify(bearer(r), time.Now()); err != nil {
		refuse(http.StatusUnauthorized, err.Error())
		return
	}
	host := hostOf(r)
	id, err := g.enter(host)
	if err != nil {
		g.stats.closed(flow.Codes()[flow.TooMany])
		refuse(http.StatusServiceUnavailable, err.Error())
		return
	}
	link := &sseLink{w: w, c: http.NewResponseController(w), timeout: g.o.WriteTimeout, done: make(chan struct{})}
	p := &peer{g: g, host: host, link: link, conn: flow.NewConn(&g.conf, id, "", time.Now())}
	link.heard = p.heard
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must not wait for more
	w.WriteHeader(http.StatusOK)
	g.add(p)
	g.begin(p, p.do(func(c *flow.Conn) flow.Changes {
		if !c.Greet(time.Now(), bearer(r), q.Get("fork_id")) {
			return flow.Changes{}
		}
		return c.Subscribe(q.Get("stream_id"), q.Get("channel"), from)
	}))
	select {
	case <-r.Context().Done():
	case <-link.done:
	}
	p.end()
	p.writers.Wait() // nobody writes to w any more
}

// sseLink is an event stream as a link.
type sseLink struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	timeout time.Duration
	heard   func()

	once sync.Once
	done chan struct{}
}

func (l *sseLink) write(f flow.Frame) error {
	var head struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(f.Data, &head) // it is a frame of ours
	var b bytes.Buffer
	if f.Cursor != "" {
		fmt.Fprintf(&b, "id: %s\n", f.Cursor)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", head.Type, f.Data)
	if err := l.c.SetWriteDeadline(time.Now().Add(l.timeout)); err != nil {
		return err
	}
	if _, err := l.w.Write(b.Bytes()); err != nil {
		return err
	}
	if err := l.c.Flush(); err != nil {
		return err
	}
	l.heard() // it took what we wrote: all that an event stream can tell
	return nil
}

func (l *sseLink) bye(*flow.Close) { l.gone() }
func (l *sseLink) gone()           { l.once.Do(func() { close(l.done) }) }
func (l *sseLink) probe()          {}
