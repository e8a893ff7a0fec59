package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/txn"
)

// Server speaks the Kafka protocol for one store, on any number of listeners.
// Safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	store   *store.Store
	groups  *group.Manager
	shares  *share.Manager
	txns    *txn.Manager
	apis    apiTable
	metrics *metrics

	bufs     buffers
	frames   *budget
	requests sync.Pool // *request
	produces sync.Pool // *produceOp
	fetches  sync.Pool // *fetchOp

	// bigDecode lets one large request exist in decoded form at a time.
	bigDecode sync.Mutex

	mu     sync.Mutex
	conns  map[*conn]struct{}
	byAddr map[netip.Addr]int
}

// New returns a server; nothing runs until Serve does. Kind Invalid: the
// configuration contradicts itself.
func New(cfg Config, st *store.Store) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, store: st, groups: st.Groups(), shares: st.Shares(), txns: st.Transactions(), apis: newAPITable(),
		frames: newBudget(cfg.MaxBufferedBytes),
		conns:  map[*conn]struct{}{}, byAddr: map[netip.Addr]int{},
	}
	m, err := newMetrics(cfg.Metrics, s.apis)
	if err != nil {
		return nil, fmt.Errorf("register kafka metrics: %w", err)
	}
	s.metrics = m
	return s, nil
}

// Serve accepts connections on ln, which it closes, until ctx ends. Then it
// takes no more requests, answers those that it has (long polls at once) within
// DrainTimeout, closes every connection and returns nil. Any other error is the
// listener's.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var conns sync.WaitGroup
	draining := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		close(draining)
		ln.Close()
	})
	defer unhook()
	err := s.accept(ctx, ln, func(nc net.Conn) {
		c := newConn(s, nc, work, draining)
		if s.admit(c) {
			conns.Go(func() { c.run(s.cfg.DrainTimeout) })
		}
	})
	if ctx.Err() == nil {
		ln.Close()
		s.closeAll(draining)
		conns.Wait()
		return fmt.Errorf("accept kafka connections on %s: %w", ln.Addr(), err)
	}
	s.nudgeAll(draining)
	conns.Wait()
	return nil
}

// accept hands connections to start until the listener fails for good.
func (s *Server) accept(ctx context.Context, ln net.Listener, start func(net.Conn)) error {
	pause := time.Duration(0)
	for {
		nc, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of descriptors or the peer has gone already: the next one may do.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.WarnContext(ctx, "kafka: accept", slog.Any("err", err), slog.Duration("again_in", pause))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		start(nc)
	}
}

// admit counts a new connection in, or closes it and returns false.
func (s *Server) admit(c *conn) bool {
	s.mu.Lock()
	reason := ""
	switch {
	case len(s.conns) >= s.cfg.MaxConnections:
		reason = "total"
	case c.addr.IsValid() && s.byAddr[c.addr] >= s.cfg.MaxConnectionsPerAddress:
		reason = "address"
	default:
		s.conns[c] = struct{}{}
		s.byAddr[c.addr]++
	}
	s.mu.Unlock()
	if reason != "" {
		s.metrics.refused.WithLabelValues(reason).Inc()
		s.log.DebugContext(c.ctx, "kafka: too many connections", slog.String("limit", reason), slog.String("peer", c.addr.String()))
		c.nc.Close()
		return false
	}
	s.metrics.connections.Inc()
	return true
}

// forget counts a connection out.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.byAddr[c.addr]--; s.byAddr[c.addr] <= 0 {
		delete(s.byAddr, c.addr)
	}
	s.mu.Unlock()
	s.metrics.connections.Dec()
}

// of returns the connections of the Serve call that draining belongs to.
func (s *Server) of(draining chan struct{}) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []*conn
	for c := range s.conns {
		if c.draining == draining {
			own = append(own, c)
		}
	}
	return own
}

// nudgeAll makes readers that are blocked look at draining.
func (s *Server) nudgeAll(draining chan struct{}) {
	for _, c := range s.of(draining) {
		c.nudge()
	}
}

func (s *Server) closeAll(draining chan struct{}) {
	for _, c := range s.of(draining) {
		c.close()
	}
}

// addrOf returns the IP address of a peer, the zero Addr when it has none.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
