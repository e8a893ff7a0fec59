package redis

import (
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	c.want("+PONG", "PING")
	c.want(`"hi"`, "ping", "hi")
	c.want("+OK", "SET", "k", "v")
	c.want(`"v"`, "GET", "k")
	c.want("$null", "GET", "none")
	c.want(":1", "INCR", "n")
	c.want("-ERR wrong number of arguments for 'get' command", "GET")
	c.want("-ERR unknown command 'nope', with args beginning with: 'a' 'b' ", "nope", "a", "b")
	c.want("-ERR unknown subcommand 'nope'. Try CLIENT HELP.", "client", "nope")
	if got := c.do("INFO"); !strings.Contains(got, "redis_version:7.0.15") {
		t.Error(got)
	}
}

func TestPipelineKeepsOrderAndSharesATransaction(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	var b strings.Builder
	for range 100 {
		b.WriteString("INCR n\r\n")
	}
	c.raw(b.String())
	for i := range 100 {
		c.next(":" + string(appendInt(nil, int64(i+1))))
	}
	if n := f.st.updates.Load(); n > 20 {
		t.Errorf("%d transactions for a pipeline of 100 commands", n)
	}
}
