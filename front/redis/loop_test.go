package redis

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// looped reports whether a loop serves a connection.
func (f *fixture) looped(id int64) bool {
	c := f.srv.client(id)
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loop != nil
}

func idOf(c *client) (id int64) {
	fmt.Sscanf(c.do("CLIENT", "ID"), ":%d", &id) //nolint:errcheck // an id of 0 is nobody's
	return id
}

// settles waits until a connection is, or is not, in a loop.
func (f *fixture) settles(id int64, in bool) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("connection %d in a loop: %t", id, in), func() bool { return f.looped(id) == in })
}

// undecided returns how many transactions are.
func (s *memState) undecided() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// TestLoopTakesAndGivesConnections: commands on state are executed by a loop, and
// for others a connection leaves it and comes back; nothing is lost on the way.
func TestLoopTakesAndGivesConnections(t *testing.T) {
	f := newEngineFixture(t, Config{})
	c := f.dial()
	id := idOf(c)
	f.settles(id, false)
	calm := func() {
		t.Helper()
		for range calmBatches {
			c.do("SET", "k", "v")
		}
		f.settles(id, true)
	}
	calm()
	c.want(`"v"`, "GET", "k")
	f.settles(id, true)
	for _, leaves := range []func(){
		func() { c.want("+PONG", "PING") },
		func() { c.want("-ERR unknown command 'nope', with args beginning with: ", "nope") },
		func() { c.want("-ERR wrong number of arguments for 'get' command", "GET") },
		func() { c.want("+OK", "SET", "large", strings.Repeat("x", 3*baseBytes)) },
		func() {
			c.want("+OK", "MULTI")
			c.want("+QUEUED", "INCR", "n")
			c.want("*[:1]", "EXEC")
			c.want(":1", "DEL", "n")
		},
		func() {
			c.raw("INCR m\r\nINCR m\r\nPING\r\nGET m\r\nDEL m\r\n")
			for _, reply := range []string{":1", ":2", "+PONG", `"2"`, ":1"} {
				c.next(reply)
			}
		},
		func() { c.want("*null", "BLPOP", "none", "0.01") },
	} {
		leaves()
		f.settles(id, false)
		calm()
	}
}

// TestLoopKeepsOrderAcrossManyConnections: every connection's commands are executed
// in its order, each once, whatever others do at the same time.
func TestLoopKeepsOrderAcrossManyConnections(t *testing.T) {
	f := newEngineFixture(t, Config{})
	const conns, rounds, pipeline = 20, 30, 40
	var all sync.WaitGroup
	for i := range conns {
		c := f.dial()
		all.Go(func() {
			n := 0
			for range rounds {
				var b strings.Builder
				for range pipeline {
					fmt.Fprintf(&b, "INCR own:%d\r\nINCR shared\r\n", i)
				}
				c.raw(b.String())
				for range pipeline {
					n++
					c.next(fmt.Sprintf(":%d", n))
					if _, err := c.Receive(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	f.dial().want(fmt.Sprintf("\"%d\"", conns*rounds*pipeline), "GET", "shared")
}

// TestLoopAnswersWhatIsDecided: a reply leaves a loop when its transaction is
// decided; meanwhile others are served, and one who is killed is gone.
func TestLoopAnswersWhatIsDecided(t *testing.T) {
	f := newFixture(t, Config{})
	c, killed, other := f.dial(), f.dial(), f.dial()
	c.want("+OK", "SET", "a", "1")
	killed.want("+OK", "SET", "b", "1")
	f.st.hold.Store(true)
	c.send("SET", "a", "2")
	f.eventually("one waits", func() bool { return f.st.undecided() == 1 })
	killed.send("SET", "b", "2")
	f.eventually("two wait", func() bool { return f.st.undecided() == 2 })
	other.want(":1", "CLIENT", "KILL", "ADDR", killed.Conn.LocalAddr().String())
	killed.gone()
	other.want("+PONG", "PING")
	f.st.release(nil)
	c.next("+OK")
	c.want(`"2"`, "GET", "a")
}
