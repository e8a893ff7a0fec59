package spec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
)

// TestFollowersAddUp plays random intents on concertapp, with redelivered answers and
// rejections, and compares every table with what a few sets say it must be.
func TestFollowersAddUp(t *testing.T) {
	app := load(t, "../../examples/concertapp")
	rapid.Check(t, func(t *rapid.T) {
		w := &world{app: app, states: map[string]map[string]any{}, tables: tables{}}
		follows := map[[2]string]int64{} // user, artist => since
		byDay := map[[2]string]int64{}
		for range rapid.IntRange(0, 40).Draw(t, "intents") {
			user := rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(t, "user")
			artist := rapid.SampledFrom([]string{"a1", "a2"}).Draw(t, "artist")
			name := rapid.SampledFrom([]string{"FOLLOW_ARTIST", "UNFOLLOW_ARTIST"}).Draw(t, "intent")
			w.ts += rapid.Int64Range(0, 50_000_000).Draw(t, "later")
			out := w.intent(name, fmt.Sprintf(`{"user_id":%q,"artist_id":%q}`, user, artist))
			_, already := follows[[2]string{user, artist}]
			if rejected := strings.HasPrefix(out, "rejected"); rejected != (already == (name == "FOLLOW_ARTIST")) {
				t.Fatalf("%s %s %s, following: %v: %s", name, user, artist, already, out)
			}
			switch {
			case already && name == "UNFOLLOW_ARTIST":
				delete(follows, [2]string{user, artist})
			case !already && name == "FOLLOW_ARTIST":
				follows[[2]string{user, artist}] = w.ts
				byDay[[2]string{fmt.Sprint(w.ts / 86_400_000), artist}]++
			}
		}
		got := map[[2]string]int64{}
		for _, row := range w.tables["follows"] {
			since, _ := timestamp(row["since"])
			got[[2]string{row["user_id"].(string), row["artist_id"].(string)}] = millis(since)
		}
		if !maps.Equal(got, follows) {
			t.Fatalf("follows: %v, want %v", got, follows)
		}
		for _, row := range w.tables["artist_followers"] {
			n := int64(0)
			for k := range follows {
				if k[1] == row["artist_id"] {
					n++
				}
			}
			if row["followers"] != n {
				t.Fatalf("%s has %v followers, want %d", row["artist_id"], row["followers"], n)
			}
		}
		days := map[[2]string]int64{}
		for _, row := range w.tables["follows_by_day"] {
			start, _ := timestamp(row["day"])
			days[[2]string{fmt.Sprint(millis(start) / 86_400_000), row["artist_id"].(string)}] = row["followed"].(int64)
		}
		if !maps.Equal(days, byDay) {
			t.Fatalf("by day: %v, want %v", days, byDay)
		}
	})
}

func millis(v any) int64 {
	t, ok := v.(interface{ UnixMilli() int64 })
	if !ok {
		return -1
	}
	return t.UnixMilli()
}

// drawEvent is an event of the theatre, with members that are there, null or missing.
func drawEvent(t *rapid.T) (string, map[string]any) {
	name := rapid.SampledFrom([]string{"SEAT_TAKEN", "SEAT_FREED", "SEAT_PRICED", "CLOCK_TICK", "HOLDER_RENAMED"}).Draw(t, "event")
	holder := rapid.SampledFrom([]string{"ann", "bob", "cyd"})
	p := map[string]any{"seat_id": rapid.SampledFrom([]string{"A-1", "A-2", "B-1"}).Draw(t, "seat")}
	maybe := func(key string, v any) {
		switch rapid.IntRange(0, 3).Draw(t, key) {
		case 0:
		case 1:
			p[key] = nil
		default:
			p[key] = v
		}
	}
	switch name {
	case "SEAT_TAKEN":
		p["holder"] = holder.Draw(t, "holder")
		maybe("price", rapid.Int64Range(-5, 200).Draw(t, "cents"))
		maybe("note", rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "words"))
	case "SEAT_FREED":
		p["holder"] = holder.Draw(t, "holder")
		maybe("refund", float64(rapid.IntRange(0, 800).Draw(t, "quarters"))/4)
	case "SEAT_PRICED":
		maybe("price", rapid.Int64Range(-5, 200).Draw(t, "cents"))
	case "HOLDER_RENAMED":
		p = map[string]any{}
		maybe("from", holder.Draw(t, "who"))
		maybe("to", holder.Draw(t, "new"))
	}
	return name, p
}

// TestStepLaws checks, for random events on the theatre:
//
//   - the same event and row give the same operations, and neither is changed;
//   - the row after an operation is what applying the event to it again changes only in
//     its counts;
//   - an insert has a value for each column that is derived from something there, and no
//     operation writes the key, or a value that was there already.
func TestStepLaws(t *testing.T) {
	app := load(t, "testdata/seats")
	rapid.Check(t, func(t *rapid.T) {
		ts := tables{}
		for i := range rapid.IntRange(1, 25).Draw(t, "events") {
			name, payload := drawEvent(t)
			m := Message{
				Type: name, EntityID: "A-1", TS: int64(i) * 7_000_000, Payload: payload,
				Lookup: func(string, string) (map[string]any, bool, error) { return nil, false, nil },
			}
			before := cloned(payload)
			for _, p := range app.ProjectionsOf(name) {
				step, err := p.Step(m)
				again, err2 := p.Step(m)
				if fmt.Sprint(err) != fmt.Sprint(err2) || (step == nil) != (again == nil) {
					t.Fatalf("%v, then %v", err, err2)
				}
				if step == nil {
					continue
				}
				row := ts[step.Table][keyText(step.Key)]
				rowBefore := maps.Clone(row)
				ops, err := step.Apply(row)
				ops2, err2 := again.Apply(row)
				if fmt.Sprint(err) != fmt.Sprint(err2) || !reflect.DeepEqual(ops, ops2) {
					t.Fatalf("%v %v, then %v %v", ops, err, ops2, err2)
				}
				if !reflect.DeepEqual(row, rowBefore) || !reflect.DeepEqual(any(payload), before) {
					t.Fatal("an argument was changed")
				}
				for _, op := range ops {
					checkOp(t, p, op, row)
					ts.write(op)
				}
			}
		}
	})
}

func checkOp(t *rapid.T, p *Projection, op RowOp, row map[string]any) {
	switch {
	case op.Kind == Insert && row != nil, op.Kind == Update && row == nil, op.Kind == Delete && row == nil:
		t.Fatalf("%s of a row that is %v", op.Kind, row)
	case op.Kind == Update && len(op.Set) == 0, op.Kind != UpdateWhere && len(op.Key) != len(p.Key):
		t.Fatalf("%+v", op)
	}
	for _, c := range op.Set {
		col, ok := p.Column(c.Column)
		if !ok || slices.Contains(p.Key, c.Column) {
			t.Fatalf("%s writes %s", op.Kind, c.Column)
		}
		if old, there := row[c.Column]; op.Kind == Update && there && same(old, c.Value) {
			t.Fatalf("writes %s = %v, which was there", c.Column, c.Value)
		}
		if read, err := col.Read(c.Value); err != nil || !same(read, c.Value) {
			t.Fatalf("%s = %#v is read as %#v, %v", c.Column, c.Value, read, err)
		}
	}
}

// TestCountsInAnyOrder checks that adding is worth the same in any order, and that the
// theatre's sums are those of its events.
func TestCountsInAnyOrder(t *testing.T) {
	app := load(t, "testdata/seats")
	p := app.Projection("seats_by_holder")
	rapid.Check(t, func(t *rapid.T) {
		var events []Message
		want := map[string][2]int64{} // holder => seats, spent
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			holder := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "holder")
			price := rapid.Int64Range(0, 500).Draw(t, "price")
			events = append(events, Message{Type: "SEAT_TAKEN", Payload: map[string]any{"holder": holder, "price": price}})
			w := want[holder]
			want[holder] = [2]int64{w[0] + 1, w[1] + price}
		}
		for _, order := range [][]Message{events, rapid.Permutation(events).Draw(t, "order")} {
			ts := tables{}
			for _, m := range order {
				if _, err := ts.project(p, m); err != nil {
					t.Fatal(err)
				}
			}
			for _, row := range ts["seats_by_holder"] {
				w := want[row["holder"].(string)]
				if row["seats"] != w[0] || row["spent"] != fmt.Sprint(w[1]) {
					t.Fatalf("%v, want %v", row, w)
				}
			}
			if len(ts["seats_by_holder"]) != len(want) {
				t.Fatalf("%d rows, want %d", len(ts["seats_by_holder"]), len(want))
			}
		}
	})
}

// TestDecideIsPure checks that a decision changes neither its request nor shares anything
// with it, and is the same each time.
func TestDecideIsPure(t *testing.T) {
	app := load(t, "testdata/seats")
	in := app.Intents["TAKE_SEAT"]
	guest := map[string]any{"banned": false}
	rapid.Check(t, func(t *rapid.T) {
		var state map[string]any
		if rapid.Bool().Draw(t, "known") {
			state = map[string]any{
				"holder": "", "history": []any{map[string]any{"who": "x"}}, "labels": map[string]any{"a": []any{int64(1)}},
				"visible": map[string]any{"price": rapid.Int64Range(0, 20).Draw(t, "price")},
			}
		}
		r := Request{
			Payload: map[string]any{"row": "A", "number": int64(1), "who": "ann", "note": nil}, EntityID: "A-1", State: state, TS: 5,
			Lookup: func(string, string) (map[string]any, bool, error) { return guest, true, nil },
		}
		payload, before := asJSON(r.Payload), asJSON(state)
		d, err := in.Decide(r)
		if err != nil || d.Rejection != nil {
			t.Fatal(err, d.Rejection)
		}
		first := asJSON(d)
		scribble(d.State)
		for _, c := range d.Changes {
			scribble(c.Value)
		}
		for _, e := range d.Events {
			scribble(e.Payload)
		}
		if asJSON(r.Payload) != payload || asJSON(state) != before || len(guest) != 1 {
			t.Fatal("the request was changed")
		}
		d, err = in.Decide(r)
		if again := asJSON(d); err != nil || again != first {
			t.Fatalf("%s\nthen %s", first, again)
		}
		if d.State["_tmp"].(map[string]any)["guest"] != nil {
			t.Fatal("what a lookup read stayed in the state")
		}
	})
}

// TestStateComesBack checks that a state that Decide hands out is the same after it was
// stored as JSON, whatever a client put into it, and that what would not be is refused.
func TestStateComesBack(t *testing.T) {
	app, err := Load(fstest.MapFS{"app.yaml": {Data: []byte(`
app: notes
state: { note: { entity_key: id, fields: [ { name: deep/er/any }, { name: half, type: number, default: 1 } ] } }
intents:
  PUT:
    state: note
    entity_id_expr: intent.id
    input: { id: string, any: any, half: number }
    core:
      rules:
        - then:
            - { op: set, path: /deep/er/any, value: intent.any }
            - { op: set, path: /half, value: entity.half / 2 + intent.half }
`)}})
	if err != nil {
		t.Fatal(err)
	}
	in := app.Intents["PUT"]
	rapid.Check(t, func(t *rapid.T) {
		var v any = strings.Repeat(rapid.SampledFrom([]string{"a", "\x00", "<", "\u2028", "é"}).Draw(t, "text"), rapid.IntRange(0, MaxState).Draw(t, "length"))
		for range rapid.IntRange(0, MaxNesting+2).Draw(t, "depth") {
			v = []any{v}
		}
		var stored map[string]any
		half := 1.0
		for range 3 {
			d, err := in.Decide(Request{Payload: map[string]any{"id": "x", "any": v, "half": int64(3)}, EntityID: "x", State: stored})
			if err != nil {
				if lattice.KindOf(err) != lattice.TooLarge {
					t.Fatal(err)
				}
				return
			}
			if half = half/2 + 3; d.State["half"] != half {
				t.Fatalf("half is %v, want %v", d.State["half"], half)
			}
			if stored, err = Payload([]byte(asJSON(d.State))); err != nil {
				t.Fatalf("the state cannot be read again: %v", err)
			}
		}
	})
}

// scribble changes everything that can be reached from v.
func scribble(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			scribble(e)
		}
		v["scribbled"] = true
	case []any:
		for i, e := range v {
			scribble(e)
			v[i] = "scribbled"
		}
	}
}

// TestBounds checks what hostile files run into.
func TestBounds(t *testing.T) {
	bomb := "app: x\nproviders:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("  a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	many := fstest.MapFS{"app.yaml": {Data: []byte("app: x\n")}}
	for i := range MaxFiles + 1 {
		many[fmt.Sprintf("f%d.yaml", i)] = &fstest.MapFile{Data: []byte("events: {}\n")}
	}
	one := func(text string) fstest.MapFS { return fstest.MapFS{"app.yaml": {Data: []byte(text)}} }
	for _, tc := range []struct {
		name string
		fs   fstest.MapFS
		want string
	}{
		{"aliases of aliases", one(bomb), "aliases counted where they are used"},
		{"an alias in itself", one("app: x\nproviders: { a: &a { b: *a } }\n"), "nested more than 32 deep"},
		{"nesting", one("app: x\nproviders: { a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + " }\n"), "nested more than 32 deep"},
		{"deep nesting", one("app: x\nproviders: { a: " + strings.Repeat("[", 100_000)), "YAML"},
		{"size", one("app: x\n# " + strings.Repeat("x", MaxFileBytes)), "more than 1048576 bytes"},
		{"files", many, "502 files, more than 500"},
		{"mistakes", one("app: x\nevents:\n" + func() string {
			var b strings.Builder
			for i := range 500 {
				fmt.Fprintf(&b, "  E%d: 5\n", i)
			}
			return b.String()
		}()), "300 more problems are not shown"},
		{"a long expression", one("app: x\nstate: { s: { entity_key: k } }\nevents: { E: { state: s, entity_expr: \"" + strings.Repeat("1+", 5000) + "1\" } }\n"), "size exceeds limit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			app, problems := Check(tc.fs)
			if app != nil || !strings.Contains(problems.Error(), tc.want) {
				t.Errorf("%.2000v, want %q", problems, tc.want)
			}
			if len(problems) > MaxProblems+1 {
				t.Errorf("%d problems", len(problems))
			}
		})
	}
}

func TestPayload(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":1,"b":1.5,"c":1e2,"d":9223372036854775808,"e":[true,null,"x"]}`: "",
		`{"a":1} {}`:    "something follows",
		`{"a":1}x`:      "something follows",
		`[]`:            "expected a JSON object",
		`null`:          "expected a JSON object",
		``:              "unexpected EOF",
		`{"a":`:         "unexpected EOF",
		`{"a":1,"a":2}`: "there twice",
		`{"a":1e999}`:   "out of range",
		`{"a":NaN}`:     "invalid character",
		"{\"a\":" + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}": "nested more than 32 deep",
		`{"a":"` + strings.Repeat("x", MaxPayload) + `"}`:                   "more than 1048576",
	} {
		m, err := Payload([]byte(raw))
		switch {
		case want == "" && (err != nil || m["a"] != int64(1) || m["c"] != 100.0 || m["d"] != 9223372036854775808.0):
			t.Errorf("%.60s: %v, %v", raw, m, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || lattice.KindOf(err) == lattice.Internal):
			t.Errorf("%.60s: %v, want %q", raw, err, want)
		}
	}
}

// FuzzCheck reads any text as an application: it loads, or there are mistakes, each of
// them with a place.
func FuzzCheck(f *testing.F) {
	f.Add("app: x\nstate: { s: { entity_key: k, fields: [ { name: a/b, type: int } ] } }\n")
	f.Add("app: x\nevents:\n  E: { state: s, entity_expr: event.k, payload: { k: string } }\nprojections:\n  P: { source_events: [E], target: { table: t, primary_key: [k] }, derive: { k: event.k }, mutations: { E: { op: upsert } } }\n")
	f.Add("app: x\nintents: { I: { state: s, entity_id_expr: intent.a, core: { rules: [ { then: [ { op: if, expr: true, then: [ { op: stop } ] } ] } ] } } }\n")
	f.Add("app: x\nqueries: { q: { from: t, where: { a: { eq: input.x } } } }\nlisteners: [ { on: E, mutate: [ { op: set, field: a, value: b } ] } ]\n")
	f.Add("app: x\nproviders: { a: &a [1], b: *a }\nincludes: [\"**/*\"]\n")
	f.Add("a: !!binary x\n? b\n: |\n  c\n")
	f.Fuzz(func(t *testing.T, text string) {
		app, problems := Check(fstest.MapFS{"app.yaml": {Data: []byte(text)}})
		if (app == nil) != (len(problems.Mistakes()) > 0) {
			t.Fatalf("an App: %v, problems: %v", app != nil, problems)
		}
		for _, p := range problems {
			if p.File == "" || p.Line < 0 || p.Text == "" {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// FuzzProject feeds the theatre any payload: it is refused, or projected into values that
// their columns take.
func FuzzProject(f *testing.F) {
	f.Add("SEAT_TAKEN", `{"seat_id":"A-1","holder":"ann","price":5}`)
	f.Add("SEAT_FREED", `{"seat_id":"A-1","holder":"ann","refund":"1.25"}`)
	f.Add("SEAT_FREED", `{"seat_id":"A-1","holder":"ann","refund":1e300}`)
	f.Add("HOLDER_RENAMED", `{"from":"a","to":null}`)
	f.Add("TAKE_SEAT", `{"row":"A","number":1,"who":"ann","tip":0.5}`)
	f.Add("PRICE_SEAT", `{"seat_id":"A-1","price":9223372036854775807}`)
	app := load(f, "testdata/seats")
	f.Fuzz(func(t *testing.T, name, raw string) {
		w := &world{app: app, states: map[string]map[string]any{}, tables: tables{}}
		payload, err := Payload([]byte(raw))
		if err != nil {
			return
		}
		if app.Intents[name] != nil {
			w.intent(name, raw)
			w.intent(name, raw)
		}
		e := app.Events[name]
		if e == nil {
			return
		}
		if payload, err = e.Current("v2", payload); err != nil {
			return
		}
		for _, p := range app.ProjectionsOf(name) {
			for range 2 {
				ops, err := w.tables.project(p, Message{Type: name, EntityID: "x", Payload: payload, Lookup: w.lookup})
				if err != nil && lattice.KindOf(err) == lattice.Internal {
					t.Fatalf("an error without a kind: %v", err)
				}
				for _, op := range ops {
					for _, c := range slices.Concat(op.Key, op.Set) {
						col, _ := p.Column(c.Column)
						if read, err := col.Read(c.Value); err != nil || !same(read, c.Value) {
							t.Fatalf("%s = %#v is read as %#v, %v", c.Column, c.Value, read, err)
						}
					}
				}
			}
		}
	})
}
