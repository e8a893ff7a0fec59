package api

import (
	"context"
	"errors"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Stores are the stores of a node. Safe for concurrent use.
type Stores interface {
	// All returns the stores, the default one first. There is at least one.
	All() []*store.Store
	// Create makes a store and serves it. Kinds Exists, Invalid.
	Create(ctx context.Context, name string) (*store.Store, error)
	// Fork makes a fork of a store and serves it. Kinds Exists, Invalid, NotYet.
	Fork(ctx context.Context, s *store.Store, name string) (*store.Store, error)
	// Use makes a store the default.
	Use(s *store.Store) error
	// Import takes bytes of a snapshot of size bytes, which belong at offset, and
	// returns how many are here. With all of them it joins the snapshot with its
	// store, or makes that. Bytes that belong elsewhere are not taken. Kinds are those
	// of keyval.DB.Import.
	Import(ctx context.Context, id lattice.Hash, size, offset int64, b []byte) (received int64, done *Imported, err error)
}

// Imported is what an import brought, and to which store.
type Imported struct {
	keyval.Imported
	Store *store.Store
	Made  bool // it was not here before
}

// Fixed are stores to which none can be added. The first is the default.
type Fixed []*store.Store

var errFixed = lattice.E(lattice.Unsupported, errors.New("the stores of this node are fixed"))

// All returns the stores.
func (f Fixed) All() []*store.Store { return f }

// Create refuses: Kind Unsupported.
func (Fixed) Create(context.Context, string) (*store.Store, error) { return nil, errFixed }

// Fork refuses: Kind Unsupported.
func (Fixed) Fork(context.Context, *store.Store, string) (*store.Store, error) { return nil, errFixed }

// Use refuses: Kind Unsupported.
func (Fixed) Use(*store.Store) error { return errFixed }

// Import refuses: Kind Unsupported.
func (Fixed) Import(context.Context, lattice.Hash, int64, int64, []byte) (int64, *Imported, error) {
	return 0, nil, errFixed
}

// store finds a store by id, the beginning of one, or name; empty means the default.
// It makes none. Kinds NotFound, Conflict (several stores have the name).
func (a *api) store(name string) (*store.Store, error) {
	all := a.cfg.Stores.All()
	if name == "" {
		return all[0], nil
	}
	s, err := store.Find(all, name)
	switch lattice.KindOf(err) {
	case lattice.NotFound:
		err = hinted(err, "see lattice store list for those it has, or make it with lattice store create")
	case lattice.Conflict:
		err = hinted(err, "name it by its id: lattice store list shows them")
	}
	return s, err
}

type storeService struct{ *api }

func (a storeService) List(context.Context, *pb.StoreServiceListRequest) (*pb.StoreServiceListResponse, error) {
	res := &pb.StoreServiceListResponse{}
	for i, s := range a.cfg.Stores.All() {
		m := storeMessage(s)
		m.Default = i == 0
		res.Stores = append(res.Stores, m)
	}
	return res, nil
}

func (a storeService) Info(_ context.Context, r *pb.StoreServiceInfoRequest) (*pb.StoreServiceInfoResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	m := a.message(s)
	db := s.State()
	m.Frontier = db.Token(db.Frontier())
	if f, pruned := db.Floor(); pruned {
		m.Floor = floorMessage(f)
	}
	m.Watermark = watermarkMessage(db)
	m.Upkeep, err = upkeepMessage(s)
	return &pb.StoreServiceInfoResponse{Store: m}, err
}

func upkeepMessage(s *store.Store) (*pb.Upkeep, error) {
	u, err := s.Upkeep()
	m := &pb.Upkeep{
		SnapshotEveryMs: u.Every.Milliseconds(), SnapshotKeep: int32(u.Keep), PruneAfterMs: u.PruneAfter.Milliseconds(),
		Snapshots: int32(u.Kept), PrunedEntries: s.State().Status().PrunedEntries, Failures: u.Failures, Failed: u.Failed,
	}
	if !u.Newest.IsZero() {
		m.Newest = stamp(u.Newest)
	}
	return m, err
}

func (a storeService) Create(ctx context.Context, r *pb.StoreServiceCreateRequest) (*pb.StoreServiceCreateResponse, error) {
	if err := sigchain.CheckStoreName(r.Name); err != nil {
		return nil, err
	}
	s, err := a.cfg.Stores.Create(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	return &pb.StoreServiceCreateResponse{Store: a.message(s)}, nil
}

func (a storeService) Use(_ context.Context, r *pb.StoreServiceUseRequest) (*pb.StoreServiceUseResponse, error) {
	if r.Store == "" {
		return nil, lattice.E(lattice.Invalid, errors.New("the request names no store"))
	}
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	if err := a.cfg.Stores.Use(s); err != nil {
		return nil, err
	}
	return &pb.StoreServiceUseResponse{Store: a.message(s)}, nil
}

func (a *api) message(s *store.Store) *pb.Store {
	m := storeMessage(s)
	m.Default = a.cfg.Stores.All()[0] == s
	return m
}

func storeMessage(s *store.Store) *pb.Store {
	info := s.Info()
	m := &pb.Store{Id: info.ID.String(), Name: info.Name, Created: stamp(info.Created), Incarnation: info.Incarnation, KafkaNodeId: info.KafkaNodeID, Creator: info.Creator.String()}
	if of, ok := s.Fork(); ok {
		m.ForkOf = of.Store.String()
	}
	if s.State() != nil {
		m.Role = s.Role().String()
	}
	for _, t := range s.Topics() {
		m.Topics++
		m.Partitions += t.Partitions
		m.Bytes += topicMessage(s, t).Bytes
	}
	return m
}
