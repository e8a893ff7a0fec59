package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lattice-log/lattice/front/api"
)

// serveAPI starts the API on the socket and, if it is on, on the HTTP listener.
func (n *Node) serveAPI(t *tasks) error {
	limits := api.Limits{
		RequestBytes: max(32<<20, int(n.cfg.Limits.BatchBytes)+1<<20),
		Requests:     n.cfg.Limits.APIRequests,
	}
	cfg := api.Config{
		Stores: n.stores, Node: n.apiNode, Ready: n.reasons, Metrics: n,
		Logger: n.log, Limits: limits,
	}
	if n.mesh != nil {
		cfg.Mesh = n.mesh
	}
	socket, err := api.Handler(cfg)
	if err != nil {
		return err
	}
	cfg.Tokens, cfg.Beside = n.lns.tokens, n.opts.Beside
	public, err := api.Handler(cfg)
	if err != nil {
		return err
	}
	t.run("api socket", func(ctx context.Context) error {
		return serveHTTP(ctx, api.Server(socket, n.log), n.lns.socket, false)
	})
	if n.lns.http == nil {
		return nil
	}
	srv := api.Server(public, n.log)
	srv.TLSConfig = n.lns.tls.Clone()
	t.run("http", func(ctx context.Context) error { return serveHTTP(ctx, srv, n.lns.http, n.lns.tls != nil) })
	return nil
}

// hangUpWithin is how long handlers get at the end. Their contexts have ended
// too, so what still runs then writes to a caller who does not read.
const hangUpWithin = 2 * time.Second

// serveHTTP serves until ctx ends, which also ends every request's context, and
// then waits for the handlers for a while.
func serveHTTP(ctx context.Context, srv *http.Server, ln net.Listener, secure bool) error {
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	done := make(chan error, 1)
	go func() {
		if secure {
			done <- srv.ServeTLS(ln, "", "")
			return
		}
		done <- srv.Serve(ln)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpWithin)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		// Callers that do not hang up are hung up on.
		srv.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// apiNode describes the process to the API.
func (n *Node) apiNode() api.Node {
	i := n.Info()
	m := api.Node{
		Version: n.opts.Version, Commit: n.opts.Commit, Started: n.started,
		Kafka: i.Kafka, Redis: i.Redis, HTTP: i.HTTP, Socket: i.Socket, P2P: i.P2P,
	}
	for _, s := range n.opts.Settings {
		source, _, _ := strings.Cut(s.Source, " ")
		if source == "env" {
			source = "environment"
		}
		m.Config = append(m.Config, api.ConfigEntry{Name: s.Key, Value: s.Value, Default: s.Default, Source: source, Doc: s.Doc})
	}
	return m
}
