package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// maxLogs is how many logs of a kind one peer's lag is listed of at most.
const maxLogs = 65_536

// lagsOf lists the logs of which a peer lacks most.
func (a *api) lagsOf(ctx context.Context, s *store.Store, p Peer, n int) ([]*pb.PeerLag, error) {
	if n == 0 || p.AheadLogs == 0 || a.cfg.Mesh == nil {
		return nil, nil
	}
	all, _, err := a.cfg.Mesh.Lags(ctx, s.Info().ID, p.Node, n)
	if err != nil {
		return nil, err
	}
	out := make([]*pb.PeerLag, len(all))
	for i, l := range all {
		m := &pb.PeerLag{Has: l.Has, Here: l.Here, Since: stamp(l.Since)}
		if (l.Writer == lattice.AuthorID{}) {
			m.TopicId, m.Partition = l.Partition.Topic.String(), l.Partition.Partition
			if t, ok := s.TopicByID(l.Partition.Topic); ok {
				m.Topic = t.Name
			}
		} else {
			m.Writer, m.Incarnation = l.Writer.String(), l.Incarnation
		}
		out[i] = m
	}
	return out, nil
}

// tripMessage is a round trip, nil for one that was not measured.
func tripMessage(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

func catchupMessage(c Coming) *pb.Catchup {
	m := &pb.Catchup{Entries: c.Entries, Batches: c.Batches, BlocksPerSecond: c.BlocksPerSecond, BytesPerSecond: c.BytesPerSecond}
	if f := c.Fetching; f != nil {
		m.Fetching = &pb.Fetching{Node: f.Node.String(), Bytes: f.Bytes, Here: f.Here, BytesPerSecond: f.PerSecond, Since: stamp(f.Since)}
	}
	return m
}

// Connect implements the service.
func (a peerService) Connect(ctx context.Context, r *pb.PeerServiceConnectRequest) (*pb.PeerServiceConnectResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	if a.cfg.Mesh == nil {
		return nil, hinted(errNoMesh, noMeshHint)
	}
	node := lattice.NodeID{}
	if r.Node != "" {
		if node, err = memberNamed(s, r.Node); err != nil {
			return nil, err
		}
	}
	if node, err = a.cfg.Mesh.Connect(ctx, node, r.Addresses, r.Once); err != nil {
		return nil, hinted(err, "lattice peer list shows where members are called, lattice peer connect NODE ADDRESS names one")
	}
	return &pb.PeerServiceConnectResponse{Node: node.String()}, nil
}

// Forget implements the service.
func (a peerService) Forget(_ context.Context, r *pb.PeerServiceForgetRequest) (*pb.PeerServiceForgetResponse, error) {
	_, m, err := a.who(r.Store, r.Node)
	if err != nil {
		return nil, err
	}
	if a.cfg.Mesh == nil {
		return nil, hinted(errNoMesh, noMeshHint)
	}
	old, err := a.cfg.Mesh.Forget(m.Node)
	if err != nil {
		return nil, err
	}
	return &pb.PeerServiceForgetResponse{Node: m.Node.String(), Addresses: old}, nil
}
