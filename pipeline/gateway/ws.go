package gateway

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/lattice-log/lattice/pipeline/gateway/flow"
)

// serveWS upgrades a request and returns: the connection lives on in a goroutine of
// its own, so that nothing of the request is kept.
func (g *Gateway) serveWS(w http.ResponseWriter, r *http.Request) {
	if why := g.Busy(); why != "" {
		w.Header().Set("Retry-After", "1")
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	host := hostOf(r)
	id, err := g.enter(host)
	if err != nil {
		g.stats.closed(flow.Codes()[flow.TooMany])
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	p := &peer{g: g, host: host}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		OriginPatterns: g.o.Origins,
		OnPongReceived: func(context.Context, []byte) { p.heard() },
		OnPingReceived: func(context.Context, []byte) bool { p.heard(); return true },
	})
	if err != nil {
		g.leave(host) // Accept has answered
		return
	}
	ws.SetReadLimit(flow.MaxFrame)
	p.link = &wsLink{ws, g.o.WriteTimeout}
	p.conn = flow.NewConn(&g.conf, id, bearer(r), time.Now())
	g.add(p)
	go p.read(ws)
}

// read takes frames until the connection ends.
func (p *peer) read(ws *websocket.Conn) {
	for {
		kind, b, err := ws.Read(context.Background()) // ends with the socket: silence is the ticker's to judge
		if err != nil {
			p.gone(err)
			return
		}
		if kind != websocket.MessageText {
			p.do(func(c *flow.Conn) flow.Changes { return c.End(flow.BadFrame, "a binary frame: want JSON as text") })
			continue
		}
		p.receive(b)
	}
}

func (p *peer) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.Heard(time.Now())
}

// wsLink is a WebSocket as a link.
type wsLink struct {
	ws      *websocket.Conn
	timeout time.Duration
}

func (l *wsLink) write(f flow.Frame) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	return l.ws.Write(ctx, websocket.MessageText, f.Data)
}

func (l *wsLink) bye(c *flow.Close) { _ = l.ws.Close(websocket.StatusCode(c.Code), c.Name) }
func (l *wsLink) gone()             { _ = l.ws.CloseNow() }

func (l *wsLink) probe() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*l.timeout)
	defer cancel()
	_ = l.ws.Ping(ctx) // without an answer it closes the socket
}

// bearer returns the token of a request. Browsers cannot set headers on a WebSocket, so that it
// may be in the address; a hello is the better place, since addresses end in logs.
func bearer(r *http.Request) string {
	if h := r.Header.Get("Authorization"); strings.HasPrefix(h, "Bearer ") {
		return strings.TrimPrefix(h, "Bearer ")
	}
	return r.URL.Query().Get("token")
}

func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
