package p2p

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"

	lattice "github.com/lattice-log/lattice"
)

const protocolPing = ping.ID // libp2p's own: 32 bytes, and the same back

// pinged answers a member's pings.
func (m *Mesh) pinged(ctx context.Context, _ lattice.NodeID, s network.Stream) {
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	(&ping.PingService{Host: m.host}).PingHandler(s)
}

// ping measures a round trip.
func (m *Mesh) ping(ctx context.Context, id peer.ID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(network.WithNoDial(ctx, "it is connected"))
	defer cancel()
	select {
	case r, ok := <-ping.Ping(ctx, m.host, id):
		if !ok {
			return 0, errors.New("no answer")
		}
		return r.RTT, r.Error
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
