package p2p

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// libp2p keeps these for the process, however many hosts there are.
		goleak.IgnoreTopFunction("github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem.(*memoryAddrBook).background"),
	)
}

// testNode is a mesh that runs, with its stores.
type testNode struct {
	*Mesh
	t    testing.TB
	name string
	book *memBook
	stop func() error
	logs *syncBuffer
}

// memBook is a Book in memory.
type memBook struct {
	mu    sync.Mutex
	bytes []byte
	saves int
}

func (b *memBook) Load() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.bytes), nil
}

func (b *memBook) Save(data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = bytes.Clone(data)
	b.saves++
	return nil
}

// syncBuffer is a log that a test can read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs a node on loopback with these stores.
func start(t testing.TB, name string, change func(*Config), stores ...*memStore) *testNode {
	t.Helper()
	n := &testNode{t: t, name: name, book: &memBook{}, logs: &syncBuffer{}}
	n.run(change, stores...)
	return n
}

func (n *testNode) run(change func(*Config), stores ...*memStore) {
	n.t.Helper()
	c := Config{
		Key: keyOf(n.name), Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Book: n.book, Logger: slog.New(slog.NewTextHandler(n.logs, nil)),
		Limits: Limits{RedialMin: 20 * time.Millisecond, RedialMax: 200 * time.Millisecond},
	}
	if change != nil {
		change(&c)
	}
	m, err := New(c)
	check(n.t, err)
	n.Mesh = m
	for _, s := range stores {
		check(n.t, m.Add(s))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	<-m.begun // before that nobody gets in
	n.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			return fmt.Errorf("%s does not end", n.name)
		}
	})
	n.t.Cleanup(func() {
		if err := n.stop(); err != nil {
			n.t.Error(err)
		}
		if n.t.Failed() {
			n.t.Logf("%s\n%s", n.name, n.logs)
		}
	})
}

// knows tells a node where others are.
func (n *testNode) knows(others ...*testNode) {
	n.t.Helper()
	for _, o := range others {
		check(n.t, n.Remember(o.node, o.Addresses()))
	}
}

// eventually waits until something holds. It is not how long that is tested.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 3000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within half a minute: %s", what)
}

func agree(t testing.TB, all ...*memStore) {
	t.Helper()
	eventually(t, "the stores agree", func() bool {
		for _, s := range all[1:] {
			if s.tips() != all[0].tips() {
				return false
			}
		}
		return true
	})
}

// peer is what a node shows of another about a store.
func (n *testNode) peer(s *memStore, other string) PeerStatus {
	for _, x := range n.Status().Stores {
		for _, p := range x.Peers {
			if x.Store == s.id && p.Node == idOf(other) {
				return p
			}
		}
	}
	return PeerStatus{}
}

func (n *testNode) refused(s *memStore) map[reconcile.Reason]uint64 {
	for _, x := range n.Status().Stores {
		if x.Store == s.id {
			return x.Refused
		}
	}
	return nil
}

func TestTwoNodesBecomeEqualAndStaySo(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	sa.write(500, 100)
	sb.write(300, 1000)
	often := func(c *Config) { c.Replicas.CompareMs = 500 }
	a, b := start(t, "ann", often, sa), start(t, "bob", often, sb)
	b.knows(a)
	agree(t, sa, sb)
	for i := range 5 { // live, both ways
		sa.write(1+i, 10)
		sb.write(2, 10)
		agree(t, sa, sb)
	}
	for _, x := range []struct {
		n *testNode
		s *memStore
		o string
	}{{a, sa, "bob"}, {b, sb, "ann"}} {
		eventually(t, x.n.name+" shows that the other is equal", func() bool {
			p := x.n.peer(x.s, x.o)
			return p.Reachable && !p.Since.IsZero() && p.RoundTrip > 0 && p.Session && p.Equal && p.Behind == 0 && p.In > 0 && p.Out > 0
		})
	}
	if r := a.refused(sa); len(r) != 0 {
		t.Errorf("honest peers were refused something: %v", r)
	}
}

// TestThroughAThird has A and C meet through B only.
func TestThroughAThird(t *testing.T) {
	sa := found(t, "ann", "bob", "cat")
	sb, sc := sa.at("bob"), sa.at("cat")
	sa.write(100, 100)
	sc.write(100, 100)
	b := start(t, "bob", nil, sb)
	deaf := func(c *Config) { c.Listen = nil }
	a, c := start(t, "ann", deaf, sa), start(t, "cat", deaf, sc)
	a.knows(b)
	c.knows(b)
	agree(t, sa, sb, sc)
	sa.write(1, 10)
	sc.write(1, 10)
	agree(t, sa, sb, sc)
	if p := a.peer(sa, "cat"); p.Reachable || p.In != 0 {
		t.Errorf("ann and cat have met: %+v", p)
	}
}

// TestWhoHasOneFriendFindsOthers has ann and cat know bob only, and go on without bob.
func TestWhoHasOneFriendFindsOthers(t *testing.T) {
	sa := found(t, "ann", "bob", "cat")
	sb, sc := sa.at("bob"), sa.at("cat")
	b := start(t, "bob", nil, sb)
	a := start(t, "ann", nil, sa)
	a.knows(b)
	eventually(t, "bob has reached ann", func() bool { return b.peer(sb, "ann").Reachable && len(b.Mesh.book.addresses(idOf("ann"))) > 0 })
	c := start(t, "cat", nil, sc)
	c.knows(b)
	eventually(t, "ann and cat are connected", func() bool { return a.peer(sa, "cat").Session && c.peer(sc, "ann").Session })
	check(t, b.stop())
	sa.write(1, 10)
	sc.write(1, 10)
	agree(t, sa, sc)
}

func TestSeveralStoresOverOneConnection(t *testing.T) {
	var as, bs []*memStore
	for i := range 4 {
		s := foundAs(t, fmt.Sprint("store-", i), "ann", "bob")
		as, bs = append(as, s), append(bs, s.at("bob"))
	}
	a, b := start(t, "ann", nil, as...), start(t, "bob", nil, bs...)
	a.knows(b)
	for i := range as {
		as[i].write(20, 10)
		bs[i].write(30, 10)
		agree(t, as[i], bs[i])
	}
	for i := range as {
		eventually(t, "a session for each store", func() bool { return a.peer(as[i], "bob").Session })
	}
	if n := len(b.host.Network().Conns()); n != 1 {
		t.Errorf("%d connections", n)
	}
	// One of them ends; the other goes on.
	a.Remove(as[0].id)
	as[0].write(1, 10)
	as[1].write(1, 10)
	agree(t, as[1], bs[1])
	if as[0].tips() == bs[0].tips() {
		t.Error("a store that was removed is still carried")
	}
	check(t, a.Add(as[0]))
	agree(t, as[0], bs[0])
	if err := a.Add(as[0]); lattice.KindOf(err) != lattice.Exists {
		t.Errorf("the same store again: %v", err)
	}
}

// TestRestart has a node come back, twice, with nothing told but what its book has.
func TestRestart(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	agree(t, sa, sb)
	for range 2 {
		check(t, b.stop())
		sa.write(50, 100)
		sb.own.Incarnation++
		sb.write(50, 100)
		b.run(func(c *Config) { c.Listen = nil }, sb)
		agree(t, sa, sb)
	}
	eventually(t, "one session is left", func() bool { return a.peer(sa, "bob").Session })
}

// TestTheOtherFindsBack has the node that was called remember the caller.
func TestTheOtherFindsBack(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	eventually(t, "bob's address is learned", func() bool {
		return slices.Equal(a.Mesh.book.addresses(idOf("bob")), b.Addresses())
	})
	at := b.Addresses()
	check(t, b.stop())
	b.book = &memBook{} // and bob forgets
	sa.write(10, 10)
	b.run(func(c *Config) { c.Listen = at }, sb)
	agree(t, sa, sb)
}

// TestBothOpenAtOnce has nodes that find each other at the same time end with one session.
func TestBothOpenAtOnce(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	for i := range 10 {
		a.knows(b)
		b.knows(a)
		sa.write(3, 10)
		sb.write(3, 10)
		agree(t, sa, sb)
		eventually(t, "both have a session", func() bool {
			return a.peer(sa, "bob").Session && b.peer(sb, "ann").Session
		})
		if i%2 == 0 {
			check(t, a.host.Network().ClosePeer(b.host.ID()))
		} else {
			check(t, b.host.Network().ClosePeer(a.host.ID()))
		}
	}
}

func TestWhoIsRemovedLosesTheSession(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	agree(t, sa, sb)
	eventually(t, "a session", func() bool { return a.peer(sa, "bob").Session })
	sa.remove(idOf("bob"))
	eventually(t, "no session", func() bool { return !a.peer(sa, "bob").Session })
	sa.write(1, 10)
	time.Sleep(300 * time.Millisecond) // time for what must not happen
	if sa.tips() == sb.tips() {
		t.Error("a removed node still gets entries")
	}
}

// TestEnding has a mesh end in the middle of everything.
func TestEnding(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	sa.write(3000, 1000)
	sb.keep = func(reconcile.Store) error { time.Sleep(time.Millisecond); return nil }
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	eventually(t, "something has come", func() bool {
		sb.mu.Lock()
		defer sb.mu.Unlock()
		return sb.batches > 3
	})
	check(t, b.stop())
	check(t, a.stop())
	if err := a.Add(sa); lattice.KindOf(err) != lattice.Unavailable {
		t.Errorf("add to what has ended: %v", err)
	}
	if err := a.Mesh.Run(context.Background()); lattice.KindOf(err) != lattice.Unavailable {
		t.Errorf("run again: %v", err)
	}
}

func TestATakenAddressIsSaid(t *testing.T) {
	a := start(t, "ann", nil)
	_, err := New(Config{Key: keyOf("bob"), Listen: a.Addresses()})
	if lattice.KindOf(err) != lattice.Unavailable || !strings.Contains(fmt.Sprint(err), a.Addresses()[0]) {
		t.Errorf("a taken address: %v", err)
	}
	m, err := New(Config{Key: keyOf("bob")})
	check(t, err)
	check(t, m.Close())
	if all := m.Addresses(); len(all) != 0 {
		t.Errorf("it listens nowhere, and says %v", all)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{},
		{Key: keyOf("a"), Listen: []string{"127.0.0.1:7400"}},
		{Key: keyOf("a"), Listen: []string{"/ip4/127.0.0.1/udp/1/quic-v1/webtransport"}},
		{Key: keyOf("a"), Announce: []string{"/ip4/127.0.0.1/tcp/1/p2p-circuit"}},
		{Key: keyOf("a"), Limits: Limits{RedialMin: time.Hour}},
		{Key: keyOf("a"), Limits: Limits{Keepers: -1}},
	} {
		if m, err := New(c); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%+v: %v", c, err)
			if err == nil {
				_ = m.Close()
			}
		}
	}
}

// TestEqualStoresCostLittle compares 10,000 logs that are equal.
func TestEqualStoresCostLittle(t *testing.T) {
	sa := found(t, "ann", "bob")
	sa.mu.Lock()
	one := sa.logs[sa.own]
	for i := range 10_000 {
		sa.logs[state.Writer{Author: idOf(fmt.Sprint("author ", i)), Incarnation: 1}] = one
	}
	sa.mu.Unlock()
	sb := found(t, "ann", "bob")
	sb.key, sb.own.Author = keyOf("bob"), idOf("bob")
	sb.logs = sa.logs
	a, b := start(t, "ann", nil, sa), start(t, "bob", nil, sb)
	b.knows(a)
	var p PeerStatus
	eventually(t, "both know that they are equal", func() bool {
		p = b.peer(sb, "ann")
		return p.Session && p.Equal && p.In > 0 && p.Out > 0 && a.peer(sa, "bob").Equal
	})
	t.Logf("comparing 10,000 equal logs cost %d bytes in and %d out", p.In, p.Out)
	if p.In+p.Out >= 1024 {
		t.Errorf("%d bytes, want less than 1024", p.In+p.Out)
	}
}
