package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore makes a store in dir and runs it for the length of the test.
func openStore(tb testing.TB, fs disk.FS, dir string) *store.Store {
	tb.Helper()
	s, _ := openStoreTwice(tb, fs, dir)
	return s
}

// openStoreTwice is openStore, and restart, which ends that run and begins the
// next one on the same files.
func openStoreTwice(tb testing.TB, fs disk.FS, dir string) (s *store.Store, restart func() *store.Store) {
	tb.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	id, err := store.Create(fs, dir, key, "main", tick.Real{}, rand.Reader, logger)
	if err != nil {
		tb.Fatal(err)
	}
	groups := group.DefaultConfig()
	groups.InitialRebalanceDelay = 0
	groups.ConsumerHeartbeat = 100 * time.Millisecond
	open := func() (*store.Store, func()) {
		s, err := store.Open(store.Config{
			FS: fs, Dir: fs.PathJoin(dir, id.String()), Key: key, Clock: tick.Real{}, Rand: rand.Reader, Logger: logger, Group: groups,
		})
		if err != nil {
			tb.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		return s, sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil && ctx.Err() == nil {
				tb.Errorf("run: %v", err)
			}
			if err := s.Close(); err != nil {
				tb.Errorf("close: %v", err)
			}
		})
	}
	s, stop := open()
	tb.Cleanup(stop)
	return s, func() *store.Store {
		stop()
		again, stop := open()
		tb.Cleanup(stop)
		return again
	}
}

// serve serves cfg with s and returns the URL.
func serve(tb testing.TB, s *store.Store, cfg api.Config) string {
	tb.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.Server(handler(tb, s, cfg), logger)
	srv.Start()
	tb.Cleanup(srv.Close)
	return srv.URL
}

func handler(tb testing.TB, s *store.Store, cfg api.Config) http.Handler {
	tb.Helper()
	cfg.Stores, cfg.Logger = api.Fixed{s}, slog.New(slog.NewTextHandler(io.Discard, nil))
	if cfg.Node == nil {
		cfg.Node = func() api.Node {
			return api.Node{Version: "1.2.3", Commit: "abc", Kafka: "127.0.0.1:9092", Config: []api.ConfigEntry{
				{Name: "kafka.listen", Value: "127.0.0.1:9092", Source: "flag"},
				{Name: "secret", Value: "hidden", Source: "file", Sensitive: true},
			}}
		}
	}
	h, err := api.Handler(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func dial(tb testing.TB, o client.Options) *client.Client {
	tb.Helper()
	c, err := client.Dial(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// node is a store in memory behind the API.
func node(t *testing.T) (*store.Store, *client.Client, string) {
	t.Helper()
	s := openStore(t, disk.NewMem(), "stores")
	url := serve(t, s, api.Config{})
	return s, dial(t, client.Options{URL: url}), url
}

func wantKind(t *testing.T, what string, err error, kind lattice.Kind) {
	t.Helper()
	if err == nil || lattice.KindOf(err) != kind {
		t.Errorf("%s: %v (kind %v), want kind %v", what, err, lattice.KindOf(err), kind)
	}
}

func TestTopics(t *testing.T) {
	_, c, _ := node(t)
	ctx := t.Context()
	made, err := c.CreateTopic(ctx, client.NewTopic{Name: "orders", Partitions: 3, Config: map[string]string{"retention.ms": "60000"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "orders"})
	wantKind(t, "create again", err, lattice.Exists)
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "bad name!"})
	wantKind(t, "bad name", err, lattice.Invalid)
	_, err = c.CreateTopic(ctx, client.NewTopic{Name: "x", Config: map[string]string{"no.such": "1"}})
	wantKind(t, "bad config", err, lattice.Invalid)
	if _, err := c.CreateTopic(ctx, client.NewTopic{Name: "dry", Partitions: 1, ValidateOnly: true}); err != nil {
		t.Errorf("validate only: %v", err)
	}

	all, err := c.Topics(ctx)
	if err != nil || len(all) != 1 || all[0].Name != "orders" || all[0].ID != made.ID || all[0].Created.IsZero() {
		t.Fatalf("topics %+v, %v", all, err)
	}
	d, err := c.Topic(ctx, made.ID)
	if err != nil || d.Name != "orders" || len(d.Details) != 3 || d.Config["retention.ms"] != "60000" {
		t.Fatalf("describe by id: %+v, %v", d, err)
	}
	found := false
	for _, e := range d.Entries {
		if e.Name == "retention.ms" {
			found = e.Value == "60000" && e.Source == "topic" && e.Doc != ""
		}
	}
	if !found {
		t.Errorf("config entries %+v", d.Entries)
	}

	after, err := c.AlterTopic(ctx, "orders", client.TopicChange{Set: map[string]string{"retention.bytes": "1000"}, Reset: []string{"retention.ms"}, Partitions: 5})
	if err != nil || after.Partitions != 5 || after.Config["retention.bytes"] != "1000" || after.Config["retention.ms"] != "" {
		t.Errorf("alter: %+v, %v", after, err)
	}
	_, err = c.AlterTopic(ctx, "orders", client.TopicChange{Partitions: 2})
	wantKind(t, "fewer partitions", err, lattice.Invalid)
	_, err = c.AlterTopic(ctx, "orders", client.TopicChange{Set: map[string]string{"retention.ms": "1"}, Partitions: 2})
	wantKind(t, "half a change", err, lattice.Invalid)
	if d, err := c.Topic(ctx, "orders"); err != nil || d.Config["retention.ms"] != "" {
		t.Errorf("half of a refused change took effect: %+v, %v", d.Config, err)
	}
	_, err = c.AlterTopic(ctx, "orders", client.TopicChange{})
	wantKind(t, "nothing to change", err, lattice.Invalid)

	if err := c.DeleteTopic(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	_, err = c.Topic(ctx, "orders")
	wantKind(t, "deleted", err, lattice.NotFound)
	if client.Hint(err) == "" {
		t.Error("no way out for a topic that does not exist")
	}
}

func TestTruncateAndOffsets(t *testing.T) {
	_, c, _ := node(t)
	ctx := t.Context()
	fill(t, c, "events", 2, 20)
	moved, err := c.TruncateTopic(ctx, "events", client.Offset(5), 1)
	if err != nil || len(moved) != 1 || moved[0] != (client.Truncation{Partition: 1, OldStart: 0, Start: 5}) {
		t.Fatalf("truncate: %+v, %v", moved, err)
	}
	if moved, err = c.TruncateTopic(ctx, "events", client.Offset(3)); err != nil || moved[1].Start != 5 || moved[0].Start != 3 {
		t.Errorf("truncate below the start: %+v, %v", moved, err)
	}
	_, err = c.TruncateTopic(ctx, "events", client.Offset(11))
	wantKind(t, "truncate beyond the end", err, lattice.NotYet)
	_, err = c.TruncateTopic(ctx, "events", client.Offset(-2))
	wantKind(t, "truncate before a negative offset", err, lattice.OutOfRange)
	for at, want := range map[client.Position]int64{
		client.Start(): 5, client.End(): 10, client.Offset(7): 7, client.Last(2): 8, client.Last(100): 5,
		client.Time(time.UnixMilli(0)): 5, client.Time(time.Now().Add(time.Hour)): 10,
	} {
		got, err := c.Offsets(ctx, "events", at, 1)
		if err != nil || len(got) != 1 || got[0].Offset != want || got[0].Start != 5 || got[0].Committed != 10 {
			t.Errorf("%v is %+v, %v, want %d", at, got, err, want)
		}
	}
	_, err = c.Offsets(ctx, "events", client.Offset(2), 1)
	wantKind(t, "below the start", err, lattice.OutOfRange)
	_, err = c.Offsets(ctx, "events", client.Offset(99), 1)
	wantKind(t, "above the end", err, lattice.NotYet)
	_, err = c.Offsets(ctx, "events", client.End(), 2)
	wantKind(t, "no such partition", err, lattice.NotFound)
	_, err = c.Offsets(ctx, "events", client.End(), 1, 1)
	wantKind(t, "a partition twice", err, lattice.Invalid)
	if moved, err = c.TruncateTopic(ctx, "events", client.End(), 0); err != nil || moved[0].Start != 10 {
		t.Errorf("truncate everything: %+v, %v", moved, err)
	}
}

func TestNodeAndStore(t *testing.T) {
	s, c, _ := node(t)
	ctx := t.Context()
	fill(t, c, "events", 2, 10)
	if _, err := c.Checkpoint(ctx, "events", 0, true); err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(ctx)
	if err != nil || !st.Ready || st.Node != s.Info().Node.String() || st.Listeners.Kafka != "127.0.0.1:9092" || len(st.Stores) != 1 {
		t.Fatalf("status %+v, %v", st, err)
	}
	o := st.Stores[0]
	if o.Name != "main" || o.Topics != 1 || o.Partitions != 2 || o.Blocks == 0 || o.Held != 0 || len(o.StateRoot) != 64 || len(o.FrontierRoot) != 64 || o.Durability == "" {
		t.Errorf("store status %+v", o)
	}
	if v, err := c.Version(ctx); err != nil || v.Version != "1.2.3" || v.Commit != "abc" || v.Go == "" {
		t.Errorf("version %+v, %v", v, err)
	}
	config, err := c.Config(ctx)
	if err != nil || len(config) != 2 || config[0].Value != "127.0.0.1:9092" || config[1].Value != "" {
		t.Errorf("config %+v, %v", config, err)
	}
	stores, err := c.Stores(ctx)
	if err != nil || len(stores) != 1 || stores[0].ID != s.Info().ID.String() || stores[0].Partitions != 2 {
		t.Errorf("stores %+v, %v", stores, err)
	}
}

func TestStoreByName(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	url := serve(t, s, api.Config{})
	for _, name := range []string{"", "main", s.Info().ID.String()} {
		if _, err := dial(t, client.Options{URL: url, Store: name}).Store(t.Context()); err != nil {
			t.Errorf("store %q: %v", name, err)
		}
	}
	_, err := dial(t, client.Options{URL: url, Store: "other"}).Topics(t.Context())
	wantKind(t, "no such store", err, lattice.NotFound)
}

func TestTokens(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	url := serve(t, s, api.Config{Tokens: []string{"one", "two"}, Metrics: prometheus.NewRegistry()})
	for _, token := range []string{"one", "two"} {
		if _, err := dial(t, client.Options{URL: url, Token: token}).Topics(t.Context()); err != nil {
			t.Errorf("token %q: %v", token, err)
		}
	}
	for _, token := range []string{"", "three", "on", "one "} {
		_, err := dial(t, client.Options{URL: url, Token: token}).Topics(t.Context())
		wantKind(t, "token "+token, err, lattice.Denied)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 401, "/openapi.json": 200} {
		if got := get(t, url+path, ""); got != want {
			t.Errorf("GET %s without a token: %d, want %d", path, got, want)
		}
	}
}

// A web page must not reach a node on its reader's machine.
func TestBrowsersKeptOut(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	url := serve(t, s, api.Config{})
	if got := get(t, url+"/lattice.v1.TopicService/List?encoding=json&message=%7B%7D&connect=v1", ""); got != 200 {
		t.Errorf("a plain GET: %d", got)
	}
	if got := get(t, url+"/lattice.v1.TopicService/List?encoding=json&message=%7B%7D&connect=v1", "evil.example"); got != 403 {
		t.Errorf("with another host name: %d", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/lattice.v1.TopicService/List", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := do(t, req); got != 403 {
		t.Errorf("from another site: %d", got)
	}
}

func get(t *testing.T, url, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) int {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// post sends JSON as curl would.
func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	res, err := http.Post(url, "application/json", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var m map[string]any
	if err := json.NewDecoder(res.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, m
}

// Everything that is not a stream works with JSON over HTTP/1.1.
func TestJSON(t *testing.T) {
	_, c, url := node(t)
	status, m := post(t, url+"/lattice.v1.TopicService/Create", `{"name":"orders","partitions":2}`)
	if topic, ok := m["topic"].(map[string]any); status != 200 || !ok || topic["name"] != "orders" {
		t.Fatalf("create: %d %v", status, m)
	}
	// "aGk=" is "hi".
	status, m = post(t, url+"/lattice.v1.LogService/ProduceRecords",
		`{"topic":"orders","partition":1,"records":[{"key":"aGk=","value":"aGk=","headers":[{"key":"h","value":""}]},{"time":"2026-01-02T03:04:05.678Z"}]}`)
	acks, ok := m["acks"].([]any)
	if status != 200 || !ok || len(acks) != 1 || acks[0].(map[string]any)["firstOffset"] != "0" || acks[0].(map[string]any)["lastOffset"] != "1" {
		t.Fatalf("produce: %d %v", status, m)
	}
	status, m = post(t, url+"/lattice.v1.TopicService/Describe", `{"topic":"nope"}`)
	if status != 404 || m["code"] != "not_found" || m["message"] == "" {
		t.Errorf("describe: %d %v", status, m)
	}
	status, m = post(t, url+"/lattice.v1.TopicService/List", `{"stoer":"main"}`)
	if text, ok := m["message"].(string); status != 400 || !ok || !strings.Contains(text, "stoer") {
		t.Errorf("a misspelt field: %d %v", status, m)
	}
	r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []client.Record
	for rec, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.Clone())
	}
	if len(got) != 2 || string(got[0].Key) != "hi" || string(got[0].Value) != "hi" || len(got[0].Headers) != 1 ||
		got[1].Key != nil || got[1].Value != nil || got[1].Time.UTC().Format(time.RFC3339Nano) != "2026-01-02T03:04:05.678Z" {
		t.Errorf("records %+v", got)
	}
}

func TestMetrics(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "lattice_answer"}))
	res, err := http.Get(serve(t, s, api.Config{Metrics: reg}) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(b), "lattice_answer 0") {
		t.Errorf("metrics %q, %v", b, err)
	}
}

func TestRequestLimit(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	url := serve(t, s, api.Config{Limits: api.Limits{Requests: 2}})
	c := dial(t, client.Options{URL: url})
	if _, err := c.CreateTopic(t.Context(), client.NewTopic{Name: "x", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	var streams []*client.Consumer
	for range 2 {
		r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: "x", Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, r)
	}
	_, err := c.Topics(t.Context())
	wantKind(t, "one request too many", err, lattice.Unavailable)
	if got := get(t, url+"/healthz", ""); got != 200 {
		t.Errorf("a busy node's /healthz: %d", got)
	}
	for _, r := range streams {
		r.Close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for err = c.Close(); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err = c.Topics(t.Context()); err == nil {
			return
		}
	}
	t.Errorf("after the streams closed: %v", err)
}

// Reading and writing work over every transport that a client may choose.
func TestTransports(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.Server(handler(t, s, api.Config{}), slog.New(slog.NewTextHandler(io.Discard, nil)))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	trust := srv.Client().Transport.(*http.Transport).TLSClientConfig
	plain := serve(t, s, api.Config{})
	for i, o := range []client.Options{
		{URL: plain}, {URL: plain, HTTP1: true}, {URL: srv.URL, TLS: trust}, {URL: srv.URL, TLS: trust.Clone(), HTTP1: true},
	} {
		c, topic := dial(t, o), fmt.Sprint("events-", i)
		fill(t, c, topic, 2, 100)
		r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: topic, MaxRecords: 100, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range r.All() {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 100 {
			t.Errorf("%s, HTTP/1.1 %v: %d records", o.URL, o.HTTP1, n)
		}
		r.Close()
	}
	_, err := dial(t, client.Options{URL: srv.URL}).Topics(t.Context())
	wantKind(t, "a certificate that nobody signed", err, lattice.Unavailable)
	if err != nil && !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the reason is missing: %v", err)
	}
}
