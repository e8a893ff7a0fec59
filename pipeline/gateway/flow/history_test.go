package flow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/client/live"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/gateway/grant"
)

// world is a database, a topic of three partitions, gateways that read it each at its
// own pace, and clients.
type world struct {
	*rapid.T
	now   time.Time
	head  int64
	epoch int64
	rows  map[string]map[string]dbRow // by projection and key
	topic [3][]*event.Patch
	gates []*gate
	tasks []snapshot // that were begun
	cfg   *Config
}

type dbRow struct {
	doc    []byte
	cursor int64
}

type gate struct {
	feed *Feed
	read [3]int
	subs map[*Sub]*client
}

type client struct {
	name  string
	gate  *gate
	conn  *Conn
	views map[string]*live.View // by channel

}

type snapshot struct {
	sub   *Sub
	conn  *Conn
	round int
	rows  []Row
	asOf  int64
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: time.Unix(1e9, 0), epoch: 1, rows: map[string]map[string]dbRow{"counts": {}, "own": {}}}
	cfg := Config{
		Channel: func(name string) (Channel, bool) {
			return Channel{Streams: []string{"user_stream"}, Narrow: name == "own"}, name == "own" || name == "counts"
		},
		Tenant: func(string) (string, string, bool) { return "a_b", "f", true },
		Verify: func(string, time.Time) (grant.Grant, error) { return grant.Grant{All: true}, nil },
		Queue:  24, Rate: 1e9, Burst: 1e9, Silence: 1e6 * time.Hour, Heartbeat: 1e6 * time.Hour,
	}.WithDefaults()
	w.cfg = &cfg
	return w
}

func (w *world) gateway(recent int) *gate {
	g := &gate{subs: map[*Sub]*client{}}
	var at Position
	for p := range w.topic {
		g.read[p] = len(w.topic[p])
		at = at.set(int32(p), int64(g.read[p]))
	}
	g.feed = NewFeed(FeedConfig{ID: "t", Recent: recent, Replay: 40, Rows: 8}, at)
	w.gates = append(w.gates, g)
	return g
}

// write changes a row by an event of an entity, and publishes the patch: perhaps twice, perhaps
// as bytes that nobody can read.
func (w *world) write(projection, entity, key string, lose bool) {
	id := fmt.Sprintf(`{"id":"%s"}`, key)
	r, there := w.rows[projection][key]
	w.head++
	p := &event.Patch{
		Projection: projection, TenantSchema: "a_b", ForkID: "f", Stream: "user_stream", EntityID: entity, EventType: "E",
		Key: json.RawMessage(id), PrevCursor: r.cursor, Cursor: w.head, Epoch: w.epoch,
	}
	field := func() event.Operation {
		path := rapid.SampledFrom([]string{"/a", "/b", "/c/d", "/c"}).Draw(w.T, "path")
		return event.Operation{Op: event.OpReplace, Path: path, Value: json.RawMessage(fmt.Sprint(w.head))}
	}
	switch {
	case !there:
		p.Operations = []event.Operation{{Op: event.OpAdd, Path: "/id", Value: json.RawMessage(`"` + key + `"`)}, field()}
	case rapid.IntRange(0, 4).Draw(w.T, "remove") == 0:
		p.Operations = []event.Operation{{Op: event.OpRemove}}
	default:
		p.Operations = []event.Operation{field(), field()}
	}
	doc := r.doc
	if !there {
		doc = []byte("{}")
	}
	doc, err := event.Apply(doc, p.Operations)
	if err != nil {
		w.Fatal(err)
	}
	if delete(w.rows[projection], key); doc != nil {
		w.rows[projection][key] = dbRow{doc, w.head}
	}
	part := int(entity[0]) % 3
	if lose {
		w.topic[part] = append(w.topic[part], nil)
		return
	}
	w.topic[part] = append(w.topic[part], p)
	if n := len(w.topic[part]); n > 1 && rapid.IntRange(0, 6).Draw(w.T, "again") == 0 {
		w.topic[part] = append(w.topic[part], w.topic[part][n-2], p)
	}
}

func (w *world) deliver(g *gate, part int) bool {
	if g.read[part] >= len(w.topic[part]) {
		return false
	}
	at := g.read[part]
	g.read[part]++
	w.offer(g, g.feed.Add(w.now, int32(part), int64(at), w.topic[part][at]))
	return true
}

func (w *world) offer(g *gate, items []*Item) {
	for _, it := range items {
		for s, c := range g.subs {
			if it.matches(s.Selector) {
				w.changed(c, c.conn.Offer(s, it))
			}
		}
	}
}

func (w *world) changed(c *client, ch Changes) {
	for _, s := range ch.Began {
		a, err := c.gate.feed.Resume(s.Selector, s.From)
		c.gate.subs[s] = c
		w.changed(c, c.conn.Resumed(s, a, err))
	}
	for _, s := range ch.Ended {
		delete(c.gate.subs, s)
	}
}

// snapshots reads the database for all who wait; they get it later.
func (w *world) snapshots() {
	for _, g := range w.gates {
		for s, c := range g.subs {
			if !s.NeedsSnapshot() {
				continue
			}
			task := snapshot{sub: s, conn: c.conn, round: s.Round(), asOf: w.head}
			for key, r := range w.rows[s.Name] {
				if s.Entity == "" || s.Entity == key {
					task.rows = append(task.rows, Row{json.RawMessage(`{"id":"` + key + `"}`), r.doc, r.cursor})
				}
			}
			w.tasks = append(w.tasks, task)
		}
	}
}

func (w *world) finish(t snapshot) {
	if t.conn.Rows(t.sub, t.round, t.rows) {
		t.conn.SnapshotDone(t.sub, t.round, t.asOf, nil)
	}
}

// connect comes back with what the client has.
func (w *world) connect(c *client, g *gate) {
	if c.conn != nil {
		w.changed(c, c.conn.End(Draining, "cut"))
	}
	c.gate, c.conn = g, NewConn(w.cfg, c.name, "", w.now)
	hello := map[string]any{"type": "hello", "v": 1, "stream_id": "user_stream"}
	subs := []map[string]any{}
	for channel, v := range c.views {
		v.Stale()
		sub := map[string]any{"channel": channel, "from_cursor": v.Cursor()}
		if channel == "own" {
			sub["stream_id"] = "user_stream:u1"
		}
		subs = append(subs, sub)
	}
	hello["subs"] = subs
	b, _ := json.Marshal(hello)
	w.changed(c, c.conn.Receive(w.now, b))
}

// read takes up to n frames. It reports whether there were any.
func (w *world) read(c *client, n int) bool {
	for i := range n {
		f, ok := c.conn.Next(nil)
		if !ok {
			return i > 0
		}
		if f.Close != nil {
			if f.Close.Code != Slow {
				w.Fatalf("closed: %+v", f.Close)
			}
			w.connect(c, c.gate)
			return true
		}
		var frame live.Frame
		if err := json.Unmarshal(f.Data, &frame); err != nil {
			w.Fatalf("%s: %v", f.Data, err)
		}
		v := c.views[frame.Channel]
		if v == nil {
			if frame.Type == "error" {
				w.Fatalf("%s", f.Data)
			}
			continue
		}
		if _, err := v.Apply(&frame); err != nil {
			// Something was lost: read it anew.
			c.views[frame.Channel] = &live.View{}
			w.connect(c, c.gate)
			return true
		}
	}
	return true
}

func (w *world) check(c *client) {
	for channel, v := range c.views {
		if !v.UpToDate() {
			w.Fatalf("%s is not up to date on %s", c.name, channel)
		}
		want := 0
		for key, r := range w.rows[channel] {
			if channel == "own" && key != "u1" {
				continue
			}
			want++
			have, _ := v.Row(map[string]any{"id": key})
			b, _ := json.Marshal(have)
			var x, y any
			_, _ = json.Unmarshal(b, &x), json.Unmarshal(r.doc, &y)
			if !reflect.DeepEqual(x, y) {
				w.Fatalf("%s on %s: row %s is %s, the database has %s", c.name, channel, key, b, r.doc)
			}
		}
		if v.Len() != want {
			w.Fatalf("%s on %s: rows %v, the database has %d", c.name, channel, v.Keys(), want)
		}
	}
}

// Whatever the order of writing, reading, subscribing, stalling, cutting and coming back to another
// gateway: a client that applies what it gets ends with the rows of the database.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		entities, keys := []string{"u1", "v1", "w1"}, []string{"k1", "k2", "k3"}
		write := func() {
			entity := rapid.SampledFrom(entities).Draw(t, "entity")
			lose := rapid.IntRange(0, 30).Draw(t, "lose") == 0
			if rapid.Bool().Draw(t, "own") {
				w.write("own", entity, entity, lose)
				return
			}
			w.write("counts", entity, rapid.SampledFrom(keys).Draw(t, "key"), lose)
		}
		for range rapid.IntRange(0, 10).Draw(t, "before") {
			write()
		}
		w.gateway(rapid.SampledFrom([]int{5, 1000}).Draw(t, "recent"))
		var clients []*client
		for i := range 3 {
			c := &client{name: fmt.Sprint("c", i), views: map[string]*live.View{"counts": {}, "own": {}}}
			clients = append(clients, c)
			w.connect(c, w.gates[0])
		}
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "ms")) * time.Millisecond)
			g := w.gates[rapid.IntRange(0, len(w.gates)-1).Draw(t, "gate")]
			c := clients[rapid.IntRange(0, 2).Draw(t, "client")]
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0, 1, 2, 3:
				write()
			case 4, 5, 6:
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					w.deliver(g, rapid.IntRange(0, 2).Draw(t, "partition"))
				}
			case 7:
				w.offer(g, g.feed.Tick(w.now))
			case 8:
				w.read(c, rapid.IntRange(1, 20).Draw(t, "frames"))
			case 9:
				w.snapshots()
			case 10:
				if len(w.tasks) > 0 {
					w.finish(w.tasks[0])
					w.tasks = w.tasks[1:]
				}
			case 11:
				if len(w.gates) < 2 {
					w.gateway(1000)
				} else if rapid.IntRange(0, 2).Draw(t, "cut") == 0 {
					w.connect(c, g)
				}
			}
		}
		// Each row once more, so that what was lost shows; then nothing but delivery.
		for _, k := range keys {
			w.write("counts", "u1", k, false)
		}
		for _, e := range entities {
			w.write("own", e, e, false)
		}
		for range 1000 {
			busy := false
			w.now = w.now.Add(time.Second)
			for _, g := range w.gates {
				for part := range w.topic {
					busy = w.deliver(g, part) || busy
				}
				w.offer(g, g.feed.Tick(w.now))
				busy = busy || g.feed.Stats().Held > 0
			}
			w.snapshots()
			for _, task := range w.tasks {
				w.finish(task)
				busy = true
			}
			w.tasks = nil
			for _, c := range clients {
				busy = w.read(c, 10) || busy
			}
			if !busy {
				break
			}
		}
		for _, c := range clients {
			w.check(c)
		}
	})
}
