package signedlog

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/head"
	"github.com/lattice-log/lattice/storage/segment"
	"github.com/lattice-log/lattice/storage/tree"
)

// Recovery says what the last open found.
type Recovery struct {
	Blocks int64  // behind the last checkpoint
	Cut    int64  // bytes that looked like data and were cut off the tail
	Reason string // why
}

// Block is one stored block as Scan shows it. Data is valid until the callback
// returns.
type Block struct {
	segment.Meta
	Pos  segment.Pos
	Data []byte
}

// Open recovers the log in o.Dir, or makes it. It reads the tail behind the last
// checkpoint, cuts it at the first bad byte, brings the tree up to date and
// certifies what it found. Damage below the checkpoint does not fail the open:
// the log serves what is whole and takes no writes (State().Failed says why).
func Open(o Options, s Settings) (*Log, error) {
	if err := disk.MkdirAll(o.FS, o.Dir); err != nil {
		return nil, err
	}
	l := &Log{o: o, set: s, leafSeg: -1, edge: merkle.NewAppender(merkle.Range{})}
	st, err := l.openHead(false)
	if err != nil {
		return nil, err
	}
	if st.Damaged != nil {
		o.Logger.Warn("head is damaged; resuming from the checkpoint before", "log", o.Origin, "err", st.Damaged)
	}
	if err := l.openSegments(st); err != nil {
		return nil, err
	}
	err = l.openTree()
	if err == nil {
		err = l.restore(st)
	}
	if err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	if l.broken == nil {
		err := l.dropBelow(l.start)
		if err == nil {
			err = l.certify(-1)
		}
		if err != nil && l.broken == nil {
			l.broken = lattice.E(lattice.Storage, fmt.Errorf("%w: %w", ErrNeedsRepair, err))
			o.Logger.Error("log opened without a new checkpoint; it takes no writes", "log", o.Origin, "err", err)
		}
	}
	return l, nil
}

// openHead opens the head file; only with make, it makes one: a log that nobody
// wrote to has none.
func (l *Log) openHead(make bool) (head.State, error) {
	name := l.o.FS.PathJoin(l.o.Dir, "head")
	if _, err := l.o.FS.Stat(name); !make && disk.IsNotExist(err) {
		return head.State{}, nil
	}
	h, st, err := head.Open(l.o.FS, name)
	l.head = h
	return st, err
}

// openSegments opens the blocks and makes what was found behind the checkpoint
// durable, since readers will see it.
func (l *Log) openSegments(st head.State) error {
	resume := segment.Resume{}
	switch {
	case st.OK:
		resume = segment.Resume{Pos: st.Slot.Pos, Next: st.Slot.Next, Term: st.Slot.Term, Start: st.Slot.Start}
		if resume == (segment.Resume{}) {
			resume.Term = -1 // the head of an empty log: what follows begins at offset 0
		}
	case (st.Damaged == nil || st.First) && l.neverSigned():
		resume.Term = -1 // from offset 0: a file of later ones lost what came before it in a power cut
	}
	seg, rec, err := segment.Open(l.o.FS, l.o.Dir, segment.Options{
		Codec: l.o.Codec, Handles: l.o.Handles, Logger: l.o.Logger, SegmentBytes: l.set.SegmentBytes,
	}, resume, nil)
	if err != nil {
		return fmt.Errorf("open segments: %w", err)
	}
	l.seg = seg
	l.found.Blocks = rec.Blocks
	if rec.Cut != nil {
		l.found.Cut, l.found.Reason = rec.Cut.Bytes, rec.Cut.Reason
		l.o.Logger.Warn("cut a torn tail", "log", l.o.Origin, "bytes", rec.Cut.Bytes, "at", rec.Cut.Offset, "reason", rec.Cut.Reason, "saved", rec.Cut.Saved)
	}
	for _, d := range rec.Damaged {
		l.Damage(d.From, d.To, errors.New(d.Reason))
	}
	pos, next := seg.End()
	if l.broken == nil {
		if err := seg.Sync(pos); err != nil {
			return errors.Join(fmt.Errorf("sync the recovered tail: %w", err), seg.Close())
		}
	}
	l.written, l.synced = next, next
	l.start = seg.Start()
	return nil
}

// neverSigned reports whether nothing was dropped from a log without a head, so
// that there never was one.
func (l *Log) neverSigned() bool {
	p, err := tree.ReadPrefix(l.o.FS, l.o.Dir)
	return err == nil && p.Leaves == 0
}

// restore rebuilds the tree's right edge as the head has it, and the checkpoint.
func (l *Log) restore(st head.State) error {
	if !st.OK {
		l.hashed = l.seg.Start()
		l.hashedAt = segment.Pos{Segment: l.hashed}
		if l.hashed != 0 || st.Damaged != nil && !st.First && l.written > 0 {
			l.Damage(0, max(l.hashed, 1), errors.New("no head says what came before the first block"))
			return nil
		}
		return l.tree.trim(0)
	}
	slot := st.Slot
	c, err := merkle.ParseBody(slot.Body)
	if err != nil {
		return fmt.Errorf("head: %w", err)
	}
	edge, err := merkle.NewRange(c.Size, slot.Edge)
	if err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if c.Origin != l.o.Origin || edge.Root() != c.Root || c.End != slot.Next || c.Start != slot.Start {
		return lattice.E(lattice.Corrupt, fmt.Errorf("head of %q: it does not belong to %q or contradicts itself", c.Origin, l.o.Origin))
	}
	l.start, l.hashed, l.hashedAt, l.term = c.Start, slot.Next, slot.Pos, slot.Term
	l.edge = merkle.NewAppender(edge)
	if l.follows() {
		l.keepCheckpoint(slot, c)
		if l.broken != nil {
			return nil
		}
		return l.mendFollower(c)
	}
	if l.signer(c.Grant) != l.o.Key.Author() {
		// The head is from when another led: its checkpoint, or of what was proven by it.
		// What comes is signed in a term of this node's own.
		l.cert = l.signed(slot.Note, c)
		if l.broken != nil {
			return nil
		}
		return l.mendFollower(c)
	}
	note := slot.Note
	if signed, err := merkle.OpenCheckpoint(note, l.o.Key.Author()); err != nil || signed != c {
		// The crash came between the head's sync and the signature: the same bytes
		// get the same signature.
		if note, err = merkle.SignCheckpoint(l.o.Key, c); err != nil {
			return fmt.Errorf("sign the recovered head: %w", err)
		}
	}
	l.cert = Certified{c, note}
	if l.broken != nil {
		return nil
	}
	return l.mendLeaves(c)
}

func (l *Log) closeFiles() error {
	return l.seg.Close()
}
