package signedlog

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/tree"
)

// Truncate moves the start to before, which must not be beyond the committed
// offset, and drops the files that lie wholly below it. Payload is freed,
// commitments stay: the tree's prefix lives on as its compact range and upper
// nodes. The order, and what a crash leaves:
//
//  1. A head with the new start is durable and signed. A crash after it: the next
//     open drops the files.
//  2. The prefix is durable. A crash: likewise.
//  3. Files go.
func (l *Log) Truncate(before int64) error {
	defer l.tellFollowers() // when certMu is free again
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.certifyLocked(before); err != nil {
		return err
	}
	l.mu.Lock()
	start := l.start
	l.mu.Unlock()
	if start < before {
		return lattice.E(lattice.Unavailable, fmt.Errorf("truncate at %d: durable up to %d only", before, start))
	}
	return l.dropped(start)
}

// dropped drops what a head with a new start has no use for. certMu is held.
func (l *Log) dropped(start int64) error {
	l.mu.Lock()
	end := l.written
	l.mu.Unlock()
	if start == end && l.seg.Start() < end {
		// Everything goes: seal the active file, so that it can.
		if err := l.seg.Roll(); err != nil {
			return fmt.Errorf("truncate at %d: %w", start, err)
		}
	}
	return l.dropBelow(start)
}

// dropBelow removes files wholly below start. certMu is held, or the log is being
// opened.
func (l *Log) dropBelow(start int64) error {
	// Nothing lies below, as at nearly every start: do not open the files to see it.
	base, leaves := l.seg.Start(), l.tree.leaves.Segments()
	if start <= base && (len(leaves) == 0 || leaves[0] >= base) {
		return nil
	}
	segs, err := l.seg.Segments()
	if err != nil {
		return err
	}
	first, leaf := start, l.edge.Size() // of the first file that stays
	drop := false
	for _, s := range segs {
		if s.Next > start || !s.Sealed {
			first = s.Base
			if leaf, err = l.leafOf(s.Base); err != nil {
				return err
			}
			break
		}
		drop = true
	}
	if !drop && (len(segs) == 0 || len(leaves) == 0 || leaves[0] >= first) {
		return nil
	}
	if leaf > l.tree.prefix.Size() {
		if err := l.movePrefix(leaf); err != nil {
			return fmt.Errorf("keep the tree of %d dropped blocks: %w", leaf, err)
		}
	}
	if err := l.seg.Drop(start); err != nil {
		return err
	}
	return l.tree.leaves.Drop(first)
}

// leafOf returns the index of the first leaf of the file that begins at base.
func (l *Log) leafOf(base int64) (uint64, error) {
	if base >= l.hashed {
		return l.edge.Size(), nil
	}
	return l.tree.leaves.FirstOf(base)
}

// movePrefix makes the compact range of the first n leaves durable, after the
// upper nodes that can no longer be made again.
func (l *Log) movePrefix(n uint64) error {
	r, err := l.tree.rangeAt(n)
	if err != nil {
		return err
	}
	if err := l.tree.sync(); err != nil {
		return err
	}
	if err := tree.WritePrefix(l.o.FS, l.o.Dir, tree.Prefix{Leaves: r.Size(), Hashes: r.Hashes()}); err != nil {
		return err
	}
	l.tree.prefix = r
	return nil
}

// Inclusion is all that a proof of one block needs.
type Inclusion struct {
	Certified
	Index uint64 // of the leaf
	Leaf  merkle.Leaf
	Path  []lattice.Hash
	Block []byte
}

// Prove returns the block that covers offset with its proof against the newest
// checkpoint. Errors by Kind: OutOfRange (dropped), NotYet (no checkpoint covers
// it so far: Certify first), Conflict (rewritten by a compaction), Storage.
func (l *Log) Prove(offset int64) (Inclusion, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	in := Inclusion{Certified: l.Checkpoint()}
	if offset >= in.End {
		return in, lattice.E(lattice.NotYet, fmt.Errorf("the newest checkpoint ends at %d", in.End))
	}
	m, block, err := l.seg.Read(offset, nil)
	if err != nil {
		return in, err
	}
	if offset < m.Base {
		return in, lattice.E(lattice.Conflict, fmt.Errorf("offset %d was compacted away", offset))
	}
	in.Block = block
	if err := l.findLeaf(&in, offset); err != nil {
		return in, err
	}
	if in.Leaf.Sum != sum(block) {
		return in, lattice.E(lattice.Conflict, fmt.Errorf("the batch at %d was rewritten by a compaction; only its statement can be proven", in.Leaf.Base))
	}
	in.Path, err = merkle.Inclusion(l.tree.source(), in.Index, in.Size)
	return in, err
}

// findLeaf finds the leaf of the block that covers offset. certMu is held.
func (l *Log) findLeaf(in *Inclusion, offset int64) error {
	_, pos, err := l.seg.Find(offset)
	if err != nil {
		return err
	}
	lo, err := l.tree.leaves.FirstOf(pos.Segment)
	if err != nil {
		return err
	}
	hi := in.Size
	for lo < hi {
		mid := lo + (hi-lo)/2
		rec, err := l.tree.leaves.Read(mid, 1, nil)
		if err != nil {
			return err
		}
		leaf, err := merkle.ParseLeaf(rec)
		if err != nil {
			return err
		}
		switch {
		case offset < leaf.Base:
			hi = mid
		case offset > leaf.Last:
			lo = mid + 1
		default:
			in.Index, in.Leaf = mid, leaf
			return nil
		}
	}
	return lattice.E(lattice.Storage, fmt.Errorf("no leaf covers offset %d", offset))
}

// LeafOf returns the index of the first leaf of the file that begins at base, or
// for the end of the last sealed file, of the one that follows.
func (l *Log) LeafOf(base int64) (uint64, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return l.leafOf(base)
}
