package main

import (
	"context"
	"encoding/json"
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

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/kafka"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/relay"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// tablesFlags say where an application's projections are.
type tablesFlags struct {
	projections, ledger string
	forks               []string
}

func (f *tablesFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.projections, "projections", "", "database of the projections: sqlite:PATH or postgres://… (default: a file in the data directory)")
	fl.StringVar(&f.ledger, "ledger", "", `database of the ledger, to fill gaps from (default: the runtime's file in the data directory if it is there); "none": do without`)
	fl.StringSliceVar(&f.forks, "fork", nil, "forks whose tables are kept (default: the application's own)")
}

// projectorFlags are what "lattice app projector" is started with.
type projectorFlags struct {
	tables               tablesFlags
	names                []string
	group, http          string
	tokens               string
	insecure             bool
	events, patches, dlq topic.Spec
	retries              int
	kafka                kafka.Config
}

func newAppProjector(a *app) *cobra.Command {
	var f projectorFlags
	cmd := &cobra.Command{
		Use:   "projector DIR",
		Short: "Keep an application's projections",
		Long: `Run the read path of the application in DIR: consume its events from Kafka, keep the tables
that its projections declare, and publish what changed in them (patches) and what could not be
applied (dead letters).

The tables are in a SQLite file or a PostgreSQL database (its password may be in PGPASSWORD or
~/.pgpass). Kafka is the running node's own unless --bootstrap names another cluster. Several
projectors share the topic's partitions; those beyond the number of partitions are idle.`,
		Example: `  lattice app projector examples/concertapp
  lattice app projector . --projections postgres://app@db/projections --bootstrap kafka1:9092,kafka2:9092`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.appProjector(cmd.Context(), args[0], f) },
	}
	f.tables.add(cmd)
	fl := cmd.Flags()
	fl.StringSliceVar(&f.names, "only", nil, "projections that are kept here (default: all)")
	fl.StringVar(&f.group, "group", "", "what the names of the consumer groups begin with (default: lattice-projector.APP)")
	fl.StringVar(&f.http, "http", "127.0.0.1:8083", "address of /metrics, /healthz, /readyz and /status; port 0 picks a free one")
	fl.StringVar(&f.tokens, "tokens-file", "", "file with the tokens that callers may bring, one a line")
	fl.BoolVar(&f.insecure, "insecure", false, "serve an address other than loopback without tokens")
	fl.StringVar(&f.events.Name, "projection-topic", topic.ProjectionEvents, "topic of the events")
	fl.StringVar(&f.patches.Name, "patches-topic", topic.Patches, "topic for patches")
	fl.StringVar(&f.dlq.Name, "dlq-topic", topic.DeadLetters, "topic for dead letters")
	fl.Int32Var(&f.events.Partitions, "partitions", topic.DefaultPartitions, "partitions of a topic that is made")
	fl.Int16Var(&f.events.Replication, "replication", 0, "replicas of a topic that is made; 0: as the brokers do it")
	fl.DurationVar(&f.events.Retention, "retention", topic.DefaultRetention, "how long a topic that is made keeps messages; below 0: for ever")
	fl.IntVar(&f.retries, "retries", 5, "how often an event that fails is tried again before it is a dead letter")
	kafkaFlags(cmd, &f.kafka)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) appProjector(ctx context.Context, dir string, f projectorFlags) error {
	if f.retries < 1 {
		return cli.Usagef("--retries %d: want 1 or more", f.retries)
	}
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
	r, err := a.openProjector(ctx, application, &f, slog.New(slog.NewTextHandler(a.stderr, nil)))
	if err != nil {
		return err
	}
	defer r.close()
	return a.serveProjector(ctx, application, r, tokens, f)
}

// projectorRole is what projects, and publishes what changed.
type projectorRole struct {
	store *projection.Store
	close func() // closes the databases
	p     *projector.Projector
	out   *relay.Relay
}

// openProjector opens the databases, which it writes to the flags, and wires the parts.
func (a *app) openProjector(ctx context.Context, application *spec.App, f *projectorFlags, log *slog.Logger) (*projectorRole, error) {
	reach, err := f.kafka.Options()
	if err != nil {
		return nil, cli.Usage(err)
	}
	store, closeStore, err := a.openTables(ctx, application, &f.tables)
	if err != nil {
		return nil, err
	}
	if f.tables.ledger == "" {
		log.Info("there is no ledger to fill gaps from: an event that the topic lost, or has behind a later one, is missing in the tables")
	}
	for _, s := range []*topic.Spec{&f.patches, &f.dlq} {
		s.Partitions, s.Replication, s.Retention = f.events.Partitions, f.events.Replication, f.events.Retention
	}
	out := relay.New(relay.Options{Store: store, Patches: f.patches, DeadLetters: f.dlq, Kafka: reach, Logger: log})
	p, err := projector.New(projector.Options{
		Store: store, Projections: f.names, Group: f.group, Topic: f.events, Kafka: reach,
		Lane: projector.Config{Retries: f.retries}, Changed: out.Wake, Logger: log,
	})
	if err != nil {
		closeStore()
		return nil, err
	}
	return &projectorRole{store: store, close: closeStore, p: p, out: out}, nil
}

// run projects until the context ends. The relay ends last: what the last transactions put
// into the outbox goes with it, if it is quick.
func (r *projectorRole) run(ctx context.Context) error {
	relaying, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	relayed := make(chan error, 1)
	go func() { relayed <- r.out.Run(relaying) }()
	err := r.p.Run(ctx)
	stop()
	return errors.Join(err, <-relayed)
}

// handle adds what is asked of a projector.
func (r *projectorRole) handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, r.p.Status()) })
	mux.HandleFunc("POST /resume", func(w http.ResponseWriter, req *http.Request) {
		writeJSON(w, http.StatusOK, map[string]int{"resumed": r.p.Resume(req.URL.Query().Get("projection"))})
	})
}

// openTables opens the databases of an application's projections and ledger. It writes to
// the flags what they are.
func (a *app) openTables(ctx context.Context, application *spec.App, f *tablesFlags) (*projection.Store, func(), error) {
	opened, err := a.openTablesWith(ctx, application, f, projection.Options{App: application, Forks: f.forks})
	if err != nil {
		return nil, nil, err
	}
	return opened.store, opened.close, nil
}

// openedTables is what openTablesWith opened.
type openedTables struct {
	store  *projection.Store
	ledger *ledger.Ledger // nil: there is none
	close  func()
}

func (a *app) openTablesWith(ctx context.Context, application *spec.App, f *tablesFlags, o projection.Options) (*openedTables, error) {
	if _, err := a.findTables(application, f); err != nil {
		return nil, err
	}
	return openFound(ctx, f, o)
}

// findTables names the databases that f does not: files of the data directory, the ledger's
// only if it is there; missing says why f names no ledger.
func (a *app) findTables(application *spec.App, f *tablesFlags) (missing, err error) {
	if f.projections == "" {
		if f.projections, err = a.ownDatabase(application.Name, "projections"); err != nil {
			return nil, err
		}
	}
	switch f.ledger {
	case "none":
		f.ledger, missing = "", errors.New("--ledger none")
	case "":
		own, err := a.ownDatabase(application.Name, "ledger")
		if err != nil {
			return nil, err
		}
		if _, missing = os.Stat(strings.TrimPrefix(own, "sqlite:")); missing == nil {
			f.ledger = own
		}
	}
	return missing, nil
}

// openFound opens the databases that findTables found.
func openFound(ctx context.Context, f *tablesFlags, o projection.Options) (*openedTables, error) {
	var open []sqldb.DB
	closeAll := func() {
		for _, db := range open {
			_ = db.Close()
		}
	}
	if f.ledger != "" {
		db, err := sqldb.Open(ctx, f.ledger, sqldb.Options{})
		if err != nil {
			return nil, err
		}
		open = append(open, db)
		if o.Ledger, err = ledger.Open(ctx, db, ledger.Options{}); err != nil {
			closeAll()
			return nil, err
		}
	}
	// One connection for each partition of each projection that works at a time, and some.
	db, err := sqldb.Open(ctx, f.projections, sqldb.Options{})
	if err != nil {
		closeAll()
		return nil, err
	}
	open = append(open, db)
	store, err := projection.Open(ctx, db, o)
	if err != nil {
		closeAll()
		return nil, err
	}
	return &openedTables{store, o.Ledger, closeAll}, nil
}

// serveProjector runs the parts until the context ends.
func (a *app) serveProjector(ctx context.Context, application *spec.App, r *projectorRole, tokens []string, f projectorFlags) error {
	metrics := prometheus.NewRegistry()
	if err := errors.Join(metrics.Register(r.p.Collector()), metrics.Register(r.out.Collector())); err != nil {
		return err
	}
	inner := http.NewServeMux()
	inner.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	r.handle(inner)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if paused := pausedPartitions(r.p.Status()); len(paused) > 0 {
			writeJSON(w, http.StatusServiceUnavailable, paused)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("/", bearer(tokens, inner))
	listener, err := net.Listen("tcp", f.http)
	if err != nil {
		return cli.Hint(fmt.Errorf("listen: %w", err), "take any free port: --http 127.0.0.1:0")
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	projecting, stop := context.WithCancel(ctx)
	defer stop()
	projected := make(chan error, 1)
	go func() { projected <- r.run(projecting) }()
	if err := a.projectorReady(application, f, listener.Addr().String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		err = <-projected
	case err = <-projected:
	case err = <-served:
		stop()
		err = errors.Join(err, <-projected)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = server.Shutdown(end) // who holds a connection is cut off
	return err
}

// pausedPartitions names what does not go on, and why.
func pausedPartitions(all []projector.Status) map[string]string {
	paused := map[string]string{}
	for _, s := range all {
		for _, p := range s.Partitions {
			if p.Paused != "" {
				paused[fmt.Sprintf("%s/%d", s.Projection, p.Partition)] = p.Paused
			}
		}
	}
	return paused
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // whoever asked is gone
}

// projectorReady says what is kept where.
func (a *app) projectorReady(application *spec.App, f projectorFlags, address string) error {
	doc := map[string]any{
		"app": application.Name, "version": application.Version, "tenant_schema": application.TenantSchema(""),
		"http": address, "projections": sqldb.Redact(f.tables.projections), "ledger": sqldb.Redact(f.tables.ledger), "kafka": f.kafka.Bootstrap,
	}
	return a.print(doc, func() error {
		_, err := fmt.Fprintf(a.stdout, "%s (%s) keeps its projections; status on http://%s/status\n  tables   %s\n  kafka    %s\n",
			application.Name, application.Version, address, sqldb.Redact(f.tables.projections), strings.Join(f.kafka.Bootstrap, ","))
		return err
	})
}
