package flow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/gateway/grant"
)

var epoch = time.Unix(1e9, 0)

func config(verify func(string, time.Time) (grant.Grant, error)) *Config {
	if verify == nil {
		verify = func(string, time.Time) (grant.Grant, error) { return grant.Grant{All: true}, nil }
	}
	c := Config{
		Channel: func(name string) (Channel, bool) { return Channel{Streams: []string{"s"}, Narrow: true}, name == "p" },
		Tenant:  func(string) (string, string, bool) { return "a_b", "f", true },
		Verify:  verify, Queue: 8,
	}.WithDefaults()
	return &c
}

// rig is one connection to one feed.
type rig struct {
	*testing.T
	feed *Feed
	conn *Conn
	subs map[*Sub]bool
	at   int64
	rows map[string]int64
}

func newRig(t *testing.T, cfg *Config) *rig {
	return &rig{t, NewFeed(FeedConfig{ID: "t"}, Position{0}), NewConn(cfg, "c1", "", epoch), map[*Sub]bool{}, 0, map[string]int64{}}
}

func (r *rig) changed(ch Changes) {
	for _, s := range ch.Began {
		a, err := r.feed.Resume(s.Selector, s.From)
		r.subs[s] = true
		r.changed(r.conn.Resumed(s, a, err))
	}
	for _, s := range ch.Ended {
		delete(r.subs, s)
	}
}

func (r *rig) send(frame string) { r.changed(r.conn.Receive(epoch, []byte(frame))) }

func (r *rig) patch(key, entity string) {
	r.at++
	p := &event.Patch{
		Projection: "p", TenantSchema: "a_b", ForkID: "f", Stream: "s", EntityID: entity, EventType: "E", Key: json.RawMessage(`{"id":"` + key + `"}`),
		Operations: []event.Operation{{Op: event.OpReplace, Path: "/n", Value: json.RawMessage(fmt.Sprint(r.at))}}, PrevCursor: r.rows[key], Cursor: r.at, Epoch: 1, TS: 5,
	}
	r.rows[key] = r.at
	for _, it := range r.feed.Add(epoch, 0, r.at-1, p) {
		for s := range r.subs {
			if it.matches(s.Selector) {
				r.changed(r.conn.Offer(s, it))
			}
		}
	}
}

// frames returns what is to be sent, and the code that the connection ends with.
func (r *rig) frames() (all []string, code int) {
	for {
		f, ok := r.conn.Next(nil)
		if !ok {
			return all, 0
		}
		if f.Close != nil {
			return all, f.Close.Code
		}
		if !json.Valid(f.Data) || strings.ContainsAny(string(f.Data), "\n\r") {
			r.Fatalf("frame %s", f.Data)
		}
		all = append(all, string(f.Data))
	}
}

func (r *rig) want(want ...string) {
	r.Helper()
	got, _ := r.frames()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		r.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const (
	hello   = `{"type":"hello","v":1,"stream_id":"s","subs":[{"channel":"p","from_cursor":-1}]}`
	welcome = `{"type":"welcome","conn_id":"c1","v":1,"server_ts":1000000000000,"heartbeat_ms":20000}`
)

// A case that changes here changes what programs of others read.
func TestGolden(t *testing.T) {
	r := newRig(t, config(nil))
	r.send(hello)
	r.want(welcome, `{"type":"resume","stream_id":"s","channel":"p","answer":"nothing_missed","cursor":"1.t.AA"}`,
		`{"type":"up_to_date","stream_id":"s","channel":"p","as_of":0,"cursor":"1.t.AA"}`)
	r.patch("x", "e")
	r.want(`{"type":"patch","stream_id":"s","channel":"p","prev_cursor":"1.t.AA","event_type":"projection:p","trigger_event_type":"E","fork_id":"f","entity_id":"e",` +
		`"projection_name":"p","key":{"id":"x"},"patch":[{"op":"replace","path":"/n","value":1}],"row_prev":0,"row_cursor":1,"epoch":1,"ts":5,"cursor":"1.t.AQ"}`)
	r.send(`{"type":"sub","stream_id":"s:e","channel":"p"}`)
	r.want(`{"type":"resume","stream_id":"s:e","channel":"p","answer":"reset","reason":"asked","cursor":"1.t.AQ"}`)
	r.patch("y", "other")
	for s := range r.subs {
		if s.NeedsSnapshot() {
			r.conn.Rows(s, s.Round(), []Row{{json.RawMessage(`{"id":"x"}`), json.RawMessage(`{"id":"x","n":1}`), 1}})
			r.changed(r.conn.SnapshotDone(s, s.Round(), 1, nil))
		}
	}
	got, _ := r.frames()
	if len(got) != 3 || got[1] != `{"type":"snapshot","stream_id":"s:e","channel":"p","rows":[{"key":{"id":"x"},"row":{"id":"x","n":1},"cursor":1}]}` ||
		got[2] != `{"type":"up_to_date","stream_id":"s:e","channel":"p","as_of":1,"cursor":"1.t.AQ"}` {
		t.Errorf("snapshot: %s", got)
	}
	r.send(`{"type":"ping","ts":7}`)
	r.send(`{"type":"unsub","stream_id":"s:e","channel":"p"}`)
	r.send(`{"type":"sub","stream_id":"s","channel":"q"}`)
	r.want(`{"type":"pong","ts":7}`, `{"type":"unsubscribed","stream_id":"s:e","channel":"p","reason":"asked","cursor":"1.t.AQ"}`,
		`{"type":"error","stream_id":"s","channel":"q","code":"not_found","message":"there is no such projection of this stream"}`)
	r.changed(r.conn.Drain(5 * time.Second))
	r.want(`{"type":"closing","code":"draining","message":"the gateway stops: come back within 5000 ms, here or elsewhere","status":4009,` +
		`"cursors":[{"stream_id":"s","channel":"p","cursor":"1.t.Ag"}]}`)
}

func TestResumeAnswers(t *testing.T) {
	resume := func(r *rig, cursor string) []string {
		r.conn = NewConn(r.conn.cfg, "c1", "", epoch)
		r.subs = map[*Sub]bool{}
		r.send(`{"type":"hello","v":1,"stream_id":"s","subs":[{"channel":"p","from_cursor":"` + cursor + `"}]}`)
		got, code := r.frames()
		if code != 0 {
			return []string{fmt.Sprint(code)}
		}
		return got[1:]
	}
	r := newRig(t, config(nil))
	r.feed = NewFeed(FeedConfig{ID: "t", Recent: 3}, Position{0})
	for range 5 {
		r.patch("x", "e")
	}
	for _, c := range []struct {
		cursor, want string
		frames       int
	}{
		{Position{5}.Cursor("t"), `"answer":"nothing_missed"`, 2},
		{Position{3}.Cursor("t"), `"answer":"replay","missed":2`, 4},
		{Position{1}.Cursor("t"), `"answer":"reset","reason":"too_old"`, 1},
		{Position{6}.Cursor("t"), `"answer":"reset","reason":"ahead"`, 1},
		{Position{5}.Cursor("u"), `"answer":"reset","reason":"other_topic"`, 1},
		{Position{5 << 40}.Cursor("t"), "4004", 1},
		{"lies", "4004", 1},
		{"1.t.AB=", "4004", 1},
	} {
		got := resume(r, c.cursor)
		if len(got) != c.frames || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %s", c.cursor, got)
		}
	}
}

func TestSlowClient(t *testing.T) {
	r := newRig(t, config(nil))
	r.send(hello)
	r.frames()
	for range 100 { // one row: merged for ever
		r.patch("x", "e")
	}
	got, code := r.frames()
	if code != 0 || len(got) > 5 || !strings.Contains(got[len(got)-1], `"merged":`) || !strings.Contains(got[len(got)-1], `"row_cursor":100`) {
		t.Errorf("%d, %s", code, got)
	}
	for i := range 9 { // many rows: the queue is full
		r.patch(fmt.Sprint("y", i), "e")
	}
	got, code = r.frames()
	if code != Slow || len(got) != 1 || !strings.Contains(got[0], `"cursors":[{"stream_id":"s","channel":"p","cursor":"1.t.`) || len(r.subs) != 0 {
		t.Errorf("%d, %s", code, got)
	}
}

func TestClosings(t *testing.T) {
	for name, c := range map[string]struct {
		frames []string
		code   int
	}{
		"junk":       {[]string{"junk"}, BadFrame},
		"no hello":   {[]string{`{"type":"ping"}`}, BadFrame},
		"two hellos": {[]string{hello, hello}, BadFrame},
		"version":    {[]string{`{"type":"hello","v":2}`}, BadFrame},
		"twice":      {[]string{`{"type":"hello","type":"ping","v":1}`}, BadFrame},
		"deep":       {[]string{strings.Repeat("[", 1000)}, BadFrame},
		"unknown":    {[]string{hello, `{"type":"drop tables"}`}, BadFrame},
		"cursor":     {[]string{hello, `{"type":"sub","stream_id":"s","channel":"p","from_cursor":{}}`}, BadCursor},
		"long":       {[]string{`{"type":"` + strings.Repeat("x", MaxFrame) + `"}`}, BadFrame},
	} {
		r := newRig(t, config(nil))
		for _, f := range c.frames {
			r.send(f)
		}
		if got, code := r.frames(); code != c.code || !strings.Contains(got[len(got)-1], `"type":"closing"`) {
			t.Errorf("%s: %d, %s", name, code, got)
		}
	}
	r := newRig(t, config(nil))
	r.send(hello)
	for range 300 {
		r.send(`{"type":"pong"}`)
	}
	if _, code := r.frames(); code != Flood {
		t.Errorf("a flood: %d", code)
	}
}

func TestTimeAndTokens(t *testing.T) {
	expires := epoch.Add(5 * time.Minute)
	cfg := config(func(token string, now time.Time) (grant.Grant, error) {
		g := grant.Grant{Tenants: []string{"a_b"}, Expires: expires}
		switch token {
		case "ann":
		case "longer":
			g.Expires = expires.Add(time.Hour)
		case "less":
			g.Streams = []string{"other"}
		default:
			return g, grant.ErrToken
		}
		return g, nil
	})
	tick := func(r *rig, after time.Duration) (got []string, code int) {
		_, ch := r.conn.Tick(epoch.Add(after))
		r.changed(ch)
		return r.frames()
	}
	r := newRig(t, cfg)
	if _, code := tick(r, 6*time.Second); code != HelloTimeout {
		t.Errorf("no hello: %d", code)
	}
	r = newRig(t, cfg)
	r.send(hello)
	if _, code := r.frames(); code != Unauthorized {
		t.Errorf("no token: %d", code)
	}
	ann := strings.Replace(hello, `"v":1`, `"v":1,"token":"ann"`, 1)
	r = newRig(t, cfg)
	r.send(ann)
	r.frames()
	if got, _ := tick(r, 21*time.Second); len(got) != 1 || !strings.Contains(got[0], `"type":"ping"`) {
		t.Errorf("heartbeat: %s", got)
	}
	if _, code := tick(r, 61*time.Second); code != Heartbeat {
		t.Errorf("silence: %d", code)
	}
	r = newRig(t, cfg)
	r.send(ann)
	r.frames()
	r.conn.Heard(epoch.Add(4 * time.Minute))
	if got, _ := tick(r, 4*time.Minute+time.Second); !strings.Contains(strings.Join(got, " "), "auth_expiring") {
		t.Errorf("warning: %s", got)
	}
	r.send(`{"type":"auth","token":"longer"}`)
	r.conn.Heard(epoch.Add(5 * time.Minute))
	if got, code := tick(r, 5*time.Minute); code != 0 || !strings.Contains(strings.Join(got, " "), "auth_ok") {
		t.Errorf("refreshed: %d, %s", code, got)
	}
	r.send(`{"type":"auth","token":"less"}`)
	if got, _ := r.frames(); !strings.Contains(strings.Join(got, " "), `"reason":"forbidden"`) || len(r.subs) != 0 {
		t.Errorf("demoted: %s", got)
	}
	r.conn.Heard(epoch.Add(5 * time.Minute))
	if _, code := tick(r, 5*time.Minute); code != Expired {
		t.Errorf("expired: %d", code)
	}
}

// FuzzReceive checks that no sequence of frames panics, and that all that is sent is JSON on
// one line.
func FuzzReceive(f *testing.F) {
	f.Add(hello, `{"type":"sub","stream_id":"s:e","channel":"p","from_cursor":"1.t.AA"}`)
	f.Add(hello, `{"type":"unsub","stream_id":"s","channel":"p"}`)
	f.Add(hello, `{"type":"ping","ts":1e5}`)
	cfg := config(nil)
	f.Fuzz(func(t *testing.T, a, b string) {
		r := newRig(t, cfg)
		r.send(a)
		r.send(b)
		r.patch("x", "e")
		r.frames()
	})
}

// FuzzCursor checks that a cursor that is read is written the same.
func FuzzCursor(f *testing.F) {
	f.Add("1.t.AQID")
	f.Fuzz(func(t *testing.T, s string) {
		feed, p, err := ParseCursor(s)
		if err == nil && p.Cursor(feed) != s {
			t.Errorf("%q is %v of %q", s, p, feed)
		}
	})
}
