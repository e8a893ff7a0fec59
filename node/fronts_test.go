package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/engine/store"
)

// redisConn sends commands in the form that people type.
type redisConn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dialRedis(t *testing.T, addr string) *redisConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &redisConn{t, c, bufio.NewReader(c)}
}

// ask returns the first line of the reply, and the second of a string.
func (c *redisConn) ask(command string) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.r.ReadString('\n')
	if err == nil && strings.HasPrefix(line, "$") && line != "$-1\r\n" {
		line, err = c.r.ReadString('\n')
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// serving says whether the server that is to serve has the listener.
func (f *front) serving() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// TestDefaultChanges: when another store becomes the default, the listeners serve it:
// clients of the old one are disconnected, those that connect find the new one, and
// node.json says so. A listener that the configuration ties to a store stays there.
func TestDefaultChanges(t *testing.T) {
	cfg := local(t)
	n, stop := runNode(t, cfg)
	one := n.stores.All()[0]
	old := dialRedis(t, n.Info().Redis)
	if got := old.ask("SET k one"); got != "+OK" {
		t.Fatal(got)
	}
	two, err := n.stores.Create(t.Context(), "press")
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []*store.Store{two, one, two} {
		if err := n.stores.Use(st); err != nil {
			t.Fatal(err)
		}
	}
	_ = old.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := old.r.ReadString('\n'); err != io.EOF { //nolint:errorlint // as the connection returns it
		t.Fatalf("the old connection: %v", err)
	}
	// The listener may serve each store on the way for a moment, and disconnect who came then.
	for n.redis.current().store != two || !n.redis.serving() {
		time.Sleep(time.Millisecond)
	}
	c := dialRedis(t, n.Info().Redis)
	if got := c.ask("GET k"); got != "$-1" {
		t.Fatalf("k in the new store: %s", got)
	}
	if got := c.ask("SET k two"); got != "+OK" {
		t.Fatal(got)
	}
	c.Close()
	raw, err := os.ReadFile(filepath.Join(cfg.Data, infoFile))
	if err != nil {
		t.Fatal(err)
	}
	var info Info
	if err := json.Unmarshal(raw, &info); err != nil || info.Store != two.Info().ID.String() {
		t.Fatalf("node.json: %s, %v", raw, err)
	}
	res, err := http.Get("http://" + info.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || strings.Count(string(b), "\nlattice_redis_connections ") != 1 || strings.Count(string(b), "\nlattice_kafka_connections ") != 1 {
		t.Fatalf("metrics: %v\n%s", err, b)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	cfg.Redis.Store = one.Info().ID.String()
	n, _ = runNode(t, cfg)
	if n.Info().Store != two.Info().ID.String() {
		t.Fatal("the default is forgotten")
	}
	c = dialRedis(t, n.Info().Redis)
	if err := n.stores.Use(n.stores.All()[1]); err != nil {
		t.Fatal(err)
	}
	if got := c.ask("GET k"); got != "one" {
		t.Fatalf("a listener with a store of its own: %s", got)
	}
}
