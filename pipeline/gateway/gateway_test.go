package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/client/live"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/gateway"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/topic"
)

const tenant = "platform1_concertapp_prod"

// projector stands for the real one: rows in memory, patches on a topic.
type projector struct {
	t      testing.TB
	client *kgo.Client

	mu    sync.Mutex
	head  int64
	epoch int64
	rows  map[string]map[string]flow.Row // by projection and key
}

func newProjector(t testing.TB, brokers []string) *projector {
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic.Patches))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &projector{t: t, client: c, epoch: 1, rows: map[string]map[string]flow.Row{"artist_followers": {}, "follows": {}}}
}

// set writes one column of a row, and publishes the patch.
func (p *projector) set(projection, entity string, key map[string]string, column string, value int) {
	p.mu.Lock()
	k, _ := json.Marshal(key)
	row, there := p.rows[projection][string(k)]
	patch := event.Patch{
		Projection: projection, TenantSchema: tenant, ForkID: "prod", Stream: "user_stream", EntityID: entity, EventType: "ARTIST_FOLLOWED",
		Key: k, PrevCursor: row.Cursor, Epoch: p.epoch, TS: 1,
	}
	if !there {
		row = flow.Row{Key: k, Row: []byte("{}")}
		for c, v := range key {
			b, _ := json.Marshal(v)
			patch.Operations = append(patch.Operations, event.Operation{Op: event.OpAdd, Path: "/" + c, Value: b})
		}
	}
	patch.Operations = append(patch.Operations, event.Operation{Op: event.OpReplace, Path: "/" + column, Value: json.RawMessage(fmt.Sprint(value))})
	p.publish(projection, string(k), row, patch)
}

func (p *projector) publish(projection, key string, row flow.Row, patch event.Patch) {
	p.head++
	patch.Cursor = p.head
	doc, err := event.Apply(row.Row, patch.Operations)
	if err != nil {
		p.t.Error(err)
	}
	p.rows[projection][key] = flow.Row{Key: row.Key, Row: doc, Cursor: p.head}
	b, err := patch.Encode()
	p.mu.Unlock()
	if err != nil {
		p.t.Error(err)
	}
	p.client.Produce(context.Background(), &kgo.Record{Key: []byte(patch.EntityID), Value: b}, func(_ *kgo.Record, err error) {
		if err != nil && !errors.Is(err, kgo.ErrClientClosed) {
			p.t.Error(err)
		}
	})
}

func (p *projector) Snapshot(_ context.Context, s flow.Selector, each func([]flow.Row) error) (int64, error) {
	p.mu.Lock()
	rows, head := maps.Clone(p.rows[s.Name]), p.head
	p.mu.Unlock()
	var some []flow.Row
	for k, r := range rows {
		if s.Entity == "" || strings.Contains(k, `"user_id":"`+s.Entity+`"`) {
			some = append(some, r)
		}
	}
	return head, each(some)
}

// shows reports whether a feed has the rows of a projection, as they are now.
func (p *projector) shows(d *live.Feed, projection string) bool {
	p.mu.Lock()
	rows := maps.Clone(p.rows[projection])
	p.mu.Unlock()
	same := true
	d.Read(func(v *live.View) {
		if same = v.UpToDate() && v.Len() == len(rows); !same {
			return
		}
		for k, r := range rows {
			have, _ := v.At(k)
			b, _ := json.Marshal(have)
			var x, y any
			_, _ = json.Unmarshal(b, &x), json.Unmarshal(r.Row, &y)
			same = same && reflect.DeepEqual(x, y)
		}
	})
	return same
}

func concertapp(t testing.TB) *spec.App {
	t.Helper()
	app, err := spec.Load(os.DirFS("../../examples/concertapp"))
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func brokers(t testing.TB) []string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topic.Patches))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

// start runs a gateway and returns its address.
func start(t testing.TB, kafka []string, rows gateway.Rows, change func(*gateway.Options)) (*gateway.Gateway, *httptest.Server) {
	t.Helper()
	o := gateway.Options{App: concertapp(t), Rows: rows, Kafka: []kgo.Opt{kgo.SeedBrokers(kafka...)}}
	if change != nil {
		change(&o)
	}
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_ = g.Drain(end)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	select {
	case <-g.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the gateway is not ready")
	}
	return g, server
}

// A gateway that finds no topic makes it and reads it at the first try: it does not go on
// believing that there is none.
func TestFirstOfAll(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	kafka := c.ListenAddrs()
	var said bytes.Buffer // written by Run alone until the gateway is ready
	p := newProjector(t, kafka)
	start(t, kafka, p, func(o *gateway.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	if said.Len() > 0 {
		t.Error(said.String())
	}
}

func wsURL(server *httptest.Server) string {
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/ws"
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

// cutter is a proxy that cuts all connections when it is told to.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	to    string
	conns map[net.Conn]bool
	cuts  int
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); c.cut("") })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			out, err := net.Dial("tcp", c.to)
			if err != nil {
				in.Close()
			} else {
				c.conns[in], c.conns[out] = true, true
				go func() { _, _ = io.Copy(out, in); out.Close() }()
				go func() { _, _ = io.Copy(in, out); in.Close() }()
			}
			c.mu.Unlock()
		}
	}()
	return c
}

// cut closes everything, and sends new connections to another address unless it is empty.
func (c *cutter) cut(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
		delete(c.conns, conn)
	}
	if c.cuts++; to != "" {
		c.to = to
	}
}

// A client of two gateways whose connections are cut again and again, in the middle of patches,
// has the projection's rows in the end, and has them without reading them anew each time.
func TestFollowThroughCuts(t *testing.T) {
	kafka := brokers(t)
	p := newProjector(t, kafka)
	_, one := start(t, kafka, p, nil)
	_, two := start(t, kafka, p, nil)
	addresses := []string{strings.TrimPrefix(one.URL, "http://"), strings.TrimPrefix(two.URL, "http://")}
	proxy := newCutter(t, addresses[0])
	f := live.New(live.Options{URL: "ws://" + proxy.Addr().String() + "/ws", MinWait: time.Millisecond, MaxWait: 20 * time.Millisecond})
	counts, follows := f.Follow("user_stream", "artist_followers"), f.Follow("user_stream", "follows")
	mine := f.Follow("user_stream:u1", "follows")
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	for i := range 600 {
		user := fmt.Sprintf("u%d", i%7)
		// Events of several entities write one artist's row: their patches lie in several partitions.
		p.set("artist_followers", user, map[string]string{"artist_id": fmt.Sprintf("a%d", i%3)}, "followers", i)
		p.set("follows", user, map[string]string{"artist_id": fmt.Sprintf("a%d", i%5), "user_id": user}, "since", i)
		if i%60 == 59 {
			until(t, "some rows", func() bool { n := 0; counts.Read(func(v *live.View) { n = v.Len() }); return n > 0 })
			proxy.cut(addresses[i%2])
		}
	}
	until(t, "the rows of both projections", func() bool { return p.shows(counts, "artist_followers") && p.shows(follows, "follows") })
	mine.Read(func(v *live.View) {
		if v.Len() != 5 {
			t.Errorf("u1 follows %v", v.Keys())
		}
	})
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// dial says hello by hand.
func dial(t *testing.T, server *httptest.Server, frames ...string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), wsURL(server), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(-1)
	for _, f := range frames {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(f)); err != nil {
			t.Fatal(err)
		}
	}
	return ws
}

// end reads until the connection is closed, and returns the code and the last frame.
func end(t *testing.T, ws *websocket.Conn) (code int, last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			return int(websocket.CloseStatus(err)), last
		}
		last = string(b)
	}
}

const hello = `{"type":"hello","v":1,"stream_id":"user_stream","subs":[{"channel":"artist_followers","from_cursor":-1}]}`

func TestHostileClients(t *testing.T) {
	kafka := brokers(t)
	p := newProjector(t, kafka)
	g, server := start(t, kafka, p, func(o *gateway.Options) {
		o.PerAddress = 3
		o.WriteTimeout = 300 * time.Millisecond
		o.Flow = flow.Config{Hello: time.Second, Queue: 16, QueueBytes: 64 << 10}
	})
	check := func(what string, ws *websocket.Conn, want int) {
		t.Helper()
		code, last := end(t, ws)
		if code != want || want >= 4000 && !strings.Contains(last, flow.Codes()[want]) {
			t.Errorf("%s: closed with %d after %s, want %d", what, code, last, want)
		}
	}
	check("junk", dial(t, server, "junk"), flow.BadFrame)
	check("silence", dial(t, server), flow.HelloTimeout)
	check("a lie", dial(t, server, strings.Replace(hello, "-1", `"1.x.____"`, 1)), flow.BadCursor)
	check("a long frame", dial(t, server, hello, strings.Repeat(" ", flow.MaxFrame+1)), int(websocket.StatusMessageTooBig))
	flood := dial(t, server, hello)
	go func() {
		for flood.Write(t.Context(), websocket.MessageText, []byte(`{"type":"pong"}`)) == nil {
		}
	}()
	check("a flood", flood, flow.Flood)
	binary := dial(t, server, hello)
	_ = binary.Write(t.Context(), websocket.MessageBinary, []byte{0})
	check("binary", binary, flow.BadFrame)

	until(t, "all gone", func() bool { return connections(t, g) == 0 })
	for range 3 {
		dial(t, server, hello)
	}
	if _, resp, err := websocket.Dial(t.Context(), wsURL(server), nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a fourth connection from one address: %v", err)
	}
}

// A client that stops reading is closed; others get all meanwhile.
func TestStalledClient(t *testing.T) {
	kafka := brokers(t)
	p := newProjector(t, kafka)
	g, server := start(t, kafka, p, func(o *gateway.Options) {
		o.WriteTimeout = 500 * time.Millisecond
		o.Flow = flow.Config{Queue: 64, QueueBytes: 256 << 10}
	})
	stalled := dial(t, server, strings.Replace(hello, "artist_followers", "follows", 1))
	f := live.New(live.Options{URL: wsURL(server), MinWait: time.Millisecond})
	follows := f.Follow("user_stream", "follows")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = f.Run(ctx) }()
	until(t, "two subscriptions", func() bool { return metric(t, g, "lattice_gateway_subscriptions") == 2 })
	long := strings.Repeat("x", 20000)
	n := 0
	until(t, "the stalled one is closed", func() bool {
		p.set("follows", "u1", map[string]string{"user_id": "u1", "artist_id": fmt.Sprint(long, n)}, "since", n)
		n++
		return connections(t, g) == 1
	})
	until(t, "the other has all", func() bool { return p.shows(follows, "follows") })
	stalled.CloseNow()
}

func TestSSE(t *testing.T) {
	kafka := brokers(t)
	p := newProjector(t, kafka)
	p.set("artist_followers", "u1", map[string]string{"artist_id": "a"}, "followers", 1)
	g, server := start(t, kafka, p, nil)
	read := func(header, query, until string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/events?stream_id=user_stream&channel=artist_followers"+query, nil)
		if header != "" {
			req.Header.Set("Last-Event-ID", header)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var all strings.Builder
		buf := make([]byte, 4096)
		for !strings.Contains(all.String(), until) {
			n, err := resp.Body.Read(buf)
			all.Write(buf[:n])
			if err != nil {
				return all.String()
			}
		}
		return all.String()
	}
	first := read("", "", "event: up_to_date")
	if !strings.Contains(first, "event: welcome\ndata: {") || !strings.Contains(first, `"rows":[{"key":{"artist_id":"a"},"row":{"artist_id":"a","followers":1},"cursor":1}]`) {
		t.Errorf("the beginning: %s", first)
	}
	_, id, _ := strings.Cut(first, "id: ")
	id, _, _ = strings.Cut(id, "\n")
	p.set("artist_followers", "u2", map[string]string{"artist_id": "a"}, "followers", 2)
	second := read(id, "", "event: up_to_date")
	if strings.Contains(second, "event: patch\ndata") || !strings.Contains(second, `"answer":"`) || strings.Contains(second, `"answer":"reset"`) {
		t.Errorf("after coming back with %q: %s", id, second)
	}
	if third := read("lies", "", "no end"); !strings.Contains(third, "no cursor of a gateway") {
		t.Errorf("a lie: %s", third)
	}
	until(t, "all gone", func() bool { return connections(t, g) == 0 })
}

func TestDrain(t *testing.T) {
	kafka := brokers(t)
	g, server := start(t, kafka, newProjector(t, kafka), nil)
	ws := dial(t, server, hello)
	until(t, "one subscription", func() bool { return metric(t, g, "lattice_gateway_subscriptions") == 1 })
	go func() { _ = g.Drain(context.Background()) }()
	if code, last := end(t, ws); code != flow.Draining || !strings.Contains(last, `"cursors":[{"stream_id":"user_stream","channel":"artist_followers","cursor":"1.`) {
		t.Errorf("%d, %s", code, last)
	}
	if _, resp, err := websocket.Dial(t.Context(), wsURL(server), nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a client while it drains: %v", err)
	}
}
