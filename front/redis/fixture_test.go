package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/engine/structs/memory"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memState is a State in memory. Its tickets are decided at once, or when a test
// says so.
type memState struct {
	mu  sync.Mutex
	mem *memory.Memory
	now func() int64

	hold    atomic.Bool  // tickets wait for release
	refuse  atomic.Value // error: updates fail before they begin
	pending []*memTicket // guarded by mu
	updates atomic.Int64
	views   atomic.Int64
}

func newMemState() *memState {
	return &memState{
		mem: memory.New(state.Writer{Author: lattice.AuthorID{1}, Incarnation: 1}),
		now: func() int64 { return time.Now().UnixMilli() },
	}
}

type memTicket struct {
	done chan struct{}
	err  error // set before done closes
}

func (t *memTicket) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *memState) View(fn func(structs.Rows) error) (Ticket, error) {
	s.views.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := fn(s.mem.Begin(s.now())); err != nil {
		return nil, err
	}
	if len(s.pending) > 0 {
		return s.pending[len(s.pending)-1], nil
	}
	return nil, nil
}

func (s *memState) Update(fn func(structs.Rows) error) (Ticket, error) {
	s.updates.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := &failing{Tx: s.mem.Begin(s.now())}
	if err, _ := s.refuse.Load().(refusal); err.err != nil {
		rows.err = err.err
	}
	if err := fn(rows); err != nil {
		return nil, err
	}
	if !s.hold.Load() {
		return nil, nil
	}
	t := &memTicket{done: make(chan struct{})}
	s.pending = append(s.pending, t)
	return t, nil
}

// refusal is why writes fail; the zero refusal lets them pass.
type refusal struct{ err error }

// failing refuses writes when it has an error.
type failing struct {
	*memory.Tx
	err error
}

func (f *failing) Put(a state.Address, p state.Payload, supersedes []state.Dot, under state.Dot) (state.Dot, error) {
	if f.err != nil {
		return state.Dot{}, f.err
	}
	return f.Tx.Put(a, p, supersedes, under)
}

func (f *failing) End(a state.Address, s state.Scope, c state.Cites) error {
	if f.err != nil {
		return f.err
	}
	return f.Tx.End(a, s, c)
}

// release decides all tickets.
func (s *memState) release(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold.Store(false)
	for _, t := range s.pending {
		t.err = err
		close(t.done)
	}
	s.pending = nil
}

// fixture is a server on loopback.
type fixture struct {
	t    testing.TB
	srv  *Server
	st   *memState // nil over the engine
	addr string
	stop func()
}

func newFixture(t testing.TB, cfg Config) *fixture {
	t.Helper()
	st := newMemState()
	f := serve(t, cfg, st)
	f.st = st
	return f
}

// client is a connection whose failures fail the test.
type client struct {
	*respclient.Client
	t testing.TB
}

func (f *fixture) dial() *client {
	f.t.Helper()
	c, err := respclient.Dial(f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return &client{c, f.t}
}

// do returns the reply to a command.
func (c *client) do(args ...string) string {
	c.t.Helper()
	v, err := c.Do(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return v.String()
}

// want compares the reply to a command.
func (c *client) want(want string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); got != want {
		c.t.Errorf("%.80q: %.300s, want %.300s", args, got, want)
	}
}

func (c *client) send(args ...string) {
	c.t.Helper()
	if err := c.Send(args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) raw(b string) {
	c.t.Helper()
	if err := c.SendRaw([]byte(b)); err != nil {
		c.t.Fatal(err)
	}
}

// next compares the next reply or message.
func (c *client) next(want string) {
	c.t.Helper()
	v, err := c.Receive()
	if err != nil {
		c.t.Fatalf("waiting for %s: %v", want, err)
	}
	if v.String() != want {
		c.t.Errorf("%s, want %s", v, want)
	}
}

// gone waits until the server has closed the connection.
func (c *client) gone() {
	c.t.Helper()
	for {
		if v, err := c.Receive(); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				c.t.Fatalf("the connection is still open: %v", err)
			}
			return
		} else if v.Kind != '-' {
			c.t.Errorf("%s on a connection that should close", v)
		}
	}
}

// eventually waits until cond holds.
func (f *fixture) eventually(what string, cond func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("still not: %s", what)
		}
	}
}
