package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(childEnv); arg != "" { // the node that a test kills
		fmt.Fprintln(os.Stderr, runChild(arg))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// local returns a configuration for a node of the test's own.
func local(t *testing.T) Config {
	t.Helper()
	cfg := Default()
	cfg.Data = filepath.Join(t.TempDir(), "data")
	cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// runNode runs a node until stop is called, which returns what Run and Close said.
func runNode(t *testing.T, cfg Config) (n *Node, stop func() error) {
	t.Helper()
	return runNodeWith(t, cfg, Options{Version: "v", Commit: "c"})
}

func runNodeWith(t *testing.T, cfg Config, o Options) (n *Node, stop func() error) {
	t.Helper()
	n, err := Open(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	select {
	case <-n.Ready():
	case err := <-done:
		t.Fatalf("ended before it was ready: %v", err)
	}
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return n, stop
}

// TestRun checks the life of a node: what node.json says is true while it runs,
// the directory is taken, and everything is given back at the end.
func TestRun(t *testing.T) {
	cfg := local(t)
	n, stop := runNode(t, cfg)
	raw, err := os.ReadFile(filepath.Join(cfg.Data, infoFile))
	if err != nil {
		t.Fatal(err)
	}
	var info Info
	if err := json.Unmarshal(raw, &info); err != nil {
		t.Fatal(err)
	}
	if info.Kafka == "" || info.PID != os.Getpid() || info.Node != n.Info().Node {
		t.Errorf("node.json: %s", raw)
	}
	for _, addr := range []string{info.Kafka, info.HTTP} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200} {
		res, err := http.Get("http://" + info.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	_, err = Open(t.Context(), cfg, Options{})
	var held *HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("a second node: %v", err)
	}
	if err := n.Close(); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("close while it runs: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{infoFile, socketName} {
		if _, err := os.Stat(filepath.Join(cfg.Data, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	if c, err := net.Dial("tcp", info.Kafka); err == nil {
		c.Close()
		t.Error("the Kafka listener still accepts")
	}
}

// TestSameIdentity checks that a directory keeps its node and store, and each
// start is another incarnation.
func TestSameIdentity(t *testing.T) {
	cfg := local(t)
	made, err := Init(t.Context(), cfg)
	if err != nil || !made.Created {
		t.Fatalf("%+v, %v", made, err)
	}
	again, err := Init(t.Context(), cfg)
	if err != nil || again.Created || again.Node != made.Node || again.Store != made.Store {
		t.Fatalf("%+v, %v", again, err)
	}
	var last uint64
	for range 2 {
		n, stop := runNode(t, cfg)
		if n.Info().Node != made.Node || n.Info().Store != made.Store {
			t.Errorf("have %+v, want %+v", n.Info(), made)
		}
		if inc := n.stores.All()[0].Info().Incarnation; inc <= last {
			t.Errorf("incarnation %d after %d", inc, last)
		} else {
			last = inc
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenFails checks that a node that cannot start leaves nothing taken.
func TestOpenFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for name, c := range map[string]struct {
		change func(*Config)
		kind   lattice.Kind
	}{
		"address taken":   {func(c *Config) { c.HTTP.Listen = busy.Addr().String() }, lattice.Unavailable},
		"invalid":         {func(c *Config) { c.Log.Durability = "x" }, lattice.Invalid},
		"no certificate":  {func(c *Config) { c.TLS = TLS{"/nowhere.pem", "/nowhere.pem"} }, lattice.Invalid},
		"no token file":   {func(c *Config) { c.HTTP.TokenFile = "/nowhere" }, lattice.Invalid},
		"key not private": {func(c *Config) { write(t, filepath.Join(c.Data, "identity.key"), "x", 0o644) }, lattice.Denied},
		"key unreadable":  {func(c *Config) { write(t, filepath.Join(c.Data, "identity.key"), "x", 0o600) }, lattice.Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := local(t)
			c.change(&cfg)
			if _, err := Open(t.Context(), cfg, Options{}); lattice.KindOf(err) != c.kind {
				t.Fatalf("%v: %v", lattice.KindOf(err), err)
			}
			l, err := takeLock(cfg.Data)
			if err != nil {
				t.Fatalf("the lock is still held: %v", err)
			}
			if err := l.release(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStoreWithoutKey checks that a store never gets another identity.
func TestStoreWithoutKey(t *testing.T) {
	cfg := local(t)
	if _, err := Init(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(keyPath(cfg.Data)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), cfg, Options{}); lattice.KindOf(err) != lattice.Corrupt || !strings.Contains(err.Error(), "identity.key") {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(keyPath(cfg.Data)); !os.IsNotExist(err) {
		t.Error("a new identity was made")
	}
}

// TestTokens checks the token file's form and that the HTTP listener asks for a
// token while the socket does not.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	for text, want := range map[string]string{"# mine\n\n  abc  \ndef\n": "abc,def", "# none\n": "", "": ""} {
		write(t, path, text, 0o600)
		got, err := readTokens(path)
		if strings.Join(got, ",") != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	write(t, path, "secret\n", 0o644)
	if _, err := readTokens(path); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("others can read it: %v", err)
	}
	write(t, path, "secret\n", 0o600)
	cfg := local(t)
	cfg.HTTP.TokenFile = path
	n, _ := runNode(t, cfg)
	socket := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.Info().Socket)
	}}
	defer socket.CloseIdleConnections()
	tcp := &http.Transport{}
	defer tcp.CloseIdleConnections()
	for _, c := range []struct {
		tr    http.RoundTripper
		token string
		want  int
	}{{socket, "", 200}, {tcp, "", 401}, {tcp, "wrong", 401}, {tcp, "secret", 200}} {
		req, err := http.NewRequest("POST", "http://"+n.Info().HTTP+"/lattice.v1.NodeService/Status", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		res, err := c.tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("token %q: %s", c.token, res.Status)
		}
	}
}

// TestLongPath checks that a directory whose path is too long for a socket has
// one elsewhere, which is gone at the end.
func TestLongPath(t *testing.T) {
	cfg := local(t)
	cfg.Data = filepath.Join(cfg.Data, strings.Repeat("d", 120))
	n, stop := runNode(t, cfg)
	socket := n.Info().Socket
	if len(socket) > maxSocketPath {
		t.Fatalf("socket %s", socket)
	}
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", filepath.Dir(socket), err)
	}
}

// TestOffline checks that a stopped node's directory can be read, and neither a
// running one nor an empty one.
func TestOffline(t *testing.T) {
	cfg := local(t)
	if _, err := OpenOffline(cfg.Data, "", nil); lattice.KindOf(err) != lattice.NotFound {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := os.Stat(cfg.Data); !os.IsNotExist(err) {
		t.Error("looking made the directory")
	}
	n, stop := runNode(t, cfg)
	if _, err := n.stores.All()[0].CreateTopic(t.Context(), store.NewTopic{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOffline(cfg.Data, "", nil); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("running: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	o, err := OpenOffline(cfg.Data, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.ProveRecord(t.Context(), "t", 0, 0); lattice.KindOf(err) != lattice.NotYet {
		t.Errorf("no record yet: %v", err)
	}
	if _, err := o.ProveRecord(t.Context(), "u", 0, 0); lattice.KindOf(err) != lattice.NotFound {
		t.Errorf("no topic: %v", err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMetrics checks that the topics' figures are right.
func TestMetrics(t *testing.T) {
	n, _ := runNode(t, local(t))
	if _, err := n.stores.All()[0].CreateTopic(t.Context(), store.NewTopic{Name: "t", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	families, err := n.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if len(m.Label) == 2 && m.Label[0].GetValue() == "main" && m.Label[1].GetValue() == "t" {
				have[f.GetName()] = m.Gauge.GetValue()
			}
		}
	}
	want := map[string]float64{
		"lattice_topic_partitions": 3, "lattice_topic_bytes": have["lattice_topic_bytes"], "lattice_topic_start_offsets": 0,
		"lattice_topic_committed_offsets": 0, "lattice_topic_cut_bytes": 0, "lattice_topic_failed_partitions": 0,
		"lattice_topic_only_here_records": 0, "lattice_topic_replicas_behind": 0, "lattice_topic_stranded_batches": 0,
	}
	if !maps.Equal(have, want) {
		t.Errorf("have %v\nwant %v", have, want)
	}
}

// TestTasks checks that the first failure is told, and that an orderly end is none.
func TestTasks(t *testing.T) {
	ok := start(t.Context())
	ok.run("waits", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if err := ok.stop(); err != nil {
		t.Errorf("orderly: %v", err)
	}
	bad := start(t.Context())
	bad.run("a", func(context.Context) error { return nil })
	bad.run("b", func(ctx context.Context) error { <-ctx.Done(); return errors.New("late") })
	select {
	case <-bad.failed():
	case <-time.After(10 * time.Second):
		t.Fatal("a task that ended by itself is no failure")
	}
	if err := bad.stop(); err == nil || err.Error() != "a: ended by itself\nb: late" {
		t.Errorf("have %v", err)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
