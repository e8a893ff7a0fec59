package redis

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realredis"
)

// TestSameAsRedisBroken sends bytes that are no commands, or not quite, to a real
// Redis and to this server: both answer the same, byte by byte, and close when the other does.
func TestSameAsRedisBroken(t *testing.T) {
	long := strings.Repeat("9", 70<<10)
	sock, f := realredis.Start(t), newEngineFixture(t, Config{})
	for _, in := range []string{
		// Lengths.
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$x\r\n", "*1\r\n$-1\r\n", "*1\r\n$-2\r\n", "*1\r\n$ 4\r\nPING\r\n", "*1\r\n$04\r\nPING\r\n", "*1\r\n$+4\r\nPING\r\n",
		"*1\r\n$\r\n", "*1\r\n$536870913\r\n", "*1\r\n$99999999999999999999\r\n",
		"*0\r\nPING\r\n", "*-1\r\nPING\r\n", "*-10\r\nPING\r\n", "*\r\nPING\r\n", "*x\r\n", "* 1\r\n$4\r\nPING\r\n", "*01\r\n$4\r\nPING\r\n", "*2147483648\r\n",
		"*99999999999999999999\r\n", "*" + long, "*1\r\n$" + long,
		// Types in the wrong place.
		"*1\r\n+PING\r\n", "*1\r\n:1\r\n", "*1\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n\r\n", "$4\r\nPING\r\n", "+PING\r\n", ":1\r\n", "_\r\n", "%1\r\n",
		// Ends of strings, which Redis does not look at.
		"*1\r\n$4\r\nPINGxxPING\r\n", "*1\r\n$2\r\nPING\r\nPING\r\n", "*1\n$4\nPING\n", "*1\r\n$4\r\nP\r\nG\r\nPING\r\n",
		// Nothing at all.
		"*1\r\n$0\r\n\r\nPING\r\n", "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "\r\n\r\n\nPING\r\n", "   \r\nPING\r\n",
		// Inline commands. (With a zero byte in one, Redis waits for an end that it never sees.)
		"PING\n", "  PING  \r\n", "ping 'a b'\r\n", "PING \"\\x41\\n\\t\\q\"\r\n", "PING 'it\\'s'\r\n", "PING 'a\r\nPING\r\n", "PING \"a\"b\r\n", "PING 'a'b\r\n",
		"PING \"\"\r\n", "PING ''\r\n", "PING \"\\xzz\"\r\n", "PING \"\\x4\r\n", "SET\tk\tv\r\nGET k\r\n", long, "PING " + strings.Repeat("x", 60<<10) + "\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\n\r\n", "host: a\r\n", "*1\r\n$4\r\nPOST\r\nPING\r\n", "*1\r\n$5\r\nHOST:\r\nPING\r\n",
		// What was right before an error is answered before it.
		"PING\r\n*1\r\n$x\r\nPING\r\n", "MULTI\r\nSET a 1\r\n*1\r\n+x\r\nEXEC\r\n", "HELLO 9\r\n*1\r\n$-5\r\n", "SUBSCRIBE c\r\n*x\r\n",
		"CLIENT REPLY OFF\r\nPING\r\n*x\r\n", "PING\r\nQUIT\r\nPING\r\n", "MULTI\r\nPING\r\nQUIT\r\n",
		// Cut off.
		"*", "*1", "*1\r", "*1\r\n", "*1\r\n$", "*1\r\n$4\r\n", "*1\r\n$4\r\nPIN", "*1\r\n$4\r\nPING", "*1\r\n$4\r\nPING\r", "PING", "PING\r",
		// Names and arguments that end, or do not.
		"*1\r\n$300\r\n" + strings.Repeat("n", 300) + "\r\n", "*2\r\n$3\r\nfoo\r\n$300\r\n" + strings.Repeat("a", 300) + "\r\n", "*1\r\n$3\r\na\r\n\r\n",
		"*2\r\n$6\r\nCLIENT\r\n$300\r\n" + strings.Repeat("s", 300) + "\r\n", "*1\r\n$4\r\nGET\x00\r\n", "*3\r\n$1\r\n\xff\r\n$1\r\n\x00\r\n$1\r\n\n\r\n",
	} {
		want, got := answered(t, "unix", sock, in), answered(t, "tcp", f.addr, in)
		if got != want {
			t.Errorf("%.200q\n redis: %.300q\n ours:  %.300q", in, want, got)
		}
	}
	f.calm()
}

// answered sends bytes, and nothing more, and returns all that comes back.
func answered(t *testing.T, network, addr, in string) string {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	// A server that closes before it has all of it breaks the connection.
	if _, err := io.WriteString(c, in); err == nil {
		c.(interface{ CloseWrite() error }).CloseWrite() //nolint:errcheck // the same
	}
	var out strings.Builder
	if _, err := io.Copy(&out, c); err != nil {
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Fatalf("%.100q: the connection stays open; so far: %q", in, out.String())
		}
	}
	return out.String()
}
