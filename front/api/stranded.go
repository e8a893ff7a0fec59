package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

type strandedService struct{ *api }

// strandedBytes is about how much of a branch one Read returns.
const strandedBytes = 1 << 20

func (a strandedService) List(_ context.Context, r *pb.StrandedServiceListRequest) (*pb.StrandedServiceListResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	all, err := places(s, t, r.Partitions)
	if err != nil {
		return nil, err
	}
	res := &pb.StrandedServiceListResponse{}
	for _, p := range all {
		branches, err := p.Strandeds()
		if err != nil {
			return nil, fmt.Errorf("%s/%d: %w", t.Name, p.number, err)
		}
		for _, b := range branches {
			res.Branches = append(res.Branches, branchMessage(p.Partition, b))
		}
	}
	return res, nil
}

func branchMessage(p *partition.Partition, b partition.Stranded) *pb.StrandedBranch {
	m := &pb.StrandedBranch{
		Partition: b.Partition.Partition, Id: b.ID(), First: b.First, End: b.End, FirstTerm: b.FirstTerm, LastTerm: b.LastTerm,
		Records: int64(b.Records), Bytes: int64(b.Bytes), Batches: int64(b.Blocks), Since: timestamppb.New(time.UnixMilli(int64(b.Since))),
		State: b.Progress.State.String(), Reproduced: int64(b.Progress.Records), ReproducedFirst: b.Progress.First, ReproducedEnd: b.Progress.End,
	}
	if (b.Leader != lattice.NodeID{}) {
		m.Leader = b.Leader.String()
	}
	if n, err := p.ProveStranded(b); err == nil {
		m.Proven = int64(n)
	}
	return m
}

// branch finds a branch of a topic.
func (a strandedService) branch(storeName, topic string, n int32, id string) (*store.Store, *partition.Partition, partition.Stranded, error) {
	s, t, err := a.topic(storeName, topic)
	if err != nil {
		return nil, nil, partition.Stranded{}, err
	}
	p, err := partitionOf(s, t, n)
	if err != nil {
		return nil, nil, partition.Stranded{}, err
	}
	b, err := p.FindStranded(id)
	if errors.Is(err, partition.ErrNoBranch) {
		err = lattice.E(lattice.NotFound, hinted(fmt.Errorf("%s/%d has no stranded branch %q on this node", t.Name, n, id), "lattice topic stranded "+t.Name+" lists those that are here"))
	}
	return s, p, b, err
}

var errFull = errors.New("enough for one answer")

func (a strandedService) Read(_ context.Context, r *pb.StrandedServiceReadRequest) (*pb.StrandedServiceReadResponse, error) {
	_, p, b, err := a.branch(r.Store, r.Topic, r.Partition, r.Id)
	if err != nil {
		return nil, err
	}
	if r.From < 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("batch number %d", r.From))
	}
	res := &pb.StrandedServiceReadResponse{Next: r.From}
	err = p.WalkStranded(b, uint64(r.From), func(n uint64, batch []byte) error {
		if len(res.Batches) > 0 && len(res.Batches)+len(batch) > strandedBytes {
			return errFull
		}
		res.Batches, res.Next = append(res.Batches, batch...), int64(n)+1
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	return res, nil
}

func (a strandedService) Reproduce(ctx context.Context, r *pb.StrandedServiceReproduceRequest) (*pb.StrandedServiceReproduceResponse, error) {
	s, p, b, err := a.branch(r.Store, r.Topic, r.Partition, r.Id)
	if err != nil {
		return nil, err
	}
	if _, err := s.Reproduce(ctx, b.Partition, r.Id); err != nil {
		return nil, err
	}
	if b, err = p.FindStranded(r.Id); err != nil {
		return nil, err
	}
	return &pb.StrandedServiceReproduceResponse{Branch: branchMessage(p, b)}, nil
}

func (a strandedService) Discard(_ context.Context, r *pb.StrandedServiceDiscardRequest) (*pb.StrandedServiceDiscardResponse, error) {
	s, _, b, err := a.branch(r.Store, r.Topic, r.Partition, r.Id)
	if err == nil {
		err = s.Discard(b.Partition, r.Id)
	}
	return &pb.StrandedServiceDiscardResponse{}, err
}

// leadUnclean gives partitions to another leader by this node's own word.
func leadUnclean(ctx context.Context, s *store.Store, t store.Topic, numbers []int32, to lattice.NodeID, dry bool) (*pb.TopicServiceLeadResponse, error) {
	res := &pb.TopicServiceLeadResponse{}
	for _, n := range numbers {
		u, err := s.LeadUnclean(ctx, lattice.TopicPartition{Topic: t.ID, Partition: n}, to, dry)
		if err != nil {
			return nil, fmt.Errorf("lead %s/%d: %w", t.Name, n, err)
		}
		res.Led = append(res.Led, &pb.TopicServiceLeadResponse_Led{
			Partition: n, OldLeader: u.Old.String(), Leader: to.String(), Base: u.Base, Committed: u.Committed, Term: u.Term,
		})
	}
	return res, nil
}
