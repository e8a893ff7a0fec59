package main

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
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/intents"
	"github.com/lattice-log/lattice/pipeline/kafka"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/publisher"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// runtimeFlags are what "lattice app runtime" is started with.
type runtimeFlags struct {
	ledger, http, mode string
	forks              []string
	insecure           bool
	tokens             string
	projection, stream topic.Spec
	kafka              kafka.Config
}

func newAppRuntime(a *app) *cobra.Command {
	var f runtimeFlags
	cmd := &cobra.Command{
		Use:   "runtime DIR",
		Short: "Take an application's intents and publish its events",
		Long: `Run the write path of the application in DIR: take intents (POST /v1/intents, and gRPC),
run their rules, commit to the ledger, and publish what was committed to Kafka. An intent is
answered when its commit is durable; a broker that is away delays the events and fails no intent.

The ledger is a SQLite file or a PostgreSQL database (its password may be in PGPASSWORD or
~/.pgpass). Kafka is the running node's own unless --bootstrap names another cluster. Several
runtimes can share a PostgreSQL ledger: each takes intents, one publishes.`,
		Example: `  lattice app runtime examples/concertapp
  lattice app runtime . --ledger postgres://app@db/ledger --bootstrap kafka1:9092,kafka2:9092 --replication 3`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.appRuntime(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.ledger, "ledger", "", "database of the ledger: sqlite:PATH or postgres://… (default: a file in the data directory)")
	fl.StringVar(&f.http, "http", "127.0.0.1:8081", "address for intents; port 0 picks a free one")
	fl.StringSliceVar(&f.forks, "fork", nil, "forks that are served (default: the application's own)")
	fl.StringVar(&f.mode, "publish", string(publisher.Healing), "what becomes of an event that could not be published: healing, outbox or fire-and-forget")
	fl.StringVar(&f.tokens, "tokens-file", "", "file with the tokens that callers may bring, one a line")
	fl.BoolVar(&f.insecure, "insecure", false, "serve an address other than loopback without tokens")
	fl.StringVar(&f.projection.Name, "projection-topic", topic.ProjectionEvents, "topic for the projectors")
	fl.StringVar(&f.stream.Name, "ledger-topic", topic.LedgerEvents, "topic for the catch-up stream; empty: none")
	fl.Int32Var(&f.projection.Partitions, "partitions", topic.DefaultPartitions, "partitions of a topic that is made")
	fl.Int16Var(&f.projection.Replication, "replication", 0, "replicas of a topic that is made; 0: as the brokers do it")
	fl.DurationVar(&f.projection.Retention, "retention", topic.DefaultRetention, "how long a topic that is made keeps events; below 0: for ever")
	kafkaFlags(cmd, &f.kafka)
	a.outputFlag(cmd)
	return cmd
}

// kafkaFlags adds what says how Kafka is reached.
func kafkaFlags(cmd *cobra.Command, c *kafka.Config) {
	fl := cmd.Flags()
	fl.StringSliceVar(&c.Bootstrap, "bootstrap", nil, "addresses of Kafka, HOST:PORT (default: the running node's)")
	fl.BoolVar(&c.TLS, "kafka-tls", false, "speak TLS to Kafka")
	fl.StringVar(&c.CAFile, "kafka-ca", "", "PEM file with the authorities that Kafka's certificate may come from")
	fl.StringVar(&c.CertFile, "kafka-cert", "", "PEM file with our certificate")
	fl.StringVar(&c.KeyFile, "kafka-key", "", "PEM file with its key")
	fl.StringVar(&c.Mechanism, "kafka-sasl", "", "SASL mechanism: "+strings.Join(kafka.Mechanisms(), ", "))
	fl.StringVar(&c.User, "kafka-user", "", "SASL user")
	fl.StringVar(&c.PasswordFile, "kafka-password-file", "", "file with the SASL password")
}

func (a *app) appRuntime(ctx context.Context, dir string, f runtimeFlags) error {
	application, err := loadApp(dir)
	if err != nil {
		return err
	}
	mode, err := publisher.ParseMode(f.mode)
	if err != nil {
		return cli.Usage(err)
	}
	tokens, err := servingTokens(f.tokens, f.http, f.insecure)
	if err != nil {
		return err
	}
	if err := a.ownKafka(&f.kafka); err != nil {
		return err
	}
	reach, err := f.kafka.Options()
	if err != nil {
		return cli.Usage(err)
	}
	log := slog.New(slog.NewTextHandler(a.stderr, nil))
	r, err := a.openRuntime(ctx, application, &f, publisher.Options{Mode: mode, Kafka: reach, Logger: log})
	if err != nil {
		return err
	}
	defer r.db.Close()
	return a.serveRuntime(ctx, application, r, tokens, f)
}

// runtimeRole is what takes intents and publishes.
type runtimeRole struct {
	db         sqldb.DB
	ledger     *ledger.Ledger
	pub        *publisher.Publisher
	service    *intents.Service
	collectors []prometheus.Collector
}

// openRuntime opens the ledger, which it writes to the flags, and wires the parts. The
// database is the caller's to close.
func (a *app) openRuntime(ctx context.Context, application *spec.App, f *runtimeFlags, po publisher.Options) (_ *runtimeRole, err error) {
	if f.ledger == "" {
		if f.ledger, err = a.ownDatabase(application.Name, "ledger"); err != nil {
			return nil, err
		}
	}
	r := &runtimeRole{}
	if r.db, err = sqldb.Open(ctx, f.ledger, sqldb.Options{}); err != nil {
		return nil, err
	}
	f.stream.Partitions, f.stream.Replication, f.stream.Retention = f.projection.Partitions, f.projection.Replication, f.projection.Retention
	po.Projection, po.Ledger = f.projection, f.stream
	// A SQLite ledger is one process's: nobody to wait for after a crash.
	po.TakeOver = r.db.Dialect() == sqldb.SQLite
	if err := r.wire(ctx, application, f.forks, po); err != nil {
		_ = r.db.Close()
		return nil, err
	}
	return r, nil
}

func (r *runtimeRole) wire(ctx context.Context, application *spec.App, forks []string, po publisher.Options) (err error) {
	var committed func([]event.Event)
	r.ledger, err = ledger.Open(ctx, r.db, ledger.Options{Logger: po.Logger, Committed: func(events []event.Event) { committed(events) }})
	if err != nil {
		return err
	}
	if r.pub, err = publisher.New(r.ledger, po); err != nil {
		return err
	}
	committed = r.pub.Committed
	if r.service, err = intents.New(intents.Options{App: application, Ledger: r.ledger, Forks: forks, Logger: po.Logger}); err != nil {
		return err
	}
	r.collectors = []prometheus.Collector{r.pub.Collector(), r.service.Collector()}
	return nil
}

// serveRuntime runs the parts until the context ends.
func (a *app) serveRuntime(ctx context.Context, application *spec.App, r *runtimeRole, tokens []string, f runtimeFlags) error {
	metrics := prometheus.NewRegistry()
	for _, c := range r.collectors {
		if err := metrics.Register(c); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", r.service.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", f.http)
	if err != nil {
		return cli.Hint(fmt.Errorf("listen for intents: %w", err), "take any free port: --http 127.0.0.1:0")
	}
	server := grpcServer(bearer(tokens, mux))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	publishing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	published := make(chan error, 1)
	go func() { published <- r.pub.Run(publishing) }()
	if err := a.runtimeReady(application, f, listener.Addr().String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	// Callers first, so that what they commit last is published, too, if it is quick.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin/2)
	defer cancel()
	err = errors.Join(err, server.Shutdown(end))
	stop()
	return errors.Join(err, <-published)
}

// grpcServer serves HTTP, and gRPC without TLS.
func grpcServer(h http.Handler) *http.Server {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// runtimeReady says where intents go.
func (a *app) runtimeReady(application *spec.App, f runtimeFlags, address string) error {
	doc := map[string]any{
		"app": application.Name, "version": application.Version, "tenant_schema": application.TenantSchema(""),
		"http": address, "ledger": sqldb.Redact(f.ledger), "kafka": f.kafka.Bootstrap,
	}
	return a.print(doc, func() error {
		_, err := fmt.Fprintf(a.stdout, "%s (%s) takes intents on http://%s/v1/intents\n  ledger   %s\n  kafka    %s\n",
			application.Name, application.Version, address, sqldb.Redact(f.ledger), strings.Join(f.kafka.Bootstrap, ","))
		return err
	})
}

// ownKafka takes the running node's address, unless one was named.
func (a *app) ownKafka(c *kafka.Config) error {
	if len(c.Bootstrap) > 0 {
		return nil
	}
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	info, err := client.ReadNodeInfo(dir)
	if err != nil {
		return err
	}
	if info.Kafka == "" {
		return cli.Hint(fmt.Errorf("the node on %s does not speak Kafka", dir), "start it with an address in --kafka, or name a cluster: --bootstrap HOST:PORT")
	}
	c.Bootstrap = []string{info.Kafka}
	return nil
}

// ownDatabase returns the file of an application's ledger or projections in the data directory.
func (a *app) ownDatabase(name, what string) (string, error) {
	dir, err := a.dataDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "apps")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the %s's directory: %w", what, err)
	}
	return "sqlite:" + filepath.Join(dir, name+"."+what+".db"), nil
}

// servingTokens reads the tokens, and refuses an open door.
func servingTokens(file, address string, insecure bool) ([]string, error) {
	var tokens []string
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the tokens: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			if t := strings.TrimSpace(line); t != "" && t[0] != '#' {
				tokens = append(tokens, t)
			}
		}
		if len(tokens) == 0 {
			return nil, fmt.Errorf("read the tokens: %s holds none", file)
		}
	}
	open, err := openAddress(address)
	if err != nil {
		return nil, err
	}
	if open && len(tokens) == 0 && !insecure {
		return nil, cli.Hint(fmt.Errorf("--http %s is open to others, and there are no tokens", address),
			"name them: --tokens-file FILE; or listen on 127.0.0.1; or say --insecure")
	}
	return tokens, nil
}

// openAddress reports whether who is not on this machine could reach an address of --http.
func openAddress(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, cli.Usagef("--http %q: want HOST:PORT", address)
	}
	ip, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !ip.IsLoopback()), nil
}

// bearer lets requests pass that bring one of the tokens; with no tokens, all.
func bearer(tokens []string, next http.Handler) http.Handler {
	if len(tokens) == 0 {
		return next
	}
	sums := make([][32]byte, len(tokens))
	for i, t := range tokens {
		sums[i] = sha256.Sum256([]byte(t))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		have := sha256.Sum256([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
		ok := 0
		for _, s := range sums {
			ok |= subtle.ConstantTimeCompare(s[:], have[:])
		}
		if ok != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, `{"accepted":false,"error":"this address wants a token: Authorization: Bearer TOKEN","kind":"denied"}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
