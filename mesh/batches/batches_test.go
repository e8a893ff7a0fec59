package batches

import (
	"fmt"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

func (w *world) equal() {
	w.t.Helper()
	for _, n := range w.nodes {
		if s := n.lacks(); s != "" {
			w.t.Fatal(s)
		}
	}
}

func (w *world) total() int {
	n := 0
	for _, b := range w.bytes {
		n += b
	}
	return n
}

// TestCostOfComparing counts what equal nodes say, and what it takes to find 10 that
// changed among 10,000.
func TestCostOfComparing(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.nodes[0], w.nodes[1]
	for i := range 10_000 {
		a.create(tpOf(i))
		l := a.disk[tpOf(i)]
		l.grow([]byte(fmt.Sprint(i)))
		l.sign()
		w.truth[l.id] = [][]byte{l.batches[0]}
		c := newLog(l.id, l.leader)
		c.grow(l.batches[0])
		c.note = l.note
		b.disk[l.id] = c
	}
	a.start()
	b.start()
	w.connect(a, b)
	w.settle()
	if n := w.total(); n != 248 {
		t.Errorf("equal nodes say %d bytes, want 248: %v", n, w.bytes)
	}
	w.disconnect(a, b)
	for i := range 10 {
		a.append(tpOf(i*997), 1, 100)
	}
	clear(w.bytes)
	w.connect(a, b)
	w.settle()
	w.equal()
	compared := w.bytes[KindRanges] + w.bytes[KindOffer]
	t.Logf("10 of 10,000: %d bytes to compare, %v", compared, w.bytes)
	if compared > 16<<10 {
		t.Errorf("comparing costs %d bytes: %v", compared, w.bytes)
	}
	if w.bytes[KindSpan] > 10*1000 {
		t.Errorf("10 batches of 100 bytes cost %d", w.bytes[KindSpan])
	}
	if w.bytes[KindOffer] > 10*itemSize+200 { // the ten, and nothing that is equal
		t.Errorf("offers of %d bytes", w.bytes[KindOffer])
	}
}

// TestLive: what the leader appends later comes on the same follow.
func TestLive(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.nodes[0], w.nodes[1]
	a.create(tpOf(1))
	w.allKnow(tpOf(1))
	w.connect(a, b)
	a.append(tpOf(1), 1, 10)
	w.settle()
	w.equal()
	clear(w.bytes)
	for range 5 {
		a.append(tpOf(1), 2, 10)
		w.settle()
		w.equal()
	}
	if w.bytes[KindFollow] != 0 || w.bytes[KindOffer] != 0 {
		t.Errorf("it is asked for again: %v", w.bytes)
	}
}

// TestRelay: ann and cid never meet, and get each other's through bob; also of a
// partition that cid hears of only after bob has it.
func TestRelay(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	a.create(tpOf(1))
	c.create(tpOf(2))
	b.know(tpOf(1))
	w.connect(a, b)
	w.connect(b, c)
	a.append(tpOf(1), 10, 100)
	c.append(tpOf(2), 10, 100)
	w.settle()
	w.allKnow(tpOf(1))
	w.allKnow(tpOf(2))
	w.run(2)
	w.equal()
	a.append(tpOf(1), 1, 100)
	w.run(2)
	w.equal()
	if c.from["bob"] != 11 {
		t.Errorf("cid has %v", c.from)
	}
}

// TestTheLeaderIsPreferred: while the leader is away a partition comes from who has
// it, and from the leader again when that is back and has more.
func TestTheLeaderIsPreferred(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	a.create(tpOf(1))
	w.allKnow(tpOf(1))
	w.connect(a, b)
	a.append(tpOf(1), 5, 100)
	w.settle()
	w.connect(b, c)
	w.run(1)
	w.equal()
	if c.from["bob"] != 5 {
		t.Fatalf("cid has %v", c.from)
	}
	w.connect(a, c)
	w.settle()
	a.append(tpOf(1), 5, 100)
	w.run(1)
	c.from = map[string]int{}
	a.append(tpOf(1), 5, 100)
	w.run(1)
	w.equal()
	if c.from["ann"] != 5 || c.from["bob"] != 0 {
		t.Errorf("cid has %v", c.from)
	}
	w.disconnect(a, c)
	a.append(tpOf(1), 5, 100)
	w.run(1)
	w.equal()
}

// TestSilence: a partition whose source says that it has more and sends nothing, or
// sends others and passes it over, is followed elsewhere, and not there for a while.
func TestSilence(t *testing.T) {
	for _, all := range []bool{true, false} {
		w := newWorld(t, "ann", "bob", "cid")
		a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
		for i := range 3 {
			a.create(tpOf(i))
			a.append(tpOf(i), 5, 100)
			w.allKnow(tpOf(i))
		}
		w.connect(a, b)
		w.settle()
		w.disconnect(a, b)
		w.connect(b, c)
		w.settle()
		w.equal()
		b.lie = func(_ *node, m Message) []Message {
			if s, ok := m.(Spans); ok && (all || s.Span.Partition == tpOf(1)) {
				return nil
			}
			return []Message{m}
		}
		w.connect(a, b)
		w.settle()
		a.append(tpOf(1), 5, 100)
		w.settle()
		for range 100 {
			a.append(tpOf(0), 1, 100)
			a.append(tpOf(2), 1, 100)
			w.run(1)
		}
		if n := w.refused[reconcile.NotShown]; n == 0 {
			t.Fatalf("all %v: nothing was noticed: %v", all, w.refused)
		}
		w.connect(a, c)
		w.run(1)
		w.equal()
	}
}

// TestATruncatedSource: whoever lacks what a leader has dropped begins where it does,
// if the leader has signed that.
func TestATruncatedSource(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	a, b := w.nodes[0], w.nodes[1]
	a.create(tpOf(1))
	w.allKnow(tpOf(1))
	a.append(tpOf(1), 20, 100)
	w.connect(a, b)
	w.settle()
	w.disconnect(a, b)
	a.append(tpOf(1), 20, 100)
	a.disk[tpOf(1)].truncate(33)
	w.connect(a, b)
	w.settle()
	w.connect(b, w.nodes[2])
	w.settle()
	w.equal()
	if f := w.nodes[2].disk[tpOf(1)].first; f != 33 {
		t.Errorf("cid begins at %d", f)
	}
}

// TestALieAboutTheStart: who says that a log begins later is believed once, and then
// barred.
func TestALieAboutTheStart(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.nodes[0], w.nodes[1]
	a.create(tpOf(1))
	a.append(tpOf(1), 20, 100)
	w.allKnow(tpOf(1))
	n := uint64(0)
	a.lie = func(_ *node, m Message) []Message {
		if s, ok := m.(Spans); ok {
			n += 5
			return []Message{Ended{s.Span.Partition, s.Ask, n, 0}}
		}
		return []Message{m}
	}
	w.connect(a, b)
	w.settle()
	if n > 10 || w.refused[reconcile.NotShown] != 1 {
		t.Errorf("it was asked until %d: %v", n, w.refused)
	}
	a.lie = nil
	w.run(700)
	w.equal()
}

// TestFairness: thousands of small partitions, and what is written now, do not wait
// for a huge one.
func TestFairness(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	w.config = func(c *Config) { c.Window = 256 << 10 }
	a, b := w.nodes[0], w.nodes[1]
	a.start()
	b.start()
	huge := tpOf(0)
	a.create(huge)
	a.append(huge, 3000, 10_000)
	for i := range 1000 {
		a.create(tpOf(i + 1))
		a.append(tpOf(i+1), 1, 100)
	}
	for id := range w.led {
		b.know(id)
	}
	w.connect(a, b)
	written, lagging := false, uint64(0)
	for b.disk[huge].size() < 3000 {
		w.once()
		small := 0
		for i := range 1000 {
			small += int(b.disk[tpOf(i+1)].size())
		}
		if small < 1000 {
			lagging = b.disk[huge].size()
			continue
		}
		if !written {
			written = true
			a.append(tpOf(7), 1, 100) // while history is still coming
			at := b.disk[huge].size()
			for b.disk[tpOf(7)].size() < 2 {
				w.once()
			}
			if n := b.disk[huge].size() - at; n > 100 {
				t.Errorf("a new batch waited for %d of the huge log", n)
			}
		}
	}
	w.settle()
	w.equal()
	if !written || lagging > 200 {
		t.Errorf("thousands of small ones waited for %d batches of the huge one", lagging)
	}
}

// once gives every node one turn.
func (w *world) once() {
	for _, n := range w.nodes {
		if len(n.receive) > 0 {
			n.persist()
		}
		if len(n.reads) > 0 {
			n.load()
		}
		for _, from := range w.nodes {
			n.deliver(from)
		}
	}
}

// TestCreditIsAWindow: what a peer sends before it is durable is a window and a
// message, however slow the disk.
func TestCreditIsAWindow(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	w.config = func(c *Config) { c.Window = 100_000 }
	a, b := w.nodes[0], w.nodes[1]
	a.start()
	b.start()
	for i := range 20 {
		a.create(tpOf(i))
		a.append(tpOf(i), 50, 1000)
		b.know(tpOf(i))
	}
	b.hold = true
	w.connect(a, b)
	w.run(3)
	held := 0
	for _, x := range b.receive {
		for _, y := range x.Span.Batches {
			held += len(y)
		}
	}
	if held == 0 || held > 100_000+64<<10 {
		t.Errorf("%d bytes wait for the disk", held)
	}
	b.hold = false
	w.run(2)
	w.equal()
}

// TestAFullDisk: what cannot be stored now is taken when it can, and the session stays.
func TestAFullDisk(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.nodes[0], w.nodes[1]
	for i := range 20 {
		a.create(tpOf(i))
		a.append(tpOf(i), 300, 1000)
		b.know(tpOf(i))
	}
	b.full = true
	w.connect(a, b)
	w.run(20)
	if !a.reach[b] {
		t.Fatalf("the session has ended: %v", w.refused)
	}
	b.full = false
	w.run(5)
	w.equal()
}

// TestManyBusyPartitions: offers of thousands of partitions that grow all the time
// stay within the budget of who gets them, and all arrive.
func TestManyBusyPartitions(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	for i := range 1500 {
		a.create(tpOf(i))
		w.allKnow(tpOf(i))
	}
	w.connect(a, b)
	w.connect(a, c)
	w.connect(b, c)
	w.settle()
	for round := range 6 {
		for i := range 1500 {
			a.append(tpOf(i), 1, 20)
		}
		w.tick(200)
		w.settle()
		if !b.reach[c] || !a.reach[b] || !a.reach[c] {
			t.Fatalf("round %d: a session has ended: %v", round, w.refused)
		}
	}
	w.run(30)
	w.equal()
}

// TestWhoBreaksTheProtocol loses the session, for a reason that is counted.
func TestWhoBreaksTheProtocol(t *testing.T) {
	hello := Hello{1, 1, testStore, idOf("bob"), 1, Root{}, 1000}
	many := make([]Item, maxItems)
	for i := range many {
		many[i] = Item{lattice.TopicPartition{Topic: lattice.TopicID{1}, Partition: int32(i)}, 1, lattice.Hash{}}
	}
	at := func(from uint64) Message {
		return Spans{Ask: 1, Span: span.Span{Partition: tpOf(1), From: from, Batches: [][]byte{make([]byte, 600)}}}
	}
	for name, c := range map[string]struct {
		say  []Message
		want Reason
	}{
		"nothing before hello":  {[]Message{Credit{1}}, reconcile.BadMessage},
		"a second hello":        {[]Message{hello, hello}, reconcile.BadMessage},
		"another version":       {[]Message{Hello{3, 4, testStore, idOf("bob"), 1, Root{}, 1}}, reconcile.NoVersion},
		"another store":         {[]Message{Hello{1, 1, lattice.StoreID{1}, idOf("bob"), 1, Root{}, 1}}, reconcile.WrongStore},
		"another node":          {[]Message{Hello{1, 1, testStore, idOf("cid"), 1, Root{}, 1}}, reconcile.WrongNode},
		"too many partitions":   {[]Message{hello, Offer{many}}, reconcile.TooMuch},
		"too much credit":       {[]Message{hello, Credit{1<<32 - 1}}, reconcile.TooMuch},
		"spans without credit":  {[]Message{hello, Offer{[]Item{{tpOf(1), 10, filled(1)}}}, at(0), at(1), at(2)}, reconcile.TooMuch},
		"it ends":               {[]Message{hello, Bye{reconcile.Closing}}, reconcile.Closing},
		"endless questions":     {append([]Message{hello}, slicesOf(Ranges{Ranges: []Range{{Mode: ModeDigest, Count: 1}}}, 4000)...), reconcile.TooMuch},
		"follows more than any": {append([]Message{hello}, slicesOf(Follows{[]Follow{{tpOf(77), 1, 0}}}, 4000)...), reconcile.TooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Config{Store: testStore, Node: idOf("ann"), MaxPartitions: 1000, Burst: 300_000, Window: 1000}, []Have{{Partition: tpOf(1)}}, startMs)
			r.Connect(idOf("bob"), startMs)
			for i, m := range c.say {
				e, err := r.Step(idOf("bob"), Encode(m), startMs)
				if err == nil {
					continue
				}
				if len(e.Drop) != 1 || e.Drop[0].Reason != c.want || r.Refusals()[c.want] == 0 {
					t.Errorf("message %d: %v, %+v", i, err, e.Drop)
				}
				return
			}
			t.Error("it may go on")
		})
	}
}

func slicesOf(m Message, n int) []Message {
	out := make([]Message, n)
	for i := range out {
		out[i] = m
	}
	return out
}

// TestWhatIsRefusedCounts: a peer that sends wrong spans of ever other partitions is
// not let in again for a while.
func TestWhatIsRefusedCounts(t *testing.T) {
	w := newWorld(t, "ann", "bob")
	a, b := w.nodes[0], w.nodes[1]
	for i := range 300 {
		a.create(tpOf(i))
		a.append(tpOf(i), 1, 50)
		b.know(tpOf(i))
	}
	a.lie = func(_ *node, m Message) []Message {
		if s, ok := m.(Spans); ok {
			s.Span.Batches = [][]byte{[]byte("forged")}
			return []Message{s}
		}
		return []Message{m}
	}
	w.connect(a, b)
	w.settle()
	if a.reach[b] || w.refused[reconcile.Unproven] < maxStrikes {
		t.Fatalf("it is still let in: %v", w.refused)
	}
	w.connect(a, b)
	w.settle()
	if a.reach[b] {
		t.Error("it is let in again at once")
	}
	a.lie = nil
	w.now += 600_000
	w.run(1)
	w.connect(a, b)
	w.run(40)
	w.equal()
}
