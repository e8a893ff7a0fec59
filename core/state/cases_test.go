package state_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/state"
)

// TestRegisters: what was written apart stays side by side until somebody who has
// seen it writes.
func TestRegisters(t *testing.T) {
	m := newMesh(t)
	a, b, c := m.peer('a', 10), m.peer('b', 20), m.peer('c', 0)
	see("k", "", a)
	a.write(set("k", "a"))
	b.write(set("k", "b"))
	meet(a, b)
	see("k", "b|a", a, b) // the later one first
	meet(a, b)
	see("k", "b|a", a, b) // again: nothing new
	c.write(set("k", "c"))
	meet(a, c)
	a.write(func(p *peer) state.Op { // one of the three is not seen
		op := set("k", "ab")(p).(*state.Put)
		op.Supersedes = op.Supersedes[:2]
		return op
	})
	meet(a, b, c)
	see("k", "ab|c", a, b, c)
	b.write(set("k", "one"))
	meet(a, b, c)
	see("k", "one", a, b, c)
}

// TestEqualTimes: of two writes of one time the higher author's is read.
func TestEqualTimes(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 10), m.peer('b', 10)
	b.write(set("k", "b"))
	a.write(set("k", "a"))
	meet(b, a)
	see("k", "b|a", a, b)
}

// TestDeletes: a delete ends what it saw, whatever the clocks say.
func TestDeletes(t *testing.T) {
	m := newMesh(t)
	a, b, c := m.peer('a', 1000), m.peer('b', 10), m.peer('c', 500)
	a.write(set("k", "old"))
	meet(a, b, c)
	b.write(del("k"))
	c.write(set("k", "new"))
	meet(a, b)
	see("k", "", a, b)
	meet(a, b, c)
	see("k", "new", a, b, c) // it was not seen by the delete
	a.write(del("k"))
	c.write(set("other", "c"))
	meet(a, b, c)
	see("k", "", a, b, c)
	b.write(del("k")) // of nothing
	meet(a, b, c)
	see("k", "", a, b, c)
	b.write(set("k", "again")) // with a clock behind all of them
	meet(a, b, c)
	see("k", "again", a, b, c)
}

// TestBatches: of operations in one entry each sees those before it.
func TestBatches(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 0)
	a.write(set("put first", "x"), del("put first"), del("deleted first"), set("deleted first", "y"), set("twice", "1"), set("twice", "2"))
	var many []change
	for i := range 1500 {
		many = append(many, set(fmt.Sprint("key ", i), "v"))
	}
	b.write(many...)
	b.write(set("\x00\xff", "\xff\x00"))
	meet(a, b)
	see("put first", "", a, b)
	see("deleted first", "y", a, b)
	see("twice", "2", a, b)
	see("key 1499", "v", a, b)
	see("\x00\xff", "\xff\x00", a, b)
}

func TestManyHeads(t *testing.T) {
	m := newMesh(t)
	var peers []*peer
	var want []string
	for i := range 40 {
		p := m.peer(byte(i+1), uint64(100-i))
		p.write(set("k", fmt.Sprint(i)))
		peers = append(peers, p)
		want = append(want, fmt.Sprint(i))
	}
	meet(peers...)
	see("k", strings.Join(want, "|"), peers...)
	peers[7].write(set("k", "all"))
	meet(peers...)
	see("k", "all", peers...)
}

// TestWideBatch: one entry that settles conflicts of a thousand keys cites all their heads.
func TestWideBatch(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 5)
	var left, right, both []change
	for i := range 1000 {
		k := fmt.Sprint("key ", i)
		left, right, both = append(left, set(k, "left")), append(right, set(k, "right")), append(both, set(k, "both"))
	}
	a.write(left...)
	b.write(right...)
	meet(a, b)
	see("key 999", "right|left", a, b)
	a.write(both...)
	meet(a, b)
	for _, i := range []int{0, 1, 500, 998, 999} {
		see(fmt.Sprint("key ", i), "both", a, b)
	}
}

// TestCounters: every increment counts once, and a delete takes what it saw.
func TestCounters(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(a, b, c *peer)
		want string
	}{
		"up and down":         {func(a, b, c *peer) { a.write(incr("n", 10)); a.write(incr("n", -3)) }, "7"},
		"below zero":          {func(a, b, c *peer) { a.write(incr("n", -5)) }, "-5"},
		"apart":               {func(a, b, c *peer) { a.write(incr("n", 10)); b.write(incr("n", 5)) }, "15"},
		"in one entry":        {func(a, b, c *peer) { a.write(incr("n", 10), incr("n", 5), incr("n", -2)) }, "13"},
		"twice the same":      {func(a, b, c *peer) { a.write(incr("n", 1), incr("n", 1)) }, "2"},
		"of three, one later": {func(a, b, c *peer) { a.write(incr("n", 10)); b.write(incr("n", 15)); meet(a, b); c.write(incr("n", 4)) }, "29"},
		"a late joiner": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			b.write(incr("n", 3))
			meet(a, b, c)
			c.write(incr("n", 5))
		}, "18"},
		"after a delete": {func(a, b, c *peer) { a.write(incr("n", 10)); meet(a, b); b.write(del("n")); b.write(incr("n", 5)) }, "5"},
		"beside a delete of one's own": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			meet(a, b)
			b.write(del("n"))
			a.write(incr("n", 1))
		}, "11"},
		"beside a delete of another's": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			meet(a, b, c)
			b.write(del("n"))
			c.write(incr("n", 1))
		}, "1"},
		"on a value": {func(a, b, c *peer) {
			a.write(set("n", "100"))
			meet(a, b, c)
			b.write(incr("n", 1))
			c.write(incr("n", 20))
		}, "121"},
		"a value anew": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			b.write(incr("n", 1))
			meet(a, b)
			b.write(set("n", "5"))
			b.write(incr("n", 1))
		}, "6"},
		"a value beside an increment": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			meet(a, b)
			b.clock = 50
			b.write(set("n", "5"))
			a.write(incr("n", 1))
		}, "5|11"},
		"a value beside, then an increment on what is read": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			b.clock = 50
			b.write(set("n", "5"))
			meet(a, b)
			c.clock = 60
			meet(b, c)
			c.write(incr("n", 2))
		}, "7|10"},
		"two starts of one node": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			a.restart()
			a.write(incr("n", 5))
		}, "15"},
		"a copied directory": {func(a, b, c *peer) {
			a.write(incr("n", 10))
			meet(a, b) // b goes on as a's copy
			b.own, b.clock = state.Writer{Author: a.own.Author, Incarnation: 7}, a.clock
			b.write(incr("n", 1))
			a.restart()
			a.write(incr("n", 2))
		}, "13"},
		"no further than the greatest": {func(a, b, c *peer) { a.write(incr("n", math.MaxInt64)); b.write(incr("n", 5)) }, "9223372036854775807"},
		"no further than the least":    {func(a, b, c *peer) { a.write(incr("n", math.MinInt64)); b.write(incr("n", -5)) }, "-9223372036854775808"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t)
			p, q, r := m.peer('a', 0), m.peer('b', 0), m.peer('c', 0)
			c.tell(p, q, r)
			meet(r, p, q)
			see("n", c.want, p, q, r)
			meet(p, q, r)
			see("n", c.want, p, q, r)
		})
	}
}

func TestFieldCounters(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 0)
	a.write(hset("h", "n", "10"), hset("h", "name", "ann"))
	meet(a, b)
	a.write(hincr("h", "n", 1))
	b.write(hincr("h", "n", 2), hset("h", "name", "bob"))
	meet(a, b)
	see("h", "n:13 name:bob", a, b)
	a.write(endRow(at("h", state.Field, "name")))
	b.write(hset("h", "name", "carl"), hset("h", "new", "x"))
	meet(a, b)
	see("h", "n:13 name:carl new:x", a, b)
}

// TestSets: an add wins over a removal that had not seen it.
func TestSets(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 1000), m.peer('b', 0)
	a.write(sadd("s", "x"), sadd("s", "y"))
	meet(a, b)
	a.write(srem("s", "x"))
	b.write(sadd("s", "x")) // its clock is far behind the removal's
	meet(a, b)
	see("s", "x y", a, b)
	a.write(srem("s", "x"))
	meet(a, b)
	b.write(sadd("s", "x"))
	meet(a, b)
	see("s", "x y", a, b)
	a.write(del("s"))
	b.write(sadd("s", "z"), srem("s", "y"))
	meet(a, b)
	see("s", "z", a, b)
}

// TestGroceries: what was removed while somebody else was away does not come back.
func TestGroceries(t *testing.T) {
	m := newMesh(t)
	a, b, c := m.peer('a', 0), m.peer('b', 0), m.peer('c', 0)
	a.write(sadd("list", "milk"), sadd("list", "eggs"))
	meet(a, b, c)
	a.write(srem("list", "milk"))
	b.write(sadd("list", "bread"))
	meet(a, b)
	c.write(sadd("list", "tea"))
	meet(b, c)
	meet(a, c)
	meet(a, b, c)
	see("list", "bread eggs tea", a, b, c)
}

func TestSortedSets(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 10)
	a.write(zadd("z", "x", 1), zadd("z", "y", 2))
	meet(a, b)
	a.write(zadd("z", "x", 5))
	b.write(zadd("z", "x", -3), endRow(at("z", state.Scored, "y")))
	meet(a, b)
	see("z", "x=-3", a, b) // the later score
	if len(a.Row(at("z", state.Scored, "x"))) != 2 {
		t.Error("the other score is not kept")
	}
	a.write(zadd("z", "y", math.Inf(1)), zadd("z", "w", 0))
	b.write(zadd("z", "w", math.Copysign(0, -1)))
	meet(a, b)
	see("z", "w=0 x=-3 y=+Inf", a, b)
	if _, err := state.ScoreOf(math.NaN()); err == nil {
		t.Error("NaN is a score")
	}
}

// TestLists: what is pushed apart all stays, in one order; a pop takes what it saw.
func TestLists(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 0)
	a.write(rpush("l", "1"), rpush("l", "2"))
	meet(a, b)
	a.write(rpush("l", "a1"), rpush("l", "a2"))
	b.write(rpush("l", "b1"), rpush("l", "b2"))
	meet(a, b)
	got := a.read("l", 0)
	see("l", got, a, b)
	if !strings.HasPrefix(got, "1 2 ") || strings.Index(got, "a1") > strings.Index(got, "a2") || strings.Index(got, "b1") > strings.Index(got, "b2") || len(got) != len("1 2 a1 a2 b1 b2") {
		t.Error(got)
	}
	a.write(lpop("l"))
	b.write(lpop("l")) // the same one
	meet(a, b)
	see("l", strings.TrimPrefix(got, "1 "), a, b)
	a.write(del("l"))
	b.write(rpush("l", "after"))
	meet(a, b)
	see("l", "after", a, b)
}

// TestTypes: a set and a hash that did not know of each other are both kept; a
// change of type that knew ends what it saw.
func TestTypes(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 0)
	a.write(sadd("k", "member"))
	b.write(hset("k", "field", "v"))
	meet(a, b)
	see("k", "field:v member", a, b)
	a.write(del("k"), set("k", "string"))
	b.write(hset("k", "more", "w"))
	meet(a, b)
	see("k", "string more:w", a, b)
}

// TestGrouping: a delete between two values, a change of type between them, and an
// expiry, joined in every grouping: what ended does not come back.
func TestGrouping(t *testing.T) {
	for name, middle := range map[string][]change{
		"delete": {del("k")}, "type": {del("k"), set("k", "string")}, "expiry": {expire("k", 5)}, "remove": {srem("k", "x")},
	} {
		m := newMesh(t)
		a, b, c := m.peer('a', 1), m.peer('b', 2), m.peer('c', 3)
		a.write(sadd("k", "x"))
		meet(a, b)
		b.write(middle...)
		c.write(sadd("k", "y"))
		left := a.Join(b.Space).Join(c.Space)
		for i, other := range []*state.Space{a.Join(b.Join(c.Space)), a.Join(c.Space).Join(b.Space), c.Join(b.Space).Join(a.Space), b.Join(a.Join(c.Space))} {
			if !equal(left, other) {
				t.Errorf("%s: grouping %d shows", name, i)
			}
		}
		meet(a, b, c)
		if got := c.read("k", 10); !strings.HasSuffix(got, "y") || strings.Contains(got, "x") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestExpiry: it covers what its author had seen and what was put under it, for
// every type, and is not undone by older copies.
func TestExpiry(t *testing.T) {
	m := newMesh(t)
	a, b, c := m.peer('a', 0), m.peer('b', 0), m.peer('c', 0)
	a.write(sadd("s", "x"), hset("h", "f", "v"), set("k", "v"), zadd("z", "x", 1), rpush("l", "e"))
	meet(a, b, c)
	a.write(expire("s", 100), expire("h", 100), expire("k", 100), expire("z", 100), expire("l", 100))
	b.write(sadd("s", "y")) // does not know of it
	meet(a, b, c)
	meet(c, a)
	for _, key := range []string{"h", "k", "z", "l"} {
		if a.read(key, 99) == "" {
			t.Errorf("%s is gone too early", key)
		}
		seeAt(key, 100, "", a, b, c)
	}
	seeAt("s", 99, "x y", a, b, c)
	seeAt("s", 100, "y", a, b, c)
	c.write(under("s", sadd("s", "z")), sadd("s", "w"))
	meet(a, b, c)
	seeAt("s", 100, "w y", a, b, c)
}

func TestExpiryChanges(t *testing.T) {
	m := newMesh(t)
	a, b, c := m.peer('a', 0), m.peer('b', 50), m.peer('c', 0)
	a.write(set("k", "v"), expire("k", 100))
	meet(a, b, c)
	a.write(persist("k"))
	meet(a, b)
	seeAt("k", 1000, "v", a, b)
	meet(a, b, c) // c has only seen the expiry: that does not bring it back
	seeAt("k", 1000, "v", a, b, c)

	a.write(expire("k", 200))
	b.write(expire("k", 300))
	meet(a, b, c)
	seeAt("k", 250, "v", a, b, c) // b's is the later one
	seeAt("k", 300, "", a, b, c)
	c.write(expire("k", 400))
	meet(a, b, c)
	seeAt("k", 300, "v", a, b, c)
	a.write(persist("k"))
	b.write(expire("k", 500)) // beside the persist: it stays
	meet(a, b, c)
	seeAt("k", 499, "v", a, b, c)
	seeAt("k", 500, "", a, b, c)
}

// TestExpiredAndCreatedAgain: who writes to a key that is gone first ends what was
// seen of it, so it regains nothing.
func TestExpiredAndCreatedAgain(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 0)
	a.write(hset("h", "old", "v"), expire("h", 100))
	meet(a, b)
	b.write(del("h"), hset("h", "new", "w"))
	meet(a, b)
	seeAt("h", 0, "new:w", a, b)
	seeAt("h", 1000, "new:w", a, b)
	a.write(expire("h", 2000))
	meet(a, b)
	seeAt("h", 1999, "new:w", a, b)
	seeAt("h", 2000, "", a, b)
}

// TestNextBest: when the head that is read goes, the next one's value is there.
func TestNextBest(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 0), m.peer('b', 10)
	a.write(set("k", "a"))
	b.write(set("k", "b"))
	meet(a, b)
	b.write(func(p *peer) state.Op {
		r := p.Row(at("k", state.Register, ""))
		return &state.End{Address: at("k", state.Register, ""), Scope: state.ScopeRow, Cites: state.Cites{state.CiteOf(r.Last().Dot)}}
	})
	meet(a, b)
	see("k", "a", a, b)
}

// TestPixels: two paint the same board while apart; afterwards both see the same.
func TestPixels(t *testing.T) {
	m := newMesh(t)
	a, b := m.peer('a', 5), m.peer('b', 5)
	var red, blue []change
	for i := range 100 {
		red = append(red, hset("board", fmt.Sprintf("%02d", i), "red"))
		blue = append(blue, hset("board", fmt.Sprintf("%02d", i), "blue"))
	}
	a.write(red...)
	b.write(blue[:50]...)
	a.write(red[25:75]...)
	meet(a, b)
	if got := a.read("board", 0); strings.Count(got, "red|blue") != 25 || strings.Count(got, "blue|red") != 25 {
		t.Error(got)
	}
	see("board", a.read("board", 0), a, b)
}
