package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/kafka"
)

// stopWithin bounds a clean stop of the front ends; the engine follows. The
// whole stays below the 10 s that "lattice up" promises.
const stopWithin = 5 * time.Second

// Options are what the program around a node adds to its Config.
type Options struct {
	// Version and Commit name the program, for those who ask the API.
	Version, Commit string
	// Settings is shown by the API beside the effective configuration's values.
	Settings []Setting
	// Logger gets the node's messages; nil: none.
	Logger *slog.Logger
	// Beside serves what the API does not on the HTTP listener, from before the node is
	// ready until it stops. It asks for tokens itself. nil: nothing does.
	Beside http.Handler
	// Metrics are shown with the node's own; nil: none.
	Metrics prometheus.Gatherer
	// Reasons says why what serves beside the node is not ready; nil: it always is.
	Reasons func() []string
}

// Setting is one value of the configuration and where it came from.
type Setting struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Source  string `json:"source"` // "default", "file PATH:LINE", "env NAME" or "flag --NAME"
	Doc     string `json:"doc"`
}

// Node is one node on one data directory. Use Open, then Run once, then Close.
type Node struct {
	cfg     Config
	opts    Options
	log     *slog.Logger
	started time.Time
	lock    *lock
	lns     listeners
	stores  *stores
	kafka   *front // nil when the listener is off
	redis   *front // likewise
	mesh    *mesh  // likewise
	metrics *prometheus.Registry

	infoMu sync.Mutex
	info   Info
	served bool // the file says where the node listens

	ready chan struct{} // closed when every listener accepts

	mu      sync.Mutex
	stopped bool // Run has ended or was never called
}

// Open takes the data directory, which it makes if need be with an identity and
// the store "main", binds the listeners and opens the store. Nothing is served
// until Run. Kinds: Invalid (the configuration), Conflict with a *HeldError
// (another process has the directory), Storage, Corrupt, Unavailable (an
// address is taken).
func Open(ctx context.Context, cfg Config, opts Options) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		cfg: cfg, opts: opts, log: opts.Logger, started: time.Now(), ready: make(chan struct{}),
		metrics: prometheus.NewRegistry(), stopped: true,
	}
	defer func() {
		if err != nil {
			// What made Open fail is what matters; closing is best effort.
			_ = n.Close()
		}
	}()
	if n.lock, err = takeLock(cfg.Data); err != nil {
		return nil, err
	}
	warnOfFewFiles(ctx, cfg, n.log)
	// Left by a process that was killed: nobody listens there.
	if err := removeInfo(cfg.Data); err != nil {
		return nil, err
	}
	if n.lns, err = listen(cfg); err != nil {
		return nil, err
	}
	if err := n.registerMetrics(); err != nil {
		return nil, err
	}
	if n.stores, err = openStores(ctx, cfg, n.log); err != nil {
		return nil, err
	}
	if err := n.metrics.Register(newStoreMetrics(n.stores)); err != nil {
		return nil, err
	}
	if err := errors.Join(n.wireFronts(), n.openMesh()); err != nil {
		return nil, err
	}
	if err := n.metrics.Register(newPeerMetrics(n.mesh, n.stores)); err != nil {
		return nil, err
	}
	n.info = n.describe()
	n.stores.changed = n.defaultChanged
	return n, nil
}

// buildKafka makes the Kafka front end of a store.
func (n *Node) buildKafka(st *store.Store, reg *prometheus.Registry) (server, func(), error) {
	c := n.cfg
	kc := kafka.Config{
		AutoCreate: c.AutoCreate(), DefaultPartitions: int32(c.Kafka.DefaultPartitions),
		LenientReplication: c.Kafka.Replication == "lenient",
		MaxRequestBytes:    int(c.Limits.RequestBytes), MaxControlBytes: int(c.Limits.ControlBytes),
		MaxFetchBytes: int(c.Limits.FetchBytes), MaxBufferedBytes: c.Limits.BufferedBytes,
		MaxInFlight: c.Limits.Inflight, MaxInFlightBytes: c.Limits.InflightBytes,
		MaxConnections: c.Limits.Connections, MaxConnectionsPerAddress: c.Limits.ConnectionsPerAddress,
		IdleTimeout: ms(c.Limits.IdleMs), ReadTimeout: ms(c.Limits.StallMs), WriteTimeout: ms(c.Limits.StallMs),
		DrainTimeout: stopWithin,
		TLS:          n.lns.tls, Logger: n.log, Metrics: reg,
	}
	if c.Kafka.Advertise != "" {
		kc.AdvertisedHost, kc.AdvertisedPort = splitAddress(c.Kafka.Advertise)
	}
	srv, err := kafka.New(kc, st)
	return srv, func() {}, err
}

func (n *Node) describe() Info {
	i := n.stores.All()[0].Info()
	p2p := []string{}
	if n.mesh != nil {
		p2p = append(p2p, n.mesh.Addresses()...)
	}
	return Info{
		Node: i.Node.String(), Store: i.ID.String(), StoreName: i.Name, Kafka: address(n.lns.kafka), Redis: address(n.lns.redis), HTTP: address(n.lns.http),
		P2P: p2p, Socket: n.lns.socketPath, PID: processID(),
	}
}

// Info tells where the node listens.
func (n *Node) Info() Info {
	n.infoMu.Lock()
	defer n.infoMu.Unlock()
	return n.info
}

// tell writes node.json.
func (n *Node) tell() error {
	n.infoMu.Lock()
	defer n.infoMu.Unlock()
	n.served = true
	return n.info.write(n.cfg.Data)
}

// defaultChanged has everything that means the default store mean another one.
func (n *Node) defaultChanged(st *store.Store) error {
	n.infoMu.Lock()
	defer n.infoMu.Unlock()
	i := st.Info()
	n.info.Store, n.info.StoreName = i.ID.String(), i.Name
	err := errors.Join(n.kafka.use(st), n.redis.use(st))
	if n.served {
		err = errors.Join(err, n.info.write(n.cfg.Data))
	}
	return err
}

// Ready is closed when every listener accepts connections.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Run serves until ctx ends, and then stops cleanly: no new requests, answers
// for those under way, everything synced. It returns nil after a clean stop, and
// otherwise what made the node stop. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	n.mu.Lock()
	n.stopped = false
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.stopped = true
		n.mu.Unlock()
	}()
	// The engine outlives the front ends: they still need it to drain.
	engine := start(context.WithoutCancel(ctx))
	n.stores.run(engine)
	fronts := start(ctx)
	if n.kafka != nil {
		fronts.run("kafka", n.kafka.run)
	}
	if n.redis != nil {
		fronts.run("redis", n.redis.run)
	}
	if n.mesh != nil {
		fronts.run("mesh", n.mesh.Run)
	}
	err := n.serveAPI(fronts)
	if err == nil {
		err = n.tell()
	}
	if err == nil {
		close(n.ready)
		i := n.Info()
		n.log.InfoContext(ctx, "serving", slog.String("kafka", i.Kafka), slog.String("redis", i.Redis), slog.String("http", i.HTTP), slog.Any("mesh", i.P2P), slog.String("socket", i.Socket))
		select {
		case <-ctx.Done():
		case <-engine.failed():
		case <-fronts.failed():
		}
	}
	// Whose signal it was, or nothing: then something failed, and Run returns it.
	n.log.InfoContext(ctx, "stopping", slog.Any("because", context.Cause(ctx)))
	n.stores.stopping()
	return errors.Join(err, fronts.stop(), engine.stop())
}

// Close closes the store and gives the data directory back. It must not be
// called while Run runs.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		return lattice.E(lattice.Conflict, errors.New("close: the node still runs; end Run's context first"))
	}
	if n.lock == nil {
		return nil
	}
	var errs []error
	n.lns.close()
	if n.mesh != nil {
		errs = append(errs, n.mesh.Close())
	}
	if n.stores != nil {
		errs = append(errs, n.stores.close())
	}
	errs = append(errs, removeInfo(n.cfg.Data), n.lock.release())
	n.lock = nil
	return errors.Join(errs...)
}

// reasons says why the node is not ready.
func (n *Node) reasons() []string {
	select {
	case <-n.ready:
	default:
		return []string{"listeners do not accept connections yet"}
	}
	var reasons []string
	for _, s := range n.stores.All() {
		reasons = append(reasons, failedPartitions(s)...)
	}
	if n.opts.Reasons != nil {
		reasons = append(reasons, n.opts.Reasons()...)
	}
	return reasons
}

// failedPartitions names the partitions that take no writes.
func failedPartitions(s *store.Store) []string {
	var reasons []string
	for _, t := range s.Topics() {
		for i := range t.Partitions {
			p, err := s.Partition(t.ID, i)
			if errors.Is(err, store.ErrNotLeader) {
				continue
			}
			if err != nil {
				reasons = append(reasons, fmt.Sprintf("%s/%d: %v", t.Name, i, err))
				continue
			}
			if failed := p.Status().Failed; failed != "" {
				reasons = append(reasons, fmt.Sprintf("%s/%d: %s", t.Name, i, failed))
			}
		}
	}
	return reasons
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// address returns where a listener is, "" when it is off.
func address(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	return ln.Addr().String()
}
