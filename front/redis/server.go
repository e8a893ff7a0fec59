package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Server speaks the Redis protocol for one store, on any number of listeners.
// Safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	state   State
	table   *table
	metrics *metrics
	started time.Time
	runID   string

	settings settings
	stats    stats
	budget   budget
	pubsub   pubsub
	outbox   outbox
	blocked  blocked
	pause    pause
	slowlog  slowlog
	latency  latency
	cursors  cursors
	outside  outside

	nextID atomic.Int64

	mu     sync.Mutex
	conns  map[int64]*conn
	byAddr map[netip.Addr]int
	port   int // of the first listener
}

// New returns a server; nothing runs until Serve does. Kind Invalid: the
// configuration contradicts itself.
func New(cfg Config, st State) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, state: st, table: newTable(), started: cfg.Clock.Now(), runID: newRunID(),
		conns: map[int64]*conn{}, byAddr: map[netip.Addr]int{},
	}
	s.budget.max = cfg.MaxBufferedBytes
	s.settings.init(cfg)
	s.pubsub.init()
	s.blocked.init()
	s.cursors.init()
	s.outside.init(s)
	m, err := newMetrics(cfg.Metrics, s)
	if err != nil {
		return nil, fmt.Errorf("register redis metrics: %w", err)
	}
	s.metrics = m
	if l, ok := st.(listens); ok {
		l.Listen(&s.outside)
	}
	return s, nil
}

// Detach has the server no longer hear of what others do to the state. It is for when
// all that it served is over, and the state goes on.
func (s *Server) Detach() {
	if l, ok := s.state.(listens); ok {
		l.Unlisten(&s.outside)
	}
}

// newRunID returns what INFO calls run_id: 40 random hexadecimal digits.
func newRunID() string {
	var b [20]byte
	rand.Read(b[:]) //nolint:errcheck // crypto/rand does not fail: it ends the program
	return hex.EncodeToString(b[:])
}

// Serve accepts connections on ln, which it closes, until ctx ends. Then it
// executes no more commands, lets connections take the replies they are owed
// within DrainTimeout, closes them and returns nil. Any other error is the listener's.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if t, ok := ln.Addr().(*net.TCPAddr); ok {
		s.mu.Lock()
		s.port = or(s.port, t.Port)
		s.mu.Unlock()
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var conns sync.WaitGroup
	draining := make(chan struct{})
	loops := s.loops(work, draining, conns.Go)
	drain := sync.OnceFunc(func() {
		close(draining)
		for _, l := range loops {
			l.wakeUp()
		}
	})
	conns.Go(func() { s.outside.run(work, draining) })
	unhook := context.AfterFunc(ctx, func() {
		drain()
		ln.Close()
	})
	defer unhook()
	err := s.accept(ctx, ln, func(nc net.Conn) {
		c := newConn(s, nc, work, draining)
		if !s.admit(c) {
			return
		}
		if len(loops) > 0 {
			c.home = loops[int(c.id)%len(loops)]
		}
		if !c.home.join(c) {
			conns.Go(c.run)
		}
	})
	if ctx.Err() == nil {
		ln.Close()
		drain()
		for _, c := range s.of(draining) {
			c.close()
		}
		conns.Wait()
		return fmt.Errorf("accept redis connections on %s: %w", ln.Addr(), err)
	}
	for _, c := range s.of(draining) {
		c.nudge()
	}
	late := time.AfterFunc(s.cfg.DrainTimeout, func() {
		stop()
		for _, c := range s.of(draining) {
			c.close()
		}
	})
	defer late.Stop()
	conns.Wait()
	return nil
}

// maxLoops bounds the loops of a listener.
const maxLoops = 8

// loops starts those of a listener: one for two processors, since the other one is
// needed by whoever signs, writes and collects.
func (s *Server) loops(ctx context.Context, draining chan struct{}, spawn func(func())) (all []*loop) {
	for range min(max(runtime.GOMAXPROCS(0)/2, 1), maxLoops) {
		l := newLoop(s, ctx, draining, spawn)
		if l == nil {
			break
		}
		all = append(all, l)
		spawn(l.run)
	}
	return all
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
			s.log.WarnContext(ctx, "redis: accept", slog.Any("err", err), slog.Duration("again_in", pause))
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

// admit counts a new connection in, or tells it why not and returns false.
func (s *Server) admit(c *conn) bool {
	s.mu.Lock()
	reason := ""
	switch {
	case len(s.conns) >= int(s.settings.maxClients.Load()):
		reason = "total"
	case c.ip.IsValid() && s.byAddr[c.ip] >= s.cfg.MaxClientsPerAddress:
		reason = "address"
	default:
		s.conns[c.id] = c
		s.byAddr[c.ip]++
	}
	s.mu.Unlock()
	if reason != "" {
		s.stats.rejected.Add(1)
		s.metrics.refused.WithLabelValues(reason).Inc()
		// It fits the send buffer of a new connection, so nobody waits.
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))           //nolint:errcheck // the connection closes
		c.nc.Write([]byte("-ERR max number of clients reached\r\n")) //nolint:errcheck // as above
		c.nc.Close()
		return false
	}
	s.stats.connections.Add(1)
	return true
}

// forget counts a connection out.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if s.byAddr[c.ip]--; s.byAddr[c.ip] <= 0 {
		delete(s.byAddr, c.ip)
	}
}

// clients returns the connections, oldest first.
func (s *Server) clients() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedByID(s.conns)
}

// client returns the connection of an id, nil when there is none.
func (s *Server) client(id int64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// of returns the connections of the Serve call that draining belongs to.
func (s *Server) of(draining chan struct{}) []*conn {
	var own []*conn
	for _, c := range s.clients() {
		if c.draining == draining {
			own = append(own, c)
		}
	}
	return own
}

// budget bounds what all connections hold. Safe for concurrent use.
type budget struct {
	max  int64
	used atomic.Int64
}

// take takes n bytes if there are so many.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(-int64(n)) }

// stats are the server's counters that CONFIG RESETSTAT does and does not reset.
type stats struct {
	connections, rejected   atomic.Int64
	commands                atomic.Int64
	bytesIn, bytesOut       atomic.Int64
	reads, writes           atomic.Int64
	errors                  atomic.Int64
	expired                 atomic.Int64
	dirty                   atomic.Int64
	outputLimit, queryLimit atomic.Int64 // connections closed for a limit

	mu     sync.Mutex
	byCode map[string]int64 // errors answered, by their code
}

// countError counts an error reply by its code.
func (s *stats) countError(code string) {
	s.errors.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byCode == nil {
		s.byCode = map[string]int64{}
	}
	if len(s.byCode) < 128 || s.byCode[code] > 0 {
		s.byCode[code]++
	}
}
