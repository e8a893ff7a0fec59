package client

import (
	"context"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Checkpoint is a signed statement about a partition's log.
type Checkpoint struct {
	Note []byte // the signed note (C2SP tlog-checkpoint), text
	Size uint64 // blocks in the tree
	Root string // Merkle root in hex
	End  int64  // end offset that it covers
	// Proof is a proof file: the note with all that is needed to trust its key.
	Proof []byte
}

// ProveRecord returns a proof file for one record: text, to be checked with
// package core/proof or "lattice verify", without the node. Kinds NotFound,
// OutOfRange, NotYet.
func (c *Client) ProveRecord(ctx context.Context, topic string, partition int32, offset int64) ([]byte, error) {
	res, err := c.proofs.Record(ctx, &pb.ProofServiceRecordRequest{Store: c.store, Topic: topic, Partition: partition, Offset: offset})
	if err != nil {
		return nil, err
	}
	return res.Proof, nil
}

// Checkpoint returns the last checkpoint of a partition; with fresh, one that
// covers everything committed now. Kind NotYet when there is none.
func (c *Client) Checkpoint(ctx context.Context, topic string, partition int32, fresh bool) (Checkpoint, error) {
	res, err := c.proofs.Checkpoint(ctx, &pb.ProofServiceCheckpointRequest{Store: c.store, Topic: topic, Partition: partition, Fresh: fresh})
	if err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{Note: res.Note, Size: res.Size, Root: res.Root, End: res.End, Proof: res.Proof}, nil
}
