package api

import (
	"context"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

func (a storeService) Fork(ctx context.Context, r *pb.StoreServiceForkRequest) (*pb.StoreServiceForkResponse, error) {
	if err := sigchain.CheckStoreName(r.Name); err != nil {
		return nil, err
	}
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	fork, err := a.cfg.Stores.Fork(ctx, s, r.Name)
	if errors.Is(err, store.ErrNothingOwn) {
		err = hinted(err, "write a key in it first, with lattice kv put")
	}
	if err != nil {
		return nil, err
	}
	return &pb.StoreServiceForkResponse{Store: a.message(fork)}, nil
}

func (a storeService) Sync(ctx context.Context, r *pb.StoreServiceSyncRequest) (*pb.StoreServiceSyncResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	of, ok := s.Fork()
	if !ok {
		return nil, hinted(fmt.Errorf("store %q: %w", s.Info().Name, store.ErrNoFork), "stores with members elsewhere sync by themselves; lattice store list shows the forks")
	}
	var origin *store.Store
	for _, o := range a.cfg.Stores.All() {
		if o.Info().ID == of.Store {
			origin = o
		}
	}
	if origin == nil {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("what %q is a fork of, store %s, is not on this node", s.Info().Name, of.Store))
	}
	got, err := s.BringBack(ctx, origin)
	if err != nil {
		return nil, err
	}
	res := &pb.StoreServiceSyncResponse{Done: got.Done, Origin: a.message(origin), Entries: got.Entries, Left: got.Left}
	for _, p := range got.Partitions {
		res.Partitions = append(res.Partitions, &pb.SyncedPartition{
			Topic: p.Topic, Partition: p.Partition.Partition, Same: p.Same, Moved: p.Moved, Passed: p.Passed, Left: p.Left, Why: p.Why,
		})
	}
	return res, nil
}

// unforked refuses what is said of a store to others, or cannot be taken back, in a fork.
func unforked(s *store.Store, what string) error {
	if _, ok := s.Fork(); !ok {
		return nil
	}
	return hinted(fmt.Errorf("%s: %w", what, store.ErrFork), fmt.Sprintf("bring it back with lattice store sync %s, and do it in the store that it is of", s.Info().Name))
}
