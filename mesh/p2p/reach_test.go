package p2p

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

func TestOverQUIC(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	sa.write(2000, 1000)
	quic := func(c *Config) { c.Listen = []string{"/ip4/127.0.0.1/udp/0/quic-v1"} }
	a, b := start(t, "ann", quic, sa), start(t, "bob", quic, sb)
	b.knows(a)
	agree(t, sa, sb)
	if at := b.host.Network().ConnsToPeer(a.host.ID()); len(at) == 0 || !strings.Contains(at[0].RemoteMultiaddr().String(), "quic") {
		t.Errorf("connected over %v", at)
	}
}

// TestTCPIsPreferred has both, and the cheaper one is taken.
func TestTCPIsPreferred(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a := start(t, "ann", func(c *Config) { c.Listen = []string{"/ip4/127.0.0.1/udp/0/quic-v1", "/ip4/127.0.0.1/tcp/0"} }, sa)
	b := start(t, "bob", nil, sb)
	if len(a.Addresses()) != 2 {
		t.Fatalf("it listens on %v", a.Addresses())
	}
	b.knows(a)
	eventually(t, "they are connected", func() bool { return b.peer(sb, "ann").Session })
	for _, c := range b.host.Network().ConnsToPeer(a.host.ID()) {
		if strings.Contains(c.RemoteMultiaddr().String(), "quic") {
			t.Errorf("connected over %s", c.RemoteMultiaddr())
		}
	}
}

// relay carries TCP connections to an address, until it is frozen: then nothing comes
// through on those that there are, and nobody is told.
type relay struct {
	net.Listener
	to     string
	frozen atomic.Pointer[chan struct{}] // of the connections to come; closed: they are frozen
	wg     sync.WaitGroup
	all    chan net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{Listener: ln, to: to, all: make(chan net.Conn, 100)}
	r.thaw()
	r.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", r.to)
			if err != nil {
				in.Close()
				continue
			}
			r.all <- in
			r.all <- out
			frozen := *r.frozen.Load()
			r.wg.Go(func() { pass(in, out, frozen) })
			r.wg.Go(func() { pass(out, in, frozen) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		close(r.all)
		for c := range r.all {
			c.Close()
		}
		r.wg.Wait()
	})
	return r
}

func pass(to io.Writer, from io.Reader, frozen chan struct{}) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-frozen:
			return // it is lost, and so is all that follows, also that a side has ended
		default:
		}
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (r *relay) thaw() {
	c := make(chan struct{})
	r.frozen.Store(&c)
}

// freeze stops the connections that there are; new ones are carried.
func (r *relay) freeze() {
	old := *r.frozen.Load()
	r.thaw()
	close(old)
}

// TestADeadConnectionIsNoticed has a network that loses everything and says nothing.
func TestADeadConnectionIsNoticed(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	hasty := func(c *Config) {
		c.Limits.Check, c.Limits.HelloTime = 100*time.Millisecond, 400*time.Millisecond
		c.Limits.RedialMin, c.Limits.RedialMax = 20*time.Millisecond, 100*time.Millisecond
	}
	a := start(t, "ann", hasty, sa)
	port := a.Addresses()[0]
	r := newRelay(t, "127.0.0.1:"+port[strings.LastIndex(port, "/")+1:])
	b := start(t, "bob", func(c *Config) { hasty(c); c.Listen = nil }, sb)
	check(t, b.Remember(idOf("ann"), []string{fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", r.Addr().(*net.TCPAddr).Port)}))
	agree(t, sa, sb)
	for range 2 {
		sa.write(1, 10)
		sb.write(1, 10)
		agree(t, sa, sb)
		r.freeze()
	}
	sa.write(1, 10)
	sb.write(1, 10)
	agree(t, sa, sb)
}

// TestAfterSleep has failures forgotten at once when the machine wakes.
func TestAfterSleep(t *testing.T) {
	sa := found(t, "ann", "bob")
	sb := sa.at("bob")
	a := start(t, "ann", nil, sa)
	at := a.Addresses()
	check(t, a.stop())
	b := start(t, "bob", func(c *Config) { c.Limits.RedialMin, c.Limits.RedialMax = time.Hour, time.Hour }, sb)
	check(t, b.Remember(idOf("ann"), at))
	eventually(t, "a call has failed", func() bool { return b.peer(sb, "ann").Failed != "" })
	a.run(func(c *Config) { c.Listen = at }, sa)
	sa.write(1, 10)
	b.afresh()
	agree(t, sa, sb)
}

func TestEnoughPeers(t *testing.T) {
	names := []string{"bob", "cat", "dan", "eve"}
	sa := found(t, "ann", names...)
	a := start(t, "ann", func(c *Config) { c.Limits.Peers = 2 }, sa)
	var all []*memStore
	for _, n := range names {
		s := sa.at(n)
		x := start(t, n, nil, s)
		a.knows(x)
		all = append(all, s)
	}
	eventually(t, "two are connected", func() bool { return len(a.host.Network().Peers()) == 2 })
	sa.write(1, 10)
	eventually(t, "they get what is new", func() bool {
		return len(slices.DeleteFunc(slices.Clone(all), func(s *memStore) bool { return s.tips() != sa.tips() })) >= 2
	})
	time.Sleep(500 * time.Millisecond) // time for what must not happen
	if n := len(a.host.Network().Peers()); n > 2 {
		t.Errorf("%d are connected, at most 2", n)
	}
}

// TestWhoIsAnnouncedLocally remembers members only.
func TestWhoIsAnnouncedLocally(t *testing.T) {
	sa := found(t, "ann", "bob")
	a := start(t, "ann", nil, sa)
	tell := func(name string) {
		id, err := peerOf(idOf(name))
		check(t, err)
		localPeers{a.Mesh}.HandlePeerFound(peer.AddrInfo{ID: id, Addrs: []multiaddr.Multiaddr{
			multiaddr.StringCast("/ip4/127.0.0.1/tcp/9/ws"), multiaddr.StringCast("/ip4/127.0.0.1/tcp/9"),
		}})
	}
	tell("bob")
	tell("eve")
	if got := a.Mesh.book.addresses(idOf("bob")); !slices.Equal(got, []string{"/ip4/127.0.0.1/tcp/9"}) {
		t.Errorf("bob is at %v", got)
	}
	if got := a.Mesh.book.addresses(idOf("eve")); got != nil {
		t.Errorf("a stranger is remembered at %v", got)
	}
}

// TestNobodyIsCalledUntold has a member be known, and no address.
func TestNobodyIsCalledUntold(t *testing.T) {
	sa := found(t, "ann", "bob")
	a := start(t, "ann", nil, sa)
	b := raw(t, "bob", a) // libp2p knows where bob is, for as long as he is connected
	check(t, b.Network().ClosePeer(a.host.ID()))
	eventually(t, "it has gone", func() bool { return a.host.Network().Connectedness(b.ID()) != network.Connected })
	id, err := peerOf(idOf("eve"))
	check(t, err)
	if err := a.host.Connect(context.Background(), peer.AddrInfo{ID: id, Addrs: []multiaddr.Multiaddr{multiaddr.StringCast("/ip4/127.0.0.1/tcp/9")}}); err == nil || !strings.Contains(err.Error(), "gater") {
		t.Errorf("a stranger was called: %v", err)
	}
}
