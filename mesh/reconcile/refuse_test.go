package reconcile

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// lieOnce changes the first blocks of a log that a node sends.
func lieOnce(log state.Writer, change func(*Blocks)) func(*node, Message) []Message {
	done := false
	return func(_ *node, m Message) []Message {
		if b, ok := m.(Blocks); ok && b.Log == log && !done {
			done = true
			b.Entries = slices.Clone(b.Entries)
			change(&b)
			return []Message{b}
		}
		return []Message{m}
	}
}

// TestEntriesRefused has bob send cid's log of five entries, changed. What is good
// before the change is kept, the rest is refused with a reason, the log is not wanted
// from bob again while he is barred, his other logs come, and dan, who tells the
// truth, supplies what is missing.
func TestEntriesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, b *Blocks)
		reason Reason
		kept   int
	}{
		"forged": {func(_ *world, b *Blocks) {
			b.Entries[2] = bytes.Clone(b.Entries[2])
			b.Entries[2][len(b.Entries[2])-80] ^= 1 // the last byte of the value
		}, Forged, 2},
		"signature broken under the checkpoint": {func(_ *world, b *Blocks) {
			b.Entries[3] = bytes.Clone(b.Entries[3])
			b.Entries[3][len(b.Entries[3])-1] ^= 1
		}, Forged, 3},
		"signed by another": {func(w *world, b *Blocks) {
			old, _ := sigchain.Parse(b.Entries[1])
			x := w.sign("bob", old.Entry)
			b.Entries[1] = x.Bytes()
		}, Foreign, 1},
		"wrong store": {func(w *world, b *Blocks) {
			old, _ := sigchain.Parse(b.Entries[1])
			old.Store = lattice.StoreID{1}
			x := w.sign("cid", old.Entry)
			b.Entries[1] = x.Bytes()
		}, Foreign, 1},
		"hole":      {func(_ *world, b *Blocks) { b.Entries = slices.Delete(b.Entries, 1, 2) }, Foreign, 1},
		"far start": {func(_ *world, b *Blocks) { b.After, b.Entries = 3, b.Entries[3:] }, Hole, 0},
		"reordered": {func(_ *world, b *Blocks) { b.Entries[1], b.Entries[2] = b.Entries[2], b.Entries[1] }, Foreign, 1},
		"malformed": {func(_ *world, b *Blocks) { b.Entries[4] = []byte("no entry") }, Malformed, 4},
		"cut short": {func(_ *world, b *Blocks) { b.Entries[4] = b.Entries[4][:len(b.Entries[4])-1] }, Malformed, 4},
		"another version": {func(_ *world, b *Blocks) {
			b.Entries[4] = bytes.Clone(b.Entries[4])
			b.Entries[4][2] = 2
		}, Malformed, 4},
		"not later": {func(w *world, b *Blocks) {
			old, _ := sigchain.Parse(b.Entries[1])
			old.Time = 1
			x := w.sign("cid", old.Entry)
			b.Entries[1] = x.Bytes()
		}, OutOfTime, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "ann", "bob", "cid", "dan")
			a, b, d := w.node("ann"), w.node("bob"), w.node("dan")
			w.node("cid").write(5, 20)
			w.node("bob").write(2, 20)
			log := w.node("cid").own
			for _, n := range []*node{b, d} {
				n.disk.logs[log] = slices.Clone(w.node("cid").disk.logs[log])
				n.disk.notes[log] = w.node("cid").disk.notes[log]
				n.start()
			}
			b.lie = lieOnce(log, func(m *Blocks) { c.change(w, m) })
			w.connect(a, b)
			w.settle()
			if w.refused[c.reason] != 1 || len(w.refused) != 1 {
				t.Errorf("refused: %v, want %s once", w.refused, c.reason)
			}
			if got := len(a.disk.logs[log]); got != c.kept {
				t.Errorf("%d entries are kept, want %d", got, c.kept)
			}
			if got := len(a.disk.logs[b.own]); got != 2 {
				t.Errorf("of bob's own log there are %d entries", got)
			}
			blocks := w.messages[KindBlocks]
			for range 4 { // frontiers are compared again, and again
				w.tick(31_000)
				w.settle()
			}
			if w.messages[KindBlocks] != blocks {
				t.Error("bob is asked again")
			}
			w.connect(a, d)
			w.settle()
			if got := len(a.disk.logs[log]); got != 5 {
				t.Errorf("with dan there are %d entries", got)
			}
			if a.r.Refusals()[c.reason] != 1 {
				t.Errorf("counted: %v", a.r.Refusals())
			}
		})
	}
}

// TestPeerForgiven checks that a peer of which something was refused is asked again
// when its time is over.
func TestPeerForgiven(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.node("ann"), w.node("bob")
	b.write(3, 20)
	b.lie = lieOnce(b.own, func(m *Blocks) { m.Entries[0] = []byte("no entry") })
	w.connect(a, b)
	w.settle()
	for range 3 {
		w.tick(250_000)
		w.settle()
	}
	if a.r.Root() != b.r.Root() {
		t.Error("they still differ")
	}
}

// TestOversize sends an entry that is larger than its version allows, as far as the
// message allows.
func TestOversize(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.node("ann"), w.node("bob")
	b.write(1, 20)
	b.lie = lieOnce(b.own, func(m *Blocks) {
		m.Entries[0] = append(bytes.Clone(m.Entries[0]), make([]byte, sigchain.MaxSize)...)
	})
	w.connect(a, b)
	w.settle()
	if w.refused[BadMessage] != 1 || a.reach[b] {
		t.Errorf("refused: %v", w.refused)
	}
}

// TestSessionsEnd gives a replica what ends a session: the reason is told, the
// connection dropped, and nothing else stops.
func TestSessionsEnd(t *testing.T) {
	hello := func(w *world) Hello {
		return Hello{1, 1, w.genesis.Home(), idOf("bob"), 1, Root{}, 1 << 20}
	}
	for name, c := range map[string]struct {
		send   func(w *world) [][]byte
		reason Reason
	}{
		"wrong store": {func(w *world) [][]byte {
			h := hello(w)
			h.Store[0] ^= 1
			return [][]byte{Encode(h)}
		}, WrongStore},
		"another node": {func(w *world) [][]byte {
			h := hello(w)
			h.Node = idOf("cid")
			return [][]byte{Encode(h)}
		}, WrongNode},
		"later version": {func(w *world) [][]byte {
			h := hello(w)
			h.Min, h.Max = 2, 3
			return [][]byte{Encode(h)}
		}, NoVersion},
		"no hello":   {func(*world) [][]byte { return [][]byte{Encode(Credit{1})} }, BadMessage},
		"two hellos": {func(w *world) [][]byte { return [][]byte{Encode(hello(w)), Encode(hello(w))} }, BadMessage},
		"garbage":    {func(w *world) [][]byte { return [][]byte{Encode(hello(w)), []byte("GET / HTTP/1.1")} }, BadMessage},
		"empty":      {func(*world) [][]byte { return [][]byte{nil} }, BadMessage},
		"answer first": {func(w *world) [][]byte {
			return [][]byte{Encode(hello(w)), Encode(Ranges{Last: true}), Encode(Ranges{Last: true})}
		}, BadMessage},
		"much credit": {func(w *world) [][]byte {
			return [][]byte{Encode(hello(w)), Encode(Credit{1 << 31}), Encode(Credit{1 << 31})}
		}, TooMuch},
		"bye": {func(w *world) [][]byte { return [][]byte{Encode(hello(w)), Encode(Bye{Closing})} }, Closing},
		"endless questions": {func(w *world) [][]byte {
			all := [][]byte{Encode(hello(w))}
			for range 10_000 {
				all = append(all, Encode(Ranges{Ranges: []Range{{Mode: ModeItems}}}))
			}
			return all
		}, TooMuch},
		"endless logs": {func(w *world) [][]byte {
			all, cid := [][]byte{Encode(hello(w))}, idOf("cid")
			for i := range 10 {
				var o Offer
				for j := range maxItems {
					o.Items = append(o.Items, Item{LogKey(state.Writer{Author: cid, Incarnation: uint64(i*maxItems + j)}), 1, lattice.Hash{1}})
				}
				all = append(all, Encode(o))
			}
			return all
		}, TooMuch},
		"blocks that nobody wants": {func(w *world) [][]byte {
			all := [][]byte{Encode(hello(w))}
			for range 300 {
				all = append(all, Encode(Blocks{Log: state.Writer{Author: idOf("cid"), Incarnation: 1}, Ask: 9, Entries: [][]byte{{1}}}))
			}
			return all
		}, TooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "ann", "bob", "cid")
			w.config = func(c *Config) { c.MaxLogs, c.Burst = 3000, 1<<19 }
			a, bob := w.node("ann"), idOf("bob")
			a.start()
			a.r.Connect(bob, w.now)
			var err error
			var e Effects
			n := 0
			for _, m := range c.send(w) {
				if e, err = a.r.Step(bob, m, w.now); err != nil || len(e.Drop) > 0 {
					break
				}
				n++
			}
			if err != nil && !errors.Is(err, ErrPeer) {
				t.Error(err)
			}
			if len(e.Drop) != 1 || e.Drop[0].Reason != c.reason {
				t.Fatalf("after %d messages: dropped %v, want %s (%v)", n, e.Drop, c.reason, err)
			}
			if last := e.Send[len(e.Send)-1]; last.Message != (Bye{c.reason}) || last.To != bob {
				t.Errorf("the last message is %v", last)
			}
			if len(a.r.Peers()) != 0 || len(a.r.logs) != 1 {
				t.Errorf("%d peers and %d logs are left", len(a.r.Peers()), len(a.r.logs))
			}
			if _, err := a.r.Step(bob, Encode(Credit{1}), w.now); err == nil {
				t.Error("a peer that is gone is listened to")
			}
		})
	}
}

// TestStrangers checks that the log of somebody who is no member is not wanted, and
// is as soon as the entry that admits its author is here, in the same session.
func TestStrangers(t *testing.T) {
	w := newWorld(t, "ann", "bob", "new")
	a, b, n := w.node("ann"), w.node("bob"), w.node("new")
	founder := a.own
	all := a.disk.logs[founder]
	// bob knows of bob, but not of new.
	b.disk.logs[founder] = slices.Clone(all[:2])
	b.start()
	n.write(3, 10)
	a.disk.logs[n.own] = slices.Clone(n.disk.logs[n.own])
	a.start()
	b.hold = true
	w.connect(a, b)
	w.settle()
	if w.messages[KindBlocks] != 1 {
		t.Errorf("%d messages of blocks, want the founder's log only", w.messages[KindBlocks])
	}
	b.hold = false
	w.settle()
	if b.r.Root() != a.r.Root() || len(b.disk.logs[n.own]) != 3 {
		t.Errorf("bob has %d entries of new", len(b.disk.logs[n.own]))
	}
	if len(w.refused) != 0 {
		t.Errorf("refused: %v", w.refused)
	}
}

// TestCreditHolds checks that a peer whose disk stands still is not sent more than
// its window and one message.
func TestCreditHolds(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	w.config = func(c *Config) { c.Window, c.Turn = 10_000, 2000 }
	for _, n := range w.nodes {
		n.start()
	}
	a, b := w.node("ann"), w.node("bob")
	a.write(100, 500)
	b.hold = true
	w.connect(a, b)
	w.settle()
	if got := w.bytes[KindBlocks]; got < 8000 || got > 14_000 {
		t.Errorf("%d bytes are under way for a window of 10,000", got)
	}
	b.hold = false
	w.settle()
	if b.r.Root() != a.r.Root() {
		t.Error("it does not go on")
	}
}

// TestStoreRefuses checks what follows when the store cannot take entries for a
// while, with more of the same log behind them: they are wanted again, nobody is
// blamed, and nothing is lost or skipped.
func TestStoreRefuses(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	w.config = func(c *Config) { c.Turn = 300 }
	a, b := w.node("ann"), w.node("bob")
	a.start()
	b.start()
	a.write(5, 100)
	b.hold = true
	w.connect(a, b)
	w.settle()
	if len(b.store) < 2 {
		t.Fatalf("%d stores are under way", len(b.store))
	}
	full := lattice.E(lattice.Storage, errors.New("disk full"))
	for _, s := range b.store {
		b.do(b.r.Stored(s.ID, 0, full, w.now))
		full = sigchain.ErrGap // what is behind it does not follow
	}
	b.store, b.hold = nil, false
	w.settle()
	if len(b.disk.logs[a.own]) != 2 {
		t.Errorf("it has %d entries", len(b.disk.logs[a.own]))
	}
	w.tick(2000)
	w.settle()
	if b.r.Root() != a.r.Root() {
		t.Error("they differ when the disk has room again")
	}
	if w.refused[NotStored] != 1 || len(w.refused) != 1 {
		t.Errorf("refused: %v", w.refused)
	}
}

// TestCreditIsKept has bob send entries that were wanted, and go on when there is no
// credit for them. The session ends; what came with credit is kept.
func TestCreditIsKept(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	w.config = func(c *Config) { c.Window, c.Turn = 1, 1 }
	a, b := w.node("ann"), w.node("bob")
	a.start()
	b.start()
	b.write(3, 10)
	b.lie = func(_ *node, m Message) []Message {
		x, ok := m.(Blocks)
		if !ok {
			return []Message{m}
		}
		next := Blocks{Log: x.Log, Ask: x.Ask, After: x.After + 1, Entries: [][]byte{b.disk.logs[b.own][1].Bytes()}}
		return []Message{x, next}
	}
	a.hold = true
	w.connect(a, b)
	w.settle()
	a.hold = false
	w.settle()
	if w.refused[TooMuch] != 1 || a.reach[b] || len(a.disk.logs[b.own]) != 1 {
		t.Errorf("refused %v, connected %v, %d entries", w.refused, a.reach[b], len(a.disk.logs[b.own]))
	}
}

// TestSilentPeer has bob claim entries that he never sends. After a while they are
// wanted from cid, who has them.
func TestSilentPeer(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	a, b, c := w.node("ann"), w.node("bob"), w.node("cid")
	c.write(3, 10)
	b.disk.logs[c.own] = slices.Clone(c.disk.logs[c.own])
	b.start()
	b.lie = func(_ *node, m Message) []Message {
		if m.Kind() == KindBlocks {
			return nil
		}
		return []Message{m}
	}
	w.connect(a, b)
	w.settle()
	w.connect(a, c)
	w.settle()
	if len(a.disk.logs[c.own]) != 0 {
		t.Fatal("it is wanted from two")
	}
	w.tick(11_000)
	w.settle()
	if len(a.disk.logs[c.own]) != 3 {
		t.Error("cid is not asked")
	}
	if w.refused[NotShown] != 1 {
		t.Errorf("refused: %v", w.refused)
	}
}

// TestForgedSearch has ann show, where cid's log is said to differ, an entry that cid
// never signed. It makes no fork of cid.
func TestForgedSearch(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	b, a, c := w.node("ann"), w.node("bob"), w.node("cid") // ann, who lies, asks first
	c.write(4, 10)
	for _, n := range []*node{a, b} {
		n.disk.logs[c.own] = slices.Clone(c.disk.logs[c.own])
		n.start()
	}
	a.write(1, 10) // so that they compare
	b.lie = func(_ *node, m Message) []Message {
		switch m := m.(type) {
		case Ranges:
			for i := range m.Ranges {
				m.Ranges[i].Items = slices.Clone(m.Ranges[i].Items)
				for j := range m.Ranges[i].Items {
					if m.Ranges[i].Items[j].Key == LogKey(c.own) {
						m.Ranges[i].Items[j].ID = lattice.Hash{1}
					}
				}
			}
		case Blocks:
			if m.Log == c.own {
				e := bytes.Clone(m.Entries[0])
				e[len(e)-80] ^= 1
				m.Entries = [][]byte{e}
				return []Message{m}
			}
		}
		return []Message{m}
	}
	w.connect(a, b)
	w.settle()
	if len(a.disk.forks) != 0 || w.refused[Forged]+w.refused[NotShown] == 0 {
		t.Errorf("forks %v, refused %v", a.disk.forks, w.refused)
	}
	if len(b.disk.logs[a.own]) != len(a.disk.logs[a.own]) {
		t.Error("bob's own log does not come to ann")
	}
}
