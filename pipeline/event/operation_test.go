package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// documents draws JSON objects whose names and values often collide.
func documents() *rapid.Generator[any] {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d/e", "~", "", "long name"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(
			rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Map(rapid.IntRange(0, 3), func(n int) any { return float64(n) }), rapid.Map(name, func(s string) any { return s }))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 2), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(name, value(depth-1), 0, 4), func(m map[string]any) any { return m }))
	}
	return rapid.Map(rapid.MapOfN(name, value(2), 0, 4), func(m map[string]any) any { return m })
}

// Doing the difference to the first document gives the second, and the paths are
// such that a client which does not unescape them gets there, too.
func TestDiffApplies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := documents().Draw(t, "before"), documents().Draw(t, "after")
		before, _ := json.Marshal(x)
		after, _ := json.Marshal(y)
		ops, err := Diff(before, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			if strings.Contains(op.Path, "~") || strings.Contains(op.Path, "//") {
				t.Fatalf("path %q", op.Path)
			}
		}
		got, err := Apply(before, ops)
		if err != nil {
			t.Fatal(err)
		}
		var z any
		if err := json.Unmarshal(got, &z); err != nil || !reflect.DeepEqual(y, z) {
			t.Fatalf("%s to %s by %+v gives %s (%v)", before, after, ops, got, err)
		}
		if again, _ := Diff(before, after); !reflect.DeepEqual(ops, again) {
			t.Fatalf("%+v and then %+v", ops, again)
		}
	})
}

func TestDiffEnds(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{``, ``, ``},
		{``, `{"a":1}`, `[{"op":"add","path":"","value":{"a":1}}]`},
		{`{"a":1}`, ``, `[{"op":"remove","path":""}]`},
		{`{"a":1}`, `{ "a" : 1 }`, ``},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, `[{"op":"replace","path":"/a","value":9007199254740992}]`},
		{`{"a":[1,2]}`, `{"a":[1]}`, `[{"op":"replace","path":"/a","value":[1]}]`},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, `[{"op":"remove","path":"/a/c"}]`},
		{`{"a":{"x/y":1}}`, `{"a":{"x/y":2}}`, `[{"op":"replace","path":"/a","value":{"x/y":2}}]`},
		{`{"a":1}`, `{"a":null}`, `[{"op":"replace","path":"/a","value":null}]`},
	} {
		ops, err := Diff([]byte(c.before), []byte(c.after))
		got := ""
		if len(ops) > 0 {
			b, _ := json.Marshal(ops)
			got = string(b)
		}
		if err != nil || got != c.want {
			t.Errorf("%s to %s: %s, %v; want %s", c.before, c.after, got, err, c.want)
		}
		back, err := Apply([]byte(c.before), ops)
		if err != nil || !same(back, []byte(c.after)) && len(back)+len(c.after) > 0 {
			t.Errorf("%s to %s: applied gives %s, %v", c.before, c.after, back, err)
		}
	}
	if _, err := Apply(nil, []Operation{{OpAdd, strings.Repeat("/a", MaxDepth+2), json.RawMessage("1")}}); err == nil {
		t.Error("a path without end was followed")
	}
}
