package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	lattice "github.com/lattice-log/lattice"
)

const (
	hearsayRequestSize = 4 + 32
	maxHearsay         = 512       // nodes in an answer
	maxHearsayBytes    = 256 << 10 // of an answer
	hearsayAddresses   = 4         // of one node
	hearsayTime        = 10 * time.Minute
	lackingTime        = 3 * time.Second // while it is not known where some member is
	freshTime          = 30 * 24 * time.Hour
)

// whereabouts is where a member of a store was reached.
type whereabouts struct {
	node      lattice.NodeID
	addresses []string
}

func encodeHearsayRequest(store lattice.StoreID) []byte {
	return append([]byte{'L', 'Q', wireVersion, 0}, store[:]...)
}

// parseHearsayRequest reads a request. Wraps errAnswer.
func parseHearsayRequest(b []byte) (lattice.StoreID, error) {
	if len(b) != hearsayRequestSize || !bytes.Equal(b[:4], []byte{'L', 'Q', wireVersion, 0}) {
		return lattice.StoreID{}, fmt.Errorf("where others are: %w", errAnswer)
	}
	return lattice.StoreID(b[4:]), nil
}

// encodeHearsay encodes an answer, as much of it as there may be.
func encodeHearsay(all []whereabouts) []byte {
	b := []byte{'L', 'Q', wireVersion, 0, 0, 0}
	n := 0
	for _, w := range all[:min(len(all), maxHearsay)] {
		one := appendAddresses(slices.Clone(w.node[:]), w.addresses)
		if len(b)+len(one) > maxHearsayBytes {
			break
		}
		b = append(b, one...)
		n++
	}
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	return b
}

// parseHearsay reads an answer. Wraps errAnswer.
func parseHearsay(b []byte) ([]whereabouts, error) {
	bad := fmt.Errorf("where others are: %w", errAnswer)
	if len(b) < 6 || len(b) > maxHearsayBytes || !bytes.Equal(b[:4], []byte{'L', 'Q', wireVersion, 0}) {
		return nil, bad
	}
	n, b := int(binary.BigEndian.Uint16(b[4:])), b[6:]
	if n > maxHearsay {
		return nil, bad
	}
	var out []whereabouts
	for range n {
		if len(b) < 32 {
			return nil, bad
		}
		w, ok := whereabouts{node: lattice.NodeID(b[:32])}, false
		if w.addresses, b, ok = takeAddresses(b[32:], hearsayAddresses); !ok {
			return nil, bad
		}
		out = append(out, w)
	}
	if len(b) != 0 {
		return nil, bad
	}
	return out, nil
}

// askedWhere tells a member of a store where this node has reached other members of it.
// What it was only told is not told on.
func (m *Mesh) askedWhere(_ context.Context, node lattice.NodeID, s network.Stream) {
	_ = s.SetDeadline(time.Now().Add(m.c.Limits.HelloTime))
	var b [hearsayRequestSize]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return
	}
	store, err := parseHearsayRequest(b[:])
	if err != nil {
		return
	}
	c := m.store(store)
	if c == nil || !c.admits(node) {
		return
	}
	var all []whereabouts
	since := time.Now().Add(-freshTime)
	for _, n := range c.store.Members() {
		if at := m.book.reached(n, since); len(at) > 0 && n != node {
			all = append(all, whereabouts{n, at[:min(len(at), hearsayAddresses)]})
		}
	}
	if write(s, encodeHearsay(all), &m.c.Limits) != nil {
		return
	}
	_ = s.CloseWrite()
	_, _ = s.Read(b[:1]) // until the other side has read it, and closes
}

// askWhere asks a connected member where others are. They prove who they are when
// they are called, so a lie costs a call.
func (m *Mesh) askWhere(ctx context.Context, c *carrier, id peer.ID) error {
	ctx, cancel := context.WithTimeout(ctx, m.c.Limits.HelloTime)
	defer cancel()
	s, done, err := m.ask(ctx, id, protocolHearsay)
	if err != nil {
		return err
	}
	defer done()
	if err := write(s, encodeHearsayRequest(c.id), &m.c.Limits); err != nil {
		return err
	}
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.allowance(maxHearsayBytes)))
	b, err := io.ReadAll(io.LimitReader(s, maxHearsayBytes+1))
	if err != nil {
		return err
	}
	all, err := parseHearsay(b)
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.node != m.node && c.store.Member(w.node) == nil {
			m.book.hear(w.node, valid(w.addresses))
		}
	}
	return s.Close()
}
