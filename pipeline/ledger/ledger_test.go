package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

func TestLedger(t *testing.T) {
	sqldbtest.Run(t,
		sqldbtest.Case{Name: "numbers", Run: testNumbers},
		sqldbtest.Case{Name: "idempotent", Run: testIdempotent},
		sqldbtest.Case{Name: "rejections", Run: testRejections},
		sqldbtest.Case{Name: "state", Run: testState},
		sqldbtest.Case{Name: "lookup", Run: testLookup},
		sqldbtest.Case{Name: "one of a batch", Run: testOneOfABatch},
		sqldbtest.Case{Name: "callers transaction", Run: testCallersTransaction},
		sqldbtest.Case{Name: "append only", Run: testAppendOnly},
		sqldbtest.Case{Name: "waiting", Run: testWaiting},
		sqldbtest.Case{Name: "leases", Run: testLeases},
		sqldbtest.Case{Name: "many", Run: testMany},
		sqldbtest.Case{Name: "model", Run: testModel},
	)
}

func opened(t *testing.T, db sqldb.DB, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func user(id string) ledger.Address {
	return ledger.Address{TenantSchema: "t1", ForkID: "prod", Stream: "user_stream", EntityID: id}
}

// emits proposes an intent that emits events of given types on its own entity.
func emits(intent string, a ledger.Address, types ...string) *ledger.Proposal {
	return &ledger.Proposal{
		Address: a, IntentID: intent, IntentType: "FOLLOW", Fingerprint: "f", IRVersion: "v1", TS: 1719331200000, CorrelationID: "c", CausationID: "k",
		Decide: func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
			var d ledger.Decision
			for _, typ := range types {
				d.Events = append(d.Events, ledger.NewEvent{EventType: typ, Payload: json.RawMessage(`{"n":9007199254740993}`)})
			}
			return d, nil
		},
	}
}

func commit(t *testing.T, l *ledger.Ledger, p *ledger.Proposal) ledger.Answer {
	t.Helper()
	a, err := l.Commit(t.Context(), p)
	if err != nil {
		t.Fatalf("commit %s: %v", p.IntentID, err)
	}
	return a
}

// said prints an answer's events as "TYPE entity#sequence@position".
func said(events []event.Event) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s#%d@%d", e.EventType, e.EntityID, e.SequenceNumber, e.Position))
	}
	return strings.Join(all, ", ")
}

func testNumbers(t *testing.T, url string) {
	var told []event.Event
	l := opened(t, sqldbtest.Open(t, url), ledger.Options{Committed: func(e []event.Event) { told = append(told, e...) }})
	for _, c := range []struct {
		p    *ledger.Proposal
		want string
	}{
		{emits("i1", user("a"), "A", "B", "C"), "A a#1@1, B a#2@2, C a#3@3"},
		{emits("i2", user("b"), "A"), "A b#1@4"},
		{emits("i3", user("a"), "A"), "A a#4@5"},
		{emits("i4", user("a")), ""},
		{emits("i1", ledger.Address{TenantSchema: "t2", ForkID: "prod", Stream: "user_stream", EntityID: "a"}, "A"), "A a#1@6"},
		{emits("i1", ledger.Address{TenantSchema: "t1", ForkID: "dev", Stream: "user_stream", EntityID: "a"}, "A"), "A a#1@7"},
		{emits("i5", ledger.Address{TenantSchema: "t1", ForkID: "prod", Stream: "artist_stream", EntityID: "a"}, "A"), "A a#1@8"},
	} {
		if got := commit(t, l, c.p); said(got.Events) != c.want {
			t.Errorf("%s on %s: %s, want %s", c.p.IntentID, c.p.Address, said(got.Events), c.want)
		}
	}
	all, err := l.Events(t.Context(), 0, 0)
	if err != nil || len(all) != 8 || said(all) != said(told) {
		t.Fatalf("the ledger has %s (%v); the callback was told %s", said(all), err, said(told))
	}
	want := event.Event{
		EventType: "B", EntityID: "a", ForkID: "prod", TenantSchema: "t1", IRVersion: "v1", SequenceNumber: 2, TS: 1719331200000,
		Payload: json.RawMessage(`{"n":9007199254740993}`), Position: 2, Stream: "user_stream", IntentID: "i1", IntentType: "FOLLOW", CorrelationID: "c", CausationID: "k",
	}
	for _, e := range []event.Event{all[1], told[1]} {
		if fmt.Sprint(e) != fmt.Sprint(want) {
			t.Errorf("have %+v, want %+v", e, want)
		}
	}
	history, err := l.History(t.Context(), user("a"), 1, 2)
	if err != nil || said(history) != "B a#2@2, C a#3@3" {
		t.Errorf("history: %s, %v", said(history), err)
	}
	if head, err := l.Head(t.Context()); head != 8 || err != nil {
		t.Errorf("head %d, %v", head, err)
	}
	if e, err := l.At(t.Context(), 4); err != nil || e.EntityID != "b" {
		t.Errorf("at 4: %+v, %v", e, err)
	}
	if _, err := l.At(t.Context(), 9); lattice.KindOf(err) != lattice.NotFound {
		t.Errorf("at 9: %v", err)
	}
	listed, err := l.Entities(t.Context(), "t1", "prod", "user_stream", "", "a", 10)
	if err != nil || len(listed) != 1 || listed[0] != (ledger.Listed{EntityID: "b", Sequence: 1, Position: 4}) {
		t.Errorf("entities: %+v, %v", listed, err)
	}
}

func testIdempotent(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	told := 0
	l := opened(t, db, ledger.Options{Committed: func(e []event.Event) { told += len(e) }})
	first := commit(t, l, emits("i1", user("a"), "A", "B"))
	commit(t, l, emits("i2", user("a"), "C"))
	again := commit(t, l, emits("i1", user("a"), "X", "Y", "Z"))
	if !again.Repeated || first.Repeated || again.Cursor != 2 || fmt.Sprint(again.Events) != fmt.Sprint(first.Events) {
		t.Errorf("first %+v\nagain %+v", first, again)
	}
	if told != 3 {
		t.Errorf("the callback was told %d events, want 3", told)
	}
	other := emits("i1", user("a"), "A")
	other.Fingerprint = "g"
	if _, err := l.Commit(t.Context(), other); !errors.Is(err, ledger.ErrReused) || lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("another intent of the same id: %v", err)
	}
	if a := commit(t, l, emits("i3", user("a"))); a.Cursor != 3 || len(a.Events) != 0 {
		t.Errorf("an intent without events: %+v", a)
	}
	if a := commit(t, l, emits("i3", user("a"), "LATER")); !a.Repeated || a.Cursor != 3 || len(a.Events) != 0 {
		t.Errorf("again: %+v", a)
	}
	// Within one transaction, too, and after a restart.
	var results []ledger.Result
	l = opened(t, db, ledger.Options{})
	if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		var err error
		results, err = l.Append(t.Context(), tx, emits("i9", user("a"), "D"), emits("i9", user("a"), "E"), emits("i1", user("a"), "F"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if said(results[0].Events) != "D a#4@4" || said(results[1].Events) != "D a#4@4" || !results[1].Repeated || said(results[2].Events) != said(first.Events) {
		t.Errorf("have %+v", results)
	}
}

func testRejections(t *testing.T, url string) {
	l := opened(t, sqldbtest.Open(t, url), ledger.Options{})
	rejected := false
	p := emits("i1", user("a"), "A")
	inner := p.Decide
	p.Decide = func(e ledger.Entity, look ledger.Lookup) (ledger.Decision, error) {
		if !rejected {
			rejected = true
			return ledger.Decision{Rejection: &ledger.Rejection{Code: "TAKEN", Message: "occupied"}, Events: []ledger.NewEvent{{EventType: "NO"}}}, nil
		}
		return inner(e, look)
	}
	if a := commit(t, l, p); a.Accepted() || a.Rejection.Code != "TAKEN" || len(a.Events) != 0 {
		t.Errorf("have %+v", a)
	}
	if head, _ := l.Head(t.Context()); head != 0 {
		t.Errorf("a rejection left %d events", head)
	}
	if a := commit(t, l, p); !a.Accepted() || said(a.Events) != "A a#1@1" {
		t.Errorf("sent again: %+v", a)
	}
	for expected, ok := range map[int64]bool{0: false, 2: false} {
		q := emits(fmt.Sprint("e", expected), user("a"), "A")
		q.ExpectedSequence = &expected
		if a := commit(t, l, q); a.Accepted() != ok || a.Rejection.Code != ledger.CodeSequence {
			t.Errorf("expected %d: %+v", expected, a)
		}
	}
	one := int64(1)
	q := emits("e1", user("a"), "A")
	q.ExpectedSequence = &one
	commit(t, l, q)
	if a := commit(t, l, q); !a.Repeated { // what it expected is not asked again
		t.Errorf("the repetition of a conditional intent: %+v", a)
	}
	zero, negative := int64(0), int64(-1)
	q = emits("e5", user("new"), "A")
	q.ExpectedSequence = &zero
	commit(t, l, q)
	q.ExpectedSequence = &negative
	for name, bad := range map[string]*ledger.Proposal{
		"expectedSequence": q,
		"intentId":         emits("", user("a"), "A"),
		"entityId":         emits("x", user(""), "A"),
		"tenant schema":    emits("x", ledger.Address{TenantSchema: "T", ForkID: "f", Stream: "s", EntityID: "e"}, "A"),
		"eventType":        emits("x", user("a"), ""),
	} {
		if _, err := l.Commit(t.Context(), bad); err == nil || lattice.KindOf(err) != lattice.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("a bad %s: %v", name, err)
		}
	}
	many := make([]string, ledger.MaxEvents+1)
	for i := range many {
		many[i] = "A"
	}
	if _, err := l.Commit(t.Context(), emits("x", user("a"), many...)); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("too many events: %v", err)
	}
}

// sets proposes an intent that replaces its entity's state and emits events.
func sets(intent string, a ledger.Address, state string, events ...ledger.NewEvent) *ledger.Proposal {
	p := emits(intent, a)
	p.Decide = func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
		return ledger.Decision{State: json.RawMessage(state), Events: events}, nil
	}
	return p
}

func testState(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	l := opened(t, db, ledger.Options{})
	ev := func(typ, id string) ledger.NewEvent {
		return ledger.NewEvent{EventType: typ, EntityID: id, Payload: json.RawMessage("{}")}
	}
	a := commit(t, l, sets("i1", user("a"), `{"n":1,"l":[1]}`, ev("A", ""), ev("B", "")))
	if said(a.Events) != "A a#1@1, B a#2@2" {
		t.Errorf("have %s", said(a.Events))
	}
	// No event of its own: one is made, so that the state has a place in the history.
	a = commit(t, l, sets("i2", user("a"), `{"n":2,"l":[1,2]}`, ev("C", "b")))
	if said(a.Events) != "C b#1@3, STATE_PATCH a#3@4" || string(a.Events[1].Payload) != `{"operations":[{"op":"replace","path":"/l","value":[1,2]},{"op":"replace","path":"/n","value":2}]}` {
		t.Errorf("have %s, %s", said(a.Events), a.Events[1].Payload)
	}
	// Nothing changes: nothing is written.
	if a = commit(t, l, sets("i3", user("a"), `{"n":2,"l":[1,2]}`)); len(a.Events) != 0 {
		t.Errorf("have %s", said(a.Events))
	}
	commit(t, l, sets("i4", user("a"), `{"l":[]}`, ev("D", "")))
	for seq, want := range []string{"", `{"n":1,"l":[1]}`, `{"n":1,"l":[1]}`, `{"l":[1,2],"n":2}`, `{"l":[]}`} {
		e, err := l.EntityAt(t.Context(), user("a"), int64(seq))
		if err != nil || string(e.State) != want || e.Sequence != int64(seq) {
			t.Errorf("at %d: %d, %s, %v; want %s", seq, e.Sequence, e.State, err, want)
		}
	}
	if _, err := l.EntityAt(t.Context(), user("a"), 5); lattice.KindOf(err) != lattice.NotFound {
		t.Errorf("beyond the end: %v", err)
	}
	if e, err := l.Entity(t.Context(), user("a")); err != nil || string(e.State) != `{"l":[]}` || e.Sequence != 4 {
		t.Errorf("now: %+v, %v", e, err)
	}
	if e, err := l.Entity(t.Context(), user("nobody")); err != nil || e.State != nil || e.Sequence != 0 {
		t.Errorf("nobody: %+v, %v", e, err)
	}
	// In one transaction each sees what those before it did.
	seen := ""
	p := emits("i6", user("a"))
	p.Decide = func(e ledger.Entity, _ ledger.Lookup) (ledger.Decision, error) {
		seen = fmt.Sprint(e.Sequence, string(e.State))
		return ledger.Decision{}, nil
	}
	if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		_, err := l.Append(t.Context(), tx, sets("i5", user("a"), `{"x":1}`, ev("A", ""), ev("B", "")), p)
		return err
	}); err != nil || seen != `6{"x":1}` {
		t.Errorf("the second of a batch saw %s (%v)", seen, err)
	}
}

func testLookup(t *testing.T, url string) {
	l := opened(t, sqldbtest.Open(t, url), ledger.Options{})
	commit(t, l, sets("i1", user("b"), `{"open":true}`))
	var seen []string
	p := emits("i2", user("a"))
	p.Decide = func(_ ledger.Entity, look ledger.Lookup) (ledger.Decision, error) {
		for _, id := range []string{"b", "nobody", "a", "b"} {
			e, err := look(user(id))
			if err != nil {
				return ledger.Decision{}, err
			}
			seen = append(seen, fmt.Sprintf("%s %d %s", id, e.Sequence, e.State))
		}
		_, err := look(ledger.Address{})
		if lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("no address: %v", err)
		}
		return ledger.Decision{Events: []ledger.NewEvent{{EventType: "A", EntityID: "nobody", Payload: json.RawMessage("{}")}}}, nil
	}
	a := commit(t, l, p)
	if got := strings.Join(seen, "; "); got != `b 1 {"open":true}; nobody 0 ; a 0 ; b 1 {"open":true}` || said(a.Events) != "A nobody#1@2" {
		t.Errorf("saw %s; %s", got, said(a.Events))
	}
	// An entity that was only looked at is not written.
	if e, _ := l.Entity(t.Context(), user("a")); e.Sequence != 0 {
		t.Errorf("have %+v", e)
	}
}

// What is wrong with one proposal is its own affair.
func testOneOfABatch(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	l := opened(t, db, ledger.Options{})
	mine := errors.New("mine")
	failing, panicking := emits("f", user("a"), "A"), emits("p", user("a"), "A")
	failing.Decide = func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) { return ledger.Decision{}, mine }
	panicking.Decide = func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) { panic("a rule is broken") }
	var results []ledger.Result
	if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		var err error
		results, err = l.Append(t.Context(), tx, emits("i1", user("a"), "A"), failing, panicking, emits("i2", user("a"), "B"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if said(results[0].Events) != "A a#1@1" || !errors.Is(results[1].Err, mine) || results[2].Err == nil || said(results[3].Events) != "B a#2@2" {
		t.Errorf("have %+v", results)
	}
	if _, err := l.Commit(t.Context(), panicking); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("alone: %v", err)
	}
	commit(t, l, emits("i3", user("a"), "C")) // nobody is left leading
}

func testCallersTransaction(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	l := opened(t, db, ledger.Options{})
	if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE mine (position BIGINT)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{errors.New("no"), nil} {
		err := db.Write(t.Context(), func(tx sqldb.Tx) error {
			r, err := l.Append(t.Context(), tx, emits("i1", user("a"), "A"))
			if err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), "INSERT INTO mine (position) VALUES ($1)", r[0].Cursor); err != nil {
				return err
			}
			return want
		})
		head, _ := l.Head(t.Context())
		if !errors.Is(err, want) || head != int64(i) {
			t.Errorf("attempt %d: %v, and %d events", i, err, head)
		}
	}
}

func testAppendOnly(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	l := opened(t, db, ledger.Options{})
	commit(t, l, emits("i1", user("a"), "A"))
	for _, statement := range []string{"UPDATE ledger_events SET payload = '{}'", "DELETE FROM ledger_events"} {
		err := db.Write(t.Context(), func(tx sqldb.Tx) error {
			_, err := tx.Exec(t.Context(), statement)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func testWaiting(t *testing.T, url string) {
	l := opened(t, sqldbtest.Open(t, url), ledger.Options{MaxWaiting: 2})
	inside, release := make(chan struct{}), make(chan struct{})
	slow := emits("slow", user("a"), "A")
	var once sync.Once
	slow.Decide = func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
		once.Do(func() { close(inside) })
		<-release
		return ledger.Decision{}, nil
	}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := l.Commit(t.Context(), slow); err != nil {
			t.Error(err)
		}
	})
	<-inside
	// The first to wait will lead; it leaves, and the next one's turn must come.
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := l.Commit(ctx, emits("leaves", user("a"), "A"))
		left <- err
	}()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who leaves: %v", err)
	}
	waiting := make(chan error, 3)
	for i := range 3 {
		go func() {
			_, err := l.Commit(t.Context(), emits(fmt.Sprint("w", i), user("a"), "A"))
			waiting <- err
		}()
	}
	if err := <-waiting; !errors.Is(err, ledger.ErrBusy) { // of three, two may wait
		t.Errorf("more than may wait: %v", err)
	}
	close(release)
	for range 2 {
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if head, err := l.Head(t.Context()); head != 2 || err != nil {
		t.Errorf("head %d, %v", head, err)
	}
}

func testLeases(t *testing.T, url string) {
	l := opened(t, sqldbtest.Open(t, url), ledger.Options{})
	ctx := t.Context()
	none, err := l.Lease(ctx, "kafka")
	if err != nil || none != (ledger.Lease{Name: "kafka"}) {
		t.Fatalf("have %+v, %v", none, err)
	}
	mine, ok, err := l.Take(ctx, none, "me")
	if err != nil || !ok {
		t.Fatalf("take: %v, %v", ok, err)
	}
	if _, ok, err := l.Take(ctx, none, "you"); ok || err != nil {
		t.Errorf("taken twice: %v, %v", ok, err)
	}
	if mine, ok, err = l.Renew(ctx, mine, 7); err != nil || !ok {
		t.Errorf("renew: %v, %v", ok, err)
	}
	seen, err := l.Lease(ctx, "kafka")
	if err != nil || seen != mine || seen.Position != 7 || seen.Owner != "me" {
		t.Errorf("have %+v, %v; want %+v", seen, err, mine)
	}
	yours, ok, err := l.Take(ctx, seen, "you")
	if err != nil || !ok || yours.Position != 7 {
		t.Errorf("take over: %+v, %v, %v", yours, ok, err)
	}
	if _, ok, err := l.Renew(ctx, mine, 8); ok || err != nil {
		t.Errorf("renewed what another has: %v, %v", ok, err)
	}
	if err := l.Release(ctx, mine, 9); err != nil { // it is not mine to give back
		t.Error(err)
	}
	if err := l.Release(ctx, yours, 8); err != nil {
		t.Error(err)
	}
	if seen, _ = l.Lease(ctx, "kafka"); seen.Owner != "" || seen.Position != 8 {
		t.Errorf("given back: %+v", seen)
	}
	for _, to := range []int64{9, 3} { // only back
		if err := l.Rewind(ctx, "kafka", to); err != nil {
			t.Error(err)
		}
	}
	if seen, _ = l.Lease(ctx, "kafka"); seen.Position != 3 {
		t.Errorf("rewound: %+v", seen)
	}
	for _, at := range []int64{5, 4, 5} {
		if err := l.Skip(ctx, "kafka", ledger.Skipped{Position: at, Error: "too large", At: 1}); err != nil {
			t.Error(err)
		}
	}
	if s, err := l.Skips(ctx, "kafka", 0, 10); err != nil || len(s) != 2 || s[0].Position != 4 {
		t.Errorf("have %+v, %v", s, err)
	}
}
