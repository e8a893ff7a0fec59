package signedlog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/internal/invariant"
	"github.com/lattice-log/lattice/storage/head"
	"github.com/lattice-log/lattice/storage/segment"
)

// certifyOnce is the committer's step.
func (l *Log) certifyOnce() {
	if err := l.certify(-1); err != nil && !errors.Is(err, ErrClosed) {
		l.o.Logger.Error("certify", "log", l.o.Origin, "err", err)
	}
}

// Certify returns a checkpoint that covers everything committed when it was
// called; of a follower, the newest that it has. Errors by Kind: Storage, Unavailable (closed).
func (l *Log) Certify(ctx context.Context) (Certified, error) {
	l.mu.Lock()
	c, end := l.cert, l.committedLocked()
	l.mu.Unlock()
	if c.End >= end && len(c.Note) > 0 || l.follows() {
		return c, nil
	}
	if err := ctx.Err(); err != nil {
		return c, err
	}
	if err := l.certify(-1); err != nil {
		return Certified{}, err
	}
	return l.Checkpoint(), nil
}

// Checkpoint returns the newest checkpoint; its Note is empty when there is none.
func (l *Log) Checkpoint() Certified {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cert
}

// certify covers everything durable by a signed head, and moves the start to
// newStart unless that is negative. See "Life of a block" for the order.
func (l *Log) certify(newStart int64) error {
	l.certMu.Lock()
	err := l.certifyLocked(newStart)
	l.certMu.Unlock()
	l.tellFollowers()
	return err
}

func (l *Log) certifyLocked(newStart int64) error {
	l.mu.Lock()
	if l.certTimer != nil {
		l.certTimer()
		l.certTimer = nil
	}
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	if l.broken != nil {
		defer l.mu.Unlock()
		return l.broken
	}
	behind := l.synced < l.written && l.set.Durability != Fsync
	l.certBytes = l.writtenBytes
	start, cert := l.start, l.cert
	l.mu.Unlock()

	if behind {
		l.syncOnce() // (a); at level Fsync only what is acknowledged is certified
	}
	l.mu.Lock()
	target := l.synced
	l.mu.Unlock()
	switch {
	case l.o.Look:
		return l.hash(target)
	case l.follows():
		return l.catchUp(target)
	}
	if newStart > start {
		start = min(newStart, target)
	}
	if target == 0 && cert.Note == nil {
		return nil // a log that nobody ever wrote to costs nothing
	}
	if target == cert.End && start == cert.Start && len(cert.Note) > 0 {
		return nil
	}
	if err := l.hash(target); err != nil { // (b)
		return err
	}
	return l.publish(start, target)
}

// batchLeaves bounds how many leaf records are written at once.
const batchLeaves = 4096

// hash reads the blocks [l.hashed, target) back, checks them, and adds them to
// the tree. certMu is held.
func (l *Log) hash(target int64) error {
	first := l.edge.Size()
	l.recs = l.recs[:0]
	hashed, at, term := l.hashed, l.hashedAt, l.term // as the tree has it
	flush := func() error {
		if err := l.addLeaves(first, l.recs); err != nil {
			// None of them is in the tree: the next time they are hashed again.
			l.hashed, l.hashedAt, l.term, l.leafSeg = hashed, at, term, -1
			l.recs = l.recs[:0]
			return err
		}
		first, l.recs = l.edge.Size(), l.recs[:0]
		hashed, at, term = l.hashed, l.hashedAt, l.term
		return nil
	}
	err := l.seg.Walk(l.hashed, target, func(m segment.Meta, pos segment.Pos, block []byte) error {
		if err := l.o.Codec.Check(block); err != nil {
			l.Damage(m.Base, m.Last+1, err)
			return lattice.E(lattice.Storage, fmt.Errorf("hash offsets %d to %d: %w", m.Base, m.Last, err))
		}
		if pos.Segment != l.leafSeg || len(l.recs) >= batchLeaves*merkle.LeafSize {
			if err := flush(); err != nil {
				return err
			}
		}
		if pos.Segment != l.leafSeg {
			// Behind this file's blocks nobody will look again for leaves that a
			// power cut took: they must be durable before a head lies beyond them.
			if err := l.tree.sync(); err != nil {
				return err
			}
			l.leafSeg = pos.Segment
		}
		leaf := merkle.Leaf{Base: m.Base, Last: m.Last, MaxTime: m.MaxTime, Epoch: m.Term, Length: uint32(len(block)), Sum: sum(block)}
		l.recs = leaf.AppendTo(l.recs)
		l.hashed, l.term = m.Last+1, m.Term
		l.hashedAt = segment.Pos{Segment: pos.Segment, At: pos.At + int64(len(block))}
		return nil
	})
	// What was hashed before an error is in recs: l.hashed and the tree must agree.
	if ferr := flush(); err == nil {
		err = ferr
	}
	if err == nil && l.hashed < target {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("hash up to %d: the blocks end at %d", target, l.hashed))
	}
	return err
}

func sum(block []byte) lattice.Hash { return sha256.Sum256(block) }

// addLeaves appends leaf records of blocks in file l.leafSeg to the tree: all, or
// after an error none.
func (l *Log) addLeaves(first uint64, recs []byte) error {
	if len(recs) == 0 {
		return nil
	}
	if err := l.tree.writeLeaves(l.leafSeg, first, recs); err != nil {
		return err
	}
	l.done = l.done[:0]
	edge := *l.edge
	for i := 0; i < len(recs); i += merkle.LeafSize {
		l.done = edge.Append(l.done, merkle.LeafHash((*[merkle.LeafSize]byte)(recs[i:])))
	}
	for _, n := range l.done {
		if err := l.tree.writeNode(n); err != nil {
			return err
		}
	}
	*l.edge = edge
	return nil
}

// publish writes the head, syncs it (c), signs it and makes it known (d).
func (l *Log) publish(start, end int64) error {
	t := l.o.Terms()
	now, err := l.o.Stamp()
	if err != nil {
		return err
	}
	c := merkle.Checkpoint{
		Origin: l.o.Origin, Size: l.edge.Size(), Root: l.edge.Root(), Start: start, End: end,
		Term: t.Term, Grant: t.Grant, Incarnation: t.Incarnation, Time: now,
	}
	invariant.Check(l.hashed == end && start <= end, "%s: hashed to %d, head for %d to %d", l.o.Origin, l.hashed, start, end)
	if err := l.seg.FlushIndex(); err != nil {
		return err
	}
	if l.head == nil {
		if _, err := l.openHead(true); err != nil {
			return err
		}
	}
	seq, err := l.head.Write(head.Slot{
		Pos: l.hashedAt, Next: end, Start: start, Term: l.term, Body: c.Body(), Edge: l.edge.Range().Hashes(),
	})
	if err != nil {
		return fmt.Errorf("certify %d blocks: %w", c.Size, err)
	}
	note, err := merkle.SignCheckpoint(l.o.Key, c)
	if err != nil {
		return fmt.Errorf("sign head of %d blocks: %w", c.Size, err)
	}
	if err := l.head.WriteNote(seq, note); err != nil {
		// Not needed to go on: a restart signs the same bytes again.
		l.o.Logger.Warn("write signature", "log", l.o.Origin, "err", err)
	}
	l.mu.Lock()
	l.cert = Certified{c, note}
	l.start = max(l.start, start)
	l.dueLocked()
	l.mu.Unlock()
	return nil
}
