package redis

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// small is a server with narrow limits.
func small() Config {
	return Config{
		MaxClients: 20, MaxBulkBytes: 64 << 10, MaxArgs: 1000, MaxQueryBytes: 256 << 10, MaxReplyBytes: 512 << 10,
		MaxPushBytes: 128 << 10, MaxBufferedBytes: 2 << 20, StallTimeout: 300 * time.Millisecond,
	}
}

// calm checks that the server is as it was: it answers others, and holds nothing.
func (f *fixture) calm() {
	f.t.Helper()
	c := f.dial()
	c.want("+PONG", "PING")
	c.want("+OK", "SET", "calm", "yes")
	c.want(`"yes"`, "GET", "calm")
	c.Close()
	f.eventually("nothing is held", func() bool { return f.srv.budget.used.Load() == 0 })
}

func TestProtocolErrorsEndTheConnection(t *testing.T) {
	f := newFixture(t, small())
	for in, want := range map[string]string{
		"*1001\r\n":                         "-ERR Protocol error: invalid multibulk length",
		"*1\r\n$65537\r\n":                  "-ERR Protocol error: invalid bulk length",
		"*1\r\nX":                           "",
		"*2\r\n$3\r\nGET\r\n:1\r\n":         "-ERR Protocol error: expected '$', got ':'",
		strings.Repeat("x", 70<<10):         "-ERR Protocol error: too big inline request",
		"GET \"a\r\n":                       "-ERR Protocol error: unbalanced quotes in request",
		"POST / HTTP/1.1\r\n\r\n":           "",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": "-ERR wrong number of arguments for 'get' command",
	} {
		c := f.dial()
		c.want("+PONG", "PING")
		c.raw(in)
		if want != "" {
			c.next(want)
		} else if in[0] == '*' {
			c.Conn.(*net.TCPConn).CloseWrite()
		}
		c.gone()
	}
	f.calm()
}

// TestClaimsTakeNoMemory: lengths that are only claimed are not believed.
func TestClaimsTakeNoMemory(t *testing.T) {
	f := newFixture(t, Config{})
	for range 50 {
		c := f.dial()
		c.raw("*1000000\r\n$60000000\r\nabc")
		c = f.dial()
		c.raw("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108864\r\n")
	}
	f.eventually("all have arrived", func() bool { return f.srv.stats.reads.Load() >= 100 })
	if n := f.srv.budget.used.Load(); n != 0 {
		t.Errorf("%d bytes held for claims", n)
	}
	f.calm()
}

func TestTooMuchInOneCommand(t *testing.T) {
	f := newFixture(t, small())
	c := f.dial()
	go c.SendRaw([]byte("*9\r\n" + strings.Repeat("$60000\r\n"+strings.Repeat("x", 60000)+"\r\n", 8))) //nolint:errcheck // it is cut off
	c.gone()
	if n := f.srv.stats.queryLimit.Load(); n != 1 {
		t.Errorf("%d connections closed for the limit", n)
	}
	f.calm()
}

func TestBuffersTogetherAreBounded(t *testing.T) {
	f := newFixture(t, small())
	var cs []*client
	for range 18 {
		c := f.dial()
		cs = append(cs, c)
		go c.SendRaw([]byte("*5\r\n" + strings.Repeat("$50000\r\n"+strings.Repeat("x", 50000)+"\r\n", 4))) //nolint:errcheck // some are cut off
	}
	f.eventually("some were closed", func() bool { return f.srv.stats.queryLimit.Load() > 0 })
	if n := f.srv.budget.used.Load(); n > f.srv.cfg.MaxBufferedBytes {
		t.Errorf("%d bytes held, %d allowed", n, f.srv.cfg.MaxBufferedBytes)
	}
	// Whoever stalls in the middle of a large command goes, too.
	for _, c := range cs {
		c.gone()
	}
	f.calm()
}

func TestReplyTooLarge(t *testing.T) {
	f := newFixture(t, small())
	c := f.dial()
	c.want("+OK", "SET", "k", strings.Repeat("x", 60<<10))
	args := []string{"MGET"}
	for range 500 {
		args = append(args, "k")
	}
	c.send(args...)
	c.gone()
	f.calm()
}

// TestSlowReader: a client that does not take its replies holds up itself alone, and goes.
func TestSlowReader(t *testing.T) {
	f := newFixture(t, small())
	c := f.dial()
	c.want("+OK", "SET", "k", strings.Repeat("x", 60<<10))
	sent := make(chan int)
	go func() {
		n := 0
		for c.Send("GET", "k") == nil {
			n++
		}
		sent <- n
	}()
	other := f.dial()
	f.eventually("it was closed", func() bool {
		other.want("+PONG", "PING")
		return len(f.srv.clients()) == 1
	})
	if n := <-sent; n < 10 {
		t.Errorf("closed after %d commands: not for being slow", n)
	}
	if n := f.srv.stats.outputLimit.Load(); n != 0 {
		t.Errorf("%d connections closed for large replies", n)
	}
	other.Close()
	f.calm()
}

// TestSlowSubscriber: a subscriber that does not read is closed, and the
// publisher does not wait.
func TestSlowSubscriber(t *testing.T) {
	f := newFixture(t, small())
	sub, other, pub := f.dial(), f.dial(), f.dial()
	for _, c := range []*client{sub, other} {
		c.want(`*["subscribe" "c" :1]`, "SUBSCRIBE", "c")
	}
	message := strings.Repeat("m", 10<<10)
	for n := 0; ; n++ {
		if n > 100_000 {
			t.Fatal("the subscriber is never closed")
		}
		got := pub.do("PUBLISH", "c", message)
		if got != ":1" && got != ":2" {
			t.Fatal(got)
		}
		other.next(fmt.Sprintf(`*["message" "c" %q]`, message))
		if got == ":1" {
			break
		}
	}
	if n := f.srv.stats.outputLimit.Load(); n != 1 {
		t.Errorf("%d connections closed for the limit", n)
	}
	other.want(`*["unsubscribe" "c" :0]`, "UNSUBSCRIBE", "c")
	f.calm()
}

func TestTooManyClients(t *testing.T) {
	f := newFixture(t, small())
	var cs []*client
	for range 20 {
		c := f.dial()
		c.want("+PONG", "PING")
		cs = append(cs, c)
	}
	c := f.dial()
	c.next("-ERR max number of clients reached")
	c.gone()
	cs[0].Close()
	f.eventually("there is room", func() bool { return len(f.srv.clients()) < 20 })
	f.dial().want("+PONG", "PING")
}

func TestWhatASessionKeepsIsBounded(t *testing.T) {
	f := newFixture(t, small())
	c := f.dial()
	c.want("+OK", "MULTI")
	value := strings.Repeat("x", 60<<10)
	for range 4 {
		c.want("+QUEUED", "SET", "k", value)
	}
	const full = "-ERR what this connection keeps (queued commands, watched keys, subscriptions) would exceed 262144 bytes"
	c.want(full, "SET", "k", value)
	c.want("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	c.want("$null", "GET", "k")
	for n := 0; ; n++ {
		if n > 10_000 {
			t.Fatal("watched keys are never too many")
		}
		if got := c.do("WATCH", fmt.Sprint("key", n, value[:1000])); got != "+OK" {
			if got != full {
				t.Fatal(got)
			}
			break
		}
	}
	c.want("+OK", "UNWATCH")
	for n := 0; ; n++ {
		if n > 10_000 {
			t.Fatal("subscriptions are never too many")
		}
		if got := c.do("SUBSCRIBE", fmt.Sprint("channel", n, value[:1000])); got[0] == '-' {
			break
		}
	}
	c.want("+RESET", "RESET")
	c.Close()
	f.calm()
}

func TestIdleConnectionsClose(t *testing.T) {
	f := newFixture(t, Config{})
	c, sub := f.dial(), f.dial()
	c.want("+OK", "CONFIG", "SET", "timeout", "1")
	sub.want(`*["subscribe" "c" :1]`, "SUBSCRIBE", "c")
	idle := f.dial()
	idle.want("+PONG", "PING")
	idle.gone()
	d := f.dial()
	d.want(":1", "PUBLISH", "c", "still here")
	sub.next(`*["message" "c" "still here"]`)
}

func TestHalfSentCommands(t *testing.T) {
	f := newFixture(t, Config{})
	whole := string(respclient.Encode("SET", "key", "value")) + string(respclient.Encode("GET", "key"))
	for cut := range len(whole) {
		c := f.dial()
		c.raw(whole[:cut])
		c.Conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, c.Conn); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	c := f.dial()
	for i := range len(whole) { // a byte at a time
		c.raw(whole[i : i+1])
	}
	c.next("+OK")
	c.next(`"value"`)
	f.calm()
}

// TestManyLargeReplies: what each fits is answered, though all together do not.
func TestManyLargeReplies(t *testing.T) {
	cfg := small()
	cfg.StallTimeout = time.Minute // it is not about who reads slowly
	f := newFixture(t, cfg)
	c := f.dial()
	value := strings.Repeat("x", 60<<10)
	c.want("+OK", "SET", "k", value)
	c.raw(strings.Repeat("GET k\r\n", 200))
	for range 200 {
		c.next(fmt.Sprintf("%q", value))
	}
	c.Close()
	f.calm()
}

// TestLargePipeline: a pipeline that is much larger than any buffer goes through,
// since nothing of it is kept.
func TestLargePipeline(t *testing.T) {
	f := newFixture(t, small())
	c := f.dial()
	const n = 100_000
	go func() {
		one := respclient.Encode("INCR", "n")
		var batch []byte
		for range 100 {
			batch = append(batch, one...)
		}
		for range n / 100 {
			if c.SendRaw(batch) != nil {
				return
			}
		}
	}()
	for i := range n {
		v, err := c.Receive()
		if err != nil || v.Str != fmt.Sprint(i+1) {
			t.Fatalf("reply %d: %v %v", i, v, err)
		}
	}
	c.Close()
	f.calm()
}

// FuzzServer checks, for any bytes a client sends: no panic, the connection
// ends, and all that is answered is replies.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		"PING\r\nSET a b\r\nGET a\r\n", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "MULTI\r\nLPUSH l 1 2 3\r\nLPOP l 2\r\nEXEC\r\n",
		"HELLO 3\r\nSUBSCRIBE a b\r\nPUBLISH a x\r\nUNSUBSCRIBE\r\n", "ZADD z 1 a 2 b nan c\r\nZRANGE z (1 +inf BYSCORE LIMIT 0 -1\r\n",
		"BLPOP a b 0\r\nPING\r\n", "CONFIG SET notify-keyspace-events KEA\r\nPSUBSCRIBE *\r\nSET a b\r\nDEL a\r\n", "SCAN 0 COUNT 5 MATCH [\r\n",
		"CLIENT REPLY SKIP\r\nGET a\r\nCLIENT LIST\r\n", "SORT l BY w* GET # GET o*->f STORE d\r\n", "COMMAND GETKEYS EVAL\r\nCOMMAND DOCS\r\n",
		"SETRANGE s 100000 x\r\nGETRANGE s -5 -1\r\nLCS s s IDX\r\n", "HRANDFIELD h -5 WITHVALUES\r\nINCRBYFLOAT s 1e300\r\n",
		"SETBIT b 70000 1\r\nBITCOUNT b 0 -1 BIT\r\nBITPOS b 0 -9223372036854775808\r\nBITOP NOT c b a\r\nBITFIELD b OVERFLOW SAT INCRBY i64 #3 -9223372036854775808 GET u63 #100\r\n",
		"WATCH a\r\nSET a 1\r\nMULTI\r\nEXEC\r\nRESET\r\nINFO all\r\n", "*1\r\n$-1\r\n", "\"\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if strings.Contains(strings.ToLower(string(in)), "sleep") || strings.Contains(strings.ToLower(string(in)), "pause") {
			return // they take their time, as they should
		}
		fx := newFixture(t, small())
		c := fx.dial()
		if err := c.SendRaw(in); err != nil {
			return // it was closed in the middle
		}
		c.Conn.(*net.TCPConn).CloseWrite()
		for {
			if _, err := c.Receive(); err != nil {
				if strings.Contains(err.Error(), "not a reply") || strings.Contains(err.Error(), "length") || strings.Contains(err.Error(), "type of reply") {
					t.Fatal(err)
				}
				if e, ok := err.(net.Error); ok && e.Timeout() {
					t.Fatal("the connection does not end")
				}
				break
			}
		}
		fx.dial().want("+PONG", "PING")
	})
}
