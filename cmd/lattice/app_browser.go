package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/browser"
	"github.com/lattice-log/lattice/pipeline/kafka"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/publisher"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// browserFlags are what "lattice app browser" is started with.
type browserFlags struct {
	tables             tablesFlags
	http, tokens       string
	insecure           bool
	projection, stream string
	kafka              kafka.Config
}

func newAppBrowser(a *app) *cobra.Command {
	var f browserFlags
	cmd := &cobra.Command{
		Use:   "browser DIR",
		Short: "Look into an application",
		Long: `Serve what looks into the application in DIR, by gRPC and as JSON over HTTP: the events of its
ledger, the history of an entity and its state at any of its events, the rows of its
projections. Chosen events can be published again, which projectors pass over if they have them.

A read can ask for "at least" an event of an entity: it waits for it, for as long as it says.`,
		Example: `  lattice app browser examples/concertapp
  curl http://127.0.0.1:8084/lattice.app.v1.BrowserService/ListRows -H 'Content-Type: application/json' -d '{"projection":"artist_followers"}'`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.appBrowser(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.tables.projections, "projections", "", "database of the projections: sqlite:PATH or postgres://… (default: a file in the data directory)")
	fl.StringVar(&f.tables.ledger, "ledger", "", "database of the ledger, likewise (default: the runtime's file in the data directory)")
	fl.StringSliceVar(&f.tables.forks, "fork", nil, "forks that are shown (default: the application's own)")
	fl.StringVar(&f.http, "http", "127.0.0.1:8084", "address for callers; port 0 picks a free one")
	fl.StringVar(&f.tokens, "tokens-file", "", "file with the tokens that callers may bring, one a line")
	fl.BoolVar(&f.insecure, "insecure", false, "serve an address other than loopback without tokens")
	fl.StringVar(&f.projection, "projection-topic", topic.ProjectionEvents, "topic for the projectors")
	fl.StringVar(&f.stream, "ledger-topic", topic.LedgerEvents, "topic for the catch-up stream; empty: none")
	kafkaFlags(cmd, &f.kafka)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) appBrowser(ctx context.Context, dir string, f browserFlags) error {
	application, err := loadApp(dir)
	if err != nil {
		return err
	}
	tokens, err := servingTokens(f.tokens, f.http, f.insecure)
	if err != nil {
		return err
	}
	if err := a.ownKafka(&f.kafka); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.stderr, nil))
	b, closeBrowser, err := a.openBrowser(ctx, application, &f, log)
	if err != nil {
		return err
	}
	defer closeBrowser()
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", ok)
	mux.Handle(browser.Path, bearer(tokens, b.Handler()))
	listener, err := net.Listen("tcp", f.http)
	if err != nil {
		return cli.Hint(fmt.Errorf("listen: %w", err), "take any free port: --http 127.0.0.1:0")
	}
	server := grpcServer(mux)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := a.browserReady(application, f, listener.Addr().String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin/2)
	defer cancel()
	if server.Shutdown(end) != nil {
		_ = server.Close() // who waits for an event that does not come is cut off
	}
	return err
}

// openBrowser opens the databases, which it writes to the flags.
func (a *app) openBrowser(ctx context.Context, application *spec.App, f *browserFlags, log *slog.Logger) (*browser.Browser, func(), error) {
	reach, err := f.kafka.Options()
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	missing, err := a.findTables(application, &f.tables)
	if err != nil {
		return nil, nil, err
	}
	if f.tables.ledger == "" {
		return nil, nil, cli.Hint(fmt.Errorf("there is no ledger: %w", missing), "name its database: --ledger URL, or start what makes it: lattice app runtime")
	}
	opened, err := openFound(ctx, &f.tables, projection.Options{App: application, Forks: f.tables.forks})
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*browser.Browser, func(), error) {
		opened.close()
		return nil, nil, err
	}
	o := browser.Options{App: application, Forks: f.tables.forks, Ledger: opened.ledger, Store: opened.store, Logger: log}
	pub, err := publisher.New(o.Ledger, publisher.Options{Projection: topic.Spec{Name: f.projection}, Ledger: topic.Spec{Name: f.stream}, Kafka: reach, Logger: log})
	if err != nil {
		return fail(err)
	}
	o.Republish = pub.Republish
	b, err := browser.New(o)
	if err != nil {
		return fail(err)
	}
	return b, opened.close, nil
}

// browserReady says where callers go.
func (a *app) browserReady(application *spec.App, f browserFlags, address string) error {
	doc := map[string]any{
		"app": application.Name, "version": application.Version, "tenant_schema": application.TenantSchema(""), "http": address,
		"projections": sqldb.Redact(f.tables.projections), "ledger": sqldb.Redact(f.tables.ledger), "kafka": f.kafka.Bootstrap,
	}
	return a.print(doc, func() error {
		_, err := fmt.Fprintf(a.stdout, "%s (%s) can be looked into on http://%s%s\n  ledger   %s\n  tables   %s\n  kafka    %s\n", application.Name, application.Version,
			address, browser.Path, sqldb.Redact(f.tables.ledger), sqldb.Redact(f.tables.projections), strings.Join(f.kafka.Bootstrap, ","))
		return err
	})
}
