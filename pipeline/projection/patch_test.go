package projection

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// TestOperationsFollowRows plays random events on the theatre and applies what
// Operations makes of each to a client's documents: those are the rows, always.
func TestOperationsFollowRows(t *testing.T) {
	app, err := spec.Load(os.DirFS("../spec/testdata/seats"))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		rows := map[string]map[string]any{} // key => row, as a database has it
		docs := map[string]json.RawMessage{}
		p := app.Projection("seats")
		patch := func(op spec.RowOp) {
			key, ops, err := Operations(p, op)
			if err != nil {
				t.Fatal(err)
			}
			k := string(key)
			write(rows, k, op)
			// On the wire and back.
			wire, err := event.Patch{
				Projection: p.Name, TenantSchema: "a_b", ForkID: "f", Stream: "s", EntityID: "e", EventType: "E",
				Key: key, Operations: ops, Cursor: 1,
			}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			read, err := event.ParsePatch(wire)
			if err != nil {
				t.Fatalf("%s: %v", wire, err)
			}
			if op.Kind == spec.Delete {
				delete(docs, k)
				return
			}
			doc := docs[k]
			if doc == nil {
				doc = json.RawMessage("{}")
			}
			if docs[k], err = event.Apply(doc, read.Operations); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "events") {
			m := spec.Message{TS: int64(i) * 1500, EntityID: "x", Payload: map[string]any{}}
			m.Type = rapid.SampledFrom([]string{"SEAT_TAKEN", "SEAT_FREED", "SEAT_PRICED", "CLOCK_TICK", "HOLDER_RENAMED"}).Draw(t, "event")
			for _, f := range app.Events[m.Type].Payload {
				switch {
				case f.Name == "seat_id":
					m.Payload[f.Name] = rapid.SampledFrom([]string{"A-1", "B-1"}).Draw(t, "seat")
				case f.Type.Kind().String() == "a number":
					m.Payload[f.Name] = rapid.Int64Range(-3, 9).Draw(t, f.Name)
				case f.Required || rapid.Bool().Draw(t, "has "+f.Name):
					m.Payload[f.Name] = rapid.SampledFrom([]any{"ann", "bob", nil}).Draw(t, f.Name)
				}
			}
			if m.Payload["holder"] == nil && m.Type == "SEAT_TAKEN" {
				m.Payload["holder"] = "ann"
			}
			m.Payload["refund"] = 1.25
			step, err := p.Step(m)
			if err != nil {
				t.Fatal(err)
			}
			if step == nil {
				continue
			}
			var row map[string]any
			if step.Key != nil {
				key, _, _ := Operations(p, spec.RowOp{Kind: spec.Update, Key: step.Key})
				row = rows[string(key)]
			}
			ops, err := step.Apply(row)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range ops {
				if op.Kind != spec.UpdateWhere {
					patch(op)
					continue
				}
				for _, row := range rows {
					if row[op.Where[0].Column] != op.Where[0].Value {
						continue
					}
					one, changed, err := p.Of(op, row)
					if err != nil {
						t.Fatal(err)
					}
					if changed {
						patch(one)
					}
				}
			}
		}
		if len(docs) != len(rows) {
			t.Fatalf("%d documents, %d rows", len(docs), len(rows))
		}
		for k, row := range rows {
			want := map[string]any{}
			for name, v := range row {
				col, _ := p.Column(name)
				want[name] = col.JSONValue(v)
			}
			b, _ := json.Marshal(want)
			if !sameJSON(b, docs[k]) {
				t.Fatalf("the client has %s\nthe row is %s", docs[k], b)
			}
		}
	})
}

func write(rows map[string]map[string]any, key string, op spec.RowOp) {
	switch op.Kind {
	case spec.Insert:
		rows[key] = map[string]any{}
		for _, c := range op.Key {
			rows[key][c.Column] = c.Value
		}
	case spec.Delete:
		delete(rows, key)
		return
	}
	for _, c := range op.Set {
		rows[key][c.Column] = c.Value
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// TestOperationsRefuse checks what is no patch.
func TestOperationsRefuse(t *testing.T) {
	app, err := spec.Load(os.DirFS("../../examples/concertapp"))
	if err != nil {
		t.Fatal(err)
	}
	p := app.Projection("artist_followers")
	for _, op := range []spec.RowOp{
		{Kind: spec.UpdateWhere, Set: []spec.Cell{{Column: "followers", Value: int64(1)}}},
		{Kind: spec.Update, Set: []spec.Cell{{Column: "nobody", Value: int64(1)}}},
		{Kind: spec.Insert, Key: []spec.Cell{{Column: "nobody", Value: "a"}}},
	} {
		if _, ops, err := Operations(p, op); err == nil {
			t.Errorf("%+v is %+v", op, ops)
		}
	}
	if _, _, err := p.Of(spec.RowOp{Kind: spec.UpdateWhere}, map[string]any{"followers": int64(1)}); err == nil {
		t.Error("a row without its key")
	}
	key, ops, err := Operations(p, spec.RowOp{
		Kind: spec.Insert, Key: []spec.Cell{{Column: "artist_id", Value: `a"<4`}}, Set: []spec.Cell{{Column: "followers", Value: int64(1)}, {Column: "last_follower"}},
	})
	got, _ := json.Marshal(map[string]any{"key": key, "operations": ops})
	want := `{"key":{"artist_id":"a\"\u003c4"},"operations":[{"op":"add","path":"/artist_id","value":"a\"\u003c4"},{"op":"add","path":"/followers","value":1},{"op":"add","path":"/last_follower","value":null}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}
