package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

func failure(err error) Failure {
	now := time.UnixMilli(1719331800000)
	return Failure{Class: ClassOf(err), Err: err, Retries: 5, FirstFailed: now, Failed: now}
}

// testDeadLetters buries an event, parks what follows, and settles all.
func testDeadLetters(t *testing.T, url string) {
	ctx := t.Context()
	app := load(t, "../../examples/concertapp")
	s := open(t, url, Options{App: app})
	p := app.Projection("artist_followers")
	bad := followed(app, "ann", "a", 2)
	bad.Payload = json.RawMessage(`{"user_id":"ann"}`)
	apply := func(events ...Event) Applied {
		t.Helper()
		out, err := s.Apply(ctx, p, events)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	apply(followed(app, "ann", "a", 1))
	_, err := s.Apply(ctx, p, []Event{followed(app, "bob", "a", 1), bad})
	if lattice.KindOf(err) != lattice.Invalid || ClassOf(err) != event.ClassData {
		t.Fatalf("%v, class %s", err, ClassOf(err))
	}
	for range 2 { // burying twice is burying once
		if err := s.Bury(ctx, p, bad, failure(err)); err != nil {
			t.Fatal(err)
		}
	}
	if out := apply(followed(app, "ann", "b", 3), followed(app, "bob", "a", 1), bad, followed(app, "ann", "a", 4)); out.Parked != 2 || out.Fresh != 1 || out.Duplicates != 1 {
		t.Fatalf("%+v", out)
	}
	all, err := s.Letters(ctx, Filter{State: StateWaiting, Projection: p.Name})
	if err != nil || len(all) != 3 || all[0].State != StateFailed || all[1].State != StateParked || all[0].Sequence != 2 || all[2].Sequence != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	a := all[0].Address
	if err := s.Await(ctx, p.Name, a, 4); lattice.KindOf(err) != lattice.Conflict {
		t.Fatalf("await behind a dead letter: %v", err)
	}
	// Retrying what still fails counts, and applies nothing; any of the three means all.
	if n, err := s.Retry(ctx, all[2].ID, "me"); n != 0 || lattice.KindOf(err) != lattice.Invalid {
		t.Fatalf("%d, %v", n, err)
	}
	if l, err := s.Letter(ctx, all[0].ID); err != nil || l.Retries != 6 || !l.Waits() {
		t.Fatalf("%+v, %v", l, err)
	}
	// Without the first the others go.
	for range 2 {
		if left, err := s.Discard(ctx, all[0].ID, "me", "it is wrong"); err != nil || left != 2 {
			t.Fatalf("%d left, %v", left, err)
		}
	}
	if out := apply(bad, followed(app, "ann", "b", 3), followed(app, "ann", "a", 5)); out.Duplicates != 2 || out.Parked != 1 {
		t.Fatalf("%+v", out)
	}
	if n, err := s.Retry(ctx, all[1].ID, "me"); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if n, err := s.Retry(ctx, all[1].ID, "me"); n != 0 || err != nil {
		t.Fatalf("again: %d, %v", n, err)
	}
	if out := apply(bad, followed(app, "ann", "a", 5), followed(app, "ann", "b", 6)); out.Duplicates != 2 || out.Fresh != 1 {
		t.Fatalf("%+v", out)
	}
	if err := s.Await(ctx, p.Name, a, 6); err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, s, p, app.TenantSchema(""))
	if got := rows[`{"artist_id":"a"}`]; !strings.Contains(got, `"followers":4`) {
		t.Errorf("a: %s", got)
	}
	if got := rows[`{"artist_id":"b"}`]; !strings.Contains(got, `"followers":2`) {
		t.Errorf("b: %s", got)
	}
	sameDocs(t, p, follow(t, s)[p.Name+app.TenantSchema("")], rows)
	if counts, err := s.Count(ctx, Filter{State: StateWaiting}); err != nil || len(counts) != 0 {
		t.Errorf("%v wait, %v", counts, err)
	}
	if l, _ := s.Letter(ctx, all[0].ID); l.State != StateDiscarded || l.ResolvedBy != "me" || l.Reason != "it is wrong" || l.Resolved.IsZero() {
		t.Errorf("%+v", l)
	}
	// An event that is discarded and is the last that waits does not come back.
	bad.SequenceNumber = 7
	if err := s.Bury(ctx, p, bad, failure(errors.New("x"))); err != nil {
		t.Fatal(err)
	}
	last, _ := s.Letters(ctx, Filter{State: StateWaiting})
	if left, err := s.Discard(ctx, last[0].ID, "me", "why not"); left != 0 || err != nil {
		t.Fatalf("%d, %v", left, err)
	}
	if out := apply(bad, followed(app, "ann", "b", 8)); out.Duplicates != 1 || out.Fresh != 1 {
		t.Fatalf("%+v", out)
	}
}

// testBytes buries what is no event, once for each place, and shows what its topic gets.
func testBytes(t *testing.T, url string) {
	ctx := t.Context()
	app := load(t, "../../examples/concertapp")
	s := open(t, url, Options{App: app})
	from := Source{Topic: "t", Partition: 2, Offset: 17, Key: []byte{0xff}, Value: []byte{0, 0xfe, '{'}}
	for range 3 {
		if err := s.BuryBytes(ctx, "", from, failure(&stageError{event.ClassDecode, errors.New("not \x00 JSON")})); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.BuryBytes(ctx, "artist_followers", Source{Topic: "t", Partition: 2, Offset: 18}, failure(&stageError{event.ClassDecode, errors.New("empty")})); err != nil {
		t.Fatal(err)
	}
	all, err := s.Letters(ctx, Filter{})
	if err != nil || len(all) != 2 || string(all[0].Record) != string(from.Value) || all[1].Projection != "artist_followers" {
		t.Fatalf("%+v, %v", all, err)
	}
	var seen []event.DeadLetter
	if _, _, err := s.Relay(ctx, 10, func(_ context.Context, boxed []Boxed) error {
		for _, m := range boxed {
			d, err := event.ParseDeadLetter(m.Message)
			if err != nil || m.Kind != KindDeadLetter {
				t.Fatalf("%s: %v", m.Message, err)
			}
			seen = append(seen, d)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || string(seen[0].Raw) != string(from.Value) || seen[0].SourceOffset != 17 || seen[0].RetryCount != 5 || seen[0].ErrorClass != event.ClassDecode || seen[0].OriginalEvent != nil {
		t.Fatalf("%+v", seen)
	}
	if _, err := s.Retry(ctx, all[0].ID, "me"); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("retry: %v", err)
	}
	if _, err := s.Discard(ctx, all[0].ID, "me", "junk"); err != nil {
		t.Error(err)
	}
}

// testGaps lets events be missing and come late. The ledger has them.
func testGaps(t *testing.T, url string) {
	ctx := t.Context()
	app := load(t, "../../examples/concertapp")
	l, err := ledger.Open(ctx, sqldbtest.Open(t, sqldbtest.SQLite(t)), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, url, Options{App: app, Ledger: l})
	p := app.Projection("artist_followers")
	a := ledger.Address{TenantSchema: app.TenantSchema(""), ForkID: "prod", Stream: "user_stream", EntityID: "ann"}
	var events []Event
	for n := int64(1); n <= 9; n++ {
		e := followed(app, "ann", "a", n)
		if n%4 == 0 {
			e.EventType = "OTHER" // numbers that the projection does not take
		}
		events = append(events, e)
		if _, err := l.Commit(ctx, &ledger.Proposal{Address: a, IntentID: fmt.Sprint(n), IRVersion: "v42", TS: e.TS, Decide: func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
			return ledger.Decision{Events: []ledger.NewEvent{{EventType: e.EventType, Payload: e.Payload}}}, nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	early, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Await(early, p.Name, a, 3); !errors.Is(err, ErrBehind) {
		t.Errorf("await: %v", err)
	}
	// 3 comes first; 1 and 2 come from the ledger, and later.
	out, err := s.Apply(ctx, p, []Event{events[2], events[0], events[1]})
	if err != nil || out.Healed != 2 || out.Fresh != 3 || out.Duplicates != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := s.Await(ctx, p.Name, a, 4); err != nil { // 4 is none of its events
		t.Error(err)
	}
	// 6 fails: 5, which did not come, is parked with it, before it.
	bad := events[5]
	if err := s.Bury(ctx, p, bad, failure(errors.New("x"))); err != nil {
		t.Fatal(err)
	}
	out, err = s.Apply(ctx, p, []Event{events[8], events[4]})
	if err != nil || out.Parked != 2 || out.Healed != 1 || out.Duplicates != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	all, _ := s.Letters(ctx, Filter{})
	var numbers []int64
	for _, l := range all {
		numbers = append(numbers, l.Sequence)
	}
	if fmt.Sprint(numbers) != "[5 6 7 9]" {
		t.Fatalf("dead letters of %v", numbers)
	}
	if n, err := s.Retry(ctx, all[0].ID, "me"); n != 4 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if got := rowsOf(t, s, p, a.TenantSchema)[`{"artist_id":"a"}`]; !strings.Contains(got, `"followers":7`) {
		t.Error(got)
	}
	if err := s.Await(ctx, p.Name, a, 9); err != nil {
		t.Error(err)
	}
}

// testRelay fails a run and repeats it: the same messages, in the same order.
func testRelay(t *testing.T, url string) {
	ctx := t.Context()
	app := load(t, "../../examples/concertapp")
	s := open(t, url, Options{App: app})
	p := app.Projection("artist_followers")
	for n := int64(1); n <= 5; n++ {
		if _, err := s.Apply(ctx, p, []Event{followed(app, "ann", "a", n)}); err != nil {
			t.Fatal(err)
		}
	}
	var runs []string
	relay := func(fail error) (int, error) {
		n, ours, err := s.Relay(ctx, 3, func(_ context.Context, all []Boxed) error {
			run := ""
			for _, m := range all {
				run += fmt.Sprint(m.Position, " ")
			}
			runs = append(runs, run)
			return fail
		})
		if !ours {
			t.Error("nobody else relays")
		}
		return n, err
	}
	if _, err := relay(errors.New("no broker")); err == nil {
		t.Error("a failed run is none")
	}
	for range 3 {
		if _, err := relay(nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(runs, "|"); got != "1 2 3 |1 2 3 |4 5 " {
		t.Errorf("runs %s", got)
	}
	if n, err := s.Waiting(ctx); n != 0 || err != nil {
		t.Errorf("%d wait, %v", n, err)
	}
	if s.db.Dialect() == sqldb.Postgres { // one at a time
		if _, err := s.Apply(ctx, p, []Event{followed(app, "ann", "a", 6)}); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Relay(ctx, 3, func(context.Context, []Boxed) error {
			if _, ours, err := s.Relay(ctx, 3, func(context.Context, []Boxed) error { return nil }); ours || err != nil {
				t.Errorf("a second one: %v, %v", ours, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
