package api

import (
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

type proofService struct {
	*api
	pbconnect.UnimplementedProofServiceHandler
}

func (a proofService) Record(ctx context.Context, r *pb.ProofServiceRecordRequest) (*pb.ProofServiceRecordResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	p, err := partitionOf(s, t, r.Partition)
	if err != nil {
		return nil, err
	}
	if err := unforked(s, "prove a record"); err != nil {
		return nil, err
	}
	b := p.Bounds()
	if err := checkRange(r.Partition, r.Offset, b); err != nil {
		return nil, err
	}
	if r.Offset == b.Committed {
		return nil, lattice.E(lattice.NotYet, fmt.Errorf("partition %d: no record at offset %d yet", r.Partition, r.Offset))
	}
	proof, err := p.Prove(ctx, r.Offset)
	if err != nil {
		return nil, fmt.Errorf("prove %s/%d at %d: %w", t.Name, r.Partition, r.Offset, err)
	}
	return &pb.ProofServiceRecordResponse{Proof: proof}, nil
}

func (a proofService) Key(ctx context.Context, r *pb.ProofServiceKeyRequest) (*pb.ProofServiceKeyResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	m, err := mapName(r.Map, false)
	if err == nil {
		err = unforked(s, "prove a key")
	}
	if err != nil {
		return nil, err
	}
	proof, err := s.State().ProveFile(ctx, m, r.Key)
	if err != nil {
		return nil, fmt.Errorf("prove key %.128q: %w", r.Key, err)
	}
	return &pb.ProofServiceKeyResponse{Proof: proof}, nil
}

func (a proofService) Checkpoint(ctx context.Context, r *pb.ProofServiceCheckpointRequest) (*pb.ProofServiceCheckpointResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	p, err := partitionOf(s, t, r.Partition)
	if err != nil {
		return nil, err
	}
	if err := unforked(s, "prove a checkpoint"); err != nil {
		return nil, err
	}
	c, ok, err := p.Checkpoint(ctx, r.Fresh)
	if err != nil {
		return nil, fmt.Errorf("checkpoint of %s/%d: %w", t.Name, r.Partition, err)
	}
	if !ok {
		return nil, lattice.E(lattice.NotYet, hinted(fmt.Errorf("%s/%d has no checkpoint yet", t.Name, r.Partition), "it gets one with its first records"))
	}
	file, err := p.ProveCheckpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("prove the checkpoint of %s/%d: %w", t.Name, r.Partition, err)
	}
	return &pb.ProofServiceCheckpointResponse{Proof: file, Note: c.Note, Size: c.Size, Root: c.Root.String(), End: c.End}, nil
}
