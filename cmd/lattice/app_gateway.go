package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client/ts"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/gateway"
	"github.com/lattice-log/lattice/pipeline/kafka"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// gatewayFlags are what "lattice app gateway" is started with.
type gatewayFlags struct {
	projections, http, keys, topic string
	forks, origins                 []string
	insecure                       bool
	connections, perAddress        int
	kafka                          kafka.Config
}

func newAppGateway(a *app) *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway DIR",
		Short: "Show an application's projections live",
		Long: `Read the patches of the application in DIR and show them to clients: WebSocket on /ws, SSE on
/v1/events. A client that comes back with its cursor gets what it missed; one that has
nothing gets the rows from the projections' database. The files in DIR/public are served, too,
with the client for browsers as /lattice/live.js.

Clients bring a JWT (HS256 or EdDSA) that names what they may follow; --token-keys has the keys: a
file with secrets, a public key in PEM or a JWKS, or the address of a JWKS. Without it
everybody may follow everything, so that only loopback is served.

Any number of gateways can run: each reads all patches. On SIGTERM clients are sent away with their cursors.`,
		Example: `  lattice app gateway examples/concertapp
  lattice app gateway . --projections postgres://app@db/projections --bootstrap kafka1:9092 --http 0.0.0.0:8082 --token-keys keys.json`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.appGateway(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.projections, "projections", "", "database of the projections: sqlite:PATH or postgres://… (default: a file in the data directory)")
	fl.StringVar(&f.http, "http", "127.0.0.1:8082", "address for clients; port 0 picks a free one")
	fl.StringSliceVar(&f.forks, "fork", nil, "forks that are shown (default: the application's own)")
	fl.StringVar(&f.keys, "token-keys", "", "file or address (https) with the keys that tokens are signed with")
	fl.BoolVar(&f.insecure, "insecure", false, "serve an address other than loopback without tokens")
	fl.StringSliceVar(&f.origins, "origin", nil, "hosts beside the gateway's own whose pages may connect")
	fl.StringVar(&f.topic, "patches-topic", topic.Patches, "topic of the patches")
	fl.IntVar(&f.connections, "max-connections", 20000, "connections that are taken")
	fl.IntVar(&f.perAddress, "max-per-address", 0, "connections from one IP address; 0: no bound, as behind a proxy")
	kafkaFlags(cmd, &f.kafka)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) appGateway(ctx context.Context, dir string, f gatewayFlags) error {
	application, err := loadApp(dir)
	if err != nil {
		return err
	}
	if err := f.closedDoor(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.stderr, nil))
	r, err := a.openGateway(ctx, application, &f, dir, log)
	if err != nil {
		return err
	}
	defer r.close()
	return a.serveGateway(ctx, application, r, f)
}

// gatewayRole is what shows projections live.
type gatewayRole struct {
	g     *gateway.Gateway
	mux   *http.ServeMux // what clients and pages ask for
	close func()
}

// openGateway opens the database, which it writes to the flags, and wires the parts. Keys
// are looked up again until the context ends.
func (a *app) openGateway(ctx context.Context, application *spec.App, f *gatewayFlags, dir string, log *slog.Logger) (_ *gatewayRole, err error) {
	o := gateway.Options{
		App: application, Forks: f.forks, Topic: f.topic, Origins: f.origins, Connections: f.connections, PerAddress: f.perAddress, Logger: log,
	}
	if f.keys != "" {
		keys, err := gateway.OpenKeys(ctx, f.keys, log)
		if err != nil {
			return nil, err
		}
		go keys.Run(ctx)
		o.Verify = keys.Verify
	}
	if err := a.ownKafka(&f.kafka); err != nil {
		return nil, err
	}
	if o.Kafka, err = f.kafka.Options(); err != nil {
		return nil, cli.Usage(err)
	}
	if f.projections == "" {
		if f.projections, err = a.ownDatabase(application.Name, "projections"); err != nil {
			return nil, err
		}
	}
	db, err := sqldb.Open(ctx, f.projections, sqldb.Options{})
	if err != nil {
		return nil, err
	}
	o.Rows = gateway.SQLRows{DB: db, App: application}
	g, err := gateway.New(o)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	mux, closePages, err := pages(g, dir)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &gatewayRole{g: g, mux: mux, close: func() { closePages(); _ = db.Close() }}, nil
}

// pages returns what serves the clients, the client for browsers, and the application's files.
func pages(g *gateway.Gateway, dir string) (*http.ServeMux, func(), error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	closeFiles := func() {}
	mux := http.NewServeMux()
	live := g.Handler()
	for _, path := range []string{"GET /ws", "GET /v1/events"} {
		mux.Handle(path, live)
	}
	mux.HandleFunc("GET /lattice/live.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(ts.JavaScript())
	})
	if public, err := root.OpenRoot("public"); err == nil {
		closeFiles = func() { _ = public.Close() }
		mux.Handle("GET /", http.FileServerFS(public.FS()))
	}
	return mux, closeFiles, nil
}

// serveGateway runs the gateway until the context ends, and then sends its clients away.
func (a *app) serveGateway(ctx context.Context, application *spec.App, r *gatewayRole, f gatewayFlags) error {
	metrics := prometheus.NewRegistry()
	if err := metrics.Register(r.g.Collector()); err != nil {
		return err
	}
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		r.mux.Handle(path, r.g.Handler())
	}
	r.mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", f.http)
	if err != nil {
		return cli.Hint(fmt.Errorf("listen for clients: %w", err), "take any free port: --http 127.0.0.1:0")
	}
	server := &http.Server{Handler: r.mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- r.g.Run(running) }()
	if err := a.gatewayReady(application, f, listener.Addr().String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-served:
	case err = <-ran:
		ran <- nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin/2)
	defer cancel()
	err = errors.Join(err, r.g.Drain(end), server.Shutdown(end))
	stop()
	return errors.Join(err, <-ran)
}

func (a *app) gatewayReady(application *spec.App, f gatewayFlags, address string) error {
	doc := map[string]any{
		"app": application.Name, "version": application.Version, "tenant_schema": application.TenantSchema(""),
		"http": address, "projections": sqldb.Redact(f.projections), "kafka": f.kafka.Bootstrap, "tokens": f.keys != "",
	}
	return a.print(doc, func() error {
		_, err := fmt.Fprintf(a.stdout, "%s (%s) shows its projections on ws://%s/ws and http://%s/\n  tables   %s\n  kafka    %s\n",
			application.Name, application.Version, address, address, sqldb.Redact(f.projections), strings.Join(f.kafka.Bootstrap, ","))
		return err
	})
}

// closedDoor refuses an open one.
func (f gatewayFlags) closedDoor() error {
	open, err := openAddress(f.http)
	if err == nil && open && f.keys == "" && !f.insecure {
		err = cli.Hint(fmt.Errorf("--http %s is open to others, and there are no keys of tokens", f.http),
			"name them: --token-keys FILE; or listen on 127.0.0.1; or say --insecure")
	}
	return err
}
