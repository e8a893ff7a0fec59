package browser_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/lattice-log/lattice/pipeline/browser"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/intents"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
	"github.com/lattice-log/lattice/proto/lattice/app/v1/appv1connect"
)

// world is the example with a ledger and tables, no Kafka, and a browser.
type world struct {
	t       *testing.T
	ledger  *ledger.Ledger
	store   *projection.Store
	intents *intents.Service
	client  appv1connect.BrowserServiceClient
	url     string
	again   []event.Event // published by hand
	down    error         // what Kafka says
}

func newWorld(t *testing.T, url string) *world {
	app, err := spec.Load(os.DirFS("../../examples/concertapp"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	db := sqldbtest.Open(t, url)
	if w.ledger, err = ledger.Open(t.Context(), db, ledger.Options{}); err != nil {
		t.Fatal(err)
	}
	if w.store, err = projection.Open(t.Context(), db, projection.Options{App: app, Ledger: w.ledger}); err != nil {
		t.Fatal(err)
	}
	if w.intents, err = intents.New(intents.Options{App: app, Ledger: w.ledger}); err != nil {
		t.Fatal(err)
	}
	b, err := browser.New(browser.Options{App: app, Ledger: w.ledger, Store: w.store, Republish: func(_ context.Context, events ...event.Event) error {
		w.again = append(w.again, events...)
		return w.down
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(b.Handler())
	t.Cleanup(server.Close)
	w.url = server.URL
	w.client = appv1connect.NewBrowserServiceClient(http.DefaultClient, server.URL)
	return w
}

// follow submits an intent, n of its user.
func (w *world) follow(user, artist string) {
	w.t.Helper()
	a, err := w.intents.Submit(w.t.Context(), intents.Request{
		IntentID: user + artist, IntentType: "FOLLOW_ARTIST", Payload: json.RawMessage(fmt.Sprintf(`{"user_id":%q,"artist_id":%q}`, user, artist)),
	})
	if err != nil || !a.Accepted() {
		w.t.Fatalf("%+v, %v", a, err)
	}
}

// project applies all events of the ledger to a projection.
func (w *world) project(name string) {
	w.t.Helper()
	all, err := w.ledger.Events(w.t.Context(), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.apply(name, all)
}

func (w *world) apply(name string, all []event.Event) {
	w.t.Helper()
	var events []projection.Event
	for _, e := range all {
		events = append(events, projection.Event{Projection: e.Projection()})
	}
	if _, err := w.store.Apply(w.t.Context(), w.store.App().Projection(name), events); err != nil {
		w.t.Fatal(err)
	}
}

func TestBoth(t *testing.T) {
	sqldbtest.Run(t, sqldbtest.Case{Name: "looks", Run: testLooks}, sqldbtest.Case{Name: "rows", Run: testRows}, sqldbtest.Case{Name: "again", Run: testAgain})
}

func testLooks(t *testing.T, url string) {
	w, ctx := newWorld(t, url), t.Context()
	for i := range 40 {
		w.follow(fmt.Sprint("u", i%4), fmt.Sprint("a", i))
	}
	var seen []int64
	for after := int64(0); ; {
		got, err := w.client.ListEvents(ctx, &pb.BrowserServiceListEventsRequest{After: after, Limit: 17})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got.Events {
			seen = append(seen, e.Position)
		}
		if after = got.Next; after >= got.Head {
			break
		}
	}
	if len(seen) != 40 || !slices.IsSorted(seen) || seen[39] != 40 {
		t.Errorf("pages have %v", seen)
	}
	some, err := w.client.ListEvents(ctx, &pb.BrowserServiceListEventsRequest{EntityId: "u1", Stream: "user", EventType: "ARTIST_FOLLOWED", Since: 1, Until: 1 << 50})
	if err != nil || len(some.Events) != 10 || some.Events[3].SequenceNumber != 4 || some.Events[3].Payload != `{"artist_id":"a13","user_id":"u1"}` {
		t.Errorf("events of u1: %v, %v", some, err)
	}
	for _, none := range []*pb.BrowserServiceListEventsRequest{{EventType: "ARTIST_UNFOLLOWED"}, {Until: 5}, {Since: 1 << 50}, {EntityId: "nobody"}} {
		if got, err := w.client.ListEvents(ctx, none); err != nil || len(got.Events) != 0 || got.Next != 40 {
			t.Errorf("%v: %v, %v", none, got, err)
		}
	}
	u1 := &pb.EntityAddress{EntityId: "u1"}
	h, err := w.client.History(ctx, &pb.BrowserServiceHistoryRequest{Entity: u1, After: 8, Limit: 1})
	if err != nil || len(h.Events) != 1 || h.Events[0].SequenceNumber != 9 || h.Next != 9 || h.Last != 10 {
		t.Errorf("history: %v, %v", h, err)
	}
	three := int64(3)
	s, err := w.client.State(ctx, &pb.BrowserServiceStateRequest{Entity: u1, Sequence: &three})
	if err != nil || s.Sequence != 3 || s.State != `{"following":3,"follows":["a1","a5","a9"],"user_id":"u1"}` {
		t.Errorf("state at 3: %v, %v", s, err)
	}
	if s, err = w.client.State(ctx, &pb.BrowserServiceStateRequest{Entity: u1}); err != nil || s.Sequence != 10 || !strings.HasPrefix(s.State, `{"following":10,`) {
		t.Errorf("state: %v, %v", s, err)
	}
	eleven := int64(11)
	_, err = w.client.State(ctx, &pb.BrowserServiceStateRequest{Entity: u1, Sequence: &eleven})
	refused(t, "state of the future", err, connect.CodeNotFound, "the last event has the sequence number 10")
	// At least: told when it ran out, and seen when it comes.
	_, err = w.client.State(ctx, &pb.BrowserServiceStateRequest{Entity: u1, AtLeast: 11, WaitMs: 1})
	refused(t, "state that does not come", err, connect.CodeOutOfRange, "is at sequence 10, not yet at 11")
	came := make(chan error, 1)
	go func() {
		s, err := w.client.State(ctx, &pb.BrowserServiceStateRequest{Entity: u1, AtLeast: 11, WaitMs: 30000})
		if err == nil && s.Sequence != 11 {
			err = fmt.Errorf("have %v", s)
		}
		came <- err
	}()
	w.follow("u1", "late")
	if err := <-came; err != nil {
		t.Error(err)
	}
}

func testRows(t *testing.T, url string) {
	w, ctx := newWorld(t, url), t.Context()
	for i := range 30 {
		w.follow(fmt.Sprint("u", i%3), fmt.Sprintf("a%02d", i))
	}
	w.project("follows")
	var keys []string
	for after := ""; ; {
		got, err := w.client.ListRows(ctx, &pb.BrowserServiceListRowsRequest{Projection: "follows", Limit: 7, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Rows {
			var k struct {
				User   string `json:"user_id"`
				Artist string `json:"artist_id"`
			}
			if err := json.Unmarshal([]byte(r.Key), &k); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k.User+" "+k.Artist)
		}
		if after = got.Next; after == "" {
			break
		}
	}
	if len(slices.Compact(slices.Clone(keys))) != 30 || len(keys) != 30 || !slices.IsSorted(keys) {
		t.Errorf("pages have %d rows: %q", len(keys), keys)
	}
	one, err := w.client.ListRows(ctx, &pb.BrowserServiceListRowsRequest{Projection: "follows", Key: `{"user_id":"u1"}`})
	if err != nil || len(one.Rows) != 10 || one.Next != "" || !strings.Contains(one.Rows[0].Row, `"artist_id":"a01","since":"`) || one.Rows[0].Cursor == 0 {
		t.Errorf("rows of u1: %v, %v", one, err)
	}
	// At least.
	w.follow("u1", "new")
	want := &pb.BrowserServiceListRowsRequest{Projection: "follows", Key: `{"user_id":"u1","artist_id":"new"}`, Entity: &pb.EntityAddress{EntityId: "u1"}, AtLeast: 11, WaitMs: 20}
	_, err = w.client.ListRows(ctx, want)
	refused(t, "rows that do not come", err, connect.CodeOutOfRange, "not come so far yet")
	came := make(chan error, 1)
	go func() {
		patient := &pb.BrowserServiceListRowsRequest{Projection: want.Projection, Key: want.Key, Entity: want.Entity, AtLeast: 11, WaitMs: 30000}
		got, err := w.client.ListRows(ctx, patient)
		if err == nil && len(got.Rows) != 1 {
			err = fmt.Errorf("have %v", got)
		}
		came <- err
	}()
	w.project("follows")
	if err := <-came; err != nil {
		t.Error(err)
	}
	want.AtLeast = 12
	_, err = w.client.ListRows(ctx, want)
	refused(t, "rows of an event that is not in the ledger", err, connect.CodeOutOfRange, "not yet at 12")
}

func testAgain(t *testing.T, url string) {
	w, ctx := newWorld(t, url), t.Context()
	for i := range 20 {
		w.follow(fmt.Sprint("u", i%2), fmt.Sprint("a", i/2))
	}
	w.project("artist_followers")
	rows := func() string {
		t.Helper()
		got, err := w.client.ListRows(ctx, &pb.BrowserServiceListRowsRequest{Projection: "artist_followers"})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got.Rows)
	}
	before := rows()
	for _, c := range []struct {
		what        string
		req         *pb.BrowserServiceRepublishRequest
		first, last int64
		n           int32
	}{
		{"positions", &pb.BrowserServiceRepublishRequest{Positions: []int64{2, 5, 19}}, 2, 19, 3},
		{"range", &pb.BrowserServiceRepublishRequest{Range: &pb.PositionRange{First: 1, Last: 18}}, 1, 18, 18},
		{"range beyond", &pb.BrowserServiceRepublishRequest{Range: &pb.PositionRange{First: 20, Last: 1 << 40}}, 20, 20, 1},
		{"entity", &pb.BrowserServiceRepublishRequest{Entity: &pb.EntityAddress{EntityId: "u1"}}, 2, 20, 10},
		{"part of one", &pb.BrowserServiceRepublishRequest{Entity: &pb.EntityAddress{EntityId: "u1"}, FirstSequence: 2, LastSequence: 4}, 4, 8, 3},
	} {
		c.req.Actor, c.req.Reason, w.again = "ann", "a broker lost them", nil
		got, err := w.client.Republish(ctx, c.req)
		if err != nil || got.Events != c.n || got.First != c.first || got.Last != c.last || len(w.again) != int(c.n) || w.again[0].Position != c.first {
			t.Errorf("%s: %v, %v; %d published", c.what, got, err, len(w.again))
			continue
		}
		w.apply("artist_followers", w.again)
	}
	if after := rows(); after != before {
		t.Errorf("published again, an event counted again: %s, before %s", after, before)
	}
	w.down = errors.New("no broker")
	_, err := w.client.Republish(ctx, &pb.BrowserServiceRepublishRequest{Positions: []int64{1}, Actor: "a", Reason: "b"})
	refused(t, "no broker", err, connect.CodeInternal, "no broker")
}

func refused(t *testing.T, what string, err error, code connect.Code, says string) {
	t.Helper()
	if connect.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: have %v; want %v, %q", what, err, code, says)
	}
}

// What cannot be meant is refused by name, reads nothing and publishes nothing.
func TestHostile(t *testing.T) {
	w := newWorld(t, sqldbtest.SQLite(t))
	for range 1 {
		w.follow("u", "a")
	}
	w.project("follows")
	long, many := strings.Repeat("x", 600), "["+strings.Repeat("1,", 1100)+"1]"
	for _, c := range [][3]string{
		{"ListEvents", `{"limit":1001}`, "limit 1001"},
		{"ListEvents", `{"limit":-1}`, "limit -1"},
		{"ListEvents", `{"after":"-9223372036854775808"}`, "want 0 or more"},
		{"ListEvents", `{"forkId":"other"}`, "fork"},
		{"ListEvents", `{"stream":"'; drop table ledger_events; --"}`, "no stream"},
		{"ListEvents", `{"eventType":"NOPE"}`, "no event"},
		{"ListEvents", `{"after":[[[[`, "unmarshal"},
		{"History", `{}`, "entity is missing"},
		{"History", `{"entity":{"entityId":"` + long + `"}}`, "entity_id"},
		{"History", `{"entity":{"entityId":""}}`, "entity_id"},
		{"State", `{"entity":{"entityId":"u"},"atLeast":"9","waitMs":30001}`, "wait_ms"},
		{"State", `{"entity":{"entityId":"u"},"atLeast":"9","waitMs":-1}`, "wait_ms"},
		{"State", `{"entity":{"entityId":"u"},"sequence":"9223372036854775807"}`, "last event has the sequence number 1"},
		{"ListRows", `{"projection":"nope"}`, "no projection"},
		{"ListRows", `{"projection":"follows","key":"{\"since\":1}"}`, "no column"},
		{"ListRows", `{"projection":"follows","key":"[1]"}`, "JSON object"},
		{"ListRows", `{"projection":"follows","key":"{\"user_id\":null}"}`, "null"},
		{"ListRows", `{"projection":"follows","after":"{\"user_id\":\"u\"}"}`, "null"},
		{"ListRows", `{"projection":"follows","after":"` + strings.Repeat("[", 30000) + `"}`, "JSON object"},
		{"ListRows", `{"projection":"follows","atLeast":"1"}`, "entity is missing"},
		{"Republish", `{"actor":"a","reason":"b"}`, "which events"},
		{"Republish", `{"actor":"a","reason":"b","positions":["1"],"range":{"first":"1","last":"1"}}`, "one of them only"},
		{"Republish", `{"positions":["1"],"reason":"b"}`, "actor"},
		{"Republish", `{"positions":["1"],"actor":"b"}`, "reason"},
		{"Republish", `{"actor":"a","reason":"b","positions":["2"]}`, "no event at position 2"},
		{"Republish", `{"actor":"a","reason":"b","positions":["1","1"]}`, "rising"},
		{"Republish", `{"actor":"a","reason":"b","positions":` + many + `}`, "rising"},
		{"Republish", `{"actor":"a","reason":"b","range":{"first":"0","last":"5"}}`, "from 1 on"},
		{"Republish", `{"actor":"a","reason":"b","range":{"first":"3","last":"5"}}`, "no such events"},
		{"Republish", `{"actor":"a","reason":"b","entity":{"entityId":"u"},"firstSequence":"5","lastSequence":"2"}`, "the first first"},
		{"Republish", `{"actor":"` + strings.Repeat("y", 70000) + `"}`, "larger than"},
	} {
		resp, err := http.Post(w.url+browser.Path+c[0], "application/json", strings.NewReader(c[1]))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode < 400 || !strings.Contains(string(b), c[2]) {
			t.Errorf("%s %.80s: %d %s; want %q", c[0], c[1], resp.StatusCode, b, c[2])
		}
	}
	if len(w.again) > 0 {
		t.Errorf("published %v", w.again)
	}
	// Others than it serves look in vain.
	req := httptest.NewRequest(http.MethodPost, w.url+browser.Path+"ListEvents", strings.NewReader("{}"))
	req.RequestURI = ""
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site: %d", resp.StatusCode)
	}
}
