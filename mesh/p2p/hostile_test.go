package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/mesh/ballot"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// rawPeer is a node that says what it likes, with anybody's key.
type rawPeer struct {
	t testing.TB
	host.Host
	to *testNode
}

func raw(t testing.TB, name string, to *testNode) *rawPeer {
	t.Helper()
	key, err := crypto.UnmarshalEd25519PrivateKey(keyOf(name).Private())
	check(t, err)
	h, err := libp2p.New(libp2p.Identity(key), libp2p.NoListenAddrs, libp2p.DisableRelay(), libp2p.DisableMetrics(), libp2p.ForceReachabilityPrivate(), libp2p.Ping(false))
	check(t, err)
	t.Cleanup(func() { check(t, h.Close()) })
	p := &rawPeer{t, h, to}
	check(t, p.connect())
	return p
}

func (p *rawPeer) connect() error {
	info := peer.AddrInfo{ID: p.to.host.ID()}
	for _, a := range p.to.Addresses() {
		x, err := multiaddr.NewMultiaddr(a)
		check(p.t, err)
		info.Addrs = append(info.Addrs, x)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Connect(ctx, info)
}

func (p *rawPeer) open(proto protocol.ID) network.Stream {
	p.t.Helper()
	s, err := p.try(proto)
	check(p.t, err)
	return s
}

func (p *rawPeer) try(proto protocol.ID) (network.Stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.NewStream(ctx, p.to.host.ID(), proto)
}

// hears returns what a peer is told that sends b: nothing also when its stream is
// reset as early as while the protocol is agreed on.
func (p *rawPeer) hears(proto protocol.ID, b []byte) []byte {
	p.t.Helper()
	s, err := p.try(proto)
	if errors.Is(err, network.ErrReset) {
		return nil
	}
	check(p.t, err)
	_, _ = s.Write(b)
	return silenced(p.t, s)
}

// silenced waits until the other side ends a stream, and returns what came before.
func silenced(t testing.TB, s network.Stream) []byte {
	t.Helper()
	check(t, s.SetReadDeadline(time.Now().Add(20*time.Second)))
	b, err := io.ReadAll(s)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the stream goes on; it said %q", b)
	}
	return b
}

func hello(store lattice.StoreID, node string, window uint32) []byte {
	return reconcile.Encode(reconcile.Hello{Min: 1, Max: 1, Store: store, Node: idOf(node), Session: 1, Window: window})
}

// TestStrangersLearnNothing compares what a stranger hears of a store that is here
// and of one that is not.
func TestStrangersLearnNothing(t *testing.T) {
	s := found(t, "ann", "bob")
	a := start(t, "ann", func(c *Config) { c.Limits.StrangerTime = time.Minute }, s)
	eve := raw(t, "eve", a)
	claim := func(store lattice.StoreID) []byte {
		c := roster.Claim{ID: lattice.Hash(idOf("made up")), Author: idOf("eve")}
		c.Proof = keyOf("made up").Sign("lattice/invite/v1\x00", roster.ClaimMessage(store, idOf("ann"), idOf("eve")))
		return joinRequest{store, idOf("ann"), c}.encode()
	}
	var heard []string
	for _, store := range []lattice.StoreID{s.id, {1, 2, 3}} {
		said := ""
		for proto, b := range map[protocol.ID][]byte{
			protocolReconcile: hello(store, "eve", 1<<20),
			protocolSnapshot:  snapshotRequest{store: store}.encode(),
			protocolPing:      make([]byte, 32),
			protocolHearsay:   encodeHearsayRequest(store),
			protocolFarewell:  encodeFarewellRequest(store),
			protocolJoin:      claim(store),
			ballot.Protocol:   (&ballot.Question{What: ballot.Where, Ask: promise.Promise{Store: store}}).AppendTo(nil),

			protocol.ID(forward.Records.Protocol()): forward.Records.Opening(store),
			protocol.ID(forward.Groups.Protocol()):  forward.Groups.Opening(store),
		} {
			if got := eve.hears(proto, b); len(got) > 0 {
				said += fmt.Sprintf("%s %q\n", proto, got)
			}
		}
		heard = append(heard, said)
	}
	if want := fmt.Sprintf("%s %q\n", protocolJoin, joinAnswer{status: joinRefused}.encode()); heard[0] != want || heard[1] != want {
		t.Errorf("of a store that is here:\n%s\nof one that is not:\n%s", heard[0], heard[1])
	}
	if st := a.Status(); st.Strangers != 1 {
		t.Errorf("%d strangers", st.Strangers)
	}
}

func TestStrangersMustGo(t *testing.T) {
	s := found(t, "ann", "bob")
	a := start(t, "ann", func(c *Config) { c.Limits.StrangerTime, c.Limits.Strangers = 300*time.Millisecond, 3 }, s)
	all := make([]*rawPeer, 3)
	for i := range all {
		all[i] = raw(t, fmt.Sprint("stranger ", i), a)
	}
	eventually(t, "they are disconnected", func() bool {
		for _, p := range all {
			if p.Network().Connectedness(a.host.ID()) == network.Connected {
				return false
			}
		}
		return a.Status().Strangers == 0
	})
}

func TestStrangersAreFew(t *testing.T) {
	s := found(t, "ann", "bob")
	sb := s.at("bob")
	a := start(t, "ann", func(c *Config) { c.Limits.Strangers = 3 }, s)
	for i := range 8 {
		key, err := crypto.UnmarshalEd25519PrivateKey(keyOf(fmt.Sprint("stranger ", i)).Private())
		check(t, err)
		h, err := libp2p.New(libp2p.Identity(key), libp2p.NoListenAddrs, libp2p.DisableRelay(), libp2p.DisableMetrics(), libp2p.ForceReachabilityPrivate(), libp2p.Ping(false))
		check(t, err)
		t.Cleanup(func() { check(t, h.Close()) })
		_ = (&rawPeer{t, h, a}).connect()
	}
	eventually(t, "a few are left", func() bool { n := a.Status(); return n.Strangers <= 3 && n.Turned >= 4 })
	b := start(t, "bob", nil, sb) // a member is let in all the same
	b.knows(a)
	sb.write(3, 3)
	agree(t, s, sb)
}

// farewell says whether a peer is told why its session ends.
type farewell int

const (
	never farewell = iota
	perhaps
	always
)

// TestPeersThatLie has a member send what it should not, while another is served.
func TestPeersThatLie(t *testing.T) {
	s := found(t, "ann", "bob", "eve")
	sb := s.at("bob")
	limits := func(c *Config) {
		c.Limits.HelloTime, c.Limits.IdleTime, c.Limits.Rate = 400*time.Millisecond, 800*time.Millisecond, 16<<20
	}
	a, b := start(t, "ann", limits, s), start(t, "bob", nil, sb)
	b.knows(a)
	agree(t, s, sb)
	good := hello(s.id, "eve", 1<<20)
	big := func(k reconcile.Kind, n uint32) []byte {
		return []byte{'L', 'M', 1, byte(k), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	slow := func(st network.Stream, all []byte) {
		for i := range all {
			if _, err := st.Write(all[i : i+1]); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for _, c := range []struct {
		what string
		say  func(network.Stream)
		bye  farewell
	}{
		{"nothing", func(network.Stream) {}, never},
		{"junk", func(s network.Stream) { _, _ = s.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100)) }, never},
		{"half a header", func(s network.Stream) { _, _ = s.Write(good[:5]) }, never},
		{"a hello by bytes", func(s network.Stream) { slow(s, good) }, never},
		{"something before hello", func(s network.Stream) { _, _ = s.Write(reconcile.Encode(reconcile.Credit{Bytes: 1})) }, never},
		{"a hello of 1 MiB", func(s network.Stream) {
			_, _ = s.Write(append(big(reconcile.KindHello, 1<<20), make([]byte, 1<<20)...))
		}, never},
		{"another store", func(st network.Stream) { _, _ = st.Write(hello(lattice.StoreID{9}, "eve", 1)) }, never},
		{"another name", func(st network.Stream) { _, _ = st.Write(hello(s.id, "bob", 1)) }, always},
		{"two hellos", func(st network.Stream) { _, _ = st.Write(append(bytes.Clone(good), good...)) }, always},
		{"a length beyond its kind", func(st network.Stream) {
			_, _ = st.Write(append(bytes.Clone(good), big(reconcile.KindCredit, 1<<30)...))
		}, perhaps}, // its stream ends while the reason is on its way
		{"a body that does not come", func(st network.Stream) {
			_, _ = st.Write(append(bytes.Clone(good), big(reconcile.KindBlocks, 16<<20)...))
		}, never},
		{"a body by bytes", func(st network.Stream) {
			_, _ = st.Write(append(bytes.Clone(good), big(reconcile.KindOffer, 1000)...))
			slow(st, make([]byte, 1000))
		}, never},
		{"silence behind hello", func(st network.Stream) { _, _ = st.Write(good) }, never},
		{"more blocks than its budget, not asked for", func(st network.Stream) {
			_, _ = st.Write(good)
			m := reconcile.Encode(reconcile.Blocks{Log: s.own, Entries: [][]byte{make([]byte, 3<<20)}})
			for range 8 {
				if _, err := st.Write(m); err != nil {
					return
				}
			}
		}, always},
		{"answers to nothing", func(st network.Stream) {
			_, _ = st.Write(append(bytes.Clone(good), bytes.Repeat(reconcile.Encode(reconcile.Ranges{Last: true}), 2)...)) // one may have been asked
		}, always},
	} {
		t.Run(c.what, func(t *testing.T) {
			eve := raw(t, "eve", a)
			st := eve.open(protocolReconcile)
			go c.say(st)
			got := silenced(t, st)
			if has := bytes.Contains(got, []byte{'L', 'M', 1, byte(reconcile.KindBye)}); c.bye != perhaps && has != (c.bye == always) {
				t.Errorf("it is told why: %v", has)
			}
			sb.write(1, 10) // and nobody else is disturbed
			s.write(1, 10)
			agree(t, s, sb)
		})
	}
	if p := a.peer(s, "bob"); !p.Session {
		t.Error("the honest peer has lost its session")
	}
}

// TestASlowPeer has a member ask for much, and read nothing.
func TestASlowPeer(t *testing.T) {
	s := found(t, "ann", "bob", "eve")
	sb := s.at("bob")
	s.write(600, 64<<10)
	a := start(t, "ann", func(c *Config) { c.Limits.Queue = 4 << 20 }, s)
	eve := raw(t, "eve", a)
	st := eve.open(protocolReconcile)
	_, err := st.Write(append(hello(s.id, "eve", 1<<30), reconcile.Encode(reconcile.Want{Spans: []reconcile.Span{{Log: s.own, Ask: 1}}})...))
	check(t, err)
	eventually(t, "the session ends", func() bool { return a.peer(s, "eve").Slow == 1 })
	if !strings.Contains(a.logs.String(), "too slowly") {
		t.Error("it is not logged")
	}
	b := start(t, "bob", nil, sb)
	b.knows(a)
	agree(t, s, sb)
}

// TestASessionIsReplaced has a member open again and again: the newest counts.
func TestASessionIsReplaced(t *testing.T) {
	s := found(t, "ann", "eve")
	a := start(t, "ann", nil, s)
	eve := raw(t, "eve", a)
	var last network.Stream
	for range 5 {
		st := eve.open(protocolReconcile)
		_, err := st.Write(hello(s.id, "eve", 1<<20))
		check(t, err)
		var b [reconcile.HeaderSize]byte
		_, err = io.ReadFull(st, b[:])
		check(t, err)
		if last != nil {
			silenced(t, last)
		}
		last = st
	}
	eventually(t, "one session", func() bool { return a.peer(s, "eve").Session })
}
