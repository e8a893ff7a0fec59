package reconcile

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
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
	how := rapid.IntRange(0, 30).Draw(l.t, "lie")
	switch b := m.(type) {
	case Blocks:
		b.Entries = slices.Clone(b.Entries)
		switch how {
		case 0, 1: // forged: a byte is another
			i := rapid.IntRange(0, len(b.Entries)-1).Draw(l.t, "entry")
			e := bytes.Clone(b.Entries[i])
			e[rapid.IntRange(0, len(e)-1).Draw(l.t, "byte")] ^= 1
			b.Entries[i] = e
		case 2: // only its signature, under the author's checkpoint
			e := bytes.Clone(b.Entries[0])
			e[len(e)-1-rapid.IntRange(0, 63).Draw(l.t, "byte")] ^= 1
			b.Entries[0] = e
		case 3: // a hole
			b.Entries = b.Entries[1:]
			if len(b.Entries) == 0 {
				return nil
			}
		case 4: // far start
			b.After += 1 << 40
		case 5: // reordered
			slices.Reverse(b.Entries)
		case 6: // of another store
			x := sigchain.Entry{Store: [32]byte{1}, Incarnation: b.Log.Incarnation, Seq: b.After + 1, Time: 1 << 60}
			if b.After > 0 {
				x.Prev = sigchain.Link{Incarnation: b.Log.Incarnation, Seq: b.After, ID: [32]byte{1}}
			}
			b.Entries[0] = l.n.sign(l.n.name, x).Bytes()
		case 7: // not the author's checkpoint
			if b.Note != nil {
				b.Note = l.n.checkpoint(b.Log, l.n.key)
			}
		case 8: // another's log
			b.Log.Incarnation++
		case 9:
			return nil // never shown
		}
		return []Message{b}
	case Offer:
		if how < 4 { // far ahead, of what nobody has
			b.Items = slices.Clone(b.Items)
			b.Items[0].N += 1000
			return []Message{b}
		}
	case Ranges:
		if how < 3 {
			return []Message{b, Ranges{Last: true, Ranges: []Range{{Mode: ModeItems}}}}
		}
	}
	switch how {
	case 20:
		return nil
	case 21:
		return []Message{m, l.last[rapid.IntRange(0, len(l.last)-1).Draw(l.t, "replayed")]}
	case 22: // an offer of a log that nobody wrote
		return []Message{m, Offer{[]Item{{Key: LogKey(state.Writer{Author: idOf("ann"), Incarnation: uint64(len(l.last))}), N: 5, ID: [32]byte{1}}}}}
	case 23: // a fork that is none
		all := l.n.disk.logs[state.Writer{Author: l.n.genesis.Author, Incarnation: 1}]
		return []Message{m, Fork{all[0].Bytes(), all[1].Bytes()}}
	case 24:
		return []Message{m, Pruned{Log: state.Writer{Author: l.n.genesis.Author, Incarnation: 1}, First: 1 << 60}}
	}
	return []Message{m}
}

// TestConverge lets some nodes write, meet, part, crash and lie in any order, with a
// network that loses, repeats and swaps messages. When those that tell the truth are
// connected at last, they come to the same logs and the same state; and what the
// stores are handed always follows, and is signed (accepts).
func TestConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"ann", "bob", "cid", "dan", "eve", "fay", "gil", "hal"}[:rapid.IntRange(3, 8).Draw(t, "nodes")]
		w := newWorld(t, names...)
		turn, window := rapid.IntRange(1, 2000).Draw(t, "turn"), rapid.IntRange(1, 5000).Draw(t, "window")
		w.config = func(c *Config) { c.Turn, c.Window = turn, window }
		for _, n := range w.nodes {
			n.start()
		}
		liars := map[*node]bool{}
		for _, n := range w.nodes[2:] {
			if rapid.IntRange(0, 4).Draw(t, "lies") == 0 {
				liars[n] = true
				n.lie = (&liar{t: t, n: n}).lie
			}
		}
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			w.step(t)
		}
		w.finish(t, liars)
	})
}

// pick draws a node.
func (w *world) pick(t *rapid.T, label string) *node {
	return w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, label)]
}

func (w *world) step(t *rapid.T) {
	a, b := w.pick(t, "a"), w.pick(t, "b")
	switch rapid.IntRange(0, 24).Draw(t, "step") {
	case 0, 1, 2:
		a.write(rapid.IntRange(1, 4).Draw(t, "n"), rapid.SampledFrom([]int{1, 100, 1000}).Draw(t, "size"))
	case 3, 4, 5:
		if a != b && !a.reach[b] {
			w.connect(a, b)
		}
	case 6:
		if a != b && a.reach[b] {
			w.disconnect(a, b)
		}
	case 7:
		a.restart()
	case 8: // an author's node is copied, and both go on: a signs two histories
		if l := a.disk.logs[a.own]; len(l) > 1 && a != b && a != w.nodes[0] {
			at := rapid.IntRange(1, len(l)-1).Draw(t, "at")
			if len(b.disk.logs[a.own]) <= at {
				l = slices.Clone(l[:at])
				for range rapid.IntRange(1, 3).Draw(t, "n") {
					l = append(l, w.after(a.name, l[len(l)-1], nil, w.put(a.own, "other", "history")))
				}
				b.restart()
				b.disk.logs[a.own] = l
				delete(b.disk.notes, a.own)
				b.start()
			}
		}
	case 9:
		w.tick(rapid.SampledFrom([]int64{100, 5000, 31_000}).Draw(t, "ms"))
	case 10: // the network repeats, loses or swaps
		if q := a.inbox[b]; len(q) > 1 {
			switch rapid.IntRange(0, 2).Draw(t, "net") {
			case 0:
				a.inbox[b] = slices.Insert(slices.Clone(q), 1, q[0])
			case 1:
				a.inbox[b] = q[1:]
			case 2:
				a.inbox[b] = append([][]byte{q[1], q[0]}, q[2:]...)
			}
		}
	case 11:
		w.settle()
	default:
		a.some(t)
	}
}

// some does a few of the things that wait at a node.
func (n *node) some(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "some") {
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			if len(n.store) > 0 {
				n.persist()
			}
		case 1:
			if len(n.reads) > 0 {
				n.load()
			}
		default:
			for _, from := range n.nodes {
				if len(n.inbox[from]) > 0 {
					n.deliver(from)
					break
				}
			}
		}
	}
}

// finish connects those that tell the truth in a line, leaves liars connected to
// some of them, and checks that they come to the same.
func (w *world) finish(t *rapid.T, liars map[*node]bool) {
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a != b && a.reach[b] && !liars[a] && !liars[b] {
				w.disconnect(a, b)
			}
		}
	}
	w.settle()
	w.tick(700_000) // what was barred because of the network is not any more
	var honest []*node
	for _, i := range rapid.Permutation(w.order()).Draw(t, "line") {
		n := w.nodes[i]
		if !liars[n] {
			honest = append(honest, n)
		} else if p := w.pick(t, "victim"); !liars[p] && !n.reach[p] {
			w.connect(n, p)
		}
	}
	for i := range honest[1:] {
		w.connect(honest[i], honest[i+1])
	}
	for range 12 {
		w.settle()
		w.tick(31_000)
	}
	w.settle()
	for _, n := range honest[1:] {
		if n.r.Root() != honest[0].r.Root() {
			t.Fatalf("%s and %s differ:\n%s\n%s\n%s", honest[0].name, n.name, w.ids(honest[0].r.front.items), w.ids(n.r.front.items), w.why(liars))
		}
		if n.rows() != honest[0].rows() {
			t.Fatalf("%s and %s have the same logs and another state:\n%s\n%s\n%s", honest[0].name, n.name, w.items(n.r.front.items), honest[0].judged(), n.judged())
		}
	}
	for _, n := range honest {
		n.same(t, honest[0])
	}
}

// order is the numbers of the nodes.
func (w *world) order() []int {
	out := make([]int, len(w.nodes))
	for i := range out {
		out[i] = i
	}
	return out
}

// same checks that two nodes hold the same entries, before forks.
func (n *node) same(t *rapid.T, o *node) {
	upto := func(n *node, w state.Writer) []sigchain.Signed {
		l := n.disk.logs[w]
		return l[:min(uint64(len(l)), n.r.end(w))]
	}
	all := maps.Clone(n.disk.logs)
	maps.Copy(all, o.disk.logs)
	for w := range all {
		a, b := upto(n, w), upto(o, w)
		if !slices.EqualFunc(a, b, func(x, y sigchain.Signed) bool { return bytes.Equal(x.Bytes(), y.Bytes()) }) {
			t.Fatalf("%s has %d entries of %s, %s has %d", n.name, len(a), n.logText(w), o.name, len(b))
		}
	}
	if len(n.disk.forks) != len(n.r.forks) {
		t.Fatalf("%s has the proofs of %d forks and knows of %d", n.name, len(n.disk.forks), len(n.r.forks))
	}
}
