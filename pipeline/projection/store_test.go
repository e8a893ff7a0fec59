package projection

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

func TestStore(t *testing.T) {
	sqldbtest.Run(t,
		sqldbtest.Case{Name: "rows follow events", Run: testRowsFollowEvents},
		sqldbtest.Case{Name: "at once", Run: testAtOnce},
		sqldbtest.Case{Name: "column types", Run: testColumnTypes},
		sqldbtest.Case{Name: "tables", Run: testTables},
		sqldbtest.Case{Name: "a shared table", Run: testSharedTable},
		sqldbtest.Case{Name: "dead letters", Run: testDeadLetters},
		sqldbtest.Case{Name: "bytes", Run: testBytes},
		sqldbtest.Case{Name: "gaps", Run: testGaps},
		sqldbtest.Case{Name: "relay", Run: testRelay},
	)
}

func load(t testing.TB, dir string) *spec.App {
	t.Helper()
	app, err := spec.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func open(t testing.TB, url string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), sqldbtest.Open(t, url), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rowsOf reads a projection's rows: key => row, as JSON.
func rowsOf(t testing.TB, s *Store, p *spec.Projection, schema string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	if err := s.db.Read(t.Context(), func(tx sqldb.Tx) error {
		b := s.batch(p, tx)
		var err error
		if b.sets[schema], err = liveSet(t.Context(), tx, schema, p.Table, ""); err != nil {
			return err
		}
		return tx.Query(t.Context(), func(scan sqldb.Scan) error {
			var r row
			if err := b.scan(scan, &r); err != nil {
				return err
			}
			key, row := jsonOf(t, p, r.values)
			rows[key] = row
			return nil
		}, b.selection(schema))
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// jsonOf writes a row's key and the row.
func jsonOf(t testing.TB, p *spec.Projection, values map[string]any) (key, row string) {
	t.Helper()
	all, keys := map[string]any{}, map[string]any{}
	for _, c := range p.Columns {
		v, err := c.Read(values[c.Name])
		if err != nil {
			t.Fatal(err)
		}
		all[c.Name] = c.JSONValue(v)
		for _, k := range p.Key {
			if k == c.Name {
				keys[k] = all[k]
			}
		}
	}
	k, _ := json.Marshal(keys)
	r, _ := json.Marshal(all)
	return string(k), string(r)
}

// model applies events to rows in memory, one by one, with no database.
type model map[string]map[string]any

func (m model) apply(t testing.TB, s *Store, p *spec.Projection, e event.Projection) {
	t.Helper()
	step, err := s.step(t.Context(), p, &e)
	if err != nil {
		t.Fatal(err)
	}
	if step == nil {
		return
	}
	name := ""
	if step.Key != nil {
		name = rowName("", step.Key)
	}
	ops, err := step.Apply(m[name])
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if op.Kind != spec.UpdateWhere {
			write(m, name, op)
			continue
		}
		for name, row := range m {
			fits := true
			for _, c := range op.Where {
				fits = fits && row[c.Column] == c.Value
			}
			if one, changed, err := p.Of(op, row); err != nil {
				t.Fatal(err)
			} else if fits && changed {
				write(m, name, one)
			}
		}
	}
}

func (m model) rows(t testing.TB, p *spec.Projection) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, r := range m {
		key, row := jsonOf(t, p, r)
		rows[key] = row
	}
	return rows
}

func sameRows(t testing.TB, have, want map[string]string) {
	t.Helper()
	for k, row := range want {
		if have[k] != row {
			t.Errorf("row %s\nis     %s\nwanted %s", k, have[k], row)
		}
	}
	for k, row := range have {
		if _, ok := want[k]; !ok {
			t.Errorf("a row too many: %s", row)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// follow applies all patches of the outbox as a client does, and checks their chains. It
// returns the documents of each projection.
func follow(t testing.TB, s *Store) map[string]map[string]json.RawMessage {
	t.Helper()
	docs, cursors := map[string]map[string]json.RawMessage{}, map[string]int64{}
	last := int64(0)
	if err := s.db.Read(t.Context(), func(tx sqldb.Tx) error {
		all, err := waiting(t.Context(), tx, 1_000_000)
		for _, m := range all {
			if m.Position <= last {
				t.Fatalf("position %d behind %d", m.Position, last)
			}
			if last = m.Position; m.Kind != KindPatch {
				continue
			}
			p, err := event.ParsePatch(m.Message)
			if err != nil {
				t.Fatal(err)
			}
			of := p.Projection + p.TenantSchema
			id := of + string(p.Key)
			if p.PrevCursor != cursors[id] || p.Cursor != m.Position {
				t.Fatalf("patch %s: the last cursor of its row is %d", m.Message, cursors[id])
			}
			if docs[of] == nil {
				docs[of] = map[string]json.RawMessage{}
			}
			cursors[id] = p.Cursor
			doc := docs[of][string(p.Key)]
			if doc, err = event.Apply(doc, p.Operations); err != nil {
				t.Fatal(err)
			}
			docs[of][string(p.Key)] = doc
			if doc == nil {
				delete(docs[of], string(p.Key))
				cursors[id] = 0
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return docs
}

// sameDocs checks that a client has the rows. What a client was never told is null.
func sameDocs(t testing.TB, p *spec.Projection, docs map[string]json.RawMessage, rows map[string]string) {
	t.Helper()
	if len(docs) != len(rows) {
		t.Fatalf("%d documents, %d rows", len(docs), len(rows))
	}
	for _, doc := range docs {
		var have map[string]any
		if err := json.Unmarshal(doc, &have); err != nil {
			t.Fatal(err)
		}
		keys := map[string]any{}
		for _, c := range p.Columns {
			if _, ok := have[c.Name]; !ok {
				have[c.Name] = nil
			}
		}
		for _, k := range p.Key {
			keys[k] = have[k]
		}
		k, _ := json.Marshal(keys)
		if d, _ := json.Marshal(have); !sameJSON(d, []byte(rows[string(k)])) {
			t.Fatalf("the client has %s\nthe row is %s", d, rows[string(k)])
		}
	}
}

// theatre makes events of the theatre, in order, with their sequence numbers.
type theatre struct {
	app       *spec.App
	rng       *rand.Rand
	fork      string
	holders   bool // every event has one
	sequences map[string]int64
	n         int64
}

func (g *theatre) next(types ...string) event.Projection {
	pick := func(all ...string) string { return all[g.rng.IntN(len(all))] }
	e := event.Projection{EventType: pick(types...), ForkID: g.fork, TenantSchema: g.app.TenantSchema(g.fork), IRVersion: "x"}
	g.n++
	e.TS = 1719331200000 + g.n*1500
	payload := map[string]any{}
	for _, f := range g.app.Events[e.EventType].Payload {
		switch {
		case f.Name == "seat_id":
			payload[f.Name] = pick("A-1", "B-1", "C-1")
		case f.Name == "from" || f.Name == "to" || f.Name == "holder" && (f.Required || g.holders):
			payload[f.Name] = pick("ann", "bob", "cid")
		case f.Name == "refund":
			payload[f.Name] = 1.25
		case f.Name == "price":
			if g.rng.IntN(3) > 0 {
				payload[f.Name] = g.rng.IntN(12) - 3
			}
		case f.Required || g.rng.IntN(2) == 0:
			payload[f.Name] = []any{"ann", "bob", nil}[g.rng.IntN(3)]
		}
	}
	e.EntityID = "x"
	for _, k := range []string{"seat_id", "from"} {
		if s, ok := payload[k].(string); ok {
			e.EntityID = s
		}
	}
	stream := g.app.Events[e.EventType].Stream
	g.sequences[stream+e.EntityID]++
	e.SequenceNumber = g.sequences[stream+e.EntityID]
	e.Payload, _ = json.Marshal(payload)
	return e
}

// testRowsFollowEvents delivers random histories in batches of random sizes, with
// duplicates. After each: rows are those of a projection in memory, and so are the
// documents of a client.
func testRowsFollowEvents(t *testing.T, url string) {
	app := load(t, "../spec/testdata/seats")
	const histories = 12
	var forks []string
	for i := range histories {
		forks = append(forks, fmt.Sprint("f", i))
	}
	l, err := ledger.Open(t.Context(), sqldbtest.Open(t, sqldbtest.SQLite(t)), ledger.Options{}) // it has none of the events
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, url, Options{App: app, Forks: forks, Ledger: l})
	for i, fork := range forks {
		seed := rand.Uint64()
		t.Logf("history %d: seed %d", i, seed)
		g := &theatre{app: app, rng: rand.New(rand.NewPCG(seed, 1)), fork: fork, sequences: map[string]int64{}}
		name := []string{"seats", "seats_by_holder"}[i%2]
		g.holders = name == "seats_by_holder" // they are its key
		p := app.Projection(name)
		want := model{}
		var sent, batch []Event
		flush := func() {
			if _, err := s.Apply(t.Context(), p, batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
		for range 60 {
			e := g.next(p.Sources...)
			want.apply(t, s, p, e)
			sent = append(sent, Event{Projection: e})
			batch = append(batch, sent[len(sent)-1])
			if g.rng.IntN(3) == 0 {
				batch = append(batch, sent[g.rng.IntN(len(sent))]) // again
			}
			if g.rng.IntN(4) == 0 {
				flush()
			}
		}
		flush()
		rows := rowsOf(t, s, p, app.TenantSchema(fork))
		sameRows(t, rows, want.rows(t, p))
		sameDocs(t, p, follow(t, s)[p.Name+app.TenantSchema(fork)], rows)
	}
}

// testAtOnce lets many apply events to the same new rows at once, each batch by two who
// both believe that it is theirs. Each event counts once.
func testAtOnce(t *testing.T, url string) {
	app := load(t, "../../examples/concertapp")
	s := open(t, url, Options{App: app})
	p := app.Projection("artist_followers")
	const users, artists = 12, 3
	var all sync.WaitGroup
	for u := range users {
		var events []Event
		for a := range artists {
			events = append(events, followed(app, fmt.Sprint("user-", u), fmt.Sprint("artist-", a), int64(a+1)))
		}
		for range 2 {
			all.Go(func() {
				for n := 1; n <= len(events); n++ {
					if _, err := s.Apply(t.Context(), p, events[:n]); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	rows := rowsOf(t, s, p, app.TenantSchema(""))
	for k, row := range rows {
		if !strings.Contains(row, fmt.Sprintf(`"followers":%d`, users)) {
			t.Errorf("%s: %s", k, row)
		}
	}
	if len(rows) != artists {
		t.Errorf("%d rows", len(rows))
	}
	sameDocs(t, p, follow(t, s)[p.Name+app.TenantSchema("")], rows)
}

func followed(app *spec.App, user, artist string, sequence int64) Event {
	payload, _ := json.Marshal(map[string]any{"user_id": user, "artist_id": artist})
	e := Event{Projection: event.Projection{
		EventType: "ARTIST_FOLLOWED", EntityID: user, ForkID: "prod", TenantSchema: app.TenantSchema(""), IRVersion: "v42",
		SequenceNumber: sequence, TS: 1719331200000 + sequence, Payload: payload,
	}}
	e.Source.Value, _ = e.Encode()
	return e
}
