package p2p

import (
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"

	lattice "github.com/lattice-log/lattice"
)

// newHost makes the libp2p host: what it listens on, how it proves who it is, and
// how much it may hold. It does nothing of its own accord: no relay, no port mapping,
// no question to others what its address looks like.
func newHost(c Config, gate connmgr.ConnectionGater) (host.Host, error) {
	key, err := crypto.UnmarshalEd25519PrivateKey(c.Key.Private())
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("mesh: the node's key: %w", err))
	}
	resources, err := newResources(c.Limits)
	if err != nil {
		return nil, fmt.Errorf("mesh: limits of libp2p: %w", err)
	}
	options := []libp2p.Option{
		libp2p.Identity(key),
		libp2p.NoListenAddrs, // listen fails if any address does, and says which
		libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()), // a taken port is an error
		libp2p.Transport(libp2pquic.NewTransport),
		libp2p.Security(libp2ptls.ID, libp2ptls.New), // a third of Noise's CPU with AES in hardware
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.ConnectionGater(gate),
		libp2p.ResourceManager(resources),
		libp2p.ConnectionManager(connmgr.NullConnMgr{}), // the gate counts
		libp2p.SwarmOpts(swarm.WithDialRanker(rank)),
		libp2p.UserAgent("lattice"),
		libp2p.ProtocolVersion("lattice/1"),
		libp2p.DisableRelay(),
		libp2p.DisableMetrics(),
		libp2p.Ping(false), // strangers get none
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.ForceReachabilityPrivate(),
		libp2p.WithDialTimeout(c.Limits.HelloTime),
	}
	if len(c.Announce) > 0 {
		told, err := parseAddresses(c.Announce)
		if err != nil {
			return nil, err
		}
		options = append(options, libp2p.AddrsFactory(func([]multiaddr.Multiaddr) []multiaddr.Multiaddr { return told }))
	}
	h, err := libp2p.New(options...)
	if err != nil {
		return nil, fmt.Errorf("mesh: begin libp2p: %w", err)
	}
	if err := listen(h, c.Listen); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// listen opens every address, or none. Kind Unavailable: something else has it.
func listen(h host.Host, addresses []string) error {
	all, err := parseAddresses(addresses)
	if err != nil {
		return err
	}
	for _, a := range all {
		if err := h.Network().Listen(a); err != nil {
			return lattice.E(lattice.Unavailable, fmt.Errorf("mesh: listen on %s: %w; choose another address", a, err))
		}
	}
	return nil
}

// newResources bounds what libp2p holds. Connections of members are counted by the
// gate; the bounds here are for what it cannot see: handshakes, streams, buffers.
func newResources(l Limits) (network.ResourceManager, error) {
	conns := l.Peers + l.Strangers
	limits := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&limits)
	concrete := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Conns: rcmgr.LimitVal(2 * conns), ConnsInbound: rcmgr.LimitVal(2 * conns), ConnsOutbound: rcmgr.LimitVal(2 * conns),
			FD: rcmgr.LimitVal(2 * conns), Memory: rcmgr.LimitVal64(l.Memory),
		},
		Transient:   rcmgr.ResourceLimits{Conns: 64, ConnsInbound: 64, ConnsOutbound: 64, FD: 64, Memory: rcmgr.LimitVal64(l.Memory / 8)},
		PeerDefault: rcmgr.ResourceLimits{Conns: 4, ConnsInbound: 4, ConnsOutbound: 4, Streams: 256, StreamsInbound: 128, StreamsOutbound: 128, Memory: rcmgr.LimitVal64(l.Memory / 4)},
	}.Build(limits.Scale(l.Memory, 2*conns))
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(concrete))
}

// rank calls TCP first: it carries bulk for a third of QUIC's CPU. QUIC follows for
// where only it gets through.
func rank(all []multiaddr.Multiaddr) []network.AddrDelay {
	out := make([]network.AddrDelay, 0, len(all))
	tcps := time.Duration(0)
	for _, a := range all {
		if _, err := a.ValueForProtocol(multiaddr.P_TCP); err == nil {
			out = append(out, network.AddrDelay{Addr: a, Delay: tcps * 100 * time.Millisecond})
			tcps++
		}
	}
	for _, a := range all {
		if _, err := a.ValueForProtocol(multiaddr.P_TCP); err != nil {
			wait := time.Duration(0)
			if tcps > 0 {
				wait = 500*time.Millisecond + tcps*100*time.Millisecond
			}
			out = append(out, network.AddrDelay{Addr: a, Delay: wait})
		}
	}
	return out
}

// errKind means a peer whose key is not of the kind that nodes have. Kind Denied.
var errKind = lattice.E(lattice.Denied, errors.New("its key is not Ed25519"))

// peerOf is a node in libp2p's words. Kind Invalid: the id is no public key.
func peerOf(n lattice.NodeID) (peer.ID, error) {
	key, err := crypto.UnmarshalEd25519PublicKey(n[:])
	if err != nil {
		return "", lattice.E(lattice.Invalid, fmt.Errorf("node %s: %w", n.Short(), err))
	}
	id, err := peer.IDFromPublicKey(key)
	if err != nil {
		return "", lattice.E(lattice.Invalid, fmt.Errorf("node %s: %w", n.Short(), err))
	}
	return id, nil
}

// nodeOf is the node whose key a peer has proven. An Ed25519 key stands in the id.
func nodeOf(p peer.ID) (lattice.NodeID, error) {
	key, err := p.ExtractPublicKey()
	if err != nil || key.Type() != crypto.Ed25519 {
		return lattice.NodeID{}, errKind
	}
	raw, err := key.Raw()
	if err != nil || len(raw) != len(lattice.NodeID{}) {
		return lattice.NodeID{}, errKind
	}
	return lattice.NodeID(raw), nil
}
