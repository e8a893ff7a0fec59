package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/mesh/p2p"
	"github.com/lattice-log/lattice/mesh/reconcile"
	"github.com/lattice-log/lattice/storage/disk"
)

// mesh is how this node reaches others: mesh/p2p with this node's stores. It
// implements api.Mesh.
type mesh struct {
	*p2p.Mesh
	stores *stores
}

// openMesh has every store take part in the mesh. Without an address it is off.
func (n *Node) openMesh() error {
	if n.cfg.Mesh.Listen == "" {
		return nil
	}
	m, err := newMesh(n.stores.key, n.cfg.Mesh, n.cfg.Data, p2p.Limits{}, n.log)
	if err != nil {
		return err
	}
	n.mesh = &mesh{m, n.stores}
	add := func(st *store.Store) error {
		if _, fork := st.Fork(); fork {
			return nil // nobody is told of it
		}
		return takePart(m, st, n.stores.gathered())
	}
	for _, st := range n.stores.All() {
		if err := add(st); err != nil {
			return err
		}
	}
	n.stores.added = add
	return n.metrics.Register(newMeshMetrics(n.mesh, n.stores))
}

// gathered is where snapshots of peers are gathered: beside those that come by the API.
func (s *stores) gathered() keyval.Staging {
	return keyval.Staging{FS: disk.OS(), Dir: filepath.Join(storesPath(s.cfg.Data), "incoming", "peers")}
}

// Join implements api.Mesh. The steps, and what a crash leaves:
//
//  1. The inviter makes this node a member, in an entry of its own. A crash after it:
//     the same token is answered in the same way again.
//  2. The store is made, of its genesis entry alone. A crash before that leaves
//     nothing here.
//  3. It is served, and takes part in the mesh, which brings the rest. A crash: the
//     next start does that.
//  4. It becomes the default. A crash before that leaves the one that was.
func (m *mesh) Join(ctx context.Context, t invite.Token, makeDefault bool) (api.Joined, error) {
	genesis, err := m.Mesh.Join(ctx, t)
	if err != nil {
		return api.Joined{}, err
	}
	e, err := sigchain.Parse(genesis)
	if err != nil {
		return api.Joined{}, fmt.Errorf("the store's first entry, as the inviter sent it: %w", err)
	}
	st, again, err := m.stores.join(ctx, e, store.JoinedRecord{Inviter: t.Inviter, Invitation: t.ID()})
	if err == nil && makeDefault {
		err = m.stores.Use(st)
	}
	return api.Joined{Store: st, Again: again}, err
}

// Peers implements api.Mesh.
func (m *mesh) Peers(id lattice.StoreID) api.Peers {
	var out api.Peers
	for _, s := range m.Status().Stores {
		if s.Store != id {
			continue
		}
		out.Problem, out.Refused = s.Failed, map[string]int64{}
		for why, n := range s.Refused {
			out.Refused[why.String()] = int64(n)
			out.Wrong += faults(why, n)
		}
		for _, p := range s.Peers {
			out.All = append(out.All, api.Peer{
				Node: p.Node, Reachable: p.Reachable, Since: p.Since, RoundTrip: p.RoundTrip, Addresses: p.Addresses, Problem: p.Failed,
				BytesIn: int64(p.In), BytesOut: int64(p.Out), Behind: int64(p.Behind), Equal: p.Session && p.Equal,
				Known: p.Lacks.Known, Ahead: int64(p.Lacks.Blocks), AheadLogs: p.Lacks.Logs, AheadSince: p.Lacks.Since,
			})
		}
		out.Coming = api.Coming{Entries: int64(s.Coming.Blocks), BlocksPerSecond: s.Coming.PerSecond, BytesPerSecond: s.Coming.Bytes}
		if f := s.Fetching; f != nil {
			out.Coming.Fetching = &api.Fetching{Node: f.Peer, Bytes: int64(f.Bytes), Here: int64(f.Here), PerSecond: f.PerSecond, Since: f.Since}
		}
		if s.Batches != nil {
			addBatches(&out, s.Batches)
		}
	}
	return out
}

// faults is n if a reason says that something was wrong with what came, and not that it did
// not come, that the disk took nothing, or that a session ended.
func faults(why reconcile.Reason, n uint64) int64 {
	switch why {
	case reconcile.Closing, reconcile.NotShown, reconcile.NotStored:
		return 0
	}
	return int64(n)
}

// Lags implements api.Mesh.
func (m *mesh) Lags(ctx context.Context, id lattice.StoreID, node lattice.NodeID, n int) ([]api.LogLag, bool, error) {
	l, err := m.Mesh.Lags(ctx, id, node, n)
	return lagsOf(l.All), l.More, err
}

// Alone implements api.Mesh.
func (m *mesh) Alone(ctx context.Context, id lattice.StoreID, of []lattice.NodeID, n int) ([]api.LogLag, bool, bool, error) {
	l, err := m.Mesh.Alone(ctx, id, of, n)
	return lagsOf(l.All), l.More, l.Known, err
}

func lagsOf(all []p2p.LogLag) []api.LogLag {
	out := make([]api.LogLag, len(all))
	for i, l := range all {
		out[i] = api.LogLag{Writer: l.Writer.Author, Incarnation: l.Writer.Incarnation, Partition: l.Partition, Has: l.Has, Here: l.Here, Since: l.Since}
	}
	return out
}

// addBatches adds what is shown of the sessions about records to that about entries.
func addBatches(out *api.Peers, b *p2p.BatchStatus) {
	if out.Problem == "" {
		out.Problem = b.Failed
	}
	for why, n := range b.Refused {
		out.Refused[why.String()] += int64(n)
		out.Wrong += faults(why, n)
	}
	for i := range out.All { // what it has of records is not known either before such a session
		n := out.All[i].Node
		out.All[i].Known = out.All[i].Known && slices.ContainsFunc(b.Peers, func(p p2p.PeerStatus) bool { return p.Node == n })
	}
	c := &out.Coming
	c.Batches, c.BlocksPerSecond, c.BytesPerSecond = int64(b.Coming.Blocks), c.BlocksPerSecond+b.Coming.PerSecond, c.BytesPerSecond+b.Coming.Bytes
	for _, p := range b.Peers {
		i := slices.IndexFunc(out.All, func(x api.Peer) bool { return x.Node == p.Node })
		if i < 0 {
			continue // it is a member no more
		}
		x := &out.All[i]
		x.BytesIn, x.BytesOut = x.BytesIn+int64(p.In), x.BytesOut+int64(p.Out)
		x.Behind = x.Behind + int64(p.Behind)
		x.Equal = x.Equal && p.Session && p.Equal
		x.Known = x.Known && p.Lacks.Known
		x.Ahead, x.AheadLogs = x.Ahead+int64(p.Lacks.Blocks), x.AheadLogs+p.Lacks.Logs
		if t := p.Lacks.Since; !t.IsZero() && (x.AheadSince.IsZero() || t.Before(x.AheadSince)) {
			x.AheadSince = t
		}
		if x.Problem == "" {
			x.Problem = p.Failed
		}
	}
}
