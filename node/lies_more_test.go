package node

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// TestLiarsAboutAcknowledgements has a member of a partition's set acknowledge what was never
// signed, for others, or twice: nothing of it counts, and what an honest one acknowledges does.
func TestLiarsAboutAcknowledgements(t *testing.T) {
	c := newCourt(t, nil)
	eve, zed := c.eve, identity.FromSeed([32]byte{26})
	ann := c.ann.stores.key.Author()
	set := strings.Join([]string{ann.String(), c.bob.key.Author().String(), eve.node().String()}, ",")
	topic, err := c.store.CreateTopic(t.Context(), store.NewTopic{
		Name: "orders", Partitions: 1, Config: map[string]string{"lattice.replicas": set, "min.insync.replicas": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id, records := lattice.TopicPartition{Topic: topic.ID}, int64(0)
	// signs has ann sign what another record makes of the log.
	signs := func() []byte {
		t.Helper()
		records++
		produceTo(t, c.store, id, 1, "honest")
		shows(t, c.store, id, records) // bob has acknowledged it
		s, _, err := newReplica(c.store, keyval.Staging{}).ReadSpan(t.Context(), id, 0, 1<<20)
		if err != nil || int64(len(s.Batches)) != records {
			t.Fatalf("%d batches: %v", len(s.Batches), err)
		}
		return s.Note
	}
	by := func(key identity.Key, note []byte, leader lattice.AuthorID) []byte {
		t.Helper()
		out, err := cosign.Sign(key, uint64(time.Now().Unix()), note, leader)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// unsigned is what ann never signed, acknowledged by eve.
	unsigned := func(change func(*merkle.Checkpoint)) func([]byte) []byte {
		return func(note []byte) []byte { return by(eve.key, resigned(t, note, zed, change), zed.Author()) }
	}
	first := signs()
	for _, lie := range []struct {
		what string
		why  reconcile.Reason
		make func(note []byte) []byte
	}{
		{"a forged signature", reconcile.Forged, func(note []byte) []byte { b := by(eve.key, note, ann); b[len(b)-10] ^= 1; return b }},
		{"what is none", reconcile.Forged, func(note []byte) []byte { return note }},
		{"a stranger's", reconcile.NotEntitled, func(note []byte) []byte { return by(zed, note, ann) }},
		{"more than was signed", reconcile.Forged, unsigned(func(p *merkle.Checkpoint) { p.Size, p.End = 1<<40, 1<<40 })},
		{"another history", reconcile.Forged, unsigned(func(p *merkle.Checkpoint) { p.Root[0] ^= 1; p.Size++; p.End++ })},
		{"of another log", reconcile.Unproven, unsigned(func(p *merkle.Checkpoint) { p.Origin += "1" })},
		{"of another store", reconcile.Unproven, unsigned(func(p *merkle.Checkpoint) { p.Origin = merkle.Origin(lattice.StoreID{1}, id.String()) })},
		{"of a term that is over", reconcile.OutOfTime, unsigned(func(p *merkle.Checkpoint) { p.Term--; p.Grant = lattice.Hash{1} })},
		{"of a term that is numbered otherwise", reconcile.Forged, unsigned(func(p *merkle.Checkpoint) { p.Term++ })},
	} {
		c.refuses(lie.what, true, lie.why, func(t *testing.T) {
			x := eve.records()
			x.write(batches.Encode(batches.Acks{All: []batches.Ack{{Partition: id, Note: lie.make(first)}}}))
			signs()
			p, err := c.store.Partition(id.Topic, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range p.Acks() {
				if a.By == eve.node() {
					t.Error("it counts")
				}
			}
		})
	}
	c.refuses("an older one behind a newer", true, reconcile.OutOfTime, func(t *testing.T) {
		x := eve.records()
		x.write(batches.Encode(batches.Acks{All: []batches.Ack{{Partition: id, Note: by(eve.key, signs(), ann)}}}))
		p, err := c.store.Partition(id.Topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		soon(t, "the newer one counts", func() bool { // they are verified side by side
			return slices.ContainsFunc(p.Acks(), func(a partition.AckNote) bool { return a.By == eve.node() })
		})
		x.write(batches.Encode(batches.Acks{All: []batches.Ack{{Partition: id, Note: by(eve.key, first, ann)}}}))
	})
	c.refuses("a longer one than there are", true, reconcile.BadMessage, func(t *testing.T) {
		x := eve.records()
		x.write(batches.Encode(batches.Acks{All: []batches.Ack{{Partition: id, Note: make([]byte, cosign.MaxNote+1)}}}))
		x.over()
	})
	c.shows(true, reconcile.Forged, reconcile.NotEntitled, reconcile.Unproven, reconcile.OutOfTime, reconcile.BadMessage)
	sameRecords(t, c.store, c.bob.first, id)
}

// asking is a stream of asks that eve makes up.
type asking struct {
	t  *testing.T
	s  network.Stream
	id uint64
}

// ask asks, and returns the answer.
func (x *asking) ask(a forward.Ask) forward.Answer {
	x.t.Helper()
	x.id++
	a.ID = x.id
	if _, err := x.s.Write(a.AppendTo(nil)); err != nil {
		x.t.Fatal(err)
	}
	if err := x.s.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		x.t.Fatal(err)
	}
	var head [forward.LengthSize]byte
	if _, err := io.ReadFull(x.s, head[:]); err != nil {
		x.t.Fatal(err)
	}
	n, err := forward.Records.AnswerLength(head)
	if err != nil {
		x.t.Fatal(err)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(x.s, b); err != nil {
		x.t.Fatal(err)
	}
	got, err := forward.Records.ParseAnswer(b)
	if err != nil || got.ID != a.ID {
		x.t.Fatalf("%+v: %v", got, err)
	}
	return got
}

func (l *liar) asks(of lattice.StoreID) *asking {
	l.t.Helper()
	s := l.toAnn(protocol.ID(forward.Records.Protocol()))
	if _, err := s.Write(forward.Records.Opening(of)); err != nil {
		l.t.Fatal(err)
	}
	return &asking{t: l.t, s: s}
}

// ends waits until the stream is over.
func (x *asking) ends() {
	x.t.Helper()
	if err := x.s.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		x.t.Fatal(err)
	}
	if _, err := x.s.Read(make([]byte, 1)); err == nil {
		x.t.Error("it goes on")
	}
}

// TestLiarsWhoForward has a member ask the leader for what a client may not have, without a
// node in between that would have looked at it: the answer says why in Kafka's numbers, the offsets
// of others are theirs alone, and what is no ask at all is counted.
func TestLiarsWhoForward(t *testing.T) {
	var other store.Topic
	c := newCourt(t, func(c *court) { other = createOn(t, c.bob.first, "other", 1) })
	topic := createOn(t, c.store, "orders", 1)
	soon(t, "bob's topic", func() bool { _, ok := c.store.TopicByID(other.ID); return ok })
	id := lattice.TopicPartition{Topic: topic.ID}
	produceTo(t, c.store, id, 3, "ann's")
	batch := func(producer int64, seq int32, value string) []byte {
		b := record.NewBuilder(record.None, 0)
		b.Add(time.Now().UnixMilli(), nil, []byte(value), nil)
		out := b.Build(nil)
		if producer >= 0 {
			record.SetProducer(out, producer, 0, seq)
		}
		return out
	}
	flipped := batch(-1, 0, "flipped")
	flipped[len(flipped)-3] ^= 1
	far := batch(-1, 0, "far")
	record.Place(far, 1<<40, 7)
	x := c.eve.asks(c.store.Info().ID)
	for _, a := range []struct {
		what string
		part lattice.TopicPartition
		b    []byte
		code int16
		base int64
	}{
		{"a flipped bit", id, flipped, 2, -1},
		{"a first of its own", id, batch(77, 0, "one"), 0, 3},
		{"the same again", id, batch(77, 0, "one"), 0, 3},
		{"another record in its place", id, batch(77, 0, "equivocates"), 0, 3},
		{"a gap", id, batch(77, 5, "gap"), 45, -1},
		{"an offset of its own", id, far, 0, 4},
		{"more than fits", id, batch(-1, 0, strings.Repeat("x", 2<<20)), 10, -1},
		{"what another leads", lattice.TopicPartition{Topic: other.ID}, batch(-1, 0, "elsewhere"), 6, -1},
		{"of no topic", lattice.TopicPartition{Topic: lattice.TopicID{9}}, batch(-1, 0, "nowhere"), 3, -1},
		{"what is no batch", id, []byte("no batch"), 2, -1},
	} {
		got := x.ask(forward.Ask{Op: forward.Append, Acks: 1, Wait: 10_000, Partition: a.part, Batches: a.b})
		if got.Code != a.code || got.Base != a.base || got.Refused && got.Text == "" {
			t.Errorf("%s: %+v, want code %d and offset %d", a.what, got, a.code, a.base)
		}
		c.honest()
	}
	if end := endOf(t, c.store, id); end != 5 {
		t.Errorf("the log ends at %d, want 5", end)
	}
	c.refuses("what is no ask", false, reconcile.BadMessage, func(*testing.T) {
		x := c.eve.asks(c.store.Info().ID)
		_, _ = x.s.Write(bytes.Repeat([]byte{0, 0, 0, 77}, 40))
		x.ends()
	})
	c.refuses("an ask twice", false, reconcile.BadMessage, func(*testing.T) {
		x := c.eve.asks(c.store.Info().ID)
		x.ask(forward.Ask{Op: forward.Truncate, Partition: lattice.TopicPartition{Topic: other.ID}, Before: 1})
		again := forward.Ask{Op: forward.Truncate, ID: 1, Partition: lattice.TopicPartition{Topic: other.ID}, Before: 1}
		_, _ = x.s.Write(again.AppendTo(nil))
		x.ends()
	})
	c.eve.asks(lattice.StoreID{1}).ends()
	c.shows(false, reconcile.BadMessage)
	sameRecords(t, c.store, c.bob.first, id)
}

// TestLiarsAboutSnapshots has a member say that what ann lacks is in a snapshot, and send
// something else.
func TestLiarsAboutSnapshots(t *testing.T) {
	c := newCourt(t, nil)
	eve, last := c.eve, uint64(1)<<62
	foreign, err := eve.all[0].State().Snapshot(t.Context()) // of the store that eve had before she joined
	if err != nil {
		t.Fatal(err)
	}
	file, err := eve.all[0].State().OpenSnapshot(foreign.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	whole, err := io.ReadAll(io.NewSectionReader(file, 0, file.Bytes))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(status byte, n int, b []byte) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{'L', 'S', 1, status}, uint64(n)), b...)
	}
	for _, lie := range []struct {
		what string
		why  reconcile.Reason
		name reconcile.Snapshot
		says []byte
	}{
		{"other bytes", reconcile.Unproven, reconcile.Snapshot{Root: lattice.Hash{1}, Sum: lattice.Hash{2}, Bytes: 100}, answer(0, 100, make([]byte, 100))},
		{"more than it named", reconcile.BadMessage, reconcile.Snapshot{Root: lattice.Hash{1}, Sum: lattice.Hash{3}, Bytes: 100}, answer(0, 200, make([]byte, 200))},
		{"nothing", reconcile.NotShown, reconcile.Snapshot{Root: lattice.Hash{1}, Sum: lattice.Hash{4}, Bytes: 100}, answer(1, 0, nil)},
		{"no answer", reconcile.BadMessage, reconcile.Snapshot{Root: lattice.Hash{1}, Sum: lattice.Hash{5}, Bytes: 100}, []byte("no answer at all")},
		{"more than anybody has", reconcile.Oversize, reconcile.Snapshot{Root: lattice.Hash{1}, Sum: lattice.Hash{6}, Bytes: 1 << 50}, nil},
		{"another store's", reconcile.Unproven, reconcile.Snapshot{Root: foreign.Root, Sum: foreign.ID, Bytes: uint64(foreign.Bytes)}, answer(0, len(whole), whole)},
	} {
		c.refuses(lie.what, false, lie.why, func(t *testing.T) {
			eve.host.SetStreamHandler("/lattice/snapshot/1", func(s network.Stream) {
				_, _ = io.ReadFull(s, make([]byte, 116))
				_, _ = s.Write(lie.says)
				_ = s.Close()
			})
			root := rootOf(t, c.store)
			x := eve.entries()
			last++
			w := state.Writer{Author: eve.node(), Incarnation: last}
			eve.wanted(x, w, sigchain.Link{Incarnation: last, Seq: 10, ID: lattice.Hash{1}})
			x.write(reconcile.Encode(reconcile.Pruned{Log: w, First: 9, Snapshot: lie.name}))
			soon(t, "it is refused", func() bool { return c.counted(false, lie.why) > 0 })
			if rootOf(t, c.store) != root || tipOf(c.store, w) != 0 {
				t.Error("something of it is here")
			}
		})
	}
	c.shows(false, reconcile.Unproven, reconcile.BadMessage, reconcile.Oversize)
}

// TestLiarsInTheFold has a member write what it has no right to, and two entries for one place: the
// first is kept and has no effect, of the second the proof is kept, and on all nodes nothing counts that
// follows. Both are shown, and others' writes go on.
func TestLiarsInTheFold(t *testing.T) {
	c := newCourt(t, nil)
	eve, home := c.eve, c.store.Genesis()
	w := state.Writer{Author: eve.node(), Incarnation: 1 << 62}
	first := chain(t, w, eve.key, home, sigchain.Signed{}, "one")[0].Entry
	c.store.State().ReadRoster(func(r *roster.Roster) { first.Parents = slices.Clone(r.GrantsTo(eve.node())) })
	one, err := sigchain.Sign(eve.key, first)
	if err != nil {
		t.Fatal(err)
	}
	all := append([]sigchain.Signed{one}, chain(t, w, eve.key, home, one, "two")...)
	zed := identity.FromSeed([32]byte{26}).Author()
	op, err := roster.Member{Author: zed, Role: roster.Admin}.Op()
	if err != nil {
		t.Fatal(err)
	}
	coup := all[1].Entry
	coup.Seq, coup.Prev, coup.Time, coup.Ops = 3, all[1].Link(), all[1].Time+1, []sigchain.Op{op}
	promoted, err := sigchain.Sign(eve.key, coup)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, promoted)
	send := func(x *talk[reconcile.Message], after uint64, all []sigchain.Signed) {
		want := eve.wanted(x, w, all[len(all)-1].Link())
		m := reconcile.Blocks{Log: w, Ask: want.Ask, After: after}
		for _, e := range all {
			m.Entries = append(m.Entries, e.Bytes())
		}
		x.write(reconcile.Encode(m))
	}
	send(eve.entries(), 0, all)
	soon(t, "it is here, and with bob", func() bool { return tipOf(c.store, w) == 3 && tipOf(c.bob.first, w) == 3 })
	for _, st := range []*store.Store{c.store, c.bob.first} {
		if slices.ContainsFunc(st.Members(), func(m store.Member) bool { return m.Node == zed }) {
			t.Error("a writer has made somebody a member")
		}
	}
	c.honest()
	alike(t, c.store, c.bob.first)
	for _, st := range []*store.Store{c.store, c.bob.first} {
		if n := st.State().Status().Void; n != 1 {
			t.Errorf("%d entries are counted as void", n)
		}
	}

	// Another history from there on, which is longer. Asked for entries of it one by one, eve shows
	// them: so she proves herself that she signed two.
	left, right := chain(t, w, eve.key, home, promoted, "left", "left"), chain(t, w, eve.key, home, promoted, "right", "right", "right")
	x := eve.entries()
	send(x, 3, left)
	soon(t, "the first history", func() bool { return tipOf(c.store, w) == 5 && tipOf(c.bob.first, w) == 5 })
	other := append(slices.Clone(all), right...)
	want := eve.wanted(x, w, right[2].Link())
	x.write(reconcile.Encode(reconcile.Blocks{Log: w, Ask: want.Ask, After: 5, Entries: [][]byte{right[2].Bytes()}}))
	soon(t, "she has shown it", func() bool {
		if c.store.State().Status().Equivocations == 0 {
			if probe := newest(x, w); probe.Ask > want.Ask {
				want = probe
				x.write(reconcile.Encode(reconcile.Blocks{Log: w, Ask: want.Ask, After: want.After, Entries: [][]byte{other[want.After].Bytes()}}))
			}
			return false
		}
		return true
	})
	for _, st := range []*store.Store{c.store, c.bob.first} {
		soon(t, "the proof is here", func() bool { return st.State().Status().Equivocations == 1 })
	}
	c.honest()
	alike(t, c.store, c.bob.first)
	if got := c.store.State().Forked(eve.node()); got.Seq != 4 || got.Incarnation != w.Incarnation {
		t.Errorf("it is cut off at %v", got)
	}
}
