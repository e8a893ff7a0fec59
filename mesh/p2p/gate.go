package p2p

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	lattice "github.com/lattice-log/lattice"
)

// gate decides who may be connected. Members come in up to Limits.Peers; strangers,
// who may only ask to join, up to Limits.Strangers and for a short time, a few of each
// address. It is asked by libp2p from anywhere.
type gate struct {
	limits Limits
	known  func(lattice.NodeID) bool // a member of a store here

	mu        sync.Mutex
	closed    bool
	calling   map[peer.ID]int // strangers that this node calls: who invited it
	conns     map[network.Conn]guest
	strangers int
	byAddr    map[netip.Prefix]int // strangers
	members   map[peer.ID]int      // connections
	turned    uint64               // connections that were refused
}

// guest is a connection, as it is counted.
type guest struct {
	known bool
	from  netip.Prefix
	until time.Time // of a stranger
}

const strangersPerAddr = 8

func newGate(l Limits, known func(lattice.NodeID) bool) *gate {
	return &gate{
		limits: l, known: known, closed: true,
		calling: map[peer.ID]int{}, conns: map[network.Conn]guest{}, byAddr: map[netip.Prefix]int{}, members: map[peer.ID]int{},
	}
}

// open lets others in from now on, or nobody any more.
func (g *gate) open(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = !on
}

// allow lets this node call a stranger until done is called.
func (g *gate) allow(p peer.ID) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calling[p]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.calling[p]--; g.calling[p] == 0 {
			delete(g.calling, p)
		}
	}
}

// isKnown reports whether a peer is a member.
func (g *gate) isKnown(p peer.ID) bool {
	n, err := nodeOf(p)
	return err == nil && g.known(n)
}

// InterceptPeerDial lets this node call members, and whom it was invited by.
func (g *gate) InterceptPeerDial(p peer.ID) bool {
	if g.isKnown(p) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calling[p] > 0
}

// InterceptAddrDial lets it call them where they may be.
func (g *gate) InterceptAddrDial(_ peer.ID, a multiaddr.Multiaddr) bool { return callable(a) }

// InterceptAccept comes before the handshake: nobody is known yet.
func (g *gate) InterceptAccept(at network.ConnMultiaddrs) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.byAddr[prefixOf(at.RemoteMultiaddr())] >= 2*strangersPerAddr {
		g.turned++
		return false
	}
	return true
}

// InterceptSecured comes when the peer has proven its key.
func (g *gate) InterceptSecured(dir network.Direction, p peer.ID, at network.ConnMultiaddrs) bool {
	if dir == network.DirOutbound {
		return true // it was allowed to be called
	}
	known := g.isKnown(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	ok := !g.closed
	switch {
	case known:
		ok = ok && (g.members[p] > 0 || len(g.members) < g.limits.Peers)
	default:
		ok = ok && g.strangers < g.limits.Strangers && g.byAddr[prefixOf(at.RemoteMultiaddr())] < strangersPerAddr
	}
	if !ok {
		g.turned++
	}
	return ok
}

// InterceptUpgraded comes last; everything has been asked.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// connected counts a connection, and reports false if it is one too many: several may
// have been let in at once.
func (g *gate) connected(c network.Conn, now time.Time) bool {
	known := g.isKnown(c.RemotePeer())
	g.mu.Lock()
	defer g.mu.Unlock()
	calling := g.calling[c.RemotePeer()] > 0
	g.count(c, known || calling, now)
	if x := g.conns[c]; !x.known {
		return g.strangers <= g.limits.Strangers && g.byAddr[x.from] <= strangersPerAddr
	}
	return calling || len(g.members) <= g.limits.Peers
}

func (g *gate) count(c network.Conn, known bool, now time.Time) {
	x := guest{known: known, from: prefixOf(c.RemoteMultiaddr()), until: now.Add(g.limits.StrangerTime)}
	g.conns[c] = x
	if known {
		g.members[c.RemotePeer()]++
		return
	}
	g.strangers++
	g.byAddr[x.from]++
}

// disconnected forgets a connection.
func (g *gate) disconnected(c network.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(c)
}

func (g *gate) forget(c network.Conn) {
	x, ok := g.conns[c]
	if !ok {
		return
	}
	delete(g.conns, c)
	if p := c.RemotePeer(); x.known {
		if g.members[p]--; g.members[p] <= 0 {
			delete(g.members, p)
		}
		return
	}
	g.strangers--
	if g.byAddr[x.from]--; g.byAddr[x.from] <= 0 {
		delete(g.byAddr, x.from)
	}
}

// sort counts anew who has become a member, or is one no more, and returns the
// connections of strangers whose time is over.
func (g *gate) sort(now time.Time) (over []network.Conn) {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range all {
		known := g.isKnown(c.RemotePeer())
		g.mu.Lock()
		known = known || g.calling[c.RemotePeer()] > 0
		switch x, ok := g.conns[c]; {
		case !ok:
		case x.known != known:
			g.forget(c)
			g.count(c, known, now)
		case !known && now.After(x.until):
			over = append(over, c)
		}
		g.mu.Unlock()
	}
	return over
}

// counts returns how many strangers are connected, and how many connections were refused.
func (g *gate) counts() (strangers int, turned uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.strangers, g.turned
}

// prefixOf is what one sender can have many addresses in: an IPv4 address, or an IPv6
// network of 56 bits.
func prefixOf(a multiaddr.Multiaddr) netip.Prefix {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(ip)
	addr = addr.Unmap()
	bits := 32
	if addr.Is6() {
		bits = 56
	}
	p, _ := addr.Prefix(bits)
	return p
}
