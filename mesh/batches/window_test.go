package batches

import (
	"fmt"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

// TestWindows: eight peers may send a whole window unasked, those that come after them
// an eighth, and a place that becomes free is given again.
func TestWindows(t *testing.T) {
	r := New(Config{Store: testStore, Node: idOf("ann"), Session: 1, Window: 800}, nil, startMs)
	offered := func(name string) uint32 {
		for _, s := range r.Connect(idOf(name), startMs).Send {
			if h, ok := s.Message.(Hello); ok {
				return h.Window
			}
		}
		t.Fatal("no hello")
		return 0
	}
	for i := range 12 {
		want := uint32(800)
		if i >= wide {
			want = 100
		}
		if got := offered(fmt.Sprint("bob", i)); got != want {
			t.Errorf("peer number %d may send %d bytes, want %d", i, got, want)
		}
	}
	r.Disconnect(idOf("bob10"), startMs)
	if got := offered("bob12"); got != 100 {
		t.Errorf("a narrow window became free, and %d bytes were given", got)
	}
	r.Disconnect(idOf("bob3"), startMs)
	if got := offered("bob13"); got != 800 {
		t.Errorf("a wide window became free, and %d bytes were given", got)
	}
}

// TestASlowLink: on a link that takes little, history does not pile up in front of what
// is appended meanwhile, though the peer would take more.
func TestASlowLink(t *testing.T) {
	const unsent = 300_000
	w := newWorld(t, "ann", "bob")
	w.config = func(c *Config) { c.Unsent = unsent }
	a, b := w.nodes[0], w.nodes[1]
	a.start()
	b.start()
	for i := range 2 {
		a.create(tpOf(i))
		a.append(tpOf(i), 1, 100)
	}
	w.allKnow(tpOf(0))
	w.allKnow(tpOf(1))
	w.connect(a, b)
	w.settle()
	w.disconnect(a, b)
	a.append(tpOf(0), 5000, 1000) // which a window would take whole
	w.connect(a, b)
	queue := func() (n int) {
		for _, m := range b.inbox[a] {
			n += len(m)
		}
		return n
	}
	most, waits := 0, false
	for turn := 0; b.disk[tpOf(0)].size() < 5001; turn++ {
		if turn > 100_000 {
			t.Fatalf("bob has %d batches", b.disk[tpOf(0)].size())
		}
		b.deliver(a) // one message gets through
		a.do(a.r.Waiting(func(lattice.NodeID) int { return queue() }, w.now))
		for len(b.receive) > 0 {
			b.persist()
		}
		for range 4 { // and ann is quicker than the link
			a.deliver(b)
			if len(a.reads) > 0 {
				a.load()
			}
		}
		if most = max(most, queue()); turn == 3 {
			a.append(tpOf(1), 1, 100)
			waits = true
		}
		if waits && b.disk[tpOf(1)].size() == 2 {
			waits = false
			if turn > 11 {
				t.Errorf("a new batch waited for %d messages", turn-3)
			}
		}
	}
	if waits {
		t.Error("the new batch came last")
	}
	if most < unsent || most > unsent+4*4*64<<10 {
		t.Errorf("up to %d bytes waited", most)
	}
}
