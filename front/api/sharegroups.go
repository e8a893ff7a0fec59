package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Share groups are looked after under the same names as the others: what a consumer
// group has committed is for them where they begin, and their lag is what is not
// settled yet.

// allGroups returns a store's groups of every kind, sorted by name.
func allGroups(s *store.Store) []group.Listing {
	all := append(s.Groups().List(), s.Shares().List()...)
	slices.SortFunc(all, func(a, b group.Listing) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

// describeGroup tells about a group of any kind. group.ErrGroupNotFound.
func describeGroup(s *store.Store, name string) (group.Description, error) {
	d, err := s.Shares().Describe(name)
	if errors.Is(err, share.ErrGroupNotFound) {
		return s.Groups().Describe(name)
	}
	return d, err
}

// isShareGroup reports whether a share group has the name.
func isShareGroup(s *store.Store, name string) bool {
	_, err := s.Shares().Describe(name)
	return err == nil
}

// shareOffsets lists where a share group is. A partition is no single member's.
func shareOffsets(s *store.Store, name string) ([]*pb.GroupOffset, error) {
	progress, err := s.Shares().Offsets(name, nil)
	if err != nil {
		return nil, err
	}
	var all []*pb.GroupOffset
	for _, p := range progress {
		t, ok := s.TopicByID(p.Topic)
		if !ok {
			continue
		}
		o := &pb.GroupOffset{Topic: t.Name, Partition: p.Partition, Committed: p.Start, End: -1, Lag: p.Lag}
		if log, err := s.Partition(p.Topic, p.Partition); err == nil {
			o.End = log.Bounds().Committed
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *pb.GroupOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all, nil
}

// resetShare makes a share group without members begin elsewhere.
func resetShare(ctx context.Context, s *store.Store, name string, moves []share.Move, dryRun bool) (*pb.GroupServiceResetResponse, error) {
	parts := make([]lattice.TopicPartition, len(moves))
	for i, m := range moves {
		parts[i] = m.TopicPartition
	}
	old, err := s.Shares().Offsets(name, parts)
	if err != nil {
		return nil, groupError(name, err)
	}
	res := &pb.GroupServiceResetResponse{}
	for i, m := range moves {
		res.Moved = append(res.Moved, &pb.GroupServiceResetResponse_Moved{Partition: m.Partition, OldOffset: old[i].Start, Offset: m.Start})
	}
	if dryRun {
		return res, nil
	}
	done := make(chan error, 1)
	s.Shares().AlterOffsets(name, moves, func(err error, errs []error) { done <- errors.Join(append(errs, err)...) })
	return res, waitFor(ctx, name, done)
}

// deleteShare removes a share group.
func deleteShare(ctx context.Context, s *store.Store, name string) error {
	done := make(chan error, 1)
	s.Shares().DeleteGroup(name, func(err error) { done <- err })
	return waitFor(ctx, name, done)
}

// waitFor returns what is answered about a group.
func waitFor(ctx context.Context, name string, done <-chan error) error {
	select {
	case err := <-done:
		return groupError(name, err)
	case <-ctx.Done():
		return fmt.Errorf("group %q: %w", name, ctx.Err())
	}
}
