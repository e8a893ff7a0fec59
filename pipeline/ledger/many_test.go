package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// verify reads the whole ledger and checks what it promises, from its rows alone.
// It returns the events of each intent.
func verify(t testing.TB, l *ledger.Ledger) map[string][]event.Event {
	t.Helper()
	next, sequences, intents := int64(1), map[ledger.Address]int64{}, map[string][]event.Event{}
	last := ""
	for {
		events, err := l.Events(t.Context(), next-1, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			a := ledger.Address{TenantSchema: e.TenantSchema, ForkID: e.ForkID, Stream: e.Stream, EntityID: e.EntityID}
			sequences[a]++
			if e.Position != next || e.SequenceNumber != sequences[a] {
				t.Fatalf("position %d has number %d of %s; want position %d and number %d", e.Position, e.SequenceNumber, a, next, sequences[a])
			}
			if len(intents[e.IntentID]) > 0 && last != e.IntentID {
				t.Fatalf("the events of intent %s are not together", e.IntentID)
			}
			last = e.IntentID
			intents[e.IntentID] = append(intents[e.IntentID], e)
			next++
		}
		if len(events) == 0 {
			break
		}
	}
	for a, n := range sequences {
		if e, err := l.Entity(t.Context(), a); err != nil || e.Sequence != n {
			t.Fatalf("entity %s is at %d (%v), and has %d events", a, e.Sequence, err, n)
		}
	}
	if head, err := l.Head(t.Context()); err != nil || head != next-1 {
		t.Fatalf("the head is %d (%v), the last event %d", head, err, next-1)
	}
	return intents
}

// Many callers of two processes' ledgers, with repeated ids, rejections and events
// on each other's entities: no gap, no duplicate, no order that goes back.
func testMany(t *testing.T, url string) {
	var mu sync.Mutex
	told := map[int64]int{}
	var ledgers []*ledger.Ledger
	for range 2 {
		last := int64(0)
		ledgers = append(ledgers, opened(t, sqldbtest.Open(t, url), ledger.Options{MaxBatch: 7, Committed: func(events []event.Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				if told[e.Position]++; e.Position <= last {
					t.Errorf("told of position %d after %d", e.Position, last)
				}
				last = e.Position
			}
		}}))
	}
	const callers, each, intents = 16, 30, 200
	answers := make([]map[string]string, callers)
	var all sync.WaitGroup
	for c := range callers {
		answers[c] = map[string]string{}
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				n := random.IntN(intents) // others choose the same
				id := fmt.Sprint("i", n)
				p := sets(id, user(fmt.Sprint("e", n%5)), fmt.Sprintf(`{"last":%q}`, id),
					ledger.NewEvent{EventType: "A", Payload: json.RawMessage("{}")},
					ledger.NewEvent{EventType: "B", EntityID: fmt.Sprint("e", n%7), Payload: json.RawMessage("{}")})
				p.Fingerprint = id
				if n%10 == 0 {
					p.Decide = func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
						return ledger.Decision{Rejection: &ledger.Rejection{Code: "NO"}}, nil
					}
				}
				a, err := ledgers[random.IntN(2)].Commit(t.Context(), p)
				switch got := said(a.Events); {
				case err != nil:
					t.Errorf("commit: %v", err)
				case answers[c][id] != "" && answers[c][id] != got:
					t.Errorf("intent %s: first %s, then %s", id, answers[c][id], got)
				default:
					answers[c][id] = got
				}
			}
		})
	}
	all.Wait()
	have := verify(t, ledgers[0])
	for _, said1 := range answers {
		for id, got := range said1 {
			if got != said(have[id]) {
				t.Errorf("intent %s was told %s, and the ledger has %s", id, got, said(have[id]))
			}
		}
	}
	head, _ := ledgers[0].Head(t.Context())
	for at := int64(1); at <= head; at++ {
		if told[at] != 1 {
			t.Errorf("position %d was told %d times", at, told[at])
		}
	}
}

// Random intents, alone and in batches, against a model in memory.
func testModel(t *testing.T, url string) {
	db := sqldbtest.Open(t, url)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		tenant := fmt.Sprint("run", runs) // an empty ledger but for positions
		l, err := ledger.Open(t.Context(), db, ledger.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		m := model{sequences: map[string]int64{}, states: map[string]string{}, intents: map[string]string{}, prints: map[string]string{}}
		if m.head, err = l.Head(t.Context()); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 5).Draw(rt, "transactions") {
			var proposals []*ledger.Proposal
			var want []string
			for range rapid.IntRange(1, 4).Draw(rt, "proposals") {
				p, w := m.draw(rt, tenant)
				proposals, want = append(proposals, p), append(want, w)
			}
			var results []ledger.Result
			if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
				results, err = l.Append(t.Context(), tx, proposals...)
				return err
			}); err != nil {
				rt.Fatal(err)
			}
			for i, r := range results {
				if got := m.said(r); got != want[i] {
					rt.Fatalf("proposal %d: %s, want %s", i, got, want[i])
				}
			}
		}
		for id, state := range m.states {
			e, err := l.Entity(t.Context(), ledger.Address{TenantSchema: tenant, ForkID: "f", Stream: "s", EntityID: id})
			if err != nil || string(e.State) != state || e.Sequence != m.sequences[id] {
				rt.Fatalf("entity %s: %d %s (%v), want %d %s", id, e.Sequence, e.State, err, m.sequences[id], state)
			}
		}
	})
}

// model is the ledger's rules, told a dumber way.
type model struct {
	head            int64
	sequences       map[string]int64
	states, intents map[string]string // intents: what was answered
	prints          map[string]string
}

func (m *model) draw(t *rapid.T, tenant string) (*ledger.Proposal, string) {
	entity := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "entity")
	id := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "intent"))
	fingerprint := rapid.SampledFrom([]string{"", "", "", "other"}).Draw(t, "fingerprint") + id + entity
	targets := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, "events")
	reject := rapid.IntRange(0, 5).Draw(t, "reject") == 0
	state := rapid.SampledFrom([]string{"", `{"x":1}`, `{"x":2}`}).Draw(t, "state")
	var expected *int64
	if rapid.Bool().Draw(t, "conditional") {
		n := m.sequences[entity] + int64(rapid.IntRange(0, 1).Draw(t, "off"))
		expected = &n
	}
	p := &ledger.Proposal{
		Address: ledger.Address{TenantSchema: tenant, ForkID: "f", Stream: "s", EntityID: entity}, IntentID: id, Fingerprint: fingerprint, ExpectedSequence: expected,
	}
	sequence, before := m.sequences[entity], m.states[entity]
	p.Decide = func(e ledger.Entity, _ ledger.Lookup) (ledger.Decision, error) {
		if e.Sequence != sequence || string(e.State) != before {
			t.Fatalf("intent %s sees %d %s, want %d %s", id, e.Sequence, e.State, sequence, before)
		}
		if reject {
			return ledger.Decision{Rejection: &ledger.Rejection{Code: "NO"}}, nil
		}
		var d ledger.Decision
		for _, to := range targets {
			d.Events = append(d.Events, ledger.NewEvent{EventType: "E", EntityID: to, Payload: json.RawMessage("{}")})
		}
		if state != "" {
			d.State = json.RawMessage(state)
		}
		return d, nil
	}
	if answer, known := m.intents[id]; known {
		if m.prints[id] != fingerprint {
			return p, "reused"
		}
		return p, "again " + answer
	}
	switch {
	case expected != nil && *expected != sequence:
		return p, ledger.CodeSequence
	case reject:
		return p, "NO"
	}
	if state != "" && state != before {
		m.states[entity] = state
		if !strings.Contains(strings.Join(targets, ""), entity) {
			targets = append(targets, entity)
		}
	}
	var events []string
	for _, to := range targets {
		m.head++
		m.sequences[to]++
		events = append(events, fmt.Sprintf("%s#%d@%d", to, m.sequences[to], m.head))
	}
	m.intents[id] = fmt.Sprint(m.head, events)
	m.prints[id] = fingerprint
	return p, m.intents[id]
}

func (m *model) said(r ledger.Result) string {
	switch {
	case errors.Is(r.Err, ledger.ErrReused):
		return "reused"
	case r.Err != nil:
		return r.Err.Error()
	case r.Rejection != nil:
		return r.Rejection.Code
	}
	var events []string
	for _, e := range r.Events {
		events = append(events, fmt.Sprintf("%s#%d@%d", e.EntityID, e.SequenceNumber, e.Position))
	}
	s := fmt.Sprint(r.Cursor, events)
	if r.Repeated {
		return "again " + s
	}
	return s
}
