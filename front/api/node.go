package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

type nodeService struct{ *api }

func (a nodeService) Status(ctx context.Context, _ *pb.NodeServiceStatusRequest) (*pb.NodeServiceStatusResponse, error) {
	n := a.cfg.Node()
	res := &pb.NodeServiceStatusResponse{
		Node: a.cfg.Stores.All()[0].Info().Node.String(), Version: n.Version, Started: stamp(n.Started),
		Listeners: &pb.Listeners{Kafka: n.Kafka, Redis: n.Redis, Http: n.HTTP, P2P: n.P2P, Socket: n.Socket},
		Reasons:   a.reasons(),
	}
	res.Ready = len(res.Reasons) == 0
	for _, s := range a.cfg.Stores.All() {
		peers := a.peersOf(s)
		m, err := a.storeStatus(ctx, s, peers)
		if err != nil {
			return nil, err
		}
		for _, p := range peers.All {
			m.Peers = append(m.Peers, &pb.PeerStatus{
				Node: p.Node.String(), Reachable: p.Reachable, BehindBlocks: p.Ahead, Known: p.Known, Since: stamp(p.Since), RoundTrip: tripMessage(p.RoundTrip),
				BytesIn: p.BytesIn, BytesOut: p.BytesOut, BehindLogs: int32(p.AheadLogs), BehindSince: stamp(p.AheadSince), MissingBlocks: p.Behind, Dormant: p.Dormant,
			})
		}
		if err := stateStatus(ctx, s.State(), m); err != nil {
			return nil, err
		}
		m.Refused = max(m.Refused, peers.Wrong) // most of it never comes as far as the state
		res.Stores = append(res.Stores, m)
	}
	return res, nil
}

// storeStatus describes a store with its other nodes.
func (a *api) storeStatus(ctx context.Context, s *store.Store, peers Peers) (*pb.StoreStatus, error) {
	info := s.Info()
	m := &pb.StoreStatus{Id: info.ID.String(), Name: info.Name, Catchup: catchupMessage(peers.Coming), Watermark: watermarkMessage(s.State())}
	var frontier []head
	relaxed := 0
	alone := newOnlyHere(peers.All, a.now())
	for _, t := range s.Topics() {
		m.Topics++
		m.Partitions += t.Partitions
		if !synced(s, t) {
			relaxed++
		}
	}
	partitionsOf(s, func(t store.Topic, n int32, p *partition.Partition, err error) {
		if err != nil {
			m.Failed = append(m.Failed, &pb.FailedPartition{Topic: t.Name, Partition: n, Reason: err.Error()})
			return
		}
		alone.add(p)
		st := p.Status()
		m.Bytes += st.Bytes
		if st.Failed != "" {
			m.Failed = append(m.Failed, &pb.FailedPartition{Topic: t.Name, Partition: n, Reason: st.Failed})
		}
		if st.Checkpoint.Size > 0 {
			m.Blocks += int64(st.Checkpoint.Size)
			frontier = append(frontier, head{p.ID().String(), st.Checkpoint.Size, st.Checkpoint.Root})
		}
	})
	for _, t := range s.State().Tips() {
		frontier = append(frontier, head{"authors/" + t.Log, t.Seq, t.ID})
	}
	m.FrontierRoot = frontierRoot(frontier)
	m.Stranded = s.StrandedBlocks()
	if err := alone.addMesh(ctx, a.cfg.Mesh, s, peers.All); err != nil {
		return nil, err
	}
	m.Durability = "An acknowledged write is on this node's disk and survives power loss" + alone.sentence()
	if relaxed > 0 {
		m.Durability += fmt.Sprintf(" Not so for %d of %d topics, which acknowledge before the disk does (lattice.durability).", relaxed, m.Topics)
	}
	return m, nil
}

// rootWait is how long a status waits for the root of a state.
const rootWait = 3 * time.Second

// stateStatus adds how a store's keys are. Its root costs what has changed since
// somebody last asked for it.
func stateStatus(ctx context.Context, db *keyval.DB, m *pb.StoreStatus) error {
	st := db.Status()
	m.Writers, m.Entries = int64(st.Writers), int64(st.Entries)
	m.Held, m.Waiting, m.Refused, m.Equivocations = int64(st.Held), int64(st.Waiting), int64(st.Refused), int64(st.Equivocations)
	m.Void = int64(st.Void)
	if st.Durability != signedlog.Fsync {
		m.Durability += fmt.Sprintf(" Not so for keys: a write is acknowledged before the disk has it (state.durability is %s).", st.Durability)
	}
	m.StateFailed = st.Damaged
	if st.Failed != "" {
		m.StateFailed = append(m.StateFailed, st.Failed)
	}
	if st.Dismissed != "" {
		m.StateFailed = append(m.StateFailed, st.Dismissed)
	}
	soon, cancel := context.WithTimeout(ctx, rootWait)
	defer cancel()
	root, err := db.RootSoon(soon)
	switch {
	case err == nil:
		m.StateRoot = root.Hash.String()
	case ctx.Err() != nil:
		return ctx.Err()
	case soon.Err() != nil: // it is being made, and will be there another time
	case st.Failed == "":
		m.StateFailed = append(m.StateFailed, "the root: "+err.Error())
	}
	return nil
}

// synced reports whether acknowledgements of the topic wait for the disk.
func synced(s *store.Store, t store.Topic) bool {
	entries, err := s.TopicConfig(t.ID)
	if err != nil {
		return true
	}
	i := slices.IndexFunc(entries, func(e store.ConfigEntry) bool { return e.Name == "lattice.durability" })
	return i < 0 || entries[i].Value == "fsync"
}

// head is how far a log is: a partition's blocks with their Merkle root, or a
// writer's entries with the hash of the last one.
type head struct {
	log  string
	size uint64
	root lattice.Hash
}

// frontierRoot hashes the heads in the order of their logs' names:
//
//	SHA-256("lattice/frontier/v1\x00" then for each log: name, 0, size u64 big-endian, root [32])
func frontierRoot(heads []head) string {
	slices.SortFunc(heads, func(a, b head) int {
		switch {
		case a.log < b.log:
			return -1
		case a.log > b.log:
			return 1
		}
		return 0
	})
	h := sha256.New()
	h.Write([]byte("lattice/frontier/v1\x00"))
	for _, x := range heads {
		h.Write(append([]byte(x.log), 0))
		h.Write(binary.BigEndian.AppendUint64(nil, x.size))
		h.Write(x.root[:])
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (a nodeService) Version(context.Context, *pb.NodeServiceVersionRequest) (*pb.NodeServiceVersionResponse, error) {
	n := a.cfg.Node()
	return &pb.NodeServiceVersionResponse{
		Version: n.Version, Commit: n.Commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}, nil
}

func (a nodeService) Config(context.Context, *pb.NodeServiceConfigRequest) (*pb.NodeServiceConfigResponse, error) {
	res := &pb.NodeServiceConfigResponse{}
	for _, e := range a.cfg.Node().Config {
		m := &pb.NodeConfigEntry{Name: e.Name, Value: e.Value, Default: e.Default, Source: e.Source, Doc: e.Doc, Sensitive: e.Sensitive}
		if e.Sensitive {
			m.Value = ""
		}
		res.Entries = append(res.Entries, m)
	}
	return res, nil
}
