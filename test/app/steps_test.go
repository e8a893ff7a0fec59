package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/lattice-log/lattice/client/live"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
	"github.com/lattice-log/lattice/proto/lattice/app/v1/appv1connect"
)

// oneIntent follows one intent by HTTP and one by gRPC through everything.
func oneIntent(w *world) {
	if a := w.submit(follow("first", "user-123", "artist-456")); !a.Accepted || a.Cursor != 1 || len(a.Events) != 1 ||
		a.Events[0].EventType != "ARTIST_FOLLOWED" || a.Events[0].SequenceNumber != 1 {
		w.t.Fatalf("the answer is %+v", a)
	}
	client, done := overGRPC()
	defer done()
	grpc := appv1connect.NewIntentServiceClient(client, "http://"+w.role("runtime").address, connect.WithGRPC())
	a, err := grpc.Submit(w.t.Context(), &pb.IntentServiceSubmitRequest{
		IntentId: "second", IntentType: "FOLLOW_ARTIST", Payload: []byte(`{"user_id":"user-7","artist_id":"artist-456"}`), CorrelationId: "c-1",
	})
	if err != nil || !a.Accepted || a.Cursor != 2 || len(a.Events) != 1 || a.Events[0].SequenceNumber != 1 || a.Events[0].EntityId != "user-7" {
		w.t.Fatalf("by gRPC: %v, %v", a, err)
	}

	e, err := w.ledger.At(w.t.Context(), 1)
	if err != nil || e.EventType != "ARTIST_FOLLOWED" || e.EntityID != "user-123" || e.SequenceNumber != 1 || e.IntentID != "first" || e.Stream != "user_stream" {
		w.t.Fatalf("in the ledger: %+v, %v", e, err)
	}

	// The page's fields, and nothing else.
	w.until("both are on the topic", func() bool { return len(w.on(topic.ProjectionEvents)) >= 2 })
	for _, r := range w.on(topic.ProjectionEvents) {
		var m map[string]any
		if err := json.Unmarshal(r.Value, &m); err != nil {
			w.t.Fatal(err)
		}
		if names := slices.Sorted(maps.Keys(m)); !slices.Equal(names, []string{"entityId", "eventType", "forkId", "irVersion", "payload", "sequenceNumber", "tenantSchema", "ts"}) {
			w.t.Fatalf("the message has %v", names)
		}
		payload, _ := m["payload"].(map[string]any)
		if m["tenantSchema"] != tenant || m["forkId"] != "prod" || m["irVersion"] != "v42" || m["sequenceNumber"] != 1.0 || m["entityId"] != string(r.Key) ||
			payload["user_id"] != string(r.Key) || payload["artist_id"] != "artist-456" {
			w.t.Fatalf("the message is %s with key %s", r.Value, r.Key)
		}
	}

	w.until("the row is there", func() bool { return w.followers()["artist-456"] == 2 })
	w.until("the patches are there", func() bool {
		n := 0
		for _, r := range w.on(topic.Patches) {
			if p, err := event.ParsePatch(r.Value); err == nil && p.Projection == "artist_followers" && string(r.Key) == p.EntityID {
				n++
			}
		}
		return n >= 2
	})
	two := func(v *live.View) bool {
		row, there := v.Row(map[string]any{"artist_id": "artist-456"})
		return there && fmt.Sprint(row["followers"]) == "2"
	}
	w.until("the clients show it", func() bool {
		var socket, sse bool
		w.feeds["artist_followers"].Read(func(v *live.View) { socket = two(v) })
		w.sse.read(func(v *live.View) { sse = two(v) })
		return socket && sse
	})
}

// overGRPC returns a client that speaks HTTP/2 without TLS.
func overGRPC() (client *http.Client, done func()) {
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &plain}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

// looked asks the browser for what oneIntent left, and has it publish an event again: nothing
// counts it twice, which audit holds it to.
func looked(w *world) {
	client, done := overGRPC()
	defer done()
	ctx := w.t.Context()
	b := appv1connect.NewBrowserServiceClient(client, "http://"+w.role("browser").address, connect.WithGRPC())
	user := &pb.EntityAddress{EntityId: "user-123"}
	if l, err := b.ListEvents(ctx, &pb.BrowserServiceListEventsRequest{Limit: 1}); err != nil || len(l.Events) != 1 || l.Events[0].IntentId != "first" || l.Events[0].EntityId != "user-123" {
		w.t.Fatalf("the browser's events: %v, %v", l, err)
	}
	if s, err := b.State(ctx, &pb.BrowserServiceStateRequest{Entity: user}); err != nil || s.Sequence != 1 || !strings.Contains(s.State, "artist-456") {
		w.t.Fatalf("the browser's state: %v, %v", s, err)
	}
	if r, err := b.ListRows(ctx, &pb.BrowserServiceListRowsRequest{Projection: "artist_followers"}); err != nil || len(r.Rows) != 1 || !strings.Contains(r.Rows[0].Row, "artist-456") {
		w.t.Fatalf("the browser's rows: %v, %v", r, err)
	}
	before := len(w.on(topic.ProjectionEvents))
	if _, err := b.Republish(ctx, &pb.BrowserServiceRepublishRequest{Positions: []int64{1}, Actor: "test", Reason: "to see it again"}); err != nil {
		w.t.Fatal(err)
	}
	w.until("it is published again", func() bool { return len(w.on(topic.ProjectionEvents)) > before })
}

// repeated sends intents twice, with expectations that hold and that do not, and ones that
// the rules reject.
func repeated(w *world) {
	before := w.head()
	a := w.submit(follow("first", "user-123", "artist-456"))
	if !a.Accepted || a.Cursor != 1 || len(a.Events) != 1 || a.Events[0].SequenceNumber != 1 {
		w.t.Errorf("the first intent, again: %+v", a)
	}
	if status, a, err := w.post(follow("first", "user-123", "artist-457")); err != nil || status != http.StatusConflict {
		w.t.Errorf("another intent of the same id: %d, %+v, %v", status, a, err)
	}
	if a := w.submit(follow("again", "user-123", "artist-456")); a.Accepted || a.RejectionCode != "ALREADY_FOLLOWING" {
		w.t.Errorf("what the rules reject: %+v", a)
	}
	if n := w.head(); n != before {
		w.t.Errorf("the ledger went from %d to %d", before, n)
	}
	expect := func(id string, sequence int) answer {
		intent := follow(id, "user-123", "artist-"+id)
		intent["expectedSequence"] = sequence
		return w.submit(intent)
	}
	if a := expect("stale", 0); a.Accepted || a.RejectionCode != ledger.CodeSequence {
		w.t.Errorf("a stale expectation: %+v", a)
	}
	if a := expect("right", 1); !a.Accepted || a.Events[0].SequenceNumber != 2 {
		w.t.Errorf("a right expectation: %+v", a)
	}
}

// forbid makes the database refuse one artist in one table, until the function that it returns is called.
func (w *world) forbid(artist string) (allow func()) {
	table := w.tables.Dialect().Table(tenant, "follows")
	forbid := fmt.Sprintf(`CREATE TRIGGER no_such BEFORE INSERT ON %s WHEN NEW.artist_id = '%s' BEGIN SELECT RAISE(ABORT, 'no such artist'); END`, table, artist)
	free := `DROP TRIGGER no_such`
	if w.tables.Dialect() == sqldb.Postgres {
		forbid, free = fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT no_such CHECK (artist_id <> '%s')`, table, artist), `ALTER TABLE `+table+` DROP CONSTRAINT no_such`
	}
	exec := func(statement string) {
		if err := w.tables.Write(w.t.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(w.t.Context(), statement)
			return err
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	exec(forbid)
	return func() { exec(free) }
}

// letters are the dead letters that the command lists.
func (w *world) letters() (states map[string]int, class string) {
	var doc struct {
		Letters []struct{ State, Projection, Entity, Class string } `json:"dead_letters"`
	}
	if err := json.Unmarshal([]byte(w.lattice("app", "dlq", "list", w.app, "--projections", w.tablesURL, "-o", "json")), &doc); err != nil {
		w.t.Fatal(err)
	}
	states = map[string]int{}
	for _, l := range doc.Letters {
		if l.Projection != "follows" || l.Entity != "user-poison" {
			w.t.Errorf("a dead letter of %+v", l)
		}
		if states[l.State]++; l.State == "failed" {
			class = l.Class
		}
	}
	return states, class
}

// poison has an event that one projection cannot take. Later ones of its entity are parked,
// others go on, and all is applied in order when it is retried.
func poison(w *world) {
	allow := w.forbid("artist-13")
	for _, artist := range []string{"artist-12", "artist-13", "artist-14", "artist-15"} {
		w.follow("user-poison", artist)
	}
	w.follow("user-well", "artist-12")
	w.until("it is a dead letter, and two are parked", func() bool {
		states, class := w.letters()
		return states["failed"] == 1 && states["parked"] == 2 && class == event.ClassConstraint
	})
	w.until("others go on", func() bool {
		f := w.followers()
		return w.rowsOf("user-well") == 1 && w.rowsOf("user-poison") == 1 && f["artist-13"] == 1 && f["artist-15"] == 1
	})
	w.until("it is on the topic", func() bool {
		for _, r := range w.on(topic.DeadLetters) {
			var m map[string]any
			if err := json.Unmarshal(r.Value, &m); err != nil {
				w.t.Fatal(err)
			}
			for _, name := range []string{"originalEvent", "projectionName", "tenantSchema", "error", "stackTrace", "retryCount", "failedAt"} {
				if _, there := m[name]; !there {
					w.t.Fatalf("a dead letter has no %s: %s", name, r.Value)
				}
			}
			if m["errorClass"] == event.ClassConstraint && m["projectionName"] == "follows" && m["retryCount"] == 5.0 && string(r.Key) == "user-poison" {
				return true
			}
		}
		return false
	})
	allow()
	w.lattice("app", "dlq", "retry", w.app, "--all", "--projections", w.tablesURL)
	if states, _ := w.letters(); len(states) != 0 {
		w.t.Errorf("after the retry %v are left", states)
	}
	if n := w.rowsOf("user-poison"); n != 4 {
		w.t.Errorf("after the retry the entity has %d rows", n)
	}
}

// killedRoles kills each role while intents come.
func killedRoles(w *world) {
	for range rounds() {
		for _, r := range w.roles {
			w.t.Log("kill", r.name)
			stop := w.writers(3)
			before := w.head()
			w.until("intents come", func() bool { return w.head() > before+5 })
			w.restart(r)
			before = w.head()
			w.until("intents come again", func() bool { return w.head() > before+5 })
			stop()
		}
	}
}

// brokerDown kills the broker. Intents are accepted meanwhile, and all is published when it
// is back.
func brokerDown(w *world) {
	for range rounds() {
		w.broker.kill()
		for i := range 20 {
			intent := follow(fmt.Sprintf("down-%d", w.next.Add(1)), fmt.Sprint("user-down-", i%4), fmt.Sprintf("artist-%d", w.next.Add(1)))
			if status, a, err := w.post(intent); err != nil || status != http.StatusOK || !a.Accepted {
				w.t.Fatalf("with no broker: %d, %+v, %v", status, a, err)
			}
		}
		w.broker.start(w.t)
	}
}

// publishModes runs the other two modes: what either publishes arrives.
func publishModes(w *world) {
	for _, mode := range []string{"outbox", "fire-and-forget", "healing"} {
		w.restart(w.role("runtime"), "--publish", mode)
		for i := range 10 {
			w.follow(fmt.Sprint("user-mode-", i%3), fmt.Sprintf("artist-%d", w.next.Add(1)))
		}
		// What waits in memory dies with a process that forgets: it must have arrived before.
		w.until("all is published by "+mode, func() bool { return w.published() == int(w.head()) })
	}
}

func (w *world) head() int64 {
	n, err := w.ledger.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}
