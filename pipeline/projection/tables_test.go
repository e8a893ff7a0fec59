package projection

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

const everyType = `
dsl_version: 1
app: types
state: { thing: { entity_key: id } }
events: { THING: { state: thing, entity_expr: event.id, payload: { id: string, v: any } } }
projections:
  things:
    source_events: [THING]
    target: { table: things, primary_key: [id] }
    fields: { id: TEXT, text: TEXT, chars: VARCHAR(5), small: SMALLINT, num: INT, big: BIGINT, real: DOUBLE, yes: BOOLEAN, doc: JSONB, uid: UUID, at: TIMESTAMP, money: "NUMERIC(10,2)", amount: DECIMAL, bin: BYTEA }
    derive: { id: event.id, text: event.v.text, chars: event.v.chars, small: event.v.small, num: event.v.num, big: event.v.big, real: event.v.real, yes: event.v.yes, doc: event.v.doc, uid: event.v.uid, at: event.v.at, money: event.v.money, amount: event.v.amount, bin: event.v.bin }
    mutations: { THING: { op: upsert } }
    aggregates: { THING: { money: { op: add, by: 1 } } }
`

// testColumnTypes writes, reads and leaves alone a value of each type, and NULLs.
func testColumnTypes(t *testing.T, url string) {
	app := loadText(t, everyType)
	s := open(t, url, Options{App: app})
	p := app.Projection("things")
	want := model{}
	for i, v := range []string{
		`{"text":"ä<\"","chars":"abcde","small":-32768,"num":2147483647,"big":9223372036854775807,"real":0.1,"yes":true,"doc":{"b":[1,null],"a":"x"},"uid":"0F0F0F0F-0000-1111-2222-333344445555","at":1719331200123,"money":"12.5","amount":"-0.001","bin":"AAEC"}`,
		`{}`,
		`{"yes":false,"real":-1e300,"at":"1969-12-31T23:59:59.999999Z","doc":[]}`,
		`{"text":null,"chars":null,"small":null,"num":null,"big":null,"real":null,"yes":null,"doc":null,"uid":null,"at":null,"amount":null,"bin":null}`,
	} {
		e := event.Projection{EventType: "THING", EntityID: "1", ForkID: "main", TenantSchema: app.TenantSchema(""), SequenceNumber: int64(i + 1),
			Payload: json.RawMessage(`{"id":"1","v":` + v + `}`)}
		want.apply(t, s, p, e)
		if _, err := s.Apply(t.Context(), p, []Event{{Projection: e}}); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		rows := rowsOf(t, s, p, app.TenantSchema(""))
		sameRows(t, rows, want.rows(t, p))
		sameDocs(t, p, follow(t, s)[p.Name+app.TenantSchema("")], rows)
	}
}

func loadText(t testing.TB, text string) *spec.App {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/app.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(t, dir)
}

// testTables checks what Open adds and what it refuses, and what a missing column is.
func testTables(t *testing.T, url string) {
	app := loadText(t, everyType)
	s := open(t, url, Options{App: app})
	p := app.Projection("things")
	send := func(s *Store, p *spec.Projection, n int64) error {
		e := event.Projection{EventType: "THING", EntityID: "1", ForkID: "main", TenantSchema: app.TenantSchema(""), SequenceNumber: n, Payload: json.RawMessage(`{"id":"1","v":{"num":7}}`)}
		_, err := s.Apply(t.Context(), p, []Event{{Projection: e}})
		return err
	}
	if err := send(s, p, 1); err != nil {
		t.Fatal(err)
	}
	table := s.db.Dialect().Table(app.TenantSchema(""), "things")
	exec := func(statement string) {
		t.Helper()
		if err := s.db.Write(t.Context(), func(tx sqldb.Tx) error { _, err := tx.Exec(t.Context(), statement); return err }); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER TABLE " + table + ` DROP COLUMN "num"`)
	if err := send(s, p, 2); lattice.KindOf(err) != lattice.Unsupported {
		t.Fatalf("without its column: %v", err)
	}
	again := open(t, url, Options{App: app}) // a new program makes what is missing
	if err := send(again, p, 2); err != nil {
		t.Fatal(err)
	}
	if err := send(s, p, 3); err != nil { // and the old one goes on
		t.Fatal(err)
	}
	wider := loadText(t, strings.NewReplacer("bin: BYTEA }", "bin: BYTEA, extra: BIGINT }\n    indexes: [ { columns: [extra] } ]").Replace(everyType))
	if err := send(open(t, url, Options{App: wider}), wider.Projection("things"), 4); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{"num: INT", "primary_key: [id]"} {
		to := map[string]string{"num: INT": "num: TEXT", "primary_key: [id]": "primary_key: [text]"}[change]
		_, err := Open(t.Context(), s.db, Options{App: loadText(t, strings.Replace(everyType, change, to, 1))})
		if lattice.KindOf(err) != lattice.Conflict {
			t.Errorf("%s: %v", to, err)
		}
	}
	// Several open at once: whoever comes second finds what the first made.
	fresh := loadText(t, strings.ReplaceAll(everyType, "app: types", "app: fresh"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := Open(t.Context(), s.db, Options{App: fresh}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

const sharedTable = `
dsl_version: 1
app: shared
state: { thing: { entity_key: id } }
events:
  MADE: { state: thing, entity_expr: event.id, payload: { id: string, v: integer } }
  NAMED: { state: thing, entity_expr: event.id, payload: { id: string, name: string } }
  GONE: { state: thing, entity_expr: event.id, payload: { id: string } }
projections:
  values:
    source_events: [MADE, GONE]
    target: { table: things, primary_key: [id] }
    fields: { id: TEXT, v: BIGINT }
    derive: { id: event.id }
    mutations: { MADE: { op: upsert, set: { v: event.v } }, GONE: { op: delete } }
  names:
    source_events: [NAMED]
    target: { table: things, primary_key: [id] }
    fields: { id: TEXT, name: TEXT, v: BIGINT }
    derive: { id: event.id }
    mutations: { NAMED: { op: upsert, set: { name: event.name } } }
`

// testSharedTable has two projections that write one row. Each has a chain of its own, and
// who comes to a row that the other made says all of it.
func testSharedTable(t *testing.T, url string) {
	app := loadText(t, sharedTable)
	s := open(t, url, Options{App: app})
	for i, step := range []struct{ projection, event, payload, row, names string }{
		{"values", "MADE", `{"id":"a","v":1}`, `{"id":"a","name":null,"v":1}`, ""},
		{"names", "NAMED", `{"id":"a","name":"x"}`, `{"id":"a","name":"x","v":1}`, `{"id":"a","name":"x","v":1}`},
		{"values", "MADE", `{"id":"a","v":2}`, `{"id":"a","name":"x","v":2}`, `{"id":"a","name":"x","v":1}`}, // the other's columns are not its business
		{"names", "NAMED", `{"id":"a","name":"y"}`, `{"id":"a","name":"y","v":2}`, `{"id":"a","name":"y","v":1}`},
	} {
		e := event.Projection{EventType: step.event, EntityID: "a", ForkID: "main", TenantSchema: app.TenantSchema(""), SequenceNumber: int64(i + 1), Payload: json.RawMessage(step.payload)}
		if _, err := s.Apply(t.Context(), app.Projection(step.projection), []Event{{Projection: e}}); err != nil {
			t.Fatal(err)
		}
		if have := rowsOf(t, s, app.Projection("names"), app.TenantSchema(""))[`{"id":"a"}`]; have != step.row {
			t.Fatalf("step %d: the row is %s, wanted %s", i, have, step.row)
		}
		if have := follow(t, s)["names"+app.TenantSchema("")][`{"id":"a"}`]; step.names != "" && !sameJSON(have, []byte(step.names)) {
			t.Fatalf("step %d: a client of names has %s, wanted %s", i, have, step.names)
		}
	}
	// A row that is made, deleted and made again in one batch has no remains of the first.
	var events []Event
	for i, payload := range []string{`{"id":"a","v":3}`, `{"id":"a"}`, `{"id":"a"}`, `{"id":"b","v":1}`, `{"id":"b"}`} {
		e := event.Projection{EventType: []string{"MADE", "GONE", "MADE", "MADE", "GONE"}[i], EntityID: "a", ForkID: "main", TenantSchema: app.TenantSchema(""),
			SequenceNumber: int64(i + 5), Payload: json.RawMessage(payload)}
		events = append(events, Event{Projection: e})
	}
	p := app.Projection("values")
	if _, err := s.Apply(t.Context(), p, events); err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, s, p, app.TenantSchema(""))
	sameRows(t, rows, map[string]string{`{"id":"a"}`: `{"id":"a","v":null}`})
	sameDocs(t, p, follow(t, s)[p.Name+app.TenantSchema("")], rows)
}
