package p2p

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// memParts is a memStore with partitions. Its logs verify nothing but that a span
// begins where they end and ends with the root that its note says.
type memParts struct {
	*memStore
	plain bool // roots are sizes: it is not the log that is measured

	mu       sync.Mutex
	parts    map[lattice.TopicPartition]*memPart
	changed  map[int]func(lattice.TopicPartition)
	watchers int
	refuse   error // of each span
	receives int
}

type memPart struct {
	leader  lattice.NodeID
	batches [][]byte
	roots   []lattice.Hash // behind each batch
}

func partsOf(s *memStore) *memParts {
	return &memParts{memStore: s, parts: map[lattice.TopicPartition]*memPart{}, changed: map[int]func(lattice.TopicPartition){}}
}

var testPartition = lattice.TopicPartition{Topic: lattice.TopicID{1}, Partition: 2}

func (s *memParts) position(p *memPart) batches.Where {
	n := len(p.batches)
	at := batches.Where{Size: uint64(n), Proven: uint64(n)}
	if n > 0 {
		at.Root = p.roots[n-1]
	}
	return at
}

func (s *memParts) add(p *memPart, batch []byte) {
	at := s.position(p)
	if s.plain {
		binary.BigEndian.PutUint64(at.Root[:], at.Size+1)
	} else {
		at.Root = sha256.Sum256(append(at.Root[:], batch...))
	}
	p.batches, p.roots = append(p.batches, batch), append(p.roots, at.Root)
}

// make makes a partition, or says who leads it.
func (s *memParts) make(id lattice.TopicPartition, leader string) {
	s.mu.Lock()
	if s.parts[id] == nil {
		s.parts[id] = &memPart{}
	}
	s.parts[id].leader = idOf(leader)
	s.mu.Unlock()
	s.told(id)
}

func (s *memParts) told(id lattice.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.changed {
		f(id)
	}
}

func (s *memParts) produce(id lattice.TopicPartition, n, size int) {
	s.mu.Lock()
	p := s.parts[id]
	for range n {
		b := make([]byte, size)
		binary.BigEndian.PutUint64(b, uint64(len(p.batches)))
		s.add(p, b)
	}
	s.mu.Unlock()
	s.told(id)
}

func (s *memParts) size(id lattice.TopicPartition) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts[id] == nil {
		return 0
	}
	return len(s.parts[id].batches)
}

func (s *memParts) Partitions() []batches.Have {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []batches.Have
	for id, p := range s.parts {
		out = append(out, batches.Have{Partition: id, Where: s.position(p), Leader: p.leader})
	}
	return out
}

func (s *memParts) Partition(id lattice.TopicPartition) (batches.Have, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[id]
	if p == nil {
		return batches.Have{}, false
	}
	return batches.Have{Partition: id, Where: s.position(p), Leader: p.leader}, true
}

func (s *memParts) ReadSpan(_ context.Context, id lattice.TopicPartition, from uint64, most int) (span.Span, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[id]
	if p == nil {
		return span.Span{}, 0, lattice.E(lattice.NotFound, errors.New("no such partition"))
	}
	out := span.Span{Partition: id, From: from}
	for n := 0; from < uint64(len(p.batches)) && (n == 0 || n < most); from++ {
		out.Batches = append(out.Batches, p.batches[from])
		n += len(p.batches[from])
		out.Note = p.roots[from][:]
	}
	return out, 0, nil
}

func (s *memParts) ReceiveSpan(_ context.Context, x span.Span) (batches.Where, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receives++
	p := s.parts[x.Partition]
	switch {
	case p == nil:
		return batches.Where{}, lattice.E(lattice.NotFound, errors.New("no such partition"))
	case s.refuse != nil:
		return s.position(p), s.refuse
	case x.From != uint64(len(p.batches)):
		return s.position(p), lattice.E(lattice.Conflict, fmt.Errorf("here are %d batches, it begins at %d", len(p.batches), x.From))
	}
	try := &memPart{batches: p.batches, roots: p.roots, leader: p.leader}
	for _, b := range x.Batches {
		s.add(try, b)
	}
	if at := s.position(try); !bytes.Equal(at.Root[:], x.Note) {
		return s.position(p), lattice.E(lattice.Corrupt, errors.New("another root than is signed"))
	}
	*p = *try
	return s.position(p), nil
}

func (s *memParts) WatchPartitions(changed func(lattice.TopicPartition)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers++
	n := s.watchers
	s.changed[n] = changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.changed, n)
	}
}

// startParts is start of nodes whose stores have partitions.
func startParts(t testing.TB, name string, change func(*Config), s *memParts) *testNode {
	t.Helper()
	n := &testNode{t: t, name: name, book: &memBook{}, logs: &syncBuffer{}}
	n.run(change)
	check(t, n.Add(s))
	return n
}

func (n *testNode) batchStatus(s *memParts, other string) (out PeerStatus) {
	for _, x := range n.Status().Stores {
		if x.Store != s.id || x.Batches == nil {
			continue
		}
		for _, p := range x.Batches.Peers {
			if p.Node == idOf(other) {
				out = p
			}
		}
	}
	return out
}

// same waits until a partition is as long on b as on a, and compares.
func same(t testing.TB, a, b *memParts) {
	t.Helper()
	n := a.size(testPartition)
	eventually(t, "the records are there", func() bool { return b.size(testPartition) == n })
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if x, y := a.position(a.parts[testPartition]), b.position(b.parts[testPartition]); x != y {
		t.Fatalf("%+v and %+v", x, y)
	}
}

// TestBatchesTravel: what a leader has and appends comes to others, live, through a
// third, and after they were away.
func TestBatchesTravel(t *testing.T) {
	ms := found(t, "ann", "bob", "cid")
	sa, sb, sc := partsOf(ms), partsOf(ms.at("bob")), partsOf(ms.at("cid"))
	sa.make(testPartition, "ann")
	sa.produce(testPartition, 500, 1000)
	a, b := startParts(t, "ann", nil, sa), startParts(t, "bob", nil, sb)
	b.knows(a)
	eventually(t, "a session", func() bool { return a.batchStatus(sa, "bob").Session })
	sb.make(testPartition, "ann") // its topic comes to be known later
	same(t, sa, sb)
	sa.produce(testPartition, 10, 100_000)
	same(t, sa, sb)
	eventually(t, "it is shown as equal", func() bool {
		p := a.batchStatus(sa, "bob")
		return p.Session && p.Out > 1_500_000 && p.Ahead == 0
	})

	check(t, a.stop())
	c := startParts(t, "cid", nil, sc)
	sc.make(testPartition, "ann")
	c.knows(b) // and never meets ann
	same(t, sb, sc)
	sa.produce(testPartition, 10, 100)
	a = startParts(t, "ann", nil, sa)
	b.knows(a)
	same(t, sa, sb)
	same(t, sa, sc)
	sa.mu.Lock()
	delete(sa.parts, testPartition)
	sa.mu.Unlock()
	sa.told(testPartition)
	_ = c
}

// TestBatchesToOneThatIsNotReady: a peer whose store has no partitions, or whose disk
// takes nothing, loses nothing else by it.
func TestBatchesToOneThatIsNotReady(t *testing.T) {
	ms := found(t, "ann", "bob", "cid")
	sa, sb := partsOf(ms), partsOf(ms.at("bob"))
	quick := func(c *Config) { c.Batches.RetryMs = 20 }
	sa.make(testPartition, "ann")
	sb.make(testPartition, "ann")
	sb.refuse = lattice.E(lattice.Storage, errors.New("disk full"))
	a, b := startParts(t, "ann", quick, sa), startParts(t, "bob", quick, sb)
	plain := ms.at("cid")
	c := start(t, "cid", nil, plain)
	c.knows(a)
	b.knows(a)
	sa.produce(testPartition, 50, 1000)
	eventually(t, "it is refused again and again", func() bool {
		for _, s := range b.Status().Stores {
			if s.Batches != nil && s.Batches.Refused[reconcile.NotStored] > 3 && len(s.Batches.Behind) == 1 {
				return true
			}
		}
		return false
	})
	ms.write(3, 10)
	agree(t, ms, plain, sb.memStore)
	sb.mu.Lock()
	sb.refuse = nil
	sb.mu.Unlock()
	same(t, sa, sb)
}

// TestStrangersGetNoBatches: neither does a member with a store that is not here.
func TestStrangersGetNoBatches(t *testing.T) {
	ms := found(t, "ann", "bob")
	sa := partsOf(ms)
	sa.make(testPartition, "ann")
	a := startParts(t, "ann", nil, sa)
	say := func(store lattice.StoreID, node string) []byte {
		return batches.Encode(batches.Hello{Min: 1, Max: 1, Store: store, Node: idOf(node), Window: 1 << 20})
	}
	if got := raw(t, "eve", a).hears(protocolBatches, say(ms.id, "eve")); len(got) != 0 {
		t.Errorf("a stranger hears %d bytes", len(got))
	}
	bob := raw(t, "bob", a)
	if got := bob.hears(protocolBatches, say(lattice.StoreID{1}, "bob")); len(got) != 0 {
		t.Errorf("of a store that is not here a member hears %d bytes", len(got))
	}
	st := bob.open(protocolBatches)
	if _, err := st.Write(append(say(ms.id, "bob"), []byte("no message")...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is counted", func() bool {
		s := a.Status().Stores[0].Batches
		return s.Refused[reconcile.BadMessage] == 1 && !s.Peers[0].Session
	})
}

// TestSpansAreJoined: what gathers of one partition is given to its log at once, one
// by one if that is refused, and each part hears what became of it.
func TestSpansAreJoined(t *testing.T) {
	s := partsOf(found(t, "ann"))
	src := partsOf(found(t, "ann"))
	src.make(testPartition, "ann")
	s.make(testPartition, "ann")
	src.produce(testPartition, 9, 100)
	var pile spanPile
	for i := range uint64(3) {
		x, _, err := src.ReadSpan(t.Context(), testPartition, 3*i, 300)
		check(t, err)
		x.Grants = [][]byte{[]byte("grant")}
		pile.parts = append(pile.parts, batches.Receive{ID: i, Span: x})
	}
	if n := consecutive(pile.parts); n != 3 {
		t.Fatalf("%d are consecutive", n)
	}
	if x := joinSpans(pile.parts); len(x.Batches) != 9 || len(x.Grants) != 1 || len(pile.parts[0].Span.Batches) != 3 {
		t.Errorf("joined: %d batches, %d grants", len(x.Batches), len(x.Grants))
	}
	bad := pile.parts[2]
	pile.parts[2].Span.Note = []byte("another")
	got := keepSpans(t.Context(), s, pile)
	if got.at.Size != 6 || got.errs[0] != nil || got.errs[1] != nil || lattice.KindOf(got.errs[2]) != lattice.Corrupt {
		t.Errorf("%+v", got)
	}
	before := s.receives
	got = keepSpans(t.Context(), s, spanPile{testPartition, []batches.Receive{bad}})
	if got.at.Size != 9 || got.errs[0] != nil || s.receives != before+1 {
		t.Errorf("%+v", got)
	}
	pile.parts[1].Span.From++
	if n := consecutive(pile.parts); n != 1 {
		t.Errorf("with a hole %d are consecutive", n)
	}
	pile.parts[1].Span.From--
	pile.parts[1].Peer = idOf("bob")
	if n := consecutive(pile.parts); n != 1 {
		t.Errorf("of two peers %d are consecutive", n)
	}
}

// BenchmarkBatches copies a partition over loopback, in batches of 100 KB, beside
// BenchmarkRawStream: logs are slices, so what it costs is framing and carrying.
// The sizes are of records, of which a batch has as many as fit.
func BenchmarkBatches(b *testing.B) {
	for _, record := range []int{100, 1024} {
		b.Run(fmt.Sprintf("records=%d", record), func(b *testing.B) {
			size := 100_000 / record * record
			n := copySize / size
			ms := found(b, "ann", "bob")
			sa := partsOf(ms)
			sa.plain = true
			sa.make(testPartition, "ann")
			sa.produce(testPartition, n, size)
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			b.ResetTimer()
			spent := time.Duration(0)
			for range b.N {
				b.StopTimer()
				sb := partsOf(ms.at("bob"))
				sb.plain = true
				sb.make(testPartition, "ann")
				x, y := startParts(b, "ann", nil, sa), startParts(b, "bob", nil, sb)
				before := cpu()
				b.StartTimer()
				y.knows(x)
				for sb.size(testPartition) < n {
					time.Sleep(time.Millisecond)
				}
				b.StopTimer()
				spent += cpu() - before
				check(b, y.stop())
				check(b, x.stop())
				b.StartTimer()
			}
			b.ReportMetric(spent.Seconds()/float64(b.N)*float64(1<<30)/float64(n*size), "cpu-s/GiB")
			b.ReportMetric(float64(n*size/record)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
