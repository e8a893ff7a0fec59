package hostile

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

const (
	redisIdlers = 4000
	redisDeaf   = 32 // clients that ask for a large value and never read
	redisAsks   = 200
	redisValue  = 1 << 20

	// What the node may hold more than when it began: what its own limits add up to
	// for these clients is far above. 220 MiB with twice the idle ones were measured.
	redisMayHold = 400 << 20
)

// redisOpening is what the idle Redis clients send before they fall silent.
var redisOpening = []string{
	"",
	"*3\r\n$3\r\nSE",               // a part of a command
	"*1000000\r\n$60000000\r\nabc", // more than will ever come
	"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108864\r\n",
	"PING\r\n", // a whole one, whose answer is not read
	"SUBSCRIBE a b c\r\n",
	"BLPOP never 0\r\n",
	"MULTI\r\nSET k v\r\n",
	"WATCH k\r\n",
	strings.Repeat("x", 100),
}

// TestHostileRedis is thousands of bad Redis clients, and a good one that must not
// notice. What each kind of bad bytes is answered with is tested in front/redis.
func TestHostileRedis(t *testing.T) {
	raiseLimit(t)
	n := realnode.Start(t, realnode.Build(t), t.TempDir(), "--kafka", "")
	good := newRedisGood(t, n.Redis)
	good.is("+OK", "SET", "large", strings.Repeat("x", redisValue))
	good.goesOn("before all")
	before, files := n.RSS(t), n.Files(t)

	var crowd crowd
	t.Cleanup(crowd.leave)
	for i := range redisIdlers {
		conn := crowd.dial(t, n.Redis)
		if conn == nil {
			t.FailNow()
		}
		if _, err := conn.Write([]byte(redisOpening[i%len(redisOpening)])); err != nil {
			t.Fatalf("idle connection %d: %v", i, err)
		}
	}
	good.goesOn("beside idle connections")
	t.Logf("%d idle connections cost %d MiB", redisIdlers, (n.RSS(t)-before)>>20)

	ask := bytes.Repeat(respclient.Encode("GET", "large"), redisAsks)
	for range redisDeaf {
		if conn := crowd.dial(t, n.Redis); conn != nil {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // the node may stop reading, once enough is owed
			_, _ = conn.Write(ask)
		}
	}
	good.goesOn("beside clients that never read")
	good.is(fmt.Sprintf("%q", strings.Repeat("x", redisValue)), "GET", "large")

	// Commands larger than the node takes, and bytes that are no commands.
	for _, bad := range []string{
		"*2\r\n$4\r\nECHO\r\n$67108865\r\n", "*1048577\r\n", "*x\r\n", "*1\r\n$x\r\n", "GET \"\r\n", strings.Repeat("y", 70<<10), "POST / HTTP/1.1\r\n\r\n",
	} {
		for range 20 {
			conn, err := net.Dial("tcp", n.Redis)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte(bad))
			_ = conn.SetReadDeadline(time.Now().Add(limit))
			for buf := make([]byte, 1024); err == nil; {
				_, err = conn.Read(buf)
			}
			conn.Close()
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Fatalf("%.40q: the connection stays open", bad)
			}
		}
	}
	good.goesOn("beside clients that send what is no command")
	if more := n.RSS(t) - before; more > redisMayHold {
		t.Errorf("the node holds %d MiB more than before, want at most %d", more>>20, redisMayHold>>20)
	} else {
		t.Logf("in all: %d MiB more than before", more>>20)
	}

	crowd.leave()
	for end := time.Now().Add(limit); n.Files(t) > files+50; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors are open after all have left, %d before they came", n.Files(t), files)
		}
	}
	good.goesOn("after all have left")
	good.is("$null", "GET", "k") // what was begun by those who left has not happened
	n.Stop(t)
}

// redisGood is a Redis client that nobody should disturb.
type redisGood struct {
	t *testing.T
	*respclient.Client
	written int
}

func newRedisGood(t *testing.T, at string) *redisGood {
	t.Helper()
	c, err := respclient.Dial(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &redisGood{t: t, Client: c}
}

// is compares a reply.
func (g *redisGood) is(want string, args ...string) {
	g.t.Helper()
	v, err := g.Do(args...)
	if err != nil {
		g.t.Fatalf("%.40q: %v", args, err)
	}
	if got := v.String(); got != want {
		g.t.Fatalf("%.40q: %.100s, want %.100s", args, got, want)
	}
}

// goesOn writes some more, one by one, while others are there.
func (g *redisGood) goesOn(when string) {
	g.t.Helper()
	for range 50 {
		g.written++
		v, err := g.Do("INCR", "counter")
		if err != nil || v.Str != fmt.Sprint(g.written) {
			g.t.Fatalf("write %s: %v %v, want %d", when, v, err, g.written)
		}
	}
}
