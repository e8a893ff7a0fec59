package p2p

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// MaxNotice bounds the proof of a removal in bytes.
const MaxNotice = 1 << 20

const (
	farewellRequestSize = 4 + 32
	farewellsAtOnce     = 4 // of all peers
)

func encodeFarewellRequest(store lattice.StoreID) []byte {
	return append([]byte{'L', 'O', wireVersion, 0}, store[:]...)
}

// parseFarewellRequest reads a request. Wraps errAnswer.
func parseFarewellRequest(b []byte) (lattice.StoreID, error) {
	if len(b) != farewellRequestSize || !bytes.Equal(b[:4], []byte{'L', 'O', wireVersion, 0}) {
		return lattice.StoreID{}, fmt.Errorf("whether it was removed: %w", errAnswer)
	}
	return lattice.StoreID(b[4:]), nil
}

// askedFarewell shows a node that it was removed from a store. It is a stranger by now, and
// whoever else asks hears nothing: neither who was never a member, nor of a store that is not here.
func (m *Mesh) askedFarewell(_ context.Context, node lattice.NodeID, s network.Stream) {
	_ = s.SetDeadline(time.Now().Add(m.c.Limits.HelloTime))
	var b [farewellRequestSize]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return
	}
	store, err := parseFarewellRequest(b[:])
	if err != nil {
		return
	}
	c := m.store(store)
	if c == nil || lattice.KindOf(c.store.Member(node)) != lattice.Denied {
		return
	}
	f, ok := c.store.(Farewells)
	if !ok {
		return
	}
	select {
	case m.farewells <- struct{}{}:
		defer func() { <-m.farewells }()
	default:
		return // it asks again
	}
	notice, err := f.Notice(node)
	if err != nil || len(notice) > MaxNotice {
		c.log.Debug("a node is not shown that it was removed", "peer", node.Short(), "err", err)
		return
	}
	if write(s, notice, &m.c.Limits) != nil {
		return
	}
	_ = s.CloseWrite()
	_, _ = s.Read(b[:1]) // until the other side has read it, and closes
}

// askFarewell asks a peer that ends sessions at once whether this node was removed from a
// store. What it says is believed if it proves it.
func (m *Mesh) askFarewell(ctx context.Context, c *carrier, n lattice.NodeID, id peer.ID) {
	f, ok := c.store.(Farewells)
	if !ok || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.c.Limits.HelloTime)
	defer cancel()
	s, done, err := m.ask(ctx, id, protocolFarewell)
	if err != nil {
		return
	}
	defer done()
	if write(s, encodeFarewellRequest(c.id), &m.c.Limits) != nil {
		return
	}
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.allowance(MaxNotice)))
	b, err := io.ReadAll(io.LimitReader(s, MaxNotice+1))
	if err != nil || len(b) == 0 {
		return // a member is answered by silence
	}
	if err := f.Dismiss(b); err != nil {
		c.log.Warn("a peer says that this node was removed, and does not prove it", "peer", n.Short(), "err", err)
		c.current.ended(n, "it says that this node was removed, and does not prove it")
		c.current.refuse(reconcile.Unproven)
		return
	}
	_ = s.Close()
}
