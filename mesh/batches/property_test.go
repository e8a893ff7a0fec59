package batches

import (
	"bytes"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/mesh/reconcile"
	"pgregory.net/rapid"
)

// liar changes what a node sends: what a member can do who runs another program.
type liar struct {
	t    *rapid.T
	n    *node
	last []Message
}

func (l *liar) lie(_ *node, m Message) []Message {
	l.last = append(l.last, m)
	draw := func(from, to int, label string) int { return rapid.IntRange(from, to).Draw(l.t, label) }
	how := draw(0, 30, "lie")
	switch x := m.(type) {
	case Spans:
		s := &x.Span
		s.Batches = slices.Clone(s.Batches)
		if len(s.Batches) == 0 && how < 5 { // the checkpoint alone
			how = 6
		}
		switch how {
		case 0, 1: // forged: a byte is another
			i := draw(0, len(s.Batches)-1, "batch")
			b := bytes.Clone(s.Batches[i])
			b[draw(0, len(b)-1, "byte")] ^= 1
			s.Batches[i] = b
		case 2: // a hole
			if s.Batches = s.Batches[1:]; len(s.Batches) == 0 {
				return nil
			}
		case 3: // far start
			s.From += 1 << 40
		case 4: // reordered
			slices.Reverse(s.Batches)
		case 5: // a batch of its own at the end
			s.Batches = append(s.Batches, []byte("of the liar"))
		case 6: // signed by itself
			s.Note = sealed(l.n.name, s.Partition, x.Size, 0, filled(9))
		case 7: // of another partition
			s.Partition.Partition++
		case 8: // another tree before
			s.Left = append(slices.Clone(s.Left), filled(8))
		case 9, 10:
			return nil // never shown
		case 11: // a size that nobody has
			x.Size += 1000
		case 12: // what was not asked
			x.Ask += 1000
		case 13: // it would begin later
			return []Message{Ended{s.Partition, x.Ask, s.From + 3, 0}}
		}
		return []Message{x}
	case Offer:
		x.Items = slices.Clone(x.Items)
		switch how {
		case 0, 1, 2: // far ahead
			x.Items[0].Size += 1000
			return []Message{x}
		case 3: // another history
			x.Items[0].Root = filled(7)
			return []Message{x}
		case 4: // all of them
			for i := range x.Items {
				x.Items[i].Size = 1 << 62
			}
			return []Message{x}
		}
	}
	switch how {
	case 20:
		return nil
	case 21:
		return []Message{m, l.last[draw(0, len(l.last)-1, "replayed")]}
	case 22: // of what nobody has
		return []Message{m, Offer{[]Item{{tpOf(1000 + len(l.last)), 5, filled(1)}}}}
	case 23:
		return []Message{m, Follows{[]Follow{{tpOf(draw(0, 12, "followed")), 9, uint64(draw(0, 9, "from"))}}}}
	case 24:
		return []Message{m, Credit{0}}
	case 25:
		return []Message{m, Refuse{tpOf(draw(0, 12, "refused")), uint32(draw(1, 9, "ask")), reconcile.Unproven}}
	case 26:
		return []Message{m, Ranges{Ranges: []Range{{Mode: ModeItems}}}}
	}
	return []Message{m}
}

// TestConverge lets nodes make partitions, write, truncate, meet, part, crash and lie
// in any order, over a network that delivers in any order between peers and loses
// sessions. A liar relays, and leads nothing. When those that tell the truth are
// connected in a line at last, the liars among them, they have all that the leaders
// have; and on the way nobody takes what its leader did not write (persist).
func TestConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"ann", "bob", "cid", "dan", "eve", "fay", "gil"}[:rapid.IntRange(3, 7).Draw(t, "nodes")]
		w := newWorld(t, names...)
		turn, window := rapid.IntRange(1, 2000).Draw(t, "turn"), rapid.IntRange(1, 5000).Draw(t, "window")
		w.config = func(c *Config) { c.Turn, c.Window = turn, window }
		for _, n := range w.nodes {
			n.start()
		}
		liars := map[*node]bool{}
		for _, n := range w.nodes[2:] {
			if rapid.IntRange(0, 3).Draw(t, "lies") == 0 {
				liars[n] = true
				n.lie = (&liar{t: t, n: n}).lie
			}
		}
		for range rapid.IntRange(10, 150).Draw(t, "steps") {
			w.step(t, liars)
		}
		w.finish(t, liars)
	})
}

func (w *world) step(t *rapid.T, liars map[*node]bool) {
	pick := func(label string) *node { return w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, label)] }
	n, o := pick("node"), pick("other")
	id := tpOf(rapid.IntRange(0, 12).Draw(t, "partition"))
	l := w.led[id]
	switch rapid.IntRange(0, 19).Draw(t, "what") {
	case 0, 1:
		if l == nil && !liars[n] && w.truth[id] == nil { // a topic that was dropped does not come back
			n.create(id)
			w.truth[id] = [][]byte{}
		}
	case 2, 3, 4:
		if l != nil {
			w.node(l.leader).append(id, rapid.IntRange(1, 20).Draw(t, "batches"), rapid.IntRange(20, 300).Draw(t, "size"))
		}
	case 5:
		if l != nil && l.size() > l.first && rapid.Bool().Draw(t, "truncate") { // at most all of it
			l.truncate(l.first + 1 + uint64(rapid.IntRange(0, int(l.size()-l.first)-1).Draw(t, "first")))
		}
	case 6:
		if l != nil && rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
			delete(w.led, id)
			w.node(l.leader).drop(id)
		}
	case 7:
		n.know(id)
		if l == nil && n.disk[id] != nil {
			n.drop(id)
		}
	case 8, 9:
		w.connect(n, o)
	case 10:
		w.disconnect(n, o)
	case 11:
		n.restart()
	case 12:
		n.hold = !n.hold
	case 13:
		n.full = !n.full && rapid.Bool().Draw(t, "full")
	case 14:
		w.tick(int64(rapid.IntRange(1, 20_000).Draw(t, "ms")))
	case 15:
		w.settle()
	case 16:
		if len(n.receive) > 0 && !n.hold {
			n.persist()
		}
	case 17:
		if len(n.reads) > 0 {
			n.load()
		}
	default:
		for range rapid.IntRange(1, 10).Draw(t, "deliveries") {
			pick("to").deliver(pick("from"))
		}
	}
}

func (w *world) finish(t *rapid.T, liars map[*node]bool) {
	var honest []*node
	for _, n := range w.nodes {
		n.hold, n.full = false, false
		if !liars[n] {
			honest = append(honest, n)
		}
		for id := range w.truth {
			if w.led[id] != nil {
				n.know(id)
			} else if n.disk[id] != nil {
				n.drop(id)
			}
		}
	}
	again := func() {
		for i, n := range honest[1:] {
			w.connect(honest[i], n)
		}
		for n := range liars {
			for _, o := range honest {
				w.connect(n, o)
			}
		}
	}
	lacking := ""
	for range 80 { // longer than a bar lasts
		again()
		w.tick(15_000)
		w.settle()
		lacking = ""
		for _, n := range honest {
			lacking += n.lacks()
		}
		if lacking == "" {
			break
		}
	}
	if lacking != "" {
		t.Fatalf("%s", lacking)
	}
	if len(liars) > 0 {
		return
	}
	w.run(40) // a comparison later they know that they are equal
	for _, n := range honest {
		for _, p := range n.r.Peers() {
			if !p.Equal || p.Behind != 0 || p.Ahead != 0 {
				t.Fatalf("%s says of %s: %+v", n.name, w.byID(p.Node).name, p)
			}
		}
		if l := n.r.Lags(10); len(l) > 0 {
			t.Fatalf("%s lags: %+v", n.name, l)
		}
	}
}
