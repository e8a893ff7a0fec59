package structs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/engine/structs/memory"
)

// world is some replicas that write apart and meet.
type world struct {
	t     *testing.T
	nodes map[string]*memory.Memory
	now   int64
}

func newWorld(t *testing.T) *world { return &world{t, map[string]*memory.Memory{}, 1000} }

func (w *world) node(name string) *memory.Memory {
	if w.nodes[name] == nil {
		id := state.Writer{Incarnation: 1}
		copy(id.Author[:], name)
		w.nodes[name] = memory.New(id)
	}
	return w.nodes[name]
}

// at runs one transaction on a node, a millisecond after the one before.
func (w *world) at(name string, do func(m *structs.Map) error) {
	w.t.Helper()
	w.now++
	if err := do(structs.In(w.node(name).Begin(w.now), "0")); err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
}

// meet makes replicas equal, by joining in the given order.
func (w *world) meet(names ...string) {
	for range names {
		for _, a := range names {
			for _, b := range names {
				w.node(a).Join(w.node(b))
			}
		}
	}
}

// show prints a key as a reader on a node sees it.
func (w *world) show(name, key string) string {
	w.t.Helper()
	m, k := structs.In(w.node(name).Begin(w.now), "0"), []byte(key)
	must := func(err error) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	t, err := m.Type(k)
	must(err)
	var out []string
	switch t {
	case structs.String:
		v, _, err := m.Get(k)
		must(err)
		out = []string{string(v.Bytes)}
		if v.Conflicted {
			out = append(out, "conflicted")
		}
	case structs.Hash:
		must(m.HScan(k, nil, func(f, v []byte) bool { out = append(out, fmt.Sprintf("%s=%s", f, v)); return true }))
	case structs.Set:
		must(m.SScan(k, nil, func(e []byte) bool { out = append(out, string(e)); return true }))
	case structs.SortedSet:
		must(m.ZScan(k, 0, false, func(s structs.Scored) bool {
			out = append(out, fmt.Sprintf("%s:%v", s.Member, s.Score))
			return true
		}))
	case structs.List:
		must(m.LScan(k, true, func(e []byte) bool { out = append(out, string(e)); return true }))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", t, strings.Join(out, " ")))
}

func b(s string) []byte { return []byte(s) }

func set(v string) func(*structs.Map) error {
	return func(m *structs.Map) error { return m.Set(b("k"), b(v), false) }
}

func incr(n int64) func(*structs.Map) error {
	return func(m *structs.Map) error { _, err := m.Incr(b("k"), n); return err }
}

func del(m *structs.Map) error { _, err := m.Delete(b("k")); return err }

func sadd(members ...string) func(*structs.Map) error {
	return func(m *structs.Map) error {
		for _, e := range members {
			if _, err := m.SAdd(b("k"), b(e)); err != nil {
				return err
			}
		}
		return nil
	}
}

func push(left bool, values ...string) func(*structs.Map) error {
	return func(m *structs.Map) error {
		for _, v := range values {
			if _, err := m.Push(b("k"), left, b(v)); err != nil {
				return err
			}
		}
		return nil
	}
}

func expire(at int64) func(*structs.Map) error {
	return func(m *structs.Map) error { _, err := m.ExpireAt(b("k"), at); return err }
}

// TestApart: what comes of writes that had not seen each other. In every case both
// nodes start equal, write apart, and meet.
func TestApart(t *testing.T) {
	pop := func(left bool) func(*structs.Map) error {
		return func(m *structs.Map) error { _, err := m.Pop(b("k"), left, 1); return err }
	}
	srem := func(e string) func(*structs.Map) error {
		return func(m *structs.Map) error { _, err := m.SRem(b("k"), b(e)); return err }
	}
	hset := func(f, v string) func(*structs.Map) error {
		return func(m *structs.Map) error { _, err := m.HSet(b("k"), b(f), b(v)); return err }
	}
	zset := func(e string, s float64) func(*structs.Map) error {
		return func(m *structs.Map) error { return m.ZSet(b("k"), b(e), s) }
	}
	type do = func(*structs.Map) error
	none := func(*structs.Map) error { return nil }
	for _, c := range []struct {
		name              string
		before, ann, bob  do
		after, afterwards do // by bob once they met, and its outcome
		want, finally     string
	}{
		{name: "two values", before: set("a"), ann: set("b"), bob: set("c"), want: "string c conflicted", after: set("d"), finally: "string d"},
		{name: "a value and a delete", before: set("a"), ann: set("b"), bob: del, want: "string b"},
		{name: "a delete that saw", before: set("a"), ann: none, bob: del, want: "none"},
		{name: "increments", before: none, ann: incr(10), bob: incr(5), want: "string 15", after: incr(1), finally: "string 16"},
		{name: "increments on a value", before: set("100"), ann: incr(10), bob: incr(-3), want: "string 107"},
		{name: "an increment and a delete of what another counted", before: incr(10), ann: del, bob: incr(1), want: "string 1"},
		{name: "an increment and a delete of what it counted", before: incr(10), ann: incr(1), bob: del, want: "string 11"},
		{name: "an increment on a value, and its delete", before: set("10"), ann: del, bob: incr(1), want: "string 11"},
		{name: "delete, then increment", before: incr(10), ann: none, bob: del, want: "none", after: incr(5), finally: "string 5"},
		{name: "an increment and a new value", before: set("1"), ann: incr(1), bob: set("50"), want: "string 50 conflicted"},
		{name: "fields", before: hset("a", "1"), ann: hset("b", "2"), bob: hset("a", "3"), want: "hash a=3 b=2"},
		{name: "an add and a remove of the same", before: sadd("x"), ann: srem("x"), bob: func(m *structs.Map) error {
			if err := srem("x")(m); err != nil {
				return err
			}
			return sadd("x")(m)
		}, want: "set x"},
		{name: "an add and a delete of the set", before: sadd("x"), ann: sadd("y"), bob: del, want: "set y"},
		{name: "scores", before: zset("m", 1), ann: zset("m", 2), bob: zset("m", 3), want: "zset m:3"},
		{name: "pushes at one end", before: push(false, "a"), ann: push(false, "b"), bob: push(false, "c"), want: "list a b c"},
		{name: "pushes at both ends", before: push(false, "m"), ann: push(true, "l"), bob: push(false, "r"), want: "list l m r"},
		{name: "two pops of one element", before: push(false, "a", "b"), ann: pop(true), bob: pop(true), want: "list b"},
		{name: "a pop and a push", before: push(false, "a"), ann: pop(true), bob: push(false, "b"), want: "list b"},
		{name: "another type", before: none, ann: sadd("x"), bob: hset("f", "v"), want: "hash f=v", after: del, finally: "none"},
		{name: "another type, and more of the loser later", before: none, ann: hset("f", "v"), bob: sadd("x"), want: "set x", after: sadd("y"), finally: "set x y"},
		{name: "a delete before a type change", before: sadd("x"), ann: none, bob: func(m *structs.Map) error {
			if err := del(m); err != nil {
				return err
			}
			return set("v")(m)
		}, want: "string v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, order := range [][]string{{"ann", "bob"}, {"bob", "ann"}} {
				w := newWorld(t)
				w.at("ann", c.before)
				w.meet("ann", "bob")
				w.at("ann", c.ann)
				w.at("bob", c.bob)
				w.meet(order...)
				if a, b := w.show("ann", "k"), w.show("bob", "k"); a != c.want || b != c.want {
					t.Errorf("ann sees %q, bob %q, want %q", a, b, c.want)
				}
				if c.after == nil {
					continue
				}
				w.at("bob", c.after)
				w.meet(order...)
				if a, b := w.show("ann", "k"), w.show("bob", "k"); a != c.finally || b != c.finally {
					t.Errorf("then ann sees %q, bob %q, want %q", a, b, c.finally)
				}
			}
		})
	}
}

// TestExpiry: an expiry ends what it had seen and what was written under it, and
// nothing else.
func TestExpiry(t *testing.T) {
	for _, c := range []struct {
		name     string
		ann, bob []func(*structs.Map) error
		together []func(*structs.Map) error
		before   string // while it runs
		want     string // when it has passed
	}{
		{name: "alone", ann: []func(*structs.Map) error{expire(5000)}, before: "set a", want: "none"},
		{name: "what was written under it goes too", ann: []func(*structs.Map) error{expire(5000), sadd("b")}, before: "set a b", want: "none"},
		{name: "a write elsewhere lives on", ann: []func(*structs.Map) error{expire(5000)}, bob: []func(*structs.Map) error{sadd("b")}, before: "set a b", want: "set b"},
		{
			name: "persist beats the expiry that it saw", ann: []func(*structs.Map) error{expire(5000)},
			together: []func(*structs.Map) error{func(m *structs.Map) error { _, err := m.Persist(b("k")); return err }}, before: "set a", want: "set a",
		},
		{name: "a later expiry", ann: []func(*structs.Map) error{expire(5000), expire(90000)}, before: "set a", want: "set a"},
		{name: "made again it regains nothing", ann: []func(*structs.Map) error{expire(1005)}, together: []func(*structs.Map) error{
			func(*structs.Map) error { return nil }, func(*structs.Map) error { return nil }, func(*structs.Map) error { return nil }, sadd("new"),
		}, before: "set new", want: "set new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.at("ann", sadd("a"))
			w.meet("ann", "bob")
			for _, f := range c.ann {
				w.at("ann", f)
			}
			for _, f := range c.bob {
				w.at("bob", f)
			}
			w.meet("ann", "bob")
			for _, f := range c.together {
				w.at("bob", f)
			}
			w.meet("ann", "bob")
			for _, n := range []string{"ann", "bob"} {
				if got := w.show(n, "k"); got != c.before {
					t.Errorf("before, %s sees %q, want %q", n, got, c.before)
				}
			}
			w.now = 10000
			for _, n := range []string{"ann", "bob"} {
				if got := w.show(n, "k"); got != c.want {
					t.Errorf("after, %s sees %q, want %q", n, got, c.want)
				}
			}
			w.at("bob", func(m *structs.Map) error { _, err := m.Reap(b("k")); return err })
			w.meet("ann", "bob")
			if got := w.show("ann", "k"); got != c.want {
				t.Errorf("reaped, ann sees %q, want %q", got, c.want)
			}
		})
	}
}

// TestManyHeads: 17 and more writers that had not met, all merged by one write.
func TestManyHeads(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("node-%02d", i))
		w.at(names[i], set(fmt.Sprint("v", i)))
	}
	for _, n := range names[1:] {
		w.node(names[0]).Join(w.node(n))
	}
	r := w.node(names[0]).State.Row(state.Address{Map: "0", Key: b("k"), Kind: state.Register})
	if len(r) != 40 || w.show(names[0], "k") != "string v39 conflicted" {
		t.Fatalf("%d heads, %s", len(r), w.show(names[0], "k"))
	}
	w.at(names[0], set("one"))
	for _, n := range names {
		w.node(n).Join(w.node(names[0]))
		if got := w.show(n, "k"); got != "string one" {
			t.Fatalf("%s sees %q", n, got)
		}
	}
}

// TestPushesOfTwoKeepTheirOrder: what each pushed keeps its order.
func TestPushesOfTwoKeepTheirOrder(t *testing.T) {
	w := newWorld(t)
	w.at("ann", push(false, "a1", "a2", "a3"))
	w.at("bob", push(false, "b1", "b2", "b3"))
	w.meet("ann", "bob")
	list := strings.Fields(w.show("ann", "k"))[1:]
	for _, who := range []string{"a", "b"} {
		var own []string
		for _, e := range list {
			if strings.HasPrefix(e, who) {
				own = append(own, e)
			}
		}
		if len(own) != 3 || !slices.IsSorted(own) {
			t.Errorf("%v", list)
		}
	}
}

// TestHeads: what is shown of a key in conflict, and why.
func TestHeads(t *testing.T) {
	w := newWorld(t)
	w.at("ann", set("10"))
	w.meet("ann", "bob", "eve")
	w.at("ann", incr(5))
	w.at("bob", set("x"))
	w.at("eve", del)
	w.at("eve", sadd("m"))
	w.meet("ann", "bob", "eve")
	m := structs.In(w.node("bob").Begin(w.now), "0")
	heads, more, err := m.Heads(b("k"), 0)
	if err != nil || more {
		t.Fatal(more, err)
	}
	var got []string
	for _, h := range heads {
		got = append(got, fmt.Sprintf("%s %s%s %v: %s", h.Type, h.Item, h.Value, h.Winner, h.Why))
	}
	want := []string{
		"set m true: the only version",
		"string x false: the key holds another type by a later write; this one stays beside it until a write has seen it",
		"string +5 false: the key holds another type by a later write; this one stays beside it until a write has seen it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if last, conflicted, ok, err := m.Last(b("k")); err != nil || !ok || !conflicted || last.Dot.Writer != w.node("eve").Begin(w.now).Writer() {
		t.Error(last, conflicted, ok, err)
	}
}
