// Package gateway shows the rows of projections live: it reads the patches of all
// partitions and gives each client, over WebSocket or SSE, those that it follows. What a
// client is told is decided in gateway/flow, what a token allows in gateway/grant; here is
// the I/O around them. docs/protocol/gateway.md describes every frame.
//
// # Concurrency
//
// Run reads the topic and ticks. A WebSocket has one goroutine that reads; one that
// writes starts when there is something to write, and ends when there is not: an
// idle connection costs its buffers and one small stack. Locks are taken in this order:
// Gateway.mu (the feed, and who follows what), then peer.mu (one connection). No socket is
// written to and no database read under either.
//
// # What a crash loses
//
// Nothing that a client cannot have again: the gateway writes nowhere. A client comes
// back with its cursor, to this gateway or another one of the same topic.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
	"github.com/lattice-log/lattice/pipeline/gateway/grant"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// Rows reads the rows of projections, for clients that have none. It is safe for
// concurrent use.
type Rows interface {
	// Snapshot calls each with the rows that a selector covers, some at a time, as they are at
	// one moment, and returns the cursor of the last patch before that moment. It must see
	// all that was committed when it was called.
	Snapshot(ctx context.Context, s flow.Selector, each func([]flow.Row) error) (asOf int64, err error)
}

// Options say what a gateway shows. The zero value of a number is its default.
type Options struct {
	App   *spec.App
	Forks []string // whose rows are shown; none: the application's own
	Rows  Rows
	Kafka []kgo.Opt
	Topic string // default: topic.Patches
	// Verify returns what a token grants; nil: there are no tokens, and everybody may follow
	// everything.
	Verify func(token string, now time.Time) (grant.Grant, error)
	// Origins are the hosts, beside the gateway's own, whose pages may connect.
	Origins []string

	// Connections bounds all connections (20,000), PerAddress those of one IP address (0: no
	// bound, which is right behind a proxy).
	Connections, PerAddress int
	// WriteTimeout is how long one frame may take to be written (10 s).
	WriteTimeout time.Duration
	// SnapshotRows and SnapshotBytes bound one snapshot (100,000 rows, 32 MiB).
	SnapshotRows, SnapshotBytes int

	Flow   flow.Config     // its Channel, Tenant and Verify are set here
	Feed   flow.FeedConfig // its ID is set here
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	for f, v := range map[*int]int{&o.Connections: 20000, &o.SnapshotRows: 100000, &o.SnapshotBytes: 32 << 20, &o.Feed.Recent: 65536} {
		if *f <= 0 {
			*f = v
		}
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.Topic == "" {
		o.Topic = topic.Patches
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Gateway serves clients. Make it with New; Run must run for anything to move.
type Gateway struct {
	o    Options
	conf flow.Config

	ready    chan struct{} // closed when the feed is at what was the topic's end at the start
	draining atomic.Bool
	reading  chan struct{} // bounds snapshots that read the database
	pacing   chan struct{} // bounds snapshots that wait for their client

	mu     sync.Mutex
	feed   *flow.Feed // nil until Run knows where the topic ends
	groups map[flow.Selector]*group
	peers  map[*peer]struct{}
	hosts  map[string]int // connections by address
	next   int64          // number of the next connection

	stats stats
}

// New checks the options.
func New(o Options) (*Gateway, error) {
	o = o.withDefaults()
	if o.App == nil || o.Rows == nil {
		return nil, lattice.E(lattice.Invalid, errors.New("gateway: it needs an application and its rows"))
	}
	forks := o.Forks
	if len(forks) == 0 {
		forks = []string{o.App.Fork}
	}
	tenants := map[string]string{}
	for _, f := range forks {
		tenants[f] = o.App.TenantSchema(f)
		if err := errors.Join(event.CheckName("fork", f), event.CheckSchema(tenants[f])); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	channels := Channels(o.App)
	g := &Gateway{
		o: o, ready: make(chan struct{}), reading: make(chan struct{}, 8), pacing: make(chan struct{}, 64),
		groups: map[flow.Selector]*group{}, peers: map[*peer]struct{}{}, hosts: map[string]int{},
	}
	g.stats.buffers.New = func() any { return new([]byte) }
	g.conf = o.Flow.WithDefaults()
	g.conf.Channel = func(name string) (flow.Channel, bool) {
		c, ok := channels[name]
		return c, ok
	}
	g.conf.Tenant = func(fork string) (string, string, bool) {
		if fork == "" {
			fork = forks[0]
		}
		t, ok := tenants[fork]
		return t, fork, ok
	}
	if g.conf.Verify = o.Verify; o.Verify == nil {
		g.conf.Verify = func(string, time.Time) (grant.Grant, error) { return grant.Grant{All: true}, nil }
	}
	return g, nil
}

// Channels returns the projections of an application as channels.
func Channels(app *spec.App) map[string]flow.Channel {
	all := map[string]flow.Channel{}
	for _, p := range app.Projections {
		var c flow.Channel
		for _, name := range p.Sources {
			if e := app.Events[name]; e != nil && !contains(c.Streams, e.Stream) {
				c.Streams = append(c.Streams, e.Stream)
			}
		}
		_, owned := app.EntityColumn(p)
		c.Narrow = owned && len(c.Streams) == 1
		all[p.Name] = c
	}
	return all
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Handler serves
//
//	GET /ws          WebSocket
//	GET /v1/events   SSE
//	GET /healthz     200 while the process runs
//	GET /readyz      200 while clients are taken
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", g.serveWS)
	mux.HandleFunc("GET /v1/events", g.serveSSE)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := g.Busy(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

// Busy says why no client is taken; empty: clients are.
func (g *Gateway) Busy() string {
	if g.draining.Load() {
		return "draining"
	}
	select {
	case <-g.ready:
		return ""
	default:
		return "reading the newest patches"
	}
}

// Ready is closed when the first client may come.
func (g *Gateway) Ready() <-chan struct{} { return g.ready }

// Drain takes no more clients and sends those that are there away, spread over some
// seconds. It returns when all are gone or the context ends.
func (g *Gateway) Drain(ctx context.Context) error {
	g.draining.Store(true)
	for _, p := range g.all() {
		p.do(func(c *flow.Conn) flow.Changes { return c.Drain(5 * time.Second) })
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(g.all()) > 0 {
		select {
		case <-ctx.Done():
			for _, p := range g.all() {
				p.gone(ctx.Err())
			}
			return nil
		case <-tick.C:
		}
	}
	return nil
}

func (g *Gateway) all() []*peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*peer, 0, len(g.peers))
	for p := range g.peers {
		all = append(all, p)
	}
	return all
}
