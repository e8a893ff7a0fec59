package signedlog

import (
	"errors"
	"fmt"
	"math"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/head"
	"github.com/lattice-log/lattice/storage/segment"
	"github.com/lattice-log/lattice/storage/tree"
)

// errFollows: only its leader appends to a log.
var errFollows = lattice.E(lattice.NotLeader, errors.New("the log belongs to another node, which alone appends to it"))

// MaxNote is how long a checkpoint's note can be for a follower to keep it, in bytes.
const MaxNote = head.MaxNote

// follows reports whether the log is a follower.
func (l *Log) follows() bool { return l.o.Leader != lattice.AuthorID{} }

// Here is how far the log is: what is durable, and signed by its leader or proven to be
// a part of what that signed.
func (l *Log) Here() merkle.Checkpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.follows() {
		return l.here
	}
	return l.cert.Checkpoint
}

// keepCheckpoint takes what a follower's head says: c is what is here, and the note is
// the leader's of that or of less. Without a note that holds nothing can be proven to
// others before the next run comes.
func (l *Log) keepCheckpoint(slot head.Slot, c merkle.Checkpoint) {
	l.here, l.saved = c, c
	l.cert = l.signed(slot.Note, c)
	if l.cert.Size == c.Size && len(l.cert.Note) > 0 || l.signer(c.Grant) != l.o.Key.Author() || c.Size == 0 {
		return
	}
	// This node led when the head was written, and a stop came before its signature was
	// durable: the same bytes get the same signature, without which nobody could have them.
	if note, err := merkle.SignCheckpoint(l.o.Key, c); err == nil {
		l.cert = Certified{c, note}
	}
}

// signed opens the note beside a head of c, which may be of less; nothing if it is not
// the word of who led its term.
func (l *Log) signed(note []byte, c merkle.Checkpoint) Certified {
	claim, err := merkle.PeekCheckpoint(note)
	if err != nil {
		return Certified{}
	}
	signed, err := merkle.OpenCheckpoint(note, l.signer(claim.Grant))
	if err != nil || signed.Origin != c.Origin || signed.Size > c.Size {
		return Certified{}
	}
	return Certified{signed, note}
}

// signer is who signs checkpoints of a term.
func (l *Log) signer(grant lattice.Hash) lattice.AuthorID {
	switch {
	case l.o.Signer != nil:
		return l.o.Signer(grant)
	case l.follows():
		return l.o.Leader
	}
	return l.o.Key.Author()
}

// mendFollower is mendLeaves, and finishes a rebase that a crash cut short: a head that
// offers nothing has all of the tree in its edge.
func (l *Log) mendFollower(c merkle.Checkpoint) error {
	if err := l.tree.trim(c.Size); err != nil {
		return fmt.Errorf("trim the tree to %d blocks: %w", c.Size, err)
	}
	if c.Start == c.End && c.Size > l.tree.prefix.Size() && l.tree.leaves.Next() != c.Size {
		return l.beginAt(c.End, l.edge.Range())
	}
	return l.mendLeaves(c)
}

// catchUp hashes what is durable and not in the tree: what a crash or a failure left
// behind the head. It was verified before it was written. certMu is held.
func (l *Log) catchUp(target int64) error {
	if target > l.hashed {
		if err := l.hash(target); err != nil {
			return err
		}
	}
	if l.edge.Size() == l.saved.Size {
		return nil
	}
	return l.publishRun(Certified{})
}

// publishRun writes the head of what is here, synced, and makes it known. note is a
// checkpoint of the leader's that covers what is here; zero: none came. The head is
// the leader's checkpoint if all of its blocks are here, and unsigned otherwise; with
// it goes the newest signed one of which all are. certMu is held.
func (l *Log) publishRun(note Certified) error {
	l.mu.Lock()
	start, cert, time := l.start, l.cert, l.here.Time
	l.mu.Unlock()
	t := l.o.TermsAt(l.hashed)
	c := merkle.Checkpoint{
		Origin: l.o.Origin, Size: l.edge.Size(), Root: l.edge.Root(), Start: start, End: l.hashed,
		Term: t.Term, Grant: t.Grant, Incarnation: t.Incarnation, Time: max(time, note.Time),
	}
	if len(note.Note) > 0 {
		c.Start = max(start, min(note.Start, c.End))
	}
	switch news := len(note.Note) > 0 && note.Size == c.Size && newer(note, cert); {
	case news && note.Start >= start:
		c, cert = note.Checkpoint, note
	case news: // of a leader that has not heard what the one before it truncated: what went here stays gone
		cert = note
	case len(cert.Note) > 0 && cert.Size == c.Size && cert.Start >= start:
		c = cert.Checkpoint // nothing newer is known of the same blocks
	}
	if err := l.seg.FlushIndex(); err != nil {
		return err
	}
	if err := l.writeRun(c, cert, l.hashedAt); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.here, l.cert = c, cert
	l.start = max(l.start, c.Start)
	l.certBytes = l.writtenBytes
	return nil
}

// newer reports whether a signed checkpoint takes the place of another.
func newer(note, cert Certified) bool {
	return len(cert.Note) == 0 || note.Size > cert.Size || note.Size == cert.Size && note.Time > cert.Time
}

// writeRun writes a follower's head. Unlike the leader's, its signature cannot be made
// again: it is synced with it.
func (l *Log) writeRun(c merkle.Checkpoint, cert Certified, at segment.Pos) error {
	if l.head == nil {
		if _, err := l.openHead(true); err != nil {
			return err
		}
	}
	_, err := l.head.WriteSigned(head.Slot{
		Pos: at, Next: c.End, Start: c.Start, Term: l.term, Body: c.Body(), Edge: l.edge.Range().Hashes(), Note: cert.Note,
	})
	if err != nil {
		return fmt.Errorf("write the head of %d blocks: %w", c.Size, err)
	}
	l.saved = c
	return nil
}

// rebase has a follower begin anew at a block that lies behind all it has, because its
// leader dropped what comes before: left is the tree of that, base the block's offset.
// What a crash leaves:
//
//  1. The head says that the log begins there, with nothing. A crash before it: the log
//     as it was. After it the next open does the rest again.
//  2. The files go, and the leaves.
//  3. The levels begin anew, and then the prefix is there: from here on leaves can be
//     added.
//
// certMu is held.
func (l *Log) rebase(base int64, left merkle.Range, note Certified) error {
	t := l.o.TermsAt(base)
	c := merkle.Checkpoint{
		Origin: l.o.Origin, Size: left.Size(), Root: left.Root(), Start: base, End: base,
		Term: t.Term, Grant: t.Grant, Incarnation: t.Incarnation, Time: note.Time,
	}
	cert := Certified{}
	if note.Size == left.Size() {
		c, cert = note.Checkpoint, note
	}
	was := *l.edge
	*l.edge = *merkle.NewAppender(left)
	if err := l.writeRun(c, cert, segment.Pos{Segment: base}); err != nil {
		*l.edge = was
		return err
	}
	l.mu.Lock()
	l.here, l.cert = c, cert
	l.start, l.written, l.synced, l.shown = base, base, base, 0
	l.mu.Unlock()
	return l.beginAt(base, left)
}

// beginAt is what follows a rebase's head.
func (l *Log) beginAt(base int64, left merkle.Range) error {
	l.hashed, l.hashedAt, l.leafSeg, l.known = base, segment.Pos{Segment: base}, -1, nil
	err := l.seg.Reset(base)
	if err == nil {
		err = errors.Join(l.tree.leaves.Drop(math.MaxInt64), l.tree.leaves.Truncate(0))
	}
	for _, level := range tree.StoredLevels() {
		if err == nil {
			err = l.tree.levels.Skip(level, left.Size()>>level)
		}
	}
	if err == nil {
		err = l.tree.sync()
	}
	if err == nil {
		err = tree.WritePrefix(l.o.FS, l.o.Dir, tree.Prefix{Leaves: left.Size(), Hashes: left.Hashes()})
	}
	if err != nil {
		// Half of it is done, and the next open does the rest.
		l.needRepair(fmt.Errorf("begin anew at offset %d: open the log again: %w", base, err))
		return lattice.E(lattice.Storage, err)
	}
	l.tree.prefix = left
	return nil
}
