package api

import (
	"context"
	"errors"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/keyval"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// exportBytes is how much of a snapshot one answer holds.
const exportBytes = 1 << 20

func snapshotID(s string) (lattice.Hash, error) {
	if s == "" {
		return lattice.Hash{}, nil
	}
	id, err := lattice.ParseHash(s)
	if err != nil {
		return id, lattice.E(lattice.Invalid, errors.New("a snapshot's id is 64 hex digits"))
	}
	return id, nil
}

func snapshotMessage(k keyval.Kept) *pb.Snapshot {
	m := &pb.Snapshot{Id: k.ID.String(), Bytes: k.Bytes, Root: k.Root.String(), Base: k.Base}
	if !k.Taken.IsZero() {
		m.Taken = stamp(k.Taken)
	}
	return m
}

func floorMessage(f keyval.Floor) *pb.Floor {
	m := &pb.Floor{Snapshot: f.Snapshot.String(), Through: stamp(f.Through)}
	if !f.Pruned.IsZero() {
		m.Pruned = stamp(f.Pruned)
	}
	return m
}

// watermarkMessage is nil for a store that this node has alone.
func watermarkMessage(db *keyval.DB) *pb.Watermark {
	w := db.Watermark()
	if len(w.Others) == 0 {
		return nil
	}
	m := &pb.Watermark{Entries: w.Frontier.Entries()}
	add := func(x keyval.MemberMark, self bool) {
		m.Members = append(m.Members, &pb.WatermarkMember{Node: x.Author.String(), Entries: x.Frontier.Entries(), Behind: w.Behind(x), Self: self})
	}
	add(keyval.MemberMark{Author: db.Writer().Author, Frontier: w.Own}, true)
	for _, o := range w.Others {
		add(o, false)
	}
	return m
}

func (a storeService) Snapshots(_ context.Context, r *pb.StoreServiceSnapshotsRequest) (*pb.StoreServiceSnapshotsResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	all, err := s.State().Snapshots()
	res := &pb.StoreServiceSnapshotsResponse{}
	for _, k := range all {
		res.Snapshots = append(res.Snapshots, snapshotMessage(k))
	}
	return res, err
}

func (a storeService) Snapshot(ctx context.Context, r *pb.StoreServiceSnapshotRequest) (*pb.StoreServiceSnapshotResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	k, err := s.State().Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.StoreServiceSnapshotResponse{Snapshot: snapshotMessage(k)}, nil
}

func (a storeService) DropSnapshot(_ context.Context, r *pb.StoreServiceDropSnapshotRequest) (*pb.StoreServiceDropSnapshotResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	id, err := snapshotID(r.Snapshot)
	if err == nil && id.IsZero() {
		err = lattice.E(lattice.Invalid, errors.New("the request names no snapshot"))
	}
	if err != nil {
		return nil, err
	}
	return &pb.StoreServiceDropSnapshotResponse{}, s.State().DropSnapshot(id)
}

func (a storeService) Prune(ctx context.Context, r *pb.StoreServicePruneRequest) (*pb.StoreServicePruneResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	if err := unforked(s, "prune"); err != nil {
		return nil, err
	}
	id, err := snapshotID(r.Snapshot)
	switch {
	case err != nil:
	case len(r.Below) > 0 && !id.IsZero():
		err = lattice.E(lattice.Invalid, errors.New("prune is to a snapshot or below a frontier, not both"))
	case len(r.Below) > 0:
		id, err = keptBelow(ctx, s.State(), r.Below)
	case id.IsZero():
		var k keyval.Kept
		k, err = s.State().Snapshot(ctx)
		id = k.ID
	}
	if err != nil {
		return nil, err
	}
	prune := s.State().Prune
	if r.Anyway {
		prune = s.State().PruneAnyway
	}
	p, err := prune(ctx, id)
	if err != nil {
		return nil, err
	}
	return &pb.StoreServicePruneResponse{Base: snapshotMessage(p.Base), Entries: p.Entries, Logs: int32(p.Logs), Bytes: p.Bytes}, nil
}

// keptBelow returns the newest snapshot that has nothing beyond a frontier, or makes one.
func keptBelow(ctx context.Context, db *keyval.DB, token []byte) (lattice.Hash, error) {
	f, err := db.ParseToken(token)
	if err != nil {
		return lattice.Hash{}, lattice.E(lattice.Invalid, hinted(err, "give the frontier of lattice store info -o json, or the resume of a watch of this store"))
	}
	if db.Frontier().Within(f) { // what is written meanwhile may lead beyond it
		if _, err := db.Snapshot(ctx); err != nil {
			return lattice.Hash{}, err
		}
	}
	k, err := db.KeptBelow(f)
	if lattice.KindOf(err) == lattice.NotFound {
		err = hinted(err, "keep snapshots to prune to: lattice store snapshot, or state.snapshot_every_ms in the configuration")
	}
	return k.ID, err
}

func (a storeService) Export(_ context.Context, r *pb.StoreServiceExportRequest) (*pb.StoreServiceExportResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	id, err := snapshotID(r.Snapshot)
	if err != nil {
		return nil, err
	}
	if id.IsZero() || r.Offset < 0 {
		return nil, lattice.E(lattice.Invalid, errors.New("the request names no snapshot, or no place in it"))
	}
	b := make([]byte, exportBytes)
	n, err := s.State().ReadSnapshot(id, r.Offset, b)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return &pb.StoreServiceExportResponse{Data: b[:n]}, nil
}

func (a storeService) Import(ctx context.Context, r *pb.StoreServiceImportRequest) (*pb.StoreServiceImportResponse, error) {
	id, err := snapshotID(r.Snapshot)
	if err != nil {
		return nil, err
	}
	if id.IsZero() || r.Size <= 0 || r.Offset < 0 || r.Offset > r.Size-int64(len(r.Data)) {
		return nil, lattice.E(lattice.Invalid, errors.New("the request names no snapshot, or no place in it"))
	}
	received, done, err := a.cfg.Stores.Import(ctx, id, r.Size, r.Offset, r.Data)
	if err != nil {
		return nil, err
	}
	res := &pb.StoreServiceImportResponse{Received: received}
	if done != nil {
		role := roster.None
		if db := done.Store.State(); db != nil {
			role = db.Role()
		}
		res.Imported = &pb.Imported{
			Store: a.message(done.Store), Made: done.Made, Changed: done.New, Entries: done.Entries,
			Rows: done.Seal.Counts.Rows, Signer: done.Seal.Signer.String(), Role: role.String(),
		}
	}
	return res, nil
}
