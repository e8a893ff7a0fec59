package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/node"
	"github.com/lattice-log/lattice/node/settings"
	"github.com/lattice-log/lattice/pipeline/browser"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/publisher"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// runFlags are what "lattice app run" is started with: a node's configuration, and that of
// each role.
type runFlags struct {
	node      configFlags
	runtime   runtimeFlags
	projector projectorFlags
	gateway   gatewayFlags
}

func newAppRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run DIR",
		Short: "Run a node and all of an application in one process",
		Long: `Start a node, and on it the application in DIR with all its roles: what takes intents, what
keeps the projections, what shows them live, and what looks into all of it. Everything is in
the data directory, ledger and projections as SQLite files, and everything of HTTP is on the
node's HTTP address. A second start goes on where the first one was.

--bootstrap, --ledger and --projections put Kafka, the ledger and the projections elsewhere; then
"lattice app runtime", "projector", "gateway" and "browser" can run on other machines, too.`,
		Example: `  lattice app run examples/concertapp
  lattice app run . --data /var/lib/lattice --http 127.0.0.1:0 --redis ""
  lattice app run . --ledger postgres://app@db/ledger --projections postgres://app@db/projections`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load(cmd, f.node)
			if err != nil {
				return err
			}
			return a.appRun(cmd.Context(), args[0], loaded, f)
		},
	}
	f.node.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.runtime.ledger, "ledger", "", "database of the ledger: sqlite:PATH or postgres://… (default: a file in the data directory)")
	fl.StringVar(&f.projector.tables.projections, "projections", "", "database of the projections, likewise")
	fl.StringSliceVar(&f.runtime.forks, "fork", nil, "forks that are served (default: the application's own)")
	fl.StringVar(&f.runtime.mode, "publish", string(publisher.Healing), "what becomes of an event that could not be published: healing, outbox or fire-and-forget")
	fl.IntVar(&f.projector.retries, "retries", 5, "how often an event that fails is tried again before it is a dead letter")
	fl.StringVar(&f.gateway.keys, "token-keys", "", "file or address (https) with the keys that tokens of live clients are signed with")
	fl.StringSliceVar(&f.gateway.origins, "origin", nil, "hosts beside the node's own whose pages may connect")
	fl.Int32Var(&f.runtime.projection.Partitions, "partitions", topic.DefaultPartitions, "partitions of a topic that is made")
	fl.Int16Var(&f.runtime.projection.Replication, "replication", 0, "replicas of a topic that is made; 0: as the brokers do it")
	fl.DurationVar(&f.runtime.projection.Retention, "retention", topic.DefaultRetention, "how long a topic that is made keeps messages; below 0: for ever")
	kafkaFlags(cmd, &f.runtime.kafka)
	a.outputFlag(cmd)
	return cmd
}

// share gives each role what all have.
func (f *runFlags) share() {
	f.runtime.projection.Name, f.runtime.stream.Name = topic.ProjectionEvents, topic.LedgerEvents
	f.projector.events, f.projector.patches.Name, f.projector.dlq.Name = f.runtime.projection, topic.Patches, topic.DeadLetters
	f.projector.kafka, f.gateway.kafka = f.runtime.kafka, f.runtime.kafka
	f.projector.tables.forks, f.gateway.forks = f.runtime.forks, f.runtime.forks
	f.gateway.connections, f.gateway.topic = 20000, topic.Patches
}

func (a *app) appRun(ctx context.Context, dir string, loaded settings.Loaded, f runFlags) error {
	application, err := loadApp(dir)
	if err != nil {
		return err
	}
	cfg := loaded.Config
	tokens, err := f.check(cfg)
	if err != nil {
		return err
	}
	log, err := a.logger(cfg)
	if err != nil {
		return err
	}
	r := &running{a: a, app: application, dir: dir, cfg: cfg, f: f, tokens: tokens, log: log, door: newDoor("the application is starting"), metrics: prometheus.NewRegistry()}
	v := thisVersion()
	r.node, err = node.Open(ctx, cfg, node.Options{
		Version: v.Version, Commit: v.Commit, Settings: loaded.Settings, Logger: log, Beside: r.door, Metrics: r.metrics, Reasons: r.reasons,
	})
	if err != nil {
		return upHint(err, cfg)
	}
	// The roles' own defaults are files of the node's directory.
	a.data = cfg.Data
	finished := make(chan error, 1)
	go func() { finished <- r.run(ctx) }()
	select {
	case err = <-finished:
		return err
	case <-ctx.Done():
	}
	overdue := time.NewTimer(stopWithin)
	defer overdue.Stop()
	select {
	case err = <-finished:
	case <-overdue.C:
		return errors.New("did not stop cleanly within 10 s; the next start recovers")
	}
	if err == nil && cli.IsTerminal(a.stderr) {
		a.warnf("Stopped.")
	}
	return err
}

// check refuses what cannot work, and an open door. It returns the tokens of callers.
func (f *runFlags) check(cfg node.Config) ([]string, error) {
	if f.projector.retries < 1 {
		return nil, cli.Usagef("--retries %d: want 1 or more", f.projector.retries)
	}
	if _, err := publisher.ParseMode(f.runtime.mode); err != nil {
		return nil, cli.Usage(err)
	}
	if cfg.HTTP.Listen == "" {
		return nil, cli.Hint(errors.New("the application is served on the node's HTTP address, and that is off"), "--http 127.0.0.1:0")
	}
	if cfg.Kafka.Listen == "" && len(f.runtime.kafka.Bootstrap) == 0 {
		return nil, cli.Hint(errors.New("the roles speak Kafka to the node, and its Kafka address is off"), "--kafka 127.0.0.1:0, or name a cluster: --bootstrap HOST:PORT")
	}
	open, err := openAddress(cfg.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	if open && !cfg.Insecure && (cfg.HTTP.TokenFile == "" || f.gateway.keys == "") {
		return nil, cli.Hint(fmt.Errorf("--http %s is open to others, and there are no tokens for intents or none for live clients", cfg.HTTP.Listen),
			"name them: --set http.token_file=FILE and --token-keys FILE; or listen on 127.0.0.1; or say --insecure")
	}
	return servingTokens(cfg.HTTP.TokenFile, cfg.HTTP.Listen, true)
}

// running is an application and its node in this process.
type running struct {
	a       *app
	app     *spec.App
	dir     string
	cfg     node.Config
	f       runFlags
	tokens  []string
	log     *slog.Logger
	node    *node.Node
	door    *door
	metrics *prometheus.Registry

	runtime   *runtimeRole
	projector *projectorRole
	gateway   *gatewayRole
	browser   *browser.Browser
}

// reasons says why the application is not ready.
func (r *running) reasons() []string {
	if closed := r.door.reasons(); len(closed) > 0 {
		return closed // and the roles may not be there
	}
	var all []string
	if why := r.gateway.g.Busy(); why != "" {
		all = append(all, "gateway: "+why)
	}
	for partition, why := range pausedPartitions(r.projector.p.Status()) {
		all = append(all, "projector: "+partition+": "+why)
	}
	return all
}

// run starts the node, then the roles, and ends them the other way round.
//
// At the end: no new calls, and those that are there get their answers; live clients are sent
// away with their cursors; what was committed last is published, if it is quick; the projector
// ends its transactions and commits its offsets; the relay follows; then the node. A crash at
// any of these steps loses nothing that was answered: what is in the ledger is published
// again, and what is in the outbox, too.
func (r *running) run(ctx context.Context) error {
	running, stopNode := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNode()
	ended := make(chan struct{})
	var nodeErr error
	go func() {
		defer close(ended)
		nodeErr = errors.Join(r.node.Run(running), r.node.Close())
	}()
	var err error
	select {
	case <-r.node.Ready():
		err = r.roles(ctx, ended)
	case <-ended:
	case <-ctx.Done():
	}
	r.door.close("the application is stopping") // where the roles could not be opened
	stopNode()
	<-ended
	return errors.Join(err, nodeErr)
}

// roles opens the roles and lets them work until the context or the node ends.
func (r *running) roles(ctx context.Context, nodeEnded <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() {
		r.gateway.close()
		r.projector.close()
		_ = r.runtime.db.Close()
	}()
	publish, project, show := startWork(ctx, r.runtime.pub.Run), startWork(ctx, r.projector.run), startWork(ctx, r.gateway.g.Run)
	r.door.open(r.handler())
	r.announce(ctx)
	select {
	case <-ctx.Done():
	case <-nodeEnded:
	case <-publish.done:
	case <-project.done:
	case <-show.done:
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), stopWithin/3)
	defer stop()
	left := r.door.close("the application is stopping")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_ = r.gateway.g.Drain(end) // it returns nothing else than nil
	}()
	waitFor(end, left)
	err := errors.Join(publish.stop(), project.stop())
	<-drained
	return errors.Join(err, show.stop())
}

// open opens the roles on the node, which is ready.
func (r *running) open(ctx context.Context) (err error) {
	f := &r.f
	if len(f.runtime.kafka.Bootstrap) == 0 {
		f.runtime.kafka.Bootstrap = []string{dialled(r.node.Info().Kafka)}
		if r.cfg.TLS.Cert != "" {
			f.runtime.kafka.TLS = true
			if f.runtime.kafka.CAFile == "" {
				f.runtime.kafka.CAFile = r.cfg.TLS.Cert
			}
		}
	}
	f.share()
	reach, err := f.runtime.kafka.Options()
	if err != nil {
		return cli.Usage(err)
	}
	if r.runtime, err = r.a.openRuntime(ctx, r.app, &f.runtime, publisher.Options{Mode: publisher.Mode(f.runtime.mode), Kafka: reach, Logger: r.log}); err != nil {
		return err
	}
	f.projector.tables.ledger = f.runtime.ledger
	if r.projector, err = r.a.openProjector(ctx, r.app, &f.projector, r.log); err != nil {
		return errors.Join(err, r.runtime.db.Close())
	}
	f.gateway.projections = f.projector.tables.projections
	if r.gateway, err = r.a.openGateway(ctx, r.app, &f.gateway, r.dir, r.log); err != nil {
		r.projector.close()
		return errors.Join(err, r.runtime.db.Close())
	}
	r.browser, err = browser.New(browser.Options{
		App: r.app, Forks: f.runtime.forks, Ledger: r.runtime.ledger, Store: r.projector.store, Republish: r.runtime.pub.Republish, Logger: r.log,
	})
	for _, c := range append(r.runtime.collectors, r.projector.p.Collector(), r.projector.out.Collector(), r.gateway.g.Collector()) {
		err = errors.Join(err, r.metrics.Register(c))
	}
	return err
}

// handler serves all roles. Live clients have tokens of their own.
func (r *running) handler() http.Handler {
	calls := http.NewServeMux()
	takes := r.runtime.service.Handler()
	calls.Handle("POST /v1/intents", takes)
	calls.Handle("/lattice.app.v1.IntentService/", takes)
	calls.Handle(browser.Path, r.browser.Handler())
	r.projector.handle(calls)
	mux := http.NewServeMux()
	mux.Handle("/", r.gateway.mux)
	for _, path := range []string{"/v1/intents", "/lattice.app.v1.IntentService/", browser.Path, "/status", "/resume"} {
		mux.Handle(path, bearer(r.tokens, calls))
	}
	return mux
}

// announce says where everything is, once live clients are taken, or when that takes long.
func (r *running) announce(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if waitFor(soon, r.gateway.g.Ready()); ctx.Err() != nil {
		return
	}
	i := r.node.Info()
	scheme := "http"
	if r.cfg.TLS.Cert != "" {
		scheme = "https"
	}
	base := scheme + "://" + reachable(i.HTTP)
	ws := "ws" + strings.TrimPrefix(base, "http") + "/ws"
	ledger, tables := sqldb.Redact(r.f.runtime.ledger), sqldb.Redact(r.f.projector.tables.projections)
	doc := map[string]any{
		"app": r.app.Name, "version": r.app.Version, "tenant_schema": r.app.TenantSchema(""), "node": i.Node, "data": r.cfg.Data, "http": i.HTTP,
		"intents": base + "/v1/intents", "live": ws, "events": base + "/v1/events", "page": base + "/", "browser": base + browser.Path, "status": base + "/status", "metrics": base + "/metrics",
		"kafka": r.f.runtime.kafka.Bootstrap, "redis": i.Redis, "ledger": ledger, "projections": tables, "group": projector.DefaultGroup(r.app),
	}
	// Whoever reads this is gone: what serves goes on.
	_ = r.a.print(doc, func() error {
		var b strings.Builder
		fmt.Fprintf(&b, "%s (%s) runs on node %s in %s\n\n", r.app.Name, r.app.Version, cli.Short(i.Node), r.cfg.Data)
		line := func(what, text string) { fmt.Fprintf(&b, "  %-9s %s\n", what, text) }
		line("intents", base+"/v1/intents")
		line("live", ws+" and "+base+"/v1/events")
		line("page", base+"/")
		line("browser", base+browser.Path)
		line("status", base+"/status and "+base+"/metrics")
		line("kafka", strings.Join(r.f.runtime.kafka.Bootstrap, ","))
		line("ledger", ledger)
		line("tables", tables)
		b.WriteString("\nStop it with Ctrl-C.\n")
		_, err := fmt.Fprint(r.a.stdout, b.String())
		return err
	})
}

// dialled is where this process finds its own listener.
func dialled(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// work is something that runs until it is told to stop.
type work struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// startWork runs f until stop is called, whatever becomes of ctx.
func startWork(ctx context.Context, f func(context.Context) error) *work {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &work{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = f(ctx)
	}()
	return w
}

func (w *work) stop() error {
	w.cancel()
	<-w.done
	return w.err
}
