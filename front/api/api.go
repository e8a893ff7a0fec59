// Package api serves the node's own API: the Connect services of lattice.v1
// (gRPC, gRPC-Web and plain HTTP with JSON, all on one port), Prometheus metrics
// at /metrics, /healthz and /readyz for whoever supervises the node, and the
// API's description at /openapi.json.
//
// It decides nothing: each method turns a request into calls of engine/store and
// the answer back. Errors leave with the Connect code of their lattice.Kind and
// with the kind, the message and a hint as detail (lattice.v1.Failure).
//
// Record batches pass through as bytes. A consumer that waits costs a goroutine
// that sleeps, one that does not read costs one message of memory.
package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/proto"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

// Config is what Handler needs. Stores, Node and Logger are required.
type Config struct {
	// Stores are the stores served.
	Stores Stores
	// Mesh is how the node reaches others; nil: it does not.
	Mesh Mesh
	// Node tells about the process. It is called for each request that asks.
	Node func() Node
	// Ready returns why the node is not ready, nothing when it is: all listeners
	// accept connections and no store has failed. nil: always ready.
	Ready func() []string
	// Metrics is served at /metrics; nil serves none.
	Metrics prometheus.Gatherer
	// Tokens, when there are any, lists what a request may bring as "Authorization:
	// Bearer TOKEN". Leave it empty for a listener that only its owner reaches,
	// such as the socket in the data directory.
	Tokens []string
	// Beside serves what the API does not, and asks for tokens itself; nil: nothing does.
	Beside http.Handler
	Logger *slog.Logger
	Limits Limits
}

// Limits bounds what callers can make the node do. Zero fields get the defaults.
type Limits struct {
	// RequestBytes is the size of one message from a caller (32 MiB).
	RequestBytes int
	// UnackedBytes is what one Produce stream may have under way (32 MiB).
	UnackedBytes int
	// ChunkBytes is the usual size of one message of a Consume stream (512 KiB),
	// and MaxChunkBytes the most that a caller may ask for (16 MiB).
	ChunkBytes, MaxChunkBytes int
	// Requests is how many requests and streams run at once (1,024).
	Requests int
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&l.RequestBytes, 32<<20)
	set(&l.UnackedBytes, 32<<20)
	set(&l.ChunkBytes, 512<<10)
	set(&l.MaxChunkBytes, 16<<20)
	set(&l.Requests, 1024)
	return l
}

// Node describes the process that serves.
type Node struct {
	Version, Commit string
	Started         time.Time
	Kafka, Redis    string // addresses; empty: off
	HTTP, Socket    string
	P2P             []string
	// Config is the effective configuration, sorted by name. The value of a
	// sensitive entry never leaves the process.
	Config []ConfigEntry
}

// ConfigEntry is one key of the node's configuration. Source is "default",
// "file", "environment" or "flag".
type ConfigEntry struct {
	Name, Value, Default, Source, Doc string
	Sensitive                         bool
}

// Handler returns the API as one http.Handler. Make one for each listener whose
// tokens differ.
func Handler(cfg Config) (http.Handler, error) {
	switch {
	case cfg.Stores == nil || cfg.Node == nil || cfg.Logger == nil:
		return nil, lattice.E(lattice.Invalid, errors.New("api: Stores, Node and Logger are required"))
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Ready == nil {
		cfg.Ready = func() []string { return nil }
	}
	a := &api{cfg: cfg}
	opts := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(cfg.Limits.RequestBytes),
		connect.WithInterceptors(failures{cfg.Logger}),
		connect.WithRecover(a.recovered),
		connect.WithCompressMinBytes(1024),
		jsonCodecs(),
	)
	// Batches come compressed by their producers, if at all.
	plain := connect.WithCompression("gzip", nil, nil)

	services := http.NewServeMux()
	var paths []string
	serve := func(path string, h http.Handler) {
		services.Handle(path, h)
		paths = append(paths, path)
	}
	serve(pbconnect.NewNodeServiceHandler(nodeService{a}, opts))
	serve(pbconnect.NewStoreServiceHandler(storeService{a}, opts))
	serve(pbconnect.NewTopicServiceHandler(topicService{a}, opts))
	serve(pbconnect.NewStrandedServiceHandler(strandedService{a}, opts))
	serve(pbconnect.NewLogServiceHandler(newLogService(a), opts, plain))
	serve(pbconnect.NewGroupServiceHandler(groupService{a}, opts))
	serve(pbconnect.NewKeyServiceHandler(keyService{api: a}, opts))
	serve(pbconnect.NewPeerServiceHandler(peerService{a}, opts))
	serve(pbconnect.NewProofServiceHandler(proofService{api: a}, opts))

	mux := http.NewServeMux()
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{}))
	}
	mux.Handle("/", http.NewCrossOriginProtection().Handler(services))

	// Supervisors ask without a token, and even when the node is busy.
	outer := http.NewServeMux()
	outer.HandleFunc("GET /healthz", healthy)
	outer.HandleFunc("GET /readyz", a.ready)
	outer.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// Who does not wait for the document does not get it.
		_, _ = w.Write(proto.OpenAPI)
	})
	if cfg.Beside == nil {
		outer.Handle("/", a.guard(mux))
		return outer, nil
	}
	for _, path := range append(paths, "GET /metrics") {
		outer.Handle(path, a.guard(mux))
	}
	outer.Handle("/", cfg.Beside)
	return outer, nil
}

// Server returns an http.Server for h: HTTP/1.1 and HTTP/2, the latter also
// without TLS, with limits on headers and idle connections.
func Server(h http.Handler, logger *slog.Logger) *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         p,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              1 << 20,
			MaxReceiveBufferPerStream:     4 << 20,
			MaxReceiveBufferPerConnection: 16 << 20,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
	}
}

// api is what the services share.
type api struct {
	cfg     Config
	running atomic.Int64
}

// guard lets a request in: not too many at once, from a caller who may.
func (a *api) guard(next http.Handler) http.Handler {
	var tokens [][sha256.Size]byte
	for _, t := range a.cfg.Tokens {
		tokens = append(tokens, sha256.Sum256([]byte(t)))
	}
	writer := connect.NewErrorWriter()
	refuse := func(w http.ResponseWriter, r *http.Request, code connect.Code, err error) {
		ce := failure(err)
		wire := connect.NewError(code, err)
		for _, d := range ce.Details() {
			wire.AddDetail(d)
		}
		// The connection is the caller's to lose; there is nobody to tell.
		_ = writer.Write(w, r, wire)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer a.running.Add(-1)
		if n := a.running.Add(1); n > int64(a.cfg.Limits.Requests) {
			refuse(w, r, connect.CodeUnavailable, lattice.E(lattice.Unavailable,
				hinted(fmt.Errorf("%d requests run at once, the limit of this node", n-1), "try again later, or close streams that nobody reads")))
			return
		}
		if err := checkHost(r, len(tokens) > 0); err != nil {
			refuse(w, r, connect.CodePermissionDenied, err)
			return
		}
		if !authorized(r, tokens) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, r, connect.CodeUnauthenticated, lattice.E(lattice.Denied,
				hinted(errors.New("no valid token"), "send one of the node's tokens as Authorization: Bearer TOKEN")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func authorized(r *http.Request, tokens [][sha256.Size]byte) bool {
	if len(tokens) == 0 {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(given))
	match := 0
	for _, t := range tokens {
		match |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	return ok && match == 1
}

// checkHost keeps web pages out that make their own name point to this machine
// (DNS rebinding): without tokens, a loopback listener answers to loopback's
// names only.
func checkHost(r *http.Request, tokens bool) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if tokens || !ok || !local.IP.IsLoopback() {
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	host = strings.Trim(host, "[]")
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return nil
	}
	return lattice.E(lattice.Denied, hinted(fmt.Errorf("this listener does not answer to the name %q", host),
		"use localhost or an address, or give the node a token"))
}

func (a *api) recovered(ctx context.Context, spec connect.Spec, _ http.Header, panicked any) error {
	a.cfg.Logger.ErrorContext(ctx, "api call panicked", "procedure", spec.Procedure, "panic", panicked)
	return failure(lattice.E(lattice.Internal, fmt.Errorf("%s: a defect in the node; its log says more", spec.Procedure)))
}
