package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func compiler(t testing.TB) *Compiler {
	t.Helper()
	c, err := NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scope is that of an intent on a seat.
func scope() Scope {
	payload := &Shape{Kind: Object, What: "the input of TAKE_SEAT", Fields: map[string]*Shape{
		"seat_id": {Kind: String}, "who": {Kind: String}, "price": {Kind: Number}, "rate": {Kind: Number}, "vip": {Kind: Bool},
		"tags": {Kind: Array}, "extra": {Kind: Object, Open: true}, "note": {Open: true},
	}}
	event := &Shape{Kind: Object, Short: "payload", Fields: map[string]*Shape{
		"payload": payload, "ts": {Kind: Number}, "type": {Kind: String}, "entity_id": {Kind: String},
	}}
	seat := &Shape{Kind: Object, What: "state seat", Fields: map[string]*Shape{
		"holder": {Kind: String}, "visible": {Kind: Object, What: "state seat", Fields: map[string]*Shape{"count": {Kind: Number}}},
		"_tmp": {Open: true},
	}}
	return Scope{Roots: map[string]*Shape{"event": event, "intent": event, "entity": seat}, States: map[string]*Shape{"seat": seat}, Own: "seat"}
}

func vars(payload string) Vars {
	var p map[string]any
	d := json.NewDecoder(strings.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&p); err != nil {
		panic(err)
	}
	event := map[string]any{"payload": numbers(p), "ts": int64(1719331200000), "type": "SEAT_TAKEN", "entity_id": "a1"}
	return Vars{
		Roots: map[string]any{
			"event": event, "intent": event,
			"entity": map[string]any{"holder": "ann", "visible": map[string]any{"count": int64(3)}},
		},
		Lookup: func(state, id string) (map[string]any, bool, error) {
			switch id {
			case "gone":
				return nil, false, nil
			case "broken":
				return nil, false, errors.New("no connection")
			}
			return map[string]any{"holder": state + "/" + id, "visible": map[string]any{"count": int64(7)}}, true, nil
		},
	}
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := number(v)
		return n
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}

type absent struct{}

func TestValue(t *testing.T) {
	c := compiler(t)
	in := `{"seat_id":"a1","who":"bob","price":5,"rate":2.5,"vip":true,"tags":["x","y"],"extra":{"b":1,"a":null,"c":{"d":"deep"}},"note":null}`
	for _, tc := range []struct {
		text string
		want any
	}{
		// Paths: shorthand, depth, and what is not there.
		{`event.seat_id`, "a1"},
		{`event.payload.seat_id`, "a1"},
		{`intent.extra.c.d`, "deep"},
		{`event.ts`, int64(1719331200000)},
		{`event.type`, "SEAT_TAKEN"},
		{`entity.visible.count`, int64(3)},
		{`entity._tmp.x.y`, absent{}},
		{`event.extra.zzz`, absent{}},
		{`event.extra.a`, nil},
		{`event.extra.a.b`, absent{}},
		{`event.note`, nil},
		{`event.extra["b"]`, int64(1)},
		{`event.tags[1]`, "y"},
		{`event.tags[2]`, absent{}},
		// Absence goes through everything but what looks for it.
		{`concat(event.extra.zzz, "x")`, absent{}},
		{`event.extra.zzz + 1`, absent{}},
		{`coalesce(event.extra.zzz, event.note, "", "last")`, "last"},
		{`coalesce(event.extra.zzz, "")`, ""},
		{`isnull(event.extra.zzz, event.note, 0, 1)`, int64(0)},
		{`has(event.extra.zzz)`, false},
		{`has(event.who) && has(event.payload.who)`, true},
		{`event.vip ? event.extra.zzz : 1`, absent{}},
		{`event.vip || event.extra.zzz`, true},
		{`[event.who, event.price]`, []any{"bob", int64(5)}},
		{`{"k": event.who, "a": {"n": 1}}`, map[string]any{"k": "bob", "a": map[string]any{"n": int64(1)}}},
		// Numbers mix, integers stay.
		{`7 / 2`, int64(3)},
		{`event.price / 2`, int64(2)},
		{`event.price * event.rate`, 12.5},
		{`event.rate + 1`, 3.5},
		{`0 - event.price`, int64(-5)},
		{`-event.price`, int64(-5)},
		{`5.5 % 2`, 1.5},
		{`event.note * 2`, nil},
		{`1 < 1.5 && 2.0 == 2`, true},
		{`floor(event.rate)`, int64(2)},
		{`min(3, event.rate, 9)`, 2.5},
		{`max([1, 4, 2])`, int64(4)},
		{`sum(1, 2, 0.5)`, 3.5},
		// Text.
		{`concat(event.who, ":", event.price, ":", event.rate, ":", event.vip)`, "bob:5:2.5:true"},
		{`concat(event.note, "x")`, nil},
		{`"a" + event.who`, "abob"},
		{`join(event.tags, "-")`, "x-y"},
		{`contains(event.who, "o") && event.tags.contains("x") && !contains(event.tags, "q")`, true},
		{`event.who.startsWith("b") && event.who.matches("^b.b$")`, true},
		{`size(event.tags) + size("abc")`, int64(5)},
		{`string(event.price)`, "5"},
		{`hash("a")`, "ca978112ca1bbdcafac231b39a23dc4d"},
		{`shard("user-123", 32)`, int64(19)},
		{`format_date(event.ts)`, "2024-06-25"},
		{`is_prev_day("2024-06-24", event.ts)`, true},
		// Members of an object come in order of their names.
		{`event.extra.map(k, k)`, []any{"a", "b", "c"}},
		{`event.tags.filter(x, x != "x")`, []any{"y"}},
		{`"b" in event.extra`, true},
		{`event.extra.c == {"d": "deep"} && {"d": "deep"} == event.extra.c`, true},
		{`event.extra.c == {"d": "deep", "e": 1} || event.extra.c == {"d": 1} || event.extra.c == {"e": "deep"}`, false},
		{`event.tags == ["x", "y"]`, true},
		{`floor(event.note)`, nil},
		{`format_date(event.note)`, nil},
		{`contains(event.note, "x")`, false},
		{`max(event.note, 2)`, int64(2)},
		{`int("12") + int(event.rate)`, int64(14)},
		{`event.extra.exists(k, k == "c")`, true},
		// Other entities.
		{`lookup(seat, event.seat_id).visible.count`, int64(7)},
		{`lookup(seat_stream, "b2").holder`, "seat/b2"},
		{`lookup(seat, "gone").holder`, absent{}},
		{`LOOKUP_FIELD('seat_stream', event.seat_id, '/visible/count')`, int64(7)},
		{`state.holder`, "seat/a1"},
		{`lookup(seat, event.note).holder`, absent{}},
	} {
		e, issues := c.Compile(tc.text, scope(), Value)
		if issues != nil {
			t.Errorf("%s: %v", tc.text, issues)
			continue
		}
		got, ok, err := e.Value(vars(in))
		if !ok {
			got = absent{}
		}
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s = %#v, %v; want %#v", tc.text, got, err, tc.want)
		}
	}
}

func TestCondition(t *testing.T) {
	c := compiler(t)
	for text, want := range map[string]bool{
		`event.extra.zzz == "x"`:            false,
		`event.extra.zzz != "x"`:            true,
		`event.extra.zzz == null`:           true,
		`!(event.seat_id == "a1")`:          false,
		`event.vip`:                         true,
		`event.extra.zzz`:                   false,
		`event.extra.zzz.deeper`:            false,
		`lookup(seat, "gone").holder != ""`: true, // a guard on what is not there holds
		`event.price > 4.5`:                 true,
	} {
		e, issues := c.Compile(text, scope(), Condition)
		if issues != nil {
			t.Errorf("%s: %v", text, issues)
			continue
		}
		got, err := e.Holds(vars(`{"seat_id":"a1","price":5,"vip":true,"extra":{}}`))
		if err != nil || got != want {
			t.Errorf("%s holds: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	c := compiler(t)
	for text, want := range map[string]string{
		`event.note.x`:                      "has no members: it is text",
		`event.note < 5`:                    "text and a number cannot be compared",
		`event.price / 0`:                   "division by zero",
		`event.note + 1`:                    "expected numbers",
		`9223372036854775807 + event.price`: "overflow",
		`event.price / 0.0`:                 "division by zero",
		`lookup(seat, "broken").holder`:     "no connection",
		`shard(event.seat_id, 0)`:           "expected 1 to",
		`concat(event.extra)`:               "expected text or a number",
		`[1,2,3,4,5,6,7,8,9,10].map(a, event.tags.map(b, event.tags.map(c, event.tags.map(d, concat(a, b, c, d)))))`: "costs more than",
		`event.tags.map(x, concat(event.extra.long, event.extra.long))`:                                              "bytes",
	} {
		e, issues := c.Compile(text, scope(), Value)
		if issues != nil {
			t.Errorf("%s: %v", text, issues)
			continue
		}
		v := vars(`{"seat_id":"a1","price":5,"note":"words","extra":{}}`)
		tags := make([]any, 50)
		for i := range tags {
			tags[i] = "t"
		}
		payload := v.Roots["event"].(map[string]any)["payload"].(map[string]any)
		payload["tags"], payload["extra"] = tags, map[string]any{"long": strings.Repeat("x", MaxString/2+1)}
		if _, _, err := e.Value(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// TestOrderOfNull checks what a comparison with null is worth.
func TestOrderOfNull(t *testing.T) {
	c := compiler(t)
	for _, text := range []string{`event.extra.zzz < 5`, `event.note >= 5`, `5 > event.note`} {
		guard, issues := c.Compile(text, scope(), Condition)
		if issues != nil {
			t.Fatal(issues)
		}
		if yes, err := guard.Holds(vars(`{"note":null,"extra":{}}`)); err == nil {
			t.Errorf("the guard %s holds: %v; want an error", text, yes)
		}
		filter, issues := c.Compile(text, scope(), Filter)
		if issues != nil {
			t.Fatal(issues)
		}
		if yes, err := filter.Holds(vars(`{"note":null,"extra":{}}`)); yes || err != nil {
			t.Errorf("the filter %s holds: %v, %v; want false", text, yes, err)
		}
	}
}

// TestIssues checks that mistakes are found before anything runs, where they stand, and with
// the nearest name.
func TestIssues(t *testing.T) {
	c := compiler(t)
	for _, tc := range []struct {
		text, want string
		mode       Mode
	}{
		{`evnt.seat_id`, `0:0 unknown name "evnt"; did you mean "event"?`, Value},
		{`event.seatid`, `0:5 the input of TAKE_SEAT has no "seatid"; did you mean "seat_id"?`, Value},
		{`1 + entity.visible.cuont`, `0:18 state seat has no "cuont"; did you mean "count"?`, Value},
		{`concta(event.who)`, `0:6 unknown function "concta"; did you mean "concat"?`, Value},
		{`entity.holder == blocked`, `0:17 unknown name "blocked"; expected entity, event, intent, or quotes around text`, Value},
		{`now()`, `0:3 now() gives another value each time, and a replay would differ; use event.ts, or let the client send it`, Value},
		{`event.who - 1`, `0:10 expected a number on each side, and this is text`, Value},
		{`event.who + 1`, `0:10 + adds numbers, or joins texts; use concat(...) for text and a number`, Value},
		{`event.who == 1`, `0:10 text never equals a number`, Value},
		{`event.who < 1`, `0:10 text and a number cannot be compared`, Value},
		{`event.price`, `0:5 a condition must be true or false, and this is a number`, Condition},
		{`event.who.x`, `0:9 "x": text has no members`, Value},
		{`lookup(saet, event.who).x`, `0:7 unknown state "saet"; did you mean "seat"?`, Value},
		{`lookup(seat)`, `0:6 lookup takes 2 arguments, and here are 1`, Value},
		{`shard(event.who)`, `0:5 shard takes 2 arguments, and here are 1`, Value},
		{`event.who ==`, `syntax`, Value},
		{strings.Repeat("(", 60) + "1" + strings.Repeat(")", 60), `recursion`, Value},
		{strings.Repeat("1+", 3000) + "1", `size`, Value},
		{`b"x"`, `is no JSON value`, Value},
		{`timestamp("2024-01-01T00:00:00Z")`, `unknown function "timestamp"`, Value},
	} {
		e, issues := c.Compile(tc.text, scope(), tc.mode)
		if e != nil || len(issues) == 0 {
			t.Errorf("%.60s: compiled", tc.text)
			continue
		}
		got := fmt.Sprintf("%d:%d %s", issues[0].Line, issues[0].Column, issues[0].Text)
		if !strings.Contains(strings.ToLower(got), strings.ToLower(tc.want)) {
			t.Errorf("%.60s: %s\nwant %s", tc.text, got, tc.want)
		}
	}
}

func TestIsExpression(t *testing.T) {
	for text, want := range map[string]bool{
		`event.seat_id`: true, `concat('a', 'b')`: true, `0 - event.price`: true, `"quoted"`: true, `'event.x'`: true,
		`evnt.seat_id`: true, `concta(1)`: true, `event["x"]`: true, `!event.vip`: true, `now()`: true,
		`blocked`: false, `transfer_out`: false, `2024-01-01`: false, ``: false, `event`: false, `it's event.x`: false,
		`mail@event.com`: false, `the last event. Then another`: false, `1 + 1`: false, `min`: false, `www.example.org`: false,
	} {
		if got := IsExpression(text, scope()); got != want {
			t.Errorf("IsExpression(%q) = %v", text, got)
		}
	}
}

// TestPathsAgree walks paths twice: as plain paths, and, made to be no plain path, by CEL.
func TestPathsAgree(t *testing.T) {
	c := compiler(t)
	json := rapid.Custom(func(t *rapid.T) any { return drawJSON(t, 3) })
	rapid.Check(t, func(t *rapid.T) {
		v := Vars{Roots: map[string]any{"event": map[string]any{"payload": map[string]any{"extra": json.Draw(t, "extra")}}}}
		path := "event.extra"
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			path += "." + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "member")
		}
		s := scope()
		s.Roots["event"].Fields["payload"].Fields["extra"] = anything()
		for _, mode := range []Mode{Value, Condition, Filter} {
			plain, issues := c.Compile(path, s, mode)
			if issues != nil {
				t.Fatal(issues)
			}
			slow, issues := c.Compile("(true ? "+path+" : null)", s, mode)
			if issues != nil {
				t.Fatal(issues)
			}
			if plain.path == nil || slow.path != nil {
				t.Fatal("not the two ways that this test compares")
			}
			x, ok, err := plain.Value(v)
			y, ok2, err2 := slow.Value(v)
			if !reflect.DeepEqual(x, y) || ok != ok2 || (err == nil) != (err2 == nil) {
				t.Fatalf("%s, mode %d: %v %v %v, and by CEL %v %v %v", path, mode, x, ok, err, y, ok2, err2)
			}
		}
	})
}

func drawJSON(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		f := rapid.Float64().Draw(t, "float")
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return 0.5
		}
		return f
	case 4, 5:
		return rapid.StringMatching(`[a-c]{0,3}`).Draw(t, "string")
	}
	m := map[string]any{}
	for _, k := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID[string]).Draw(t, "members") {
		m[k] = drawJSON(t, depth-1)
	}
	return m
}

// TestSameEverywhere evaluates twice what depends on the order of members.
func TestSameEverywhere(t *testing.T) {
	c := compiler(t)
	e, issues := c.Compile(`[join(event.extra.map(k, k), ","), hash(event.extra)]`, scope(), Value)
	if issues != nil {
		t.Fatal(issues)
	}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfDistinct(rapid.StringMatching(`[a-z]{1,4}`), rapid.ID[string]).Draw(t, "keys")
		a, b := map[string]any{}, map[string]any{}
		for i, k := range keys {
			a[k] = int64(1)
			b[keys[len(keys)-1-i]] = int64(1)
		}
		va := Vars{Roots: map[string]any{"event": map[string]any{"payload": map[string]any{"extra": a}}}}
		vb := Vars{Roots: map[string]any{"event": map[string]any{"payload": map[string]any{"extra": b}}}}
		x, _, err := e.Value(va)
		y, _, err2 := e.Value(vb)
		if err != nil || err2 != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%v %v, %v %v", x, err, y, err2)
		}
	})
}

// FuzzCompile feeds what anybody could write: it compiles and evaluates, or says why
// not.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		`event.seat_id`, `concat(event.a, "x")`, `lookup(seat, event.who).visible.count`, `[1].map(x, x)`, `{`, `a.b.c`, `event.extra[`,
		`event.tags.all(t, t.size() > 0)`, `1 + `, `has(event.who)`, `"\xff"`, `event.extra.map(k, v, k)`, `seat{a: 1}`, `event.?x`, `'''`,
	} {
		f.Add(s)
	}
	c := compiler(f)
	f.Fuzz(func(t *testing.T, text string) {
		IsExpression(text, scope())
		for _, mode := range []Mode{Value, Condition, Filter} {
			e, issues := c.Compile(text, scope(), mode)
			if (e == nil) != (len(issues) > 0) {
				t.Fatalf("%q: %v and %v", text, e, issues)
			}
			if e == nil {
				continue
			}
			in := `{"seat_id":"a1","who":"bob","price":5,"rate":2.5,"vip":true,"tags":["x"],"extra":{"a":1}}`
			x, ok, err := e.Value(vars(in))
			y, ok2, err2 := e.Value(vars(in))
			if fmt.Sprint(x, ok, err) != fmt.Sprint(y, ok2, err2) {
				t.Fatalf("%q: %v %v %v, then %v %v %v", text, x, ok, err, y, ok2, err2)
			}
			if _, jsonErr := json.Marshal(x); jsonErr != nil {
				t.Fatalf("%q: %v", text, jsonErr)
			}
		}
	})
}
