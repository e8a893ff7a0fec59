package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"

	lattice "github.com/lattice-log/lattice"
)

// ErrStranger means that whoever answers at an address is no member. Kind NotFound.
var ErrStranger = lattice.E(lattice.NotFound, errors.New("it is no member of a store here"))

// Connect calls a member at addresses now, and returns when it is connected; the zero node stands for
// whichever member answers there. Unless once, the addresses are noted for later when it is. It returns who
// that was. Kinds Invalid (an address is none), NotFound (ErrStranger), Unavailable (nobody answers), Conflict
// (no member is left to be called).
func (m *Mesh) Connect(ctx context.Context, n lattice.NodeID, addresses []string, once bool) (lattice.NodeID, error) {
	at, err := parseAddresses(addresses)
	switch {
	case err != nil:
		return n, err
	case len(at) == 0 || len(at) > maxAddresses:
		return n, lattice.E(lattice.Invalid, fmt.Errorf("%d addresses, want 1 to %d", len(at), maxAddresses))
	case n != lattice.NodeID{} && !m.known(n):
		return n, fmt.Errorf("call %s: %w", n.Short(), ErrStranger)
	case n == lattice.NodeID{}:
		if n, err = m.whoIs(ctx, at); err != nil {
			return n, err
		}
	}
	id, err := peerOf(n)
	if err != nil {
		return n, err
	}
	if err := m.dial(ctx, id, at); err != nil {
		return n, lattice.E(lattice.Unavailable, err)
	}
	m.look()
	if once {
		return n, nil
	}
	m.book.remember(n, addresses)
	return n, m.book.save()
}

// whoIs finds out which member is at an address. A call is for one identity; whoever else answers says in
// the handshake who it is.
func (m *Mesh) whoIs(ctx context.Context, at []multiaddr.Multiaddr) (lattice.NodeID, error) {
	for n := range m.wanted() {
		id, err := peerOf(n)
		if err != nil || m.host.Network().Connectedness(id) == network.Connected {
			continue
		}
		err = m.probe(ctx, id, at)
		if err == nil {
			return n, nil
		}
		other, ok := answered(err)
		if !ok {
			return n, lattice.E(lattice.Unavailable, fmt.Errorf("call %s: %w", strings.Join(texts(at), ", "), plain(err)))
		}
		if n, err = nodeOf(other); err != nil || !m.known(n) {
			return n, fmt.Errorf("%s answers: %w", other, ErrStranger)
		}
		return n, nil
	}
	return lattice.NodeID{}, lattice.E(lattice.Conflict, errors.New("all members that are known here are connected"))
}

// probe calls a node at these addresses and no others.
func (m *Mesh) probe(ctx context.Context, id peer.ID, at []multiaddr.Multiaddr) error {
	ctx, cancel := context.WithTimeout(ctx, 2*m.c.Limits.HelloTime)
	defer cancel()
	if s, ok := m.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(id)
	}
	m.host.Peerstore().ClearAddrs(id) // where it was found before, the book knows
	m.host.Peerstore().AddAddrs(id, at, peerstore.TempAddrTTL)
	defer m.host.Peerstore().ClearAddrs(id)
	return m.host.Connect(ctx, peer.AddrInfo{ID: id})
}

// answered returns who answered a call that was for another.
func answered(err error) (peer.ID, bool) {
	var all *swarm.DialError
	if !errors.As(err, &all) {
		return "", false
	}
	for _, e := range all.DialErrors {
		var other sec.ErrPeerIDMismatch
		if errors.As(e.Cause, &other) {
			return other.Actual, true
		}
	}
	return "", false
}

// Forget forgets where a node is called, and ends the connection with it. It returns the addresses. Who
// calls this node itself, or is told of by others, is found again.
func (m *Mesh) Forget(n lattice.NodeID) ([]string, error) {
	old := m.book.forget(n)
	id, err := peerOf(n)
	if err != nil {
		return old, err
	}
	m.host.Peerstore().ClearAddrs(id)
	return old, errors.Join(m.host.Network().ClosePeer(id), m.book.save())
}

// forget forgets where a node is. Who invited this one is known on.
func (b *book) forget(n lattice.NodeID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.peers[n]
	if l == nil || len(l.addresses) == 0 {
		return nil
	}
	old := slices.Clone(l.addresses)
	l.addresses, b.dirty = nil, true
	return old
}
