package partition

import (
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// Checkpoint is a signed statement about the log.
type Checkpoint struct {
	Size uint64       // blocks
	Root lattice.Hash // Merkle root
	End  int64        // end offset that it covers
	Note []byte       // the signed note (C2SP tlog-checkpoint)
}

func (p *Partition) latest() (Checkpoint, bool) {
	c := p.log.Checkpoint()
	return Checkpoint{c.Size, c.Root, c.End, c.Note}, len(c.Note) > 0
}

// Checkpoint returns the newest checkpoint; with fresh it first makes one that
// covers everything committed now. ok is false when there is none yet.
func (p *Partition) Checkpoint(ctx context.Context, fresh bool) (c Checkpoint, ok bool, err error) {
	if fresh {
		if _, err := p.log.Certify(ctx); err != nil {
			return Checkpoint{}, false, fmt.Errorf("certify %s: %w", p.id, err)
		}
	}
	c, ok = p.latest()
	return c, ok, nil
}

// Prove returns a proof file (core/proof) for the record at offset: usable
// offline by whoever knows the store id. Errors by Kind: OutOfRange, NotYet (also:
// its transaction goes on), Conflict (the record was compacted away, its
// transaction was aborted, or the offset is that of a transaction's end).
func (p *Partition) Prove(ctx context.Context, offset int64) ([]byte, error) {
	start, committed, _ := p.visible()
	switch {
	case offset < start:
		return nil, lattice.E(lattice.OutOfRange, fmt.Errorf("prove %s at %d: the log starts at %d", p.id, offset, start))
	case offset >= committed:
		return nil, lattice.E(lattice.NotYet, fmt.Errorf("prove %s at %d: committed up to %d", p.id, offset, committed))
	}
	if _, err := p.log.Certify(ctx); err != nil {
		return nil, fmt.Errorf("certify %s: %w", p.id, err)
	}
	in, err := p.proveBlock(offset)
	if err != nil {
		return nil, fmt.Errorf("prove %s at %d: %w", p.id, offset, err)
	}
	if _, found, err := record.FindOffset(in.Block, p.o.Limits, offset); err != nil || !found {
		return nil, lattice.E(lattice.Conflict, fmt.Errorf("prove %s at %d: the batch has no such record (%v)", p.id, offset, err))
	}
	f, err := p.proofOf(in.Certified, proof.Record)
	if err != nil {
		return nil, err
	}
	f.Offset, f.Index, f.Leaf, f.Path, f.Batch = offset, in.Index, in.Leaf.AppendTo(nil), in.Path, in.Block
	return f.Encode(), nil
}

// proveBlock proves the block at offset, if its records are somebody's.
func (p *Partition) proveBlock(offset int64) (in signedlog.Inclusion, err error) {
	for again := true; again && err == nil; {
		forgets := p.forgets.Load()
		if in, err = p.log.Prove(offset); err == nil {
			err = p.provable(in.Block)
		}
		again = p.forgets.Load() != forgets // perhaps that it was aborted
	}
	return in, err
}

// ProveCheckpoint returns a proof file for the newest checkpoint, which it first
// brings up to what is committed. Kind NotYet: nothing was written so far.
func (p *Partition) ProveCheckpoint(ctx context.Context) ([]byte, error) {
	c, err := p.log.Certify(ctx)
	if err != nil {
		return nil, fmt.Errorf("certify %s: %w", p.id, err)
	}
	if len(c.Note) == 0 {
		return nil, lattice.E(lattice.NotYet, fmt.Errorf("checkpoint of %s: nothing was written yet", p.id))
	}
	f, err := p.proofOf(c, proof.Checkpoint)
	if err != nil {
		return nil, err
	}
	return f.Encode(), nil
}

// proofOf is what every proof file of this partition begins with.
func (p *Partition) proofOf(c signedlog.Certified, kind proof.Kind) (proof.File, error) {
	f := proof.File{Kind: kind, Genesis: p.o.Genesis, Topic: p.o.Creation, Checkpoint: c.Note}
	var err error
	f.Grants, err = p.grantsOf(c.Grant)
	return f, err
}
