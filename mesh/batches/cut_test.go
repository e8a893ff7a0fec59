package batches

import (
	"fmt"
	"testing"
)

// TestCut: a follower whose log had a tail of another term, longer than the leader's log, has
// it cut off. It asks who has more, and gets the rest, also while the leader writes nothing.
func TestCut(t *testing.T) {
	for _, names := range [][]string{{"ann", "bob"}, {"bob", "ann"}} { // who compares depends on the ids
		w := newWorld(t, names...)
		a, b := w.nodes[0], w.nodes[1]
		id := tpOf(1)
		a.create(id)
		w.allKnow(id)
		a.append(id, 10, 10)
		tail := newLog(id, "carl")
		for i := range 15 {
			tail.grow(fmt.Appendf(nil, "old %d", i))
		}
		tail.sign()
		b.disk[id] = tail
		b.do(b.r.Changed(Have{Partition: id, Where: tail.where(), Leader: idOf(a.name)}, b.now))
		w.connect(a, b)
		w.settle()
		b.disk[id] = newLog(id, a.name)
		b.do(b.r.Changed(b.have(b.disk[id]), b.now))
		w.settle()
		if got := b.disk[id].size(); got != 0 {
			t.Fatalf("%d batches came to a log that nobody said was cut", got)
		}
		h := b.have(b.disk[id])
		h.Cuts = 1
		b.do(b.r.Changed(h, b.now))
		w.settle()
		w.equal()
	}
}
