package reconcile

import (
	"fmt"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// logsOf is an inventory of many logs, of entries that nobody reads.
func logsOf(n int, seq func(i int) uint64) Inventory {
	var inv Inventory
	for i := range n {
		var a lattice.AuthorID
		h := digest([]Item{{N: uint64(i)}}) // spread over all keys
		copy(a[:], h[:])
		if s := seq(i); s > 0 {
			inv.Logs = append(inv.Logs, Have{Log: state.Writer{Author: a, Incarnation: 1}, Tip: sigchain.Link{Incarnation: 1, Seq: s, ID: filled(byte(s))}, Time: s})
		}
	}
	return inv
}

// compared is what two replicas exchange until each has wanted what it lacks.
type compared struct {
	messages, bytes int
	wanted          [2]int
}

func compareTwo(t *testing.T, a, b Inventory) compared {
	t.Helper()
	ids := []lattice.NodeID{idOf("ann"), idOf("bob")}
	var rs []*Replica
	for i, inv := range []Inventory{a, b} {
		r, err := New(Config{Store: lattice.StoreID{1}, Node: ids[i], Admit: func(lattice.AuthorID) error { return nil }}, inv, 0)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	var c compared
	queue := append(rs[0].Connect(ids[1], 0).Send, rs[1].Connect(ids[0], 0).Send...)
	for len(queue) > 0 {
		m := Encode(queue[0].Message)
		to := slices.Index(ids, queue[0].To)
		queue = queue[1:]
		c.messages++
		if w, ok := mustParse(t, m).(Want); ok {
			c.wanted[1-to] += len(w.Spans)
			continue // nothing is read in this test, and wants are not what is counted
		}
		c.bytes += len(m)
		e, err := rs[to].Step(ids[1-to], m, 0)
		if err != nil {
			t.Fatal(err)
		}
		queue = append(queue, e.Send...)
	}
	return c
}

func mustParse(t *testing.T, b []byte) Message {
	t.Helper()
	m, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEqualCostsNothing checks that replicas with the same exchange two hellos,
// however many logs there are.
func TestEqualCostsNothing(t *testing.T) {
	for _, n := range []int{0, 1, 100, 10_000} {
		inv := logsOf(n, func(int) uint64 { return 9 })
		c := compareTwo(t, inv, inv)
		if c.messages != 2 || c.bytes > 300 {
			t.Errorf("%d logs: %d messages of %d bytes", n, c.messages, c.bytes)
		}
	}
}

// TestCostFollowsTheDifference counts what it takes to find logs that differ among
// 10,000: each is wanted by the side that lacks it, a difference costs a few hundred
// bytes a level, and ten times the difference at most ten times as much.
func TestCostFollowsTheDifference(t *testing.T) {
	const all = 10_000
	var costs []int
	for _, differ := range []int{1, 10, 100, 1000} {
		every := all / differ
		a := logsOf(all, func(i int) uint64 {
			if i%every == 0 && i/every%2 == 0 {
				return 12
			}
			return 9
		})
		b := logsOf(all, func(i int) uint64 {
			if i%every == 0 && i/every%2 == 1 {
				return 14
			}
			return 9
		})
		c := compareTwo(t, a, b)
		if c.wanted[0] != differ/2 || c.wanted[1] != differ-differ/2 {
			t.Errorf("%d of %d differ: %v are wanted", differ, all, c.wanted)
		}
		t.Logf("%d of %d differ: %d messages, %d bytes", differ, all, c.messages, c.bytes)
		if c.bytes > 4000+3500*differ {
			t.Errorf("%d of %d differ: %d bytes", differ, all, c.bytes)
		}
		if n := len(costs); n > 0 && c.bytes > 10*costs[n-1] {
			t.Errorf("%d of %d differ: %d bytes, a tenth of them %d", differ, all, c.bytes, costs[n-1])
		}
		costs = append(costs, c.bytes)
		// The same difference among a tenth of the logs saves one level at most.
	}
	// One side has nothing: what the other has is told once.
	c := compareTwo(t, logsOf(all, func(int) uint64 { return 9 }), Inventory{})
	if c.wanted[1] != all || c.bytes > all*itemSize*11/10+2000 {
		t.Errorf("an empty replica: %d wanted, %d bytes", c.wanted[1], c.bytes)
	}
}

// TestCatchUpCost checks that what is sent to bring a replica up to date is the
// entries and little more, and that with checkpoints no entry's signature is looked
// at: those of entries that are corrupted in memory go unnoticed only by the sum.
func TestCatchUpCost(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.node("ann"), w.node("bob")
	a.write(400, 200)
	size := 0
	for _, s := range a.disk.logs[a.own] {
		size += len(s.Bytes())
	}
	w.connect(a, b)
	w.settle()
	if got := w.bytes[KindBlocks]; got > size*12/10 {
		t.Errorf("%d bytes of blocks for %d bytes of entries", got, size)
	}
	if b.r.Root() != a.r.Root() {
		t.Fatal("they differ")
	}
	before := w.messages[KindBlocks]
	w.disconnect(a, b)
	w.connect(a, b)
	w.settle()
	if w.messages[KindBlocks] != before || w.messages[KindRanges] > 2 {
		t.Errorf("equal replicas sent %v", w.messages)
	}
}

// TestFairness has one peer want a log of a megabyte and fifty of a few entries: the
// small ones are there when a small part of the large one is; and what is written
// meanwhile does not wait for the rest of it.
func TestFairness(t *testing.T) {
	names := []string{"ann", "bob"}
	for i := range 50 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	w := newWorld(t, names...)
	w.config = func(c *Config) { c.Turn, c.Window = 8<<10, 32<<10 }
	for _, n := range w.nodes {
		n.start()
	}
	a, b := w.node("ann"), w.node("bob")
	a.write(1000, 1000)
	for _, n := range w.nodes[2:] {
		n.write(2, 10)
		a.disk.logs[n.own] = n.disk.logs[n.own]
	}
	a.start()
	w.connect(a, b)
	small := func() (n int) {
		for _, s := range w.nodes[2:] {
			n += len(b.disk.logs[s.own])
		}
		return n
	}
	turn := func() bool { // one thing for each
		busy := false
		for _, n := range []*node{a, b} {
			for _, from := range []*node{a, b} {
				if len(n.inbox[from]) > 0 {
					n.deliver(from)
					busy = true
				}
			}
			if len(n.reads) > 0 {
				n.load()
				busy = true
			}
			if len(n.store) > 0 {
				n.persist()
				busy = true
			}
		}
		return busy
	}
	for small() < 100 && turn() {
	}
	if got := len(b.disk.logs[a.own]); got > 300 {
		t.Errorf("50 logs of 2 entries took as long as %d of the 1,000 of the large one", got)
	}
	// bob has all of n00's log, so its next entry is live.
	n := w.node("n00")
	n.write(1, 10)
	l := n.disk.logs[n.own]
	a.disk.logs[n.own] = l
	had := len(b.disk.logs[a.own])
	a.do(a.r.Appended(n.own, l[2].Link(), l[2].Time, w.now))
	for len(b.disk.logs[n.own]) < 3 && turn() {
	}
	if got := len(b.disk.logs[a.own]); got-had > 60 {
		t.Errorf("a new entry waited for %d entries of history", got-had)
	}
	for turn() {
	}
	if b.r.Root() != a.r.Root() {
		t.Error("they differ at the end")
	}
}

// TestHistoryGoesOn checks that a log that is always written does not keep another
// from being caught up with.
func TestHistoryGoesOn(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid", "dan")
	w.config = func(c *Config) { c.Turn, c.Window, c.Reads = 500, 1000, 1 }
	for _, n := range w.nodes {
		n.start()
	}
	a, b, c, d := w.node("ann"), w.node("bob"), w.node("cid"), w.node("dan")
	w.connect(a, b)
	copied := func(n *node) {
		l := slices.Clone(n.disk.logs[n.own])
		a.disk.logs[n.own] = l
		a.do(a.r.Appended(n.own, l[len(l)-1].Link(), l[len(l)-1].Time, w.now))
	}
	c.write(1, 400)
	copied(c)
	w.settle() // bob has all of cid's log: what follows there is new
	d.write(50, 400)
	copied(d) // and all of dan's is history
	for range 400 {
		if len(b.disk.logs[d.own]) > 20 {
			return
		}
		c.write(3, 400)
		copied(c)
		for _, n := range []*node{a, b} {
			for _, from := range []*node{a, b} {
				if len(n.inbox[from]) > 0 {
					n.deliver(from)
				}
			}
			if len(n.reads) > 0 {
				n.load()
			}
			if len(n.store) > 0 {
				n.persist()
			}
		}
	}
	t.Errorf("of dan's log there are %d entries, of cid's %d", len(b.disk.logs[d.own]), len(b.disk.logs[c.own]))
}
