package p2p

import (
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
)

const localService = "_lattice._udp"

// findLocally announces this node on the local network and looks for members there,
// if it is configured to. What it announces is the node's id and addresses, and no store.
func (m *Mesh) findLocally() (stop func(), err error) {
	if !m.c.MDNS {
		return func() {}, nil
	}
	s := mdns.NewMdnsService(m.host, localService, localPeers{m})
	if err := s.Start(); err != nil {
		return nil, fmt.Errorf("mesh: announce this node on the local network: %w", err)
	}
	return func() { _ = s.Close() }, nil
}

// localPeers takes what is announced on the local network.
type localPeers struct{ m *Mesh }

// HandlePeerFound remembers where a member is. Others are of no interest.
func (l localPeers) HandlePeerFound(p peer.AddrInfo) {
	n, err := nodeOf(p.ID)
	if err != nil || !l.m.known(n) {
		return
	}
	all := texts(p.Addrs)
	all = slices.DeleteFunc(all, func(a string) bool { return len(valid([]string{a})) == 0 })
	l.m.book.remember(n, all[:min(len(all), maxAddresses)])
	l.m.look()
}
