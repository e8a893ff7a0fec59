package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/lattice-log/lattice/client/live"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// audit waits until everything has arrived everywhere and holds each part to the ledger: what
// was acknowledged is in it, without gaps; each topic has each of its events; rows are those
// that a plain loop makes of it; the patches of each row are a chain; clients show the rows.
func (w *world) audit(after string) {
	w.t.Helper()
	all := w.events()
	w.ledgerHolds(all)
	counts, pairs := map[string]int64{}, map[string]bool{}
	for i := range all {
		var p struct {
			User   string `json:"user_id"`
			Artist string `json:"artist_id"`
		}
		if err := json.Unmarshal(all[i].Payload, &p); err != nil {
			w.t.Fatal(err)
		}
		counts[p.Artist]++
		pairs[p.User+" "+p.Artist] = true
	}
	w.until("after "+after+": the counts are the ledger's", func() bool { return maps.Equal(w.followers(), counts) })
	w.until("after "+after+": the rows are the ledger's", func() bool { return maps.Equal(w.pairs(), pairs) })
	w.until("after "+after+": all is published", func() bool { return w.published() == len(all) })
	w.topicsHold(all)
	w.until("after "+after+": the patches lead to the rows", func() bool { return maps.Equal(w.patched(), counts) })
	var socket, sse map[string]int64
	n := 0
	defer func() { // a test that fails ends here
		if w.t.Failed() {
			w.t.Logf("of the ledger: %v, %d pairs; by WebSocket: %v, %d pairs; by SSE: %v", counts, len(pairs), socket, n, sse)
		}
	}()
	w.until("after "+after+": the clients show the rows", func() bool {
		w.feeds["artist_followers"].Read(func(v *live.View) { socket = shown(v) })
		w.feeds["follows"].Read(func(v *live.View) { n = v.Len() })
		w.sse.read(func(v *live.View) { sse = shown(v) })
		return maps.Equal(socket, counts) && maps.Equal(sse, counts) && n == len(pairs)
	})
}

// events reads the ledger.
func (w *world) events() []event.Event {
	var all []event.Event
	for after := int64(0); ; {
		some, err := w.ledger.Events(w.t.Context(), after, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(some) == 0 {
			return all
		}
		all, after = append(all, some...), some[len(some)-1].Position
	}
}

func (w *world) ledgerHolds(all []event.Event) {
	last, intents := map[string]int64{}, map[string]event.Event{}
	for i, e := range all {
		if e.Position != int64(i)+1 || e.SequenceNumber != last[e.EntityID]+1 {
			w.t.Fatalf("event %d of the ledger is at %d, and number %d of %s after %d", i, e.Position, e.SequenceNumber, e.EntityID, last[e.EntityID])
		}
		if _, twice := intents[e.IntentID]; twice {
			w.t.Fatalf("intent %s is in the ledger twice", e.IntentID)
		}
		last[e.EntityID], intents[e.IntentID] = e.SequenceNumber, e
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, a := range w.accepted {
		if e, there := intents[id]; !there || e.Position != a.Cursor || e.SequenceNumber != a.Events[0].SequenceNumber {
			w.t.Fatalf("intent %s was answered with %+v, and the ledger has %+v", id, a, e)
		}
	}
}

// published counts the events that are on both topics.
func (w *world) published() int {
	count := func(name string) int {
		seen := map[string]bool{}
		for _, r := range w.on(name) {
			seen[recordName(r.Value)] = true
		}
		return len(seen)
	}
	return min(count(topic.ProjectionEvents), count(topic.LedgerEvents))
}

// topicsHold compares the messages with the ledger's events. One that came again is the same.
func (w *world) topicsHold(all []event.Event) {
	want := map[string][2][]byte{}
	for i := range all {
		short := all[i].Projection()
		a, err := short.Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		b, err := all[i].Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		want[fmt.Sprint(all[i].EntityID, " ", all[i].SequenceNumber)] = [2][]byte{a, b}
	}
	for i, name := range []string{topic.ProjectionEvents, topic.LedgerEvents} {
		for _, r := range w.on(name) {
			if have := recordName(r.Value); !bytes.Equal(r.Value, want[have][i]) {
				w.t.Fatalf("%s has\n%s\nfor the ledger's\n%s", name, r.Value, want[have][i])
			}
		}
	}
}

// recordName names an event by what both topics have of it.
func recordName(value []byte) string {
	var e struct {
		EntityID       string `json:"entityId"`
		SequenceNumber int64  `json:"sequenceNumber"`
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return string(value)
	}
	return fmt.Sprint(e.EntityID, " ", e.SequenceNumber)
}

// patched applies the patches of artist_followers, each once, and returns what rows they lead to.
func (w *world) patched() map[string]int64 {
	var all []event.Patch
	seen := map[int64]bool{}
	for _, r := range w.on(topic.Patches) {
		p, err := event.ParsePatch(r.Value)
		if err != nil {
			w.t.Fatalf("%s: %v", r.Value, err)
		}
		if p.Projection == "artist_followers" && !seen[p.Cursor] {
			seen[p.Cursor] = true
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b event.Patch) int { return int(a.Cursor - b.Cursor) })
	cursors, docs, counts := map[string]int64{}, map[string]json.RawMessage{}, map[string]int64{}
	for _, p := range all {
		key := string(p.Key)
		if p.PrevCursor != cursors[key] {
			return nil // one of another partition is still on its way
		}
		doc, err := event.Apply(docs[key], p.Operations)
		if err != nil {
			w.t.Fatal(err)
		}
		cursors[key], docs[key] = p.Cursor, doc
		var row struct {
			Artist    string `json:"artist_id"`
			Followers int64  `json:"followers"`
		}
		if err := json.Unmarshal(doc, &row); err != nil {
			w.t.Fatal(err)
		}
		counts[row.Artist] = row.Followers
	}
	return counts
}

func shown(v *live.View) map[string]int64 {
	counts := map[string]int64{}
	for _, k := range v.Keys() {
		row, _ := v.At(k)
		n, _ := row["followers"].(json.Number)
		counts[fmt.Sprint(row["artist_id"])], _ = n.Int64()
	}
	return counts
}

// followers reads the table artist_followers.
func (w *world) followers() map[string]int64 {
	counts := map[string]int64{}
	w.rows("artist_followers", "artist_id, followers", func(scan sqldb.Scan) error {
		var artist string
		var n int64
		err := scan(&artist, &n)
		counts[artist] = n
		return err
	})
	return counts
}

// pairs reads the table follows: "user artist".
func (w *world) pairs() map[string]bool {
	pairs := map[string]bool{}
	w.rows("follows", "user_id, artist_id", func(scan sqldb.Scan) error {
		var user, artist string
		err := scan(&user, &artist)
		pairs[user+" "+artist] = true
		return err
	})
	return pairs
}

func (w *world) rowsOf(user string) int {
	n := 0
	for pair := range w.pairs() {
		if len(pair) > len(user) && pair[:len(user)+1] == user+" " {
			n++
		}
	}
	return n
}

func (w *world) rows(table, columns string, each func(sqldb.Scan) error) {
	w.t.Helper()
	if err := w.tables.Read(w.t.Context(), func(tx sqldb.Tx) error {
		return tx.Query(w.t.Context(), each, "SELECT "+columns+" FROM "+tx.Dialect().Table(tenant, table))
	}); err != nil {
		w.t.Fatal(err)
	}
}
