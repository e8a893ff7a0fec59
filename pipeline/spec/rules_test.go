package spec

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"

	lattice "github.com/lattice-log/lattice"
)

// inline is an application in one file.
func inline(t *testing.T, text string) *App {
	t.Helper()
	app, err := Load(fstest.MapFS{"app.yaml": {Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return app
}

const counters = `
app: counters
state: { c: { entity_key: id, fields: [ { name: n, type: int, default: 0 }, { name: log, type: string, default: "" } ] } }
events:
  MOVED: { state: c, entity_expr: event.id, payload: { id: string, by: int }, upcast: [ { when: "has(event.old)", set: { by: event.old }, unset: [old] } ] }
intents:
  MOVE:
    state: c
    entity_id_expr: intent.id
    input: { id: string, by: int, also: string }
    preflight:
      rules:
        - { name: third, priority: 9, when: "intent.by > 100", then: [ { op: reject, code: THIRD } ] }
        - { name: first, priority: -1, when: "intent.by > 300", then: [ { op: reject, code: FIRST } ] }
        - { name: second, when: "intent.by > 200", then: [ { op: reject, code: SECOND } ] }
    core:
      rules:
        - name: move
          then:
            - { op: add, path: n, value: intent.by, cap: { min: -5, max: entity.n + 50 } }
            - { op: emit, event_type: MOVED, payload: { id: intent.id, by: intent.by } }
            - op: if
              expr: intent.also != null
              then: [ { op: emit, event_type: MOVED, payload: { id: intent.also, by: 1 } } ]
listeners:
  - { on: MOVED, priority: 2, mutate: [ { op: set, path: log, value: 'concat(entity.log, "b", event.by)' } ] }
  - { on: MOVED, priority: 1, where: event.by > 0, mutate: [ { op: set, path: log, value: 'concat(entity.log, "a")' } ] }
projections:
  moves:
    source_events: [MOVED]
    target: { table: moves, primary_key: [hour] }
    fields: { hour: BIGINT, moves: BIGINT }
    bucket: { field: event.ts, interval: 1h }
    aggregates: { MOVED: { moves: { op: add, by: event.by } } }
`

// TestRules checks the order of rules and listeners, bounds of counting, and whose events
// listeners see.
func TestRules(t *testing.T) {
	in := inline(t, counters).Intents["MOVE"]
	for _, tc := range []struct {
		payload string
		n       int64 // before
		want    string
	}{
		{`{"id":"x","by":301}`, 0, "FIRST"},
		{`{"id":"x","by":201}`, 0, "SECOND"},
		{`{"id":"x","by":101}`, 0, "THIRD"},
		{`{"id":"x","by":7}`, 1, `{"id":"x","log":"ab7","n":8}`},
		{`{"id":"x","by":-7}`, 1, `{"id":"x","log":"b-7","n":-5}`},
		{`{"id":"x","by":60}`, 1, `{"id":"x","log":"ab60","n":51}`},
		{`{"id":"x","by":7,"also":"y"}`, 1, `{"id":"x","log":"ab7","n":8}`}, // y's event is none of x's listeners' business
		{`{"id":"x","by":7,"also":"x"}`, 1, `{"id":"x","log":"ab7ab1","n":8}`},
		{`{"id":"x","by":1}`, math.MaxInt64, "do not add up within 64 bits"},
		{`{"id":"x","by":-1}`, math.MinInt64, "do not add up within 64 bits"},
	} {
		payload, err := Payload([]byte(tc.payload))
		if err != nil {
			t.Fatal(err)
		}
		d, err := in.Decide(Request{Payload: payload, EntityID: "x", State: map[string]any{"n": tc.n}})
		got := asJSON(d.State)
		switch {
		case err != nil:
			got = err.Error()
		case d.Rejection != nil:
			got = d.Rejection.Code
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s on %d: %s, want %s", tc.payload, tc.n, got, tc.want)
		}
	}
}

// TestTooManyEvents checks the bound on one intent.
func TestTooManyEvents(t *testing.T) {
	many := strings.Replace(counters, "            - op: if", strings.Repeat("            - { op: emit, event_type: MOVED, payload: { id: intent.id, by: 1 } }\n", MaxEvents)+"            - op: if", 1)
	in := inline(t, many).Intents["MOVE"]
	_, err := in.Decide(Request{Payload: map[string]any{"id": "x", "by": int64(1)}, EntityID: "x"})
	if err == nil || !strings.Contains(err.Error(), "more than 100 events") {
		t.Errorf("%v", err)
	}
}

// TestUpcastForgets checks that what an upcast unsets is gone.
func TestUpcastForgets(t *testing.T) {
	e := inline(t, counters).Events["MOVED"]
	old := map[string]any{"id": "x", "old": int64(4)}
	got, err := e.Current("", old)
	if err != nil || asJSON(got) != `{"by":4,"id":"x"}` || len(old) != 2 {
		t.Errorf("%s, %v; the old one is %v", asJSON(got), err, old)
	}
	if _, err := e.Current("", map[string]any{"id": "x", "old": "many"}); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("%v", err)
	}
}

// TestBuckets checks both sides of an interval's start, and those before 1970.
func TestBuckets(t *testing.T) {
	p := inline(t, counters).Projection("moves")
	for ts, want := range map[int64]int64{0: 0, 3_599_999: 0, 3_600_000: 3_600_000, -1: -3_600_000, -3_600_000: -3_600_000, -3_600_001: -7_200_000} {
		s, err := p.Step(Message{Type: "MOVED", TS: ts, Payload: map[string]any{"by": int64(1)}})
		if err != nil || s.Key[0].Value != want {
			t.Errorf("%d: %v, %v; want %d", ts, s, err, want)
		}
	}
}

// TestAddByNothing checks that nothing is counted by null or by what is not there, and
// that a sum that does not fit is an error.
func TestAddByNothing(t *testing.T) {
	p := inline(t, counters).Projection("moves")
	row := map[string]any{"hour": int64(0), "moves": int64(math.MaxInt64)}
	for _, payload := range []map[string]any{{}, {"by": nil}} {
		s, err := p.Step(Message{Type: "MOVED", Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		if ops, err := s.Apply(row); err != nil || len(ops) > 0 {
			t.Errorf("%v: %v, %v", payload, ops, err)
		}
	}
	s, err := p.Step(Message{Type: "MOVED", Payload: map[string]any{"by": int64(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if ops, err := s.Apply(row); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("%v, %v", ops, err)
	}
}
