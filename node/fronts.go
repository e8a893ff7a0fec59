package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/kafka"
	"github.com/lattice-log/lattice/front/redis"
)

// server speaks a protocol for one store, until its context ends.
type server interface {
	Serve(ctx context.Context, ln net.Listener) error
}

// front is a listener whose protocol serves one store after another: the default one,
// whichever that is, unless the configuration names one. When that changes, the server
// of the old one drains, its clients are disconnected, and those that connect again
// find the new one.
type front struct {
	name  string
	log   *slog.Logger
	ln    net.Listener
	fixed bool // the configuration names its store
	// build makes the server of a store, with metrics in a registry of its own. The
	// server's close is called when it has served.
	build func(st *store.Store, reg *prometheus.Registry) (srv server, close func(), err error)

	mu      sync.Mutex
	next    turn
	begun   bool          // next serves, or has
	changed chan struct{} // capacity 1: next is another
}

// turn is one server's time with the listener.
type turn struct {
	store *store.Store
	srv   server
	reg   *prometheus.Registry
	close func()
}

// begin makes the first server, so that what is wrong is known before anything runs.
func (f *front) begin(st *store.Store) error {
	t, err := f.turn(st)
	f.next, f.changed = t, make(chan struct{}, 1)
	return err
}

func (f *front) turn(st *store.Store) (turn, error) {
	t := turn{store: st, reg: prometheus.NewRegistry()}
	var err error
	t.srv, t.close, err = f.build(st, t.reg)
	return t, err
}

// use has the front serve another store from now on.
func (f *front) use(st *store.Store) error {
	if f == nil || f.fixed {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next.store == st {
		return nil
	}
	t, err := f.turn(st)
	if err != nil {
		return fmt.Errorf("%s for store %s: %w", f.name, st.Info().Name, err)
	}
	if !f.begun {
		f.next.close()
	}
	f.next, f.begun = t, false
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

func (f *front) current() turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

// take is current, of whoever is about to serve.
func (f *front) take() turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
	return f.next
}

// run serves until ctx ends.
func (f *front) run(ctx context.Context) error {
	defer f.ln.Close()
	for {
		t := f.take()
		err := f.serve(ctx, t)
		t.close()
		if err != nil || ctx.Err() != nil {
			return err
		}
		f.log.InfoContext(ctx, "serves another store", slog.String("listener", f.name), slog.String("store", f.current().store.Info().Name))
	}
}

// serve lets a server serve until another one is to.
func (f *front) serve(ctx context.Context, t turn) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-f.changed:
				if f.current().srv != t.srv {
					end()
					return
				}
			case <-over:
				return
			}
		}
	}()
	ln, err := lend(f.ln)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	defer ln.Close()
	return t.srv.Serve(ctx, ln)
}

// Gather implements prometheus.Gatherer: the metrics of the server there is.
func (f *front) Gather() ([]*dto.MetricFamily, error) { return f.current().reg.Gather() }

// lent is a listener that somebody gets for a while: closing it only ends its Accept.
type lent struct {
	net.Listener
	wake   deadliner // the same
	mu     sync.Mutex
	closed bool
}

type deadliner interface{ SetDeadline(time.Time) error }

// Accept waits for a connection until the listener is given back.
func (l *lent) Accept() (net.Conn, error) {
	if l.over() {
		return nil, net.ErrClosed
	}
	nc, err := l.Listener.Accept()
	if err != nil && l.over() {
		err = net.ErrClosed
	}
	return nc, err
}

func (l *lent) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Close gives the listener back: whoever waits in Accept is woken, and the next one
// finds it as it was.
func (l *lent) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	return l.wake.SetDeadline(time.Unix(1, 0))
}

// lend makes the listener ready for the next one.
func lend(ln net.Listener) (*lent, error) {
	d, ok := ln.(deadliner)
	if !ok {
		return nil, errors.New("the listener cannot be lent")
	}
	return &lent{Listener: ln, wake: d}, d.SetDeadline(time.Time{})
}

// wireFronts makes the front ends whose listeners are on.
func (n *Node) wireFronts() (err error) {
	if n.kafka, err = n.wireFront("kafka", n.lns.kafka, n.cfg.Kafka.Store, n.buildKafka); err == nil {
		n.redis, err = n.wireFront("redis", n.lns.redis, n.cfg.Redis.Store, n.buildRedis)
	}
	return err
}

// wireFront makes one, for the store of that name; nil if its listener is off.
func (n *Node) wireFront(name string, ln net.Listener, of string, build func(*store.Store, *prometheus.Registry) (server, func(), error)) (*front, error) {
	if ln == nil {
		return nil, nil
	}
	st, err := n.stores.find(of)
	if err != nil {
		return nil, fmt.Errorf("%s.store: %w", name, err)
	}
	f := &front{name: name, log: n.log, ln: ln, fixed: of != "", build: build}
	return f, f.begin(st)
}

// Gather implements prometheus.Gatherer: the node's own metrics, those of the servers that
// serve now, and the ones that the program around the node has.
func (n *Node) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{n.metrics}
	for _, f := range []*front{n.kafka, n.redis} {
		if f != nil {
			all = append(all, f)
		}
	}
	if n.opts.Metrics != nil {
		all = append(all, n.opts.Metrics)
	}
	return all.Gather()
}

var (
	_ server = (*kafka.Server)(nil)
	_ server = (*redis.Server)(nil)
)
